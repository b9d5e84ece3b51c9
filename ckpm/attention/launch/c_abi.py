"""A built library through ctypes, opened by the C ABI of its struct of one launch.

The structs are in ckpm/kernels/abi.py. A library leaves its HIP symbols open: load a ``libamdhip64.so`` (a GPU's or an
emulator's) with ``ctypes.RTLD_GLOBAL`` first.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ckpm.base.errors import LibraryError
from ckpm.base.files import open_plain
from ckpm.base.trust import demand_trusted_library, why_no_program
from ckpm.kernels.abi import CheckedArguments, Status
from ckpm.kernels.library.manifest import remedy_for

Signature = tuple[Any, list[Any]]  # the result's type, the arguments' types

_MESSAGE_BYTES = 1024
_Message = ctypes.c_char * _MESSAGE_BYTES


class _Answers(threading.local):
    """Memory that a thread's launches write to; a bound launch reads it before the next one."""

    def __init__(self) -> None:
        self.milliseconds, self.message = ctypes.byref(ctypes.c_float()), _Message()


_ANSWERS = _Answers()


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """The end of a launch. ``kernels`` were chosen, one for each stage that ran; 0 milliseconds if untimed."""

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
    """A loaded library, named after its ``family``. ``kernels`` are its kernels' names in dispatch order.

    ``calls`` are the functions of its C ABI by name, without the common beginning. ``arguments`` is its struct of one
    launch.
    """

    path: Path
    family: str
    dialect: str
    kernels: tuple[str, ...]
    arguments: type[CheckedArguments]
    abi: ctypes.CDLL
    calls: Mapping[str, Any]

    def launch(self, arguments: CheckedArguments, kernel: str | None = None) -> Launch:
        """Launch the kernel that dispatch chooses, or the named kernel without a check of its conditions.

        A refusal is returned as a status, not raised.
        """
        if kernel is not None and not self.arguments.BY_NAME:
            raise TypeError(f"{self.arguments.START}_launch takes no kernel's name")
        named = (None if kernel is None else kernel.encode(),) if self.arguments.BY_NAME else ()
        milliseconds, message = ctypes.c_float(), _Message()
        status = self.calls["launch"](
            ctypes.byref(arguments), *named, ctypes.byref(milliseconds), message, _MESSAGE_BYTES
        )
        return self._read_end(status, message.value, milliseconds.value)

    def bind(self, kernel: str | None = None) -> Callable[[CheckedArguments], Launch | None]:
        """Return :meth:`launch` without a time, for callers that launch often. Its result is None if all went well."""
        named = (None if kernel is None else kernel.encode(),) if self.arguments.BY_NAME else ()
        call, byref, answers = self.calls["launch"], ctypes.byref, _ANSWERS

        def launch(arguments: CheckedArguments) -> Launch | None:
            message = answers.message
            status = call(byref(arguments), *named, answers.milliseconds, message, _MESSAGE_BYTES)
            return self._read_end(status, message.value, 0.0) if status else None

        return launch

    def selected_kernels(self) -> tuple[str, ...]:
        """Names of the kernels of this thread's last launch, one for each stage that ran."""
        stages = self.arguments.STAGES
        chosen = [self.calls["selected_kernel"](*([stage] if stages > 1 else [])) for stage in range(stages)]
        return tuple(_text(name, self.path) for name in chosen if name)

    def _read_end(self, status: int, message: bytes, milliseconds: float) -> Launch:
        try:
            ended = Status(status)
        except ValueError:
            raise LibraryError(
                f"{self.path}: damaged: a launch ended with status {status}. {remedy_for(self.path)}"
            ) from None
        return Launch(
            status=ended,
            message=message.decode(errors="replace"),
            kernels=self.selected_kernels(),
            milliseconds=milliseconds,
        )


def load(path: Path, arguments: type[CheckedArguments]) -> Library:
    """Open a library that ``ckpm build`` made. ``arguments`` is the struct of its C ABI."""
    abi, calls = _open(path, arguments)
    return Library(
        path=path,
        family=arguments.FAMILY or _text(calls["family"](), path),
        dialect=_text(calls["dialect"](), path),
        kernels=tuple(_text(calls["kernel_name"](index), path) for index in range(calls["kernel_count"]())),
        arguments=arguments,
        abi=abi,
        calls=calls,
    )


_LOADED: dict[Path, str] = {}  # the sha256 of each library of this process, which the loader returns by its path


@contextlib.contextmanager
def refuse_replacement(path: Path, sha256: str) -> Iterator[None]:
    """Refuse a library with another sha256 than this, and one that is replaced while the block loads it.

    A library that the process has loaded stays loaded. So another one at its path is refused, too.
    """
    try:
        file = open_plain(path)
    except OSError as error:
        raise LibraryError(f"{path}: it can't be read: {error}. Build it first.") from error
    with file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != sha256:
            raise LibraryError(
                f"{path}: it was replaced after it was registered: its sha256 is {digest}, and was {sha256}. Register "
                "it again, in a new process.",
                kind="mismatch",
            )
        if _LOADED.setdefault(path.absolute(), digest) != digest:
            raise LibraryError(
                f"{path}: this process has loaded another library from this path. Start a new process.", kind="mismatch"
            )
        yield
        if not os.path.samestat(path.stat(), os.fstat(file.fileno())):
            raise LibraryError(f"{path}: it was replaced while it was loaded. Start a new process.", kind="mismatch")


def _text(content: bytes | None, library: Path) -> str:
    """Decode a name that a library returns."""
    if content is None or not content.isascii():
        raise LibraryError(f"{library}: damaged: a name in it is not text. {remedy_for(library)}")
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


def _open(path: Path, arguments: type[CheckedArguments]) -> tuple[ctypes.CDLL, dict[str, Any]]:
    """A library and the functions of its C ABI with their types."""
    demand_trusted_library(path)
    try:
        abi = ctypes.CDLL(str(path.absolute()), mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        hint = " Load a libamdhip64.so with RTLD_GLOBAL first." if "undefined symbol: hip" in str(error) else ""
        if "' not found" in str(error):  # version `GLIBCXX_3.4.32' not found
            hint = " It was built on a newer system: build it again here, or run this where it was built."
        if why := why_no_program(path):
            hint = f" Move it, or build with --work in another folder: {why}."
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
            f"ours is version {arguments.VERSION} with {ctypes.sizeof(arguments)}. {remedy_for(path)}"
        )
    return abi, calls
