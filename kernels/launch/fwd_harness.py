"""A built library of fwd, paged or split-KV from Python: the C ABI of kernels/include_fwd/ckpm_fwd.h through ctypes.

As kernels/launch/harness.py for batch prefill: a ``libamdhip64.so`` must be loaded with ``ctypes.RTLD_GLOBAL`` first.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels.launch.c_abi import CheckedProblem, Signature, fields, kernel_names, opened
from kernels.launch.harness import Status

ABI_VERSION = 1
_MESSAGE_BYTES = 1024


# struct ckpm_fwd_problem: names by C type, in the header's order and grouping
FIELDS = fields(
    [
        (ctypes.c_uint32, "struct_bytes abi_version"),
        (ctypes.c_char * 16, "data_type"),
        (ctypes.c_void_p, "q k v bias rand_val lse o seqstart_q seqstart_k seqlen_q_ptr seqlen_k_ptr"),
        (ctypes.c_void_p, "cu_seqlen_q cu_seqlen_k lse_acc o_acc block_table cache_batch_idx stream"),
        (ctypes.c_uint64, "dropout_seed dropout_offset"),
        (ctypes.c_int32, "seqlen_q seqlen_k batch max_seqlen_q hdim_q hdim_v nhead_q nhead_k"),
        (ctypes.c_int32, "stride_q stride_k stride_v stride_bias stride_randval stride_o stride_o_acc"),
        (ctypes.c_int32, "nhead_stride_q nhead_stride_k nhead_stride_v nhead_stride_bias nhead_stride_randval"),
        (ctypes.c_int32, "nhead_stride_lse nhead_stride_o nhead_stride_lse_acc nhead_stride_o_acc"),
        (ctypes.c_int32, "batch_stride_q batch_stride_k batch_stride_v batch_stride_bias batch_stride_randval"),
        (ctypes.c_int32, "batch_stride_lse batch_stride_o batch_stride_lse_acc batch_stride_o_acc"),
        (ctypes.c_int32, "split_stride_lse_acc split_stride_o_acc"),
        (ctypes.c_int32, "num_splits batch_stride_block_table page_block_size is_gappy"),
        (ctypes.c_int32, "mask_type window_left window_right min_seqlen_q bias_type"),
        (ctypes.c_int32, "is_group_mode is_v_rowmajor has_logits_soft_cap has_lse has_dropout"),
        (ctypes.c_int32, "do_fp8_static_quant skip_min_seqlen_q store_randval"),
        (ctypes.c_float, "scale_s scale_p scale_o logits_soft_cap p_drop"),
        (ctypes.c_int32, "warmup repeat"),
    ]
)


class FwdProblem(CheckedProblem):
    """One launch: ``FwdProblem(data_type="bf16", q=address, ...)``."""

    START = "ckpm_fwd"
    VERSION = ABI_VERSION
    _fields_ = FIELDS


@dataclass(frozen=True, slots=True, kw_only=True)
class FwdLaunch:
    """How a launch ended. ``kernels`` are what was chosen: one, or one of split-KV and its combine kernel."""

    status: Status
    message: str
    kernels: tuple[str, ...]
    milliseconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FwdLibrary:
    """A loaded library; ``family`` is its name in kernels/families/renderable.py, ``kernels`` are in dispatch order.

    ``calls`` are the functions of its C ABI, by their names without the start.
    """

    path: Path
    family: str
    dialect: str
    kernels: tuple[str, ...]
    calls: Mapping[str, Any]

    def launch(self, problem: CheckedProblem) -> FwdLaunch:
        """Launch what dispatch chooses for ``problem``. A refusal is an outcome: see the result's status."""
        milliseconds = ctypes.c_float(0)
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        status = self.calls["launch"](ctypes.byref(problem), ctypes.byref(milliseconds), message, _MESSAGE_BYTES)
        chosen = [self.calls["selected_kernel"](stage) for stage in (0, 1)]
        return FwdLaunch(
            status=Status(status),
            message=message.value.decode(errors="replace"),
            kernels=tuple(name.decode() for name in chosen if name),
            milliseconds=milliseconds.value,
        )


def load(path: Path, problem: type[CheckedProblem] = FwdProblem) -> FwdLibrary:
    """Open a library that ``kernels build --family fwd`` (or another family of forward kernels) made.

    ``problem`` is the struct of its C ABI.

    Raises:
        LibraryError: it can't be opened, is no such library, or has another version of the C ABI.
    """
    text = ctypes.c_char_p
    more: dict[str, Signature] = {
        "family": (text, []),
        "launch": (ctypes.c_int, [ctypes.POINTER(problem), ctypes.POINTER(ctypes.c_float), text, ctypes.c_size_t]),
        "selected_kernel": (text, [ctypes.c_int]),
    }
    _, calls = opened(path, problem, more, f"{problem.START}'s kernels")
    return FwdLibrary(
        path=path,
        family=calls["family"]().decode(),
        dialect=calls["dialect"]().decode(),
        kernels=kernel_names(calls),
        calls=calls,
    )
