"""What the C ABIs of built libraries share: a checked struct of one launch, and a library opened with typed functions.

harness.py (ckpm.h), fwd_harness.py (ckpm_fwd.h) and appendkv_harness.py (ckpm_appendkv.h) say what each adds.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from kernels.errors import LibraryError

Fields = tuple[tuple[str, Any], ...]
Signature = tuple[Any, list[Any]]  # the result's type, the arguments' types

_UNSIGNED = (ctypes.c_uint32, ctypes.c_uint64)


def fields(groups: Sequence[tuple[Any, str]]) -> Fields:
    """A struct's fields from (C type, names separated by spaces), in the header's order."""
    return tuple((name, kind) for kind, names in groups for name in names.split())


class CheckedProblem(ctypes.Structure):
    """A header's struct of one launch. ``START`` is what its functions begin with, ``VERSION`` its ABI's.

    Pointers are device addresses, strides count elements. Fields not given are 0 or null.

    Raises:
        TypeError: a field that doesn't exist.
        OverflowError: an integer, or the data type's name, that doesn't fit its field (ctypes would cut it silently).
    """

    __slots__ = ()
    START: ClassVar[str]
    VERSION: ClassVar[int]

    def __init__(self, **values: Any) -> None:
        super().__init__()
        kinds = {field[0]: field[1] for field in self._fields_}
        known = {"struct_bytes": ctypes.sizeof(type(self)), "abi_version": self.VERSION, **values}
        for name, value in known.items():
            if name not in kinds:
                raise TypeError(f"{self.START}_problem has no field '{name}'")
            ctypes.Structure.__setattr__(self, name, _fitting(name, value, kinds[name]))


def _fitting(name: str, value: Any, kind: Any) -> Any:
    """The value as its field takes it. Raises OverflowError."""
    if name == "data_type":
        encoded = value.encode()
        if len(encoded) > 15:
            raise OverflowError(f"data_type '{value}' is longer than 15 bytes")
        return encoded
    if kind is ctypes.c_int32 or kind in _UNSIGNED:
        bits = 8 * ctypes.sizeof(kind)
        low, high = (-(1 << (bits - 1)), 1 << (bits - 1)) if kind is ctypes.c_int32 else (0, 1 << bits)
        if not low <= value < high:
            raise OverflowError(f"{name} = {value} does not fit {kind.__name__.removeprefix('c_')}")
    return value


def opened(
    path: Path, problem: type[CheckedProblem], more: Mapping[str, Signature], what: str
) -> tuple[ctypes.CDLL, dict[str, Any]]:
    """A library and the functions of its C ABI with their types, by their names without ``problem.START``.

    ``more`` are the functions beside those that every header has; ``what`` says what no such library is.

    Raises:
        LibraryError: it can't be opened, lacks a function, or has another version of the C ABI.
    """
    text, number = ctypes.c_char_p, ctypes.c_int
    signatures: dict[str, Signature] = {
        "abi_version": (number, []),
        "problem_bytes": (ctypes.c_size_t, []),
        "dialect": (text, []),
        "kernel_count": (number, []),
        "kernel_name": (text, [number]),
        **more,
    }
    try:
        abi = ctypes.CDLL(str(path.absolute()), mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        hint = " Load a libamdhip64.so with RTLD_GLOBAL first." if "undefined symbol: hip" in str(error) else ""
        raise LibraryError(f"{path}: it can't be loaded: {error}.{hint}") from error
    calls = {}
    try:
        for name, (result, arguments) in signatures.items():
            calls[name] = getattr(abi, f"{problem.START}_{name}")
            calls[name].restype, calls[name].argtypes = result, arguments
    except AttributeError as error:
        raise LibraryError(f"{path}: no library of {what}: {error}.") from error
    version, size = calls["abi_version"](), calls["problem_bytes"]()
    if (version, size) != (problem.VERSION, ctypes.sizeof(problem)):
        raise LibraryError(
            f"{path}: its C ABI is version {version} with a problem of {size} bytes, "
            f"ours is version {problem.VERSION} with {ctypes.sizeof(problem)}. Build it anew with this checkout."
        )
    return abi, calls


def kernel_names(calls: Mapping[str, Any]) -> tuple[str, ...]:
    """Of an opened library, in dispatch order."""
    return tuple(calls["kernel_name"](index).decode() for index in range(calls["kernel_count"]()))
