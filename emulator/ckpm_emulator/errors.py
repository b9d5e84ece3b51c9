"""The failures that a user can cause or fix, a class for each exit code and for each failure that callers catch.

A message contains what happened, the file, and what to do. ``kind`` is the machine-readable name of a failure within
its class. Classes and exit codes are those of ckpm with the same names.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


class EmulatorError(Exception):
    """Base of every failure that a user can cause or fix."""

    exit_code = 1

    def __init__(self, message: str, *, kind: str = "") -> None:
        super().__init__(message)
        self.kind = kind


class UsageError(EmulatorError):
    """A command line or a variable that cannot be carried out."""

    exit_code = 2


class InputError(EmulatorError):
    """A file or an argument that cannot be used as it is."""

    exit_code = 3


class CodeObjectError(InputError):
    """A file without a readable code object for the arch."""


class SetupError(EmulatorError):
    """A compiler or a build tool that is missing here or does not fit."""

    exit_code = 4


class CompileError(EmulatorError):
    """A compiler or linker that failed; the message contains its output."""

    exit_code = 5


class LibraryError(EmulatorError):
    """A kernel library that is missing or damaged."""

    exit_code = 6


class DeviceError(EmulatorError):
    """A device that can't be used, or a launch that failed."""

    exit_code = 7

    def __init__(self, message: str, error: int = 999, *, kind: str = "") -> None:
        super().__init__(message, kind=kind)
        self.error = error  # HIP's error code


class HipError(DeviceError):
    """A function of the HIP runtime that returned an error."""


class CheckFailedError(EmulatorError):
    """A check that found a defect, such as an instruction that the emulator lacks."""

    exit_code = 8


class OutputError(EmulatorError):
    """A result that can't be written: no permission, no space, a file where a folder is needed."""

    exit_code = 10


class TrustError(EmulatorError):
    """A file that must not be used, because other users can write to it."""

    exit_code = 11


def unknown_words(kind: str, unknown: Sequence[str], names: Iterable[str]) -> DeviceError:
    """Return the error about words that are none of ``names``, with the nearest to the first."""
    choices = list(names)
    close = difflib.get_close_matches(unknown[0], choices, n=1)
    hint = f"; did you mean '{close[0]}'?" if close else "."
    return DeviceError(f"no such {kind}: {', '.join(unknown)}{hint} Known: {', '.join(choices)}.", 1)
