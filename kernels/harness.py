"""A built library from Python: the C ABI of kernels/include/ckpm.h through ctypes.

``load(path)`` opens a library, ``Library.launch(problem)`` launches a kernel. The library leaves its HIP symbols open:
load a ``libamdhip64.so`` (a GPU's or an emulator's) with ``ctypes.RTLD_GLOBAL`` first.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

from kernels.errors import LibraryError

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


def _table() -> tuple[tuple[str, Any], ...]:
    """struct ckpm_problem: names by C type, in the header's order and grouping."""
    groups: list[tuple[Any, str]] = [
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
    return tuple((name, kind) for kind, names in groups for name in names.split())


FIELDS = _table()
_INTEGERS = {name: kind for name, kind in FIELDS if kind in (ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int32)}


class Problem(ctypes.Structure):
    """One launch: ``Problem(data_type="bf16", q=address, ...)``. Fields not given are 0 or null; none can be set later.

    Pointers are device addresses, strides count elements. :meth:`replace` gives a changed copy.

    Raises:
        TypeError: a field that doesn't exist.
        OverflowError: an integer, or the data type's name, that doesn't fit its field (ctypes would cut it silently).
    """

    __slots__ = ()
    _fields_ = FIELDS

    def __init__(self, **values: Any) -> None:
        super().__init__()
        known = {"struct_bytes": ctypes.sizeof(Problem), "abi_version": ABI_VERSION, **values}
        for name, value in known.items():
            if name not in _NAMES:
                raise TypeError(f"ckpm_problem has no field '{name}'")
            super().__setattr__(name, fitting(name, value, _INTEGERS))

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


_NAMES = {name for name, _ in FIELDS}


def fitting(name: str, value: Any, integers: Mapping[str, Any]) -> Any:
    """The value as its field takes it; ``integers``: C types of the integer fields. Raises OverflowError."""
    if name == "data_type":
        encoded = value.encode()
        if len(encoded) > 15:
            raise OverflowError(f"data_type '{value}' is longer than 15 bytes")
        return encoded
    if kind := integers.get(name):
        bits = 8 * ctypes.sizeof(kind)
        low, high = (-(1 << (bits - 1)), 1 << (bits - 1)) if kind is ctypes.c_int32 else (0, 1 << bits)
        if not low <= value < high:
            raise OverflowError(f"{name} = {value} does not fit {kind.__name__.removeprefix('c_')}")
    return value


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
    try:
        abi = ctypes.CDLL(str(path.absolute()), mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        hint = " Load a libamdhip64.so with RTLD_GLOBAL first." if "undefined symbol: hip" in str(error) else ""
        raise LibraryError(f"{path}: it can't be loaded: {error}.{hint}") from error
    try:
        _declare(abi)
    except AttributeError as error:
        raise LibraryError(f"{path}: no library of ck-prefill-matrix: {error}.") from error
    version, size = abi.ckpm_abi_version(), abi.ckpm_problem_bytes()
    if (version, size) != (ABI_VERSION, ctypes.sizeof(Problem)):
        raise LibraryError(
            f"{path}: its C ABI is version {version} with a problem of {size} bytes, "
            f"ours is version {ABI_VERSION} with {ctypes.sizeof(Problem)}. Build it anew with this checkout."
        )
    names = [abi.ckpm_kernel_name(index) for index in range(abi.ckpm_kernel_count())]
    return Library(
        path=path, dialect=abi.ckpm_dialect().decode(), kernels=tuple(name.decode() for name in names), abi=abi
    )


def _declare(abi: ctypes.CDLL) -> None:
    """Give the functions of ckpm.h their types. Raises AttributeError if one is missing."""
    text, number = ctypes.c_char_p, ctypes.c_int
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "ckpm_abi_version": (number, []),
        "ckpm_problem_bytes": (ctypes.c_size_t, []),
        "ckpm_dialect": (text, []),
        "ckpm_kernel_count": (number, []),
        "ckpm_kernel_name": (text, [number]),
        "ckpm_launch": (
            number,
            [ctypes.POINTER(Problem), text, ctypes.POINTER(ctypes.c_float), text, ctypes.c_size_t],
        ),
        "ckpm_selected_kernel": (text, []),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(abi, name)
        function.restype, function.argtypes = result, arguments
