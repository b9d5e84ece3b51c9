"""The failures that a user can cause or fix: a class for each exit code, and subclasses for callers to catch.

A message states what happened, where (file, line, field) and what to do. `kind` is the machine-readable name of a
failure within its class: `ckpm` writes it with the exit code into the file of CKPM_FAILURES.
docs/reference/machine.md lists the exit codes.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from types import UnionType

from .display import one_line, without_passwords

_LONGEST_WORD = 120


class CkPrefillError(Exception):
    """Base of every failure that a user can cause or fix.

    `infrastructure` is True if the network or a service failed: the same command may succeed when it is repeated.
    """

    exit_code = 1
    infrastructure = False
    usual_kind = ""

    def __init__(self, message: str, *, kind: str = "") -> None:
        super().__init__(without_passwords(message))  # here, because messages are also recorded
        self.kind = kind or self.usual_kind


class UsageError(CkPrefillError):
    """A command line that cannot be carried out: an unknown option, a malformed shard, an empty selection."""

    exit_code = 2


class WhereError(UsageError):
    """A --where expression that does not parse, names an unknown field, or uses more than comparisons and logic."""


class UnknownWordError(UsageError):
    """A word that its table lacks; `kind` names the table."""

    def __init__(self, kind: str, word: str, choices: Iterable[str]) -> None:
        super().__init__(unknown_word(kind, word, choices), kind=kind)
        self.word = word

    def __reduce__(self) -> tuple[object, ...]:
        return (UsageError, (str(self),))


def unknown_word(kind: str, word: str, choices: Iterable[str]) -> str:
    """The message about a word that is not in its table, with the words that continue it, or the nearest ones."""
    return f"unknown {kind} '{one_line(word, _LONGEST_WORD)}'{nearest_and_known(word, choices)}"


def nearest_and_known(word: str, choices: Iterable[str]) -> str:
    """The end of a sentence about an unknown word, by :func:`did_you_mean`, and a sentence with all words."""
    names = [str(k) for k in choices]
    return f"{did_you_mean(word, names)} Known: {', '.join(names)}."


def did_you_mean(word: str, names: Sequence[str]) -> str:
    """The end of a sentence about an unknown word: the names that continue it, or the nearest one; else a full stop."""
    longer = [name for name in names if name.startswith((f"{word}_", f"{word}-"))]
    close = difflib.get_close_matches(word, longer, n=3, cutoff=0)
    if not close:  # dashes of options make any two of them alike
        bare = {name.lstrip("-"): name for name in names}
        close = [bare[name] for name in difflib.get_close_matches(word.lstrip("-"), bare, n=1, cutoff=0.65)]
    return f"; did you mean {_either(close)}?" if close else "."


def _either(suggestions: Sequence[str]) -> str:
    *first, last = (f"'{word}'" for word in suggestions)
    return f"{', '.join(first)} or {last}" if first else last


class InputError(CkPrefillError):
    """A file or an argument that cannot be used as it is."""

    exit_code = 3


class TableError(InputError):
    """A YAML table that can't be read or contains something impossible. The message starts with file:line: field."""


class RecordError(InputError):
    """A JSON record of an earlier step that can't be read, or that another version wrote."""


class NameSyntaxError(InputError):
    """A kernel name that the dialect's grammar can't parse, or a name outside the matrix."""


class CodeObjectError(InputError):
    """A file without a readable code object for the arch."""


class ProblemError(InputError):
    """A problem whose sizes, page ids or layout contradict one another, or that is not in the tables."""


class ArgumentError(ProblemError):
    """An argument of a wrong type, or an array that does not fit its argument: shape, dtype, device, layout."""


class DefectWarning(UserWarning):
    """A known defect of a kernel that some contents of the caller's memory meet (`keep` in matrix/ledger.yaml)."""


class SetupError(CkPrefillError):
    """A toolchain, upstream, package or engine that is missing here or does not fit."""

    exit_code = 4


class UpstreamError(SetupError):
    """An upstream's codegen that can't be run, or C++ text of it that can't be read."""


class CompileError(CkPrefillError):
    """A compiler, linker or image build that failed; the message contains its output."""

    exit_code = 5


class LibraryError(CkPrefillError):
    """A library that is missing, damaged or another one than its manifest describes."""

    exit_code = 6


class NoKernelError(LibraryError):
    """None of the kernels serves the problem."""


class DeviceError(CkPrefillError):
    """A device that can't be used, or a launch that failed."""

    exit_code = 7

    def __init__(self, message: str, error: int = 999, *, kind: str = "") -> None:
        super().__init__(message, kind=kind)
        self.error = error  # HIP's error code


class HipError(DeviceError):
    """A HIP function that returned an error."""


class LaunchError(DeviceError):
    """A kernel that refused its arguments, or a launch that failed."""


class CheckFailedError(CkPrefillError):
    """A check that found a defect: wrong results, a regression, a difference from upstream."""

    exit_code = 8


class InconclusiveError(CkPrefillError):
    """A check that could not be made, or whose figures allow no verdict."""

    exit_code = 9


class GateError(InconclusiveError):
    """A gate without figures that can be compared."""

    usual_kind = "gate"


class MeasureError(InconclusiveError):
    """A measurement or a model that can't be made."""

    usual_kind = "measure"


class OutputError(CkPrefillError):
    """A result that can't be written: no permission, a file where a folder is needed, a device that refuses."""

    exit_code = 10


class DiskFullError(OutputError):
    """A result, build output or cache entry that can't be written because the disk is full."""


class TrustError(CkPrefillError):
    """A file that must not be used: writable by others, a wrong sha256, a signature that does not fit."""

    exit_code = 11


class ServiceError(CkPrefillError):
    """A network, registry, scheduler or process limit that failed; the same command may succeed later."""

    exit_code = 12
    infrastructure = True


class ProcessLimitError(ServiceError):
    """The system starts no further process or thread."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}: the system allows no further process (ulimit -u; pids.max of a container). Allow more, or take "
            "fewer at once with -j.",
            kind="processes",
        )


class MemoryLimitError(ServiceError):
    """The system gives this process no more memory."""

    def __init__(self) -> None:
        super().__init__(
            "there is not enough memory for this (the machine's, a container's limit, or ulimit -v). Allow more, or "
            "take less at once: -j 1, or fewer kernels or cases.",
            kind="memory",
        )


class UnsignedError(CkPrefillError):
    """A bundle in order whose signer is unknown: it has no signature, or no allowed signers were named."""

    exit_code = 13


class RefusedError(CkPrefillError):
    """A worker that could not start; message and exit code are those of the error in the worker."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def demand_type(name: str, value: object, kinds: type | UnionType | tuple[type, ...], wanted: str) -> None:
    """Refuse an argument of another type. ``wanted`` names what to give."""
    if isinstance(value, kinds):
        return
    text = repr(value) if isinstance(value, int | float | str | bytes | tuple | list | dict | None) else ""
    shown = text if 0 < len(text) <= _LONGEST_WORD // 2 else f"of type {type(value).__name__}"
    raise ArgumentError(f"{name} is {shown}: give {wanted}.", kind="type")
