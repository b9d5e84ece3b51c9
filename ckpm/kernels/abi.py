"""The C ABIs of our libraries: their structs, numbers and versions, read from the headers of kernels/include*.

The headers are the only table: C++ includes them, and the ctypes classes of this module are made from them. Templates
that refuse fields read these classes.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator, Mapping
from enum import IntEnum
from functools import cache
from typing import Any, ClassVar, Self

from ckpm.base.paths import data

_FOLDER = data("kernels")
_HEADERS = {
    "ckpm": "include/ckpm.h",
    "ckpm_fwd": "include_fwd/ckpm_fwd.h",
    "ckpm_appendkv": "include_fwd/ckpm_appendkv.h",
    "ckpm_bwd": "include_bwd/ckpm_bwd.h",
}
_TYPES: Mapping[str, Any] = {
    "uint32_t": ctypes.c_uint32, "uint64_t": ctypes.c_uint64, "int32_t": ctypes.c_int32, "float": ctypes.c_float,
    "char": ctypes.c_char,
}  # fmt: skip
V3_SWITCH = "CKPM_V3"  # the variable that each launch reads, 0 without V3 (templates/dispatch.hip.j2)
_UNSIGNED = (ctypes.c_uint32, ctypes.c_uint64)


@cache
def _text(start: str) -> str:
    """A header without its comments."""
    return re.sub(r"/\*.*?\*/", "", (_FOLDER / _HEADERS[start]).read_text(encoding="utf-8"), flags=re.DOTALL)


def _version(start: str) -> int:
    match = re.search(rf"#define {start.upper()}_ABI_VERSION (\d+)", _text(start))
    assert match, f"{_HEADERS[start]} has no version"
    return int(match[1])


def _fields(start: str) -> Iterator[tuple[str, Any]]:
    """The struct of one launch: names and ctypes types in the header's order."""
    match = re.search(rf"typedef struct {start}_problem\s*\{{(.*?)\}}", _text(start), re.DOTALL)
    assert match, f"{_HEADERS[start]} has no struct"
    for declaration in filter(str.strip, match[1].split(";")):
        parts = re.fullmatch(r"\s*(?:const\s+)?(\w+)(\*?)\s+(.*)", declaration, re.DOTALL)
        assert parts, f"{_HEADERS[start]}: {declaration.strip()}"
        for name in (declarator.strip() for declarator in parts[3].split(",")):
            plain, _, length = name.rstrip("]").partition("[")
            kind = ctypes.c_void_p if parts[2] else _TYPES[parts[1]]
            yield plain, kind * int(length) if length else kind


def _enumerators(name: str, prefix: str) -> dict[str, int]:
    """The numbers of an enumeration of ckpm.h, by names without their prefix."""
    match = re.search(rf"enum {name}\s*\{{(.*?)\}}", _text("ckpm"), re.DOTALL)
    assert match, f"{_HEADERS['ckpm']} has no {name}"
    return {enumerator: int(number) for enumerator, number in re.findall(rf"{prefix}(\w+)\s*=\s*(\d+)", match[1])}


def _numbers(name: str, enumeration: str, prefix: str) -> Any:
    return IntEnum(name, _enumerators(enumeration, prefix))


_STATUS = _enumerators("ckpm_status", "CKPM_")


class Status(IntEnum):
    """The end of a launch: enum ckpm_status."""

    OK = _STATUS["OK"]
    UNSUPPORTED = _STATUS["UNSUPPORTED"]
    BAD_PROBLEM = _STATUS["BAD_PROBLEM"]
    NO_KERNEL = _STATUS["NO_KERNEL"]
    HIP_ERROR = _STATUS["HIP_ERROR"]
    EXCEPTION = _STATUS["EXCEPTION"]


# What the fields mask_type, bias_type, qscale_type, kv_layout and kv_table may hold
Mask = _numbers("Mask", "ckpm_mask", "CKPM_MASK_")
Bias = _numbers("Bias", "ckpm_bias", "CKPM_BIAS_")
QScale = _numbers("QScale", "ckpm_qscale", "CKPM_QSCALE_")
KvLayout = _numbers("KvLayout", "ckpm_kv_layout", "CKPM_KV_")
KvTable = _numbers("KvTable", "ckpm_kv_table", "CKPM_TABLE_")


class CheckedArguments(ctypes.Structure):
    """A header's struct of one launch. ``START`` is the beginning of its functions' names, ``VERSION`` its ABI's.

    ``STAGES`` is the largest number of kernels of a launch. ``FAMILY`` is the family of all libraries with this C ABI,
    '' if a function of each library returns it. ``BY_NAME``: a launch may name its kernel.

    Pointers are device addresses, strides count elements. Fields not given are 0 or null.

    Raises:
        TypeError: a field that doesn't exist.
        OverflowError: an integer, or the data type's name, that doesn't fit its field (ctypes would cut it silently).
    """

    __slots__ = ()
    START: ClassVar[str]
    VERSION: ClassVar[int]
    FAMILY: ClassVar[str] = ""
    STAGES: ClassVar[int] = 1
    BY_NAME: ClassVar[bool] = False

    def __init__(self, **values: Any) -> None:
        super().__init__()
        kinds = self.kinds()
        fields = {"struct_bytes": ctypes.sizeof(type(self)), "abi_version": self.VERSION, **values}
        for name, value in fields.items():
            if name not in kinds:
                raise TypeError(f"{self.START}_problem has no field '{name}'")
            ctypes.Structure.__setattr__(self, name, _field_value(name, value, kinds[name]))

    @classmethod
    def kinds(cls) -> dict[str, Any]:
        """The ctypes type of each field, in the header's order."""
        return {field[0]: field[1] for field in cls._fields_}

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"arguments are not changed: use replace({name}=...)")

    def replace(self, **values: Any) -> Self:
        """A copy with some fields changed."""
        return type(self)(**{**self.values(), **values})

    def values(self) -> Mapping[str, Any]:
        """All fields by name; a null pointer is None, the data type text."""
        values = {name: getattr(self, name) for name in self.kinds()}
        return {**values, "data_type": values["data_type"].decode()}

    def __repr__(self) -> str:
        arguments = (f"{name}={value!r}" for name, value in self.values().items() if value)
        return f"{type(self).__name__}({', '.join(arguments)})"


def _field_value(name: str, value: Any, kind: Any) -> Any:
    """The value in the form that its field takes."""
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


class LaunchArguments(CheckedArguments):
    """One launch of batch prefill: ``LaunchArguments(data_type="bf16", q=address, ...)``."""

    __slots__ = ()
    START = "ckpm"
    VERSION = _version(START)
    FAMILY = "batch_prefill"
    BY_NAME = True
    _fields_ = tuple(_fields(START))


class FwdArguments(CheckedArguments):
    """One launch of fwd, paged, split-KV or V3."""

    __slots__ = ()
    START = "ckpm_fwd"
    VERSION = _version(START)
    STAGES = 2  # split-KV and its combine stage
    _fields_ = tuple(_fields(START))


class AppendKvArguments(CheckedArguments):
    """One launch of append-KV."""

    __slots__ = ()
    START = "ckpm_appendkv"
    VERSION = _version(START)
    STAGES = 2  # as ckpm_fwd.h, though there is one
    _fields_ = tuple(_fields(START))


class BwdArguments(CheckedArguments):
    """One backward pass."""

    __slots__ = ()
    START = "ckpm_bwd"
    VERSION = _version(START)
    STAGES = 3  # dot_do_o, dq_dk_dv, convert_dq
    _fields_ = tuple(_fields(START))
