"""A built library of fwd, paged or split-KV from Python: the C ABI of kernels/include_fwd/ckpm_fwd.h through ctypes.

As kernels/harness.py for batch prefill: a ``libamdhip64.so`` must be loaded with ``ctypes.RTLD_GLOBAL`` first.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels.errors import LibraryError
from kernels.harness import Status, fitting

ABI_VERSION = 1
_MESSAGE_BYTES = 1024


def _table() -> tuple[tuple[str, Any], ...]:
    """struct ckpm_fwd_problem: names by C type, in the header's order and grouping."""
    groups: list[tuple[Any, str]] = [
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
    return tuple((name, kind) for kind, names in groups for name in names.split())


FIELDS = _table()
_NAMES = {name for name, _ in FIELDS}
_INTEGERS = {name: kind for name, kind in FIELDS if kind in (ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int32)}


class FwdProblem(ctypes.Structure):
    """One launch: ``FwdProblem(data_type="bf16", q=address, ...)``. Fields not given are 0 or null.

    Pointers are device addresses, strides count elements.

    Raises:
        TypeError: a field that doesn't exist.
        OverflowError: an integer, or the data type's name, that doesn't fit its field.
    """

    _fields_ = FIELDS

    def __init__(self, **values: Any) -> None:
        super().__init__()
        known = {"struct_bytes": ctypes.sizeof(FwdProblem), "abi_version": ABI_VERSION, **values}
        for name, value in known.items():
            if name not in _NAMES:
                raise TypeError(f"ckpm_fwd_problem has no field '{name}'")
            setattr(self, name, fitting(name, value, _INTEGERS))


@dataclass(frozen=True, slots=True, kw_only=True)
class FwdLaunch:
    """How a launch ended. ``kernels`` are what was chosen: one, or one of split-KV and its combine kernel."""

    status: Status
    message: str
    kernels: tuple[str, ...]
    milliseconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FwdLibrary:
    """A loaded library; ``family`` is fwd, fwd_pagedkv or fwd_splitkv, ``kernels`` are named in dispatch order."""

    path: Path
    family: str
    dialect: str
    kernels: tuple[str, ...]
    abi: ctypes.CDLL

    def launch(self, problem: FwdProblem) -> FwdLaunch:
        """Launch what dispatch chooses for ``problem``. A refusal is an outcome: see the result's status."""
        milliseconds = ctypes.c_float(0)
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        status = self.abi.ckpm_fwd_launch(ctypes.byref(problem), ctypes.byref(milliseconds), message, _MESSAGE_BYTES)
        chosen = [self.abi.ckpm_fwd_selected_kernel(stage) for stage in (0, 1)]
        return FwdLaunch(
            status=Status(status),
            message=message.value.decode(errors="replace"),
            kernels=tuple(name.decode() for name in chosen if name),
            milliseconds=milliseconds.value,
        )


def load(path: Path) -> FwdLibrary:
    """Open a library that ``kernels build --family fwd`` (or another family of forward kernels) made.

    Raises:
        LibraryError: it can't be opened, is no such library, or has another version of the C ABI.
    """
    try:
        abi = ctypes.CDLL(str(path.absolute()), mode=os.RTLD_NOW | os.RTLD_LOCAL)
        _declare(abi)
    except OSError as error:
        hint = " Load a libamdhip64.so with RTLD_GLOBAL first." if "undefined symbol: hip" in str(error) else ""
        raise LibraryError(f"{path}: it can't be loaded: {error}.{hint}") from error
    except AttributeError as error:
        raise LibraryError(f"{path}: no library of fwd kernels: {error}.") from error
    version, size = abi.ckpm_fwd_abi_version(), abi.ckpm_fwd_problem_bytes()
    if (version, size) != (ABI_VERSION, ctypes.sizeof(FwdProblem)):
        raise LibraryError(
            f"{path}: its C ABI is version {version} with a problem of {size} bytes, "
            f"ours is version {ABI_VERSION} with {ctypes.sizeof(FwdProblem)}. Build it anew with this checkout."
        )
    names = [abi.ckpm_fwd_kernel_name(index) for index in range(abi.ckpm_fwd_kernel_count())]
    return FwdLibrary(
        path=path,
        family=abi.ckpm_fwd_family().decode(),
        dialect=abi.ckpm_fwd_dialect().decode(),
        kernels=tuple(name.decode() for name in names),
        abi=abi,
    )


def _declare(abi: ctypes.CDLL) -> None:
    """Give the functions of ckpm_fwd.h their types. Raises AttributeError if one is missing."""
    text, number = ctypes.c_char_p, ctypes.c_int
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "ckpm_fwd_abi_version": (number, []),
        "ckpm_fwd_problem_bytes": (ctypes.c_size_t, []),
        "ckpm_fwd_family": (text, []),
        "ckpm_fwd_dialect": (text, []),
        "ckpm_fwd_kernel_count": (number, []),
        "ckpm_fwd_kernel_name": (text, [number]),
        "ckpm_fwd_launch": (
            number,
            [ctypes.POINTER(FwdProblem), ctypes.POINTER(ctypes.c_float), text, ctypes.c_size_t],
        ),
        "ckpm_fwd_selected_kernel": (text, [number]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(abi, name)
        function.restype, function.argtypes = result, arguments
