"""A built library from Python, through ctypes: opened by the C ABI that its struct of one launch belongs to.

harness.py (ckpm.h), fwd_harness.py (ckpm_fwd.h) and appendkv_harness.py (ckpm_appendkv.h) have the structs. A library
leaves its HIP symbols open: load a ``libamdhip64.so`` (a GPU's or an emulator's) with ``ctypes.RTLD_GLOBAL`` first.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, ClassVar

from ckpm.base.errors import LibraryError
from ckpm.base.trust import demand_trusted_library

Fields = tuple[tuple[str, Any], ...]
Signature = tuple[Any, list[Any]]  # the result's type, the arguments' types

_UNSIGNED = (ctypes.c_uint32, ctypes.c_uint64)
_MESSAGE_BYTES = 1024


class Status(IntEnum):
    """How a launch ended: enum ckpm_status."""

    OK = 0
    UNSUPPORTED = 1
    BAD_PROBLEM = 2
    NO_KERNEL = 3
    HIP_ERROR = 4
    EXCEPTION = 5


def fields(groups: Sequence[tuple[Any, str]]) -> Fields:
    """A struct's fields from (C type, names separated by spaces), in the header's order."""
    return tuple((name, kind) for kind, names in groups for name in names.split())


class CheckedArguments(ctypes.Structure):
    """A header's struct of one launch. ``START`` is what its functions begin with, ``VERSION`` its ABI's.

    ``STAGES`` are how many kernels a launch may be, each with a name of its own. ``FAMILY`` is the family of all
    libraries with this C ABI, '' if a function of theirs says it. ``BY_NAME``: a launch may name its kernel.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How a launch ended. ``kernels`` are what was chosen, one for each stage that ran; 0 milliseconds if untimed."""

    status: Status
    message: str
    kernels: tuple[str, ...]
    milliseconds: float

    @property
    def kernel(self) -> str | None:
        """The kernel that was chosen, of the first stage if there are two; None if none was."""
        return self.kernels[0] if self.kernels else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """A loaded library. ``family`` gave it its name; ``kernels`` are its kernels' names in dispatch order.

    ``calls`` are the functions of its C ABI by their names without the start, ``arguments`` its struct of one launch.
    """

    path: Path
    family: str
    dialect: str
    kernels: tuple[str, ...]
    arguments: type[CheckedArguments]
    abi: ctypes.CDLL
    calls: Mapping[str, Any]

    def launch(self, arguments: CheckedArguments, kernel: str | None = None) -> Launch:
        """Launch what dispatch chooses, or the named kernel, whose conditions are not asked.

        A refusal is an outcome and not an exception: see the result's status.

        Raises:
            TypeError: a kernel is named, and launches of this C ABI take no name.
            LibraryError: the answer is none that the C ABI has.
        """
        if kernel is not None and not self.arguments.BY_NAME:
            raise TypeError(f"{self.arguments.START}_launch takes no kernel's name")
        named = [None if kernel is None else kernel.encode()] if self.arguments.BY_NAME else []
        milliseconds = ctypes.c_float(0)
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        status = self.calls["launch"](
            ctypes.byref(arguments), *named, ctypes.byref(milliseconds), message, _MESSAGE_BYTES
        )
        stages = range(self.arguments.STAGES)
        chosen = [self.calls["selected_kernel"](*([stage] if len(stages) > 1 else [])) for stage in stages]
        if status not in tuple(Status):
            raise LibraryError(f"{self.path}: damaged: a launch ended with status {status}. Build it anew.")
        return Launch(
            status=Status(status),
            message=message.value.decode(errors="replace"),
            kernels=tuple(_text(name, self.path) for name in chosen if name),
            milliseconds=milliseconds.value,
        )


def load(path: Path, arguments: type[CheckedArguments]) -> Library:
    """Open a library that ``kernels build`` made, ``arguments`` being the struct of its C ABI.

    Raises:
        LibraryError: it can't be opened, is no such library, or has another version of the C ABI.
        UntrustedFileError: another user owns it, or can write to it or its folder.
    """
    abi, calls = _opened(path, arguments)
    return Library(
        path=path,
        family=arguments.FAMILY or _text(calls["family"](), path),
        dialect=_text(calls["dialect"](), path),
        kernels=tuple(_text(calls["kernel_name"](index), path) for index in range(calls["kernel_count"]())),
        arguments=arguments,
        abi=abi,
        calls=calls,
    )


def _text(content: bytes | None, library: Path) -> str:
    """A name that a library says. Raises LibraryError: it is none."""
    if content is None or not content.isascii():
        raise LibraryError(f"{library}: damaged: a name in it is no text. Build it anew.")
    return content.decode()


def _signatures(arguments: type[CheckedArguments]) -> dict[str, Signature]:
    text, number = ctypes.c_char_p, ctypes.c_int
    named = [text] if arguments.BY_NAME else []
    launch = [ctypes.POINTER(arguments), *named, ctypes.POINTER(ctypes.c_float), text, ctypes.c_size_t]
    return {
        "abi_version": (number, []),
        "problem_bytes": (ctypes.c_size_t, []),
        "dialect": (text, []),
        "kernel_count": (number, []),
        "kernel_name": (text, [number]),
        "launch": (number, launch),
        "selected_kernel": (text, [number] if arguments.STAGES > 1 else []),
        **({} if arguments.FAMILY else {"family": (text, [])}),
    }


def _opened(path: Path, arguments: type[CheckedArguments]) -> tuple[ctypes.CDLL, dict[str, Any]]:
    """A library and the functions of its C ABI with their types. Raises LibraryError."""
    demand_trusted_library(path)
    try:
        abi = ctypes.CDLL(str(path.absolute()), mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        hint = " Load a libamdhip64.so with RTLD_GLOBAL first." if "undefined symbol: hip" in str(error) else ""
        raise LibraryError(f"{path}: it can't be loaded: {error}.{hint}") from error
    calls = {}
    try:
        for name, (result, parameters) in _signatures(arguments).items():
            calls[name] = getattr(abi, f"{arguments.START}_{name}")
            calls[name].restype, calls[name].argtypes = result, parameters
    except AttributeError as error:
        raise LibraryError(f"{path}: no library of {arguments.START}'s kernels: {error}.") from error
    version, size = calls["abi_version"](), calls["problem_bytes"]()
    if (version, size) != (arguments.VERSION, ctypes.sizeof(arguments)):
        raise LibraryError(
            f"{path}: its C ABI is version {version} with a problem of {size} bytes, "
            f"ours is version {arguments.VERSION} with {ctypes.sizeof(arguments)}. Build it anew with this checkout."
        )
    return abi, calls
