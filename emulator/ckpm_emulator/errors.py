"""Failures of the emulated device. Exit codes 60-79, one for each class.

A message has the event, its place (kernel, pc, address, path) and a remedy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ckpm_emulator.faults import FaultReport


class EmulatorError(Exception):
    """Base of every failure of the emulator that a user can cause or fix."""

    exit_code = 60


class CompilerMissingError(EmulatorError):
    """No C++20 compiler was found for the interpreter's core. The message lists what was tried."""

    exit_code = 61


class CoreBuildError(EmulatorError):
    """The core didn't compile, or the built library doesn't load. The message holds the compiler's first errors."""

    exit_code = 62


class CodeObjectError(EmulatorError):
    """A code object that can't be read: truncated, stripped, of another machine, or with something unknown in it."""

    exit_code = 63


class DeviceError(EmulatorError):
    """A call on the device failed; ``error`` is the HIP error number."""

    exit_code = 64

    def __init__(self, message: str, error: int = 999) -> None:
        super().__init__(message)
        self.error = error


class OneDeviceError(EmulatorError):
    """A second device of another arch: a process has one runtime."""

    exit_code = 65


class LibraryLoadError(EmulatorError):
    """A kernel library that can't be loaded: missing, not a shared library, or with an unknown symbol."""

    exit_code = 66


class UnknownInstructionError(EmulatorError):
    """An instruction, operand or modifier that the emulator lacks. The message names it."""

    exit_code = 67


class DeviceFaultError(DeviceError):
    """A launch faulted. The device refuses work until its fault is cleared; ``fault`` has all fields."""

    exit_code = 68

    def __init__(self, fault: FaultReport) -> None:
        super().__init__(fault.message, fault.error)
        self.fault = fault


class OutputError(EmulatorError):
    """A file that the system refuses to read or write, or an output that is full."""

    exit_code = 69


class UntrustedFileError(EmulatorError):
    """Something that would be run, and that another user owns or can write to."""

    exit_code = 70


class ProgramError(EmulatorError):
    """A program to be run that isn't there, or that the system refuses to run."""

    exit_code = 71
