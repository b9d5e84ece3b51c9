"""A built library from Python: the C ABI of kernels/include/ckpm.h through ctypes.

``load(path)`` opens a library, ``Library.launch(problem)`` launches a kernel. The library leaves its HIP symbols open:
load a ``libamdhip64.so`` (a GPU's or an emulator's) with ``ctypes.RTLD_GLOBAL`` first.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

from kernels.launch.c_abi import CheckedProblem, Signature, fields, kernel_names, opened

ABI_VERSION = 1
_MESSAGE_BYTES = 1024


class Status(IntEnum):
    """How a launch ended: enum ckpm_status."""

    OK = 0
    UNSUPPORTED = 1
    BAD_PROBLEM = 2
    NO_KERNEL = 3
    HIP_ERROR = 4
    EXCEPTION = 5


class Mask(IntEnum):
    NONE = 0
    TOP_LEFT = 1
    BOTTOM_RIGHT = 2
    WINDOW = 3


class Bias(IntEnum):
    NONE = 0
    ELEMENTWISE = 1
    ALIBI = 2


class QScale(IntEnum):
    NONE = 0
    PERTENSOR = 1
    KV_BLOCKSCALE = 2


class KvLayout(IntEnum):
    LINEAR = 0
    VECTORIZED = 1


class KvTable(IntEnum):
    SGLANG_1D = 0
    VLLM_2D = 1


# struct ckpm_problem: names by C type, in the header's order and grouping
FIELDS = fields(
    [
        (ctypes.c_uint32, "struct_bytes abi_version"),
        (ctypes.c_char * 16, "data_type"),
        (ctypes.c_void_p, "q k v bias q_descale k_descale v_descale rand_val lse o seqstart_q sink"),
        (ctypes.c_void_p, "kv_indptr kv_page_indices kv_last_page_lens seqlen_k_ptr stream"),
        (ctypes.c_uint64, "dropout_seed dropout_offset"),
        (ctypes.c_int32, "seqlen_q seqlen_k batch max_seqlen_q"),
        (ctypes.c_int32, "hdim_q hdim_v nhead_q nhead_k"),
        (ctypes.c_int32, "num_total_pages page_size kv_layout kv_table batch_stride_block_table"),
        (ctypes.c_int32, "stride_q stride_k stride_v stride_bias stride_randval stride_o"),
        (ctypes.c_int32, "nhead_stride_q nhead_stride_k nhead_stride_v nhead_stride_bias nhead_stride_randval"),
        (ctypes.c_int32, "nhead_stride_lse nhead_stride_o"),
        (ctypes.c_int32, "batch_stride_q batch_stride_k batch_stride_v batch_stride_bias batch_stride_randval"),
        (ctypes.c_int32, "batch_stride_lse batch_stride_o"),
        (ctypes.c_int32, "mask_type window_left window_right sink_size"),
        (ctypes.c_int32, "bias_type qscale_type"),
        (ctypes.c_int32, "block_stride_kv_descale nhead_stride_kv_descale"),
        (ctypes.c_int32, "is_group_mode is_v_rowmajor has_logits_soft_cap has_lse has_dropout has_sink store_randval"),
        (ctypes.c_float, "scale_s scale_p scale_o logits_soft_cap p_drop"),
        (ctypes.c_int32, "warmup repeat"),
    ]
)


class Problem(CheckedProblem):
    """One launch: ``Problem(data_type="bf16", q=address, ...)``. Fields not given are 0 or null; none can be set later.

    :meth:`replace` gives a changed copy.
    """

    __slots__ = ()
    START = "ckpm"
    VERSION = ABI_VERSION
    _fields_ = FIELDS

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Problem is not changed: use replace({name}=...)")

    def replace(self, **values: Any) -> Problem:
        """A copy with some fields changed."""
        return Problem(**{**self.values(), **values})

    def values(self) -> Mapping[str, Any]:
        """All fields by name; a null pointer is None, the data type text."""
        found = {name: getattr(self, name) for name, _ in FIELDS}
        return {**found, "data_type": found["data_type"].decode()}

    def __repr__(self) -> str:
        told = (f"{name}={value!r}" for name, value in self.values().items() if value)
        return f"Problem({', '.join(told)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How a launch ended. ``kernel`` is what was chosen, None if none was; ``milliseconds`` is 0 untimed."""

    status: Status
    message: str
    kernel: str | None
    milliseconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """A loaded library. ``kernels`` are its kernels' names in dispatch order."""

    path: Path
    dialect: str
    kernels: tuple[str, ...]
    abi: ctypes.CDLL

    def launch(self, problem: Problem, kernel: str | None = None) -> Launch:
        """Launch the kernel that dispatch chooses for ``problem``, or the named one, whose conditions are not asked.

        A refusal is an outcome and not an exception: see the result's status.
        """
        milliseconds = ctypes.c_float(0)
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        status = self.abi.ckpm_launch(
            ctypes.byref(problem),
            None if kernel is None else kernel.encode(),
            ctypes.byref(milliseconds),
            message,
            _MESSAGE_BYTES,
        )
        chosen = self.abi.ckpm_selected_kernel()
        return Launch(
            status=Status(status),
            message=message.value.decode(errors="replace"),
            kernel=chosen.decode() if chosen else None,
            milliseconds=milliseconds.value,
        )


def load(path: Path) -> Library:
    """Open a library that ``kernels build`` made.

    Raises:
        LibraryError: it can't be opened, is no library of ours, or has another version of the C ABI.
    """
    text = ctypes.c_char_p
    more: dict[str, Signature] = {
        "launch": (
            ctypes.c_int,
            [ctypes.POINTER(Problem), text, ctypes.POINTER(ctypes.c_float), text, ctypes.c_size_t],
        ),
        "selected_kernel": (text, []),
    }
    abi, calls = opened(path, Problem, more, "ck-prefill-matrix")
    return Library(path=path, dialect=calls["dialect"]().decode(), kernels=kernel_names(calls), abi=abi)
