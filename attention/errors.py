"""Failures of dispatching: problems, arrays, registries, launches, tuning. Exit codes 200-219, one for each class.

Codes from 129 to 192 would read as signals of a shell's child.
"""

from __future__ import annotations

from ckpm.base.errors import CkPrefillError


class InvalidProblemError(CkPrefillError):
    """A problem that breaks a rule or contradicts itself. The message has a line for each complaint."""

    exit_code = 200


class DimensionError(CkPrefillError):
    """A length, count or stride that is negative, zero where nothing can be zero, or over 32 bits."""

    exit_code = 201


class OverlapError(CkPrefillError):
    """Strides that lead two elements of a tensor to one place."""

    exit_code = 202


class ShapeError(CkPrefillError):
    """An array whose shape is not what the problem, or another array, says."""

    exit_code = 203


class NullPointerError(CkPrefillError):
    """A tensor without an address where the problem needs one."""

    exit_code = 204


class DtypeError(CkPrefillError):
    """An array of another dtype than the problem's, or of one that no kernel reads."""

    exit_code = 205


class WrongDeviceError(CkPrefillError):
    """Arrays of different places, or of a device that the dispatcher's is not."""

    exit_code = 206


class ReadOnlyError(CkPrefillError):
    """An output array that can't be written."""

    exit_code = 207


class NotContiguousError(CkPrefillError):
    """An array whose elements of a head are not one behind another."""

    exit_code = 208


class RegistryError(CkPrefillError):
    """A registry file that can't be read or lacks a field. The message names file and field."""

    exit_code = 209


class RegistryVersionError(CkPrefillError):
    """A registry file of another version."""

    exit_code = 210


class UnknownKernelError(CkPrefillError):
    """A kernel, or a value of a kernel set, that the matrix or the registry doesn't have."""

    exit_code = 211


class DuplicateKernelError(CkPrefillError):
    """A kernel that is registered already."""

    exit_code = 212


class NoKernelError(CkPrefillError):
    """No registered kernel serves the problem. The message says what is missing."""

    exit_code = 213


class LaunchError(CkPrefillError):
    """A library refused a launch, or the launch faulted. The message is the library's or the device's."""

    exit_code = 214


class OtherKernelError(CkPrefillError):
    """A library that takes no kernel's name ran another one than was chosen."""

    exit_code = 215


class TuningLockedError(CkPrefillError):
    """A tuning database that another process holds locked."""

    exit_code = 216


class TuningCorruptError(CkPrefillError):
    """A file that is no tuning database, or a damaged one."""

    exit_code = 217


class TuningVersionError(CkPrefillError):
    """A tuning database of another schema version."""

    exit_code = 218


class HeuristicError(CkPrefillError):
    """An order that doesn't exist, or a user's heuristic that raised or returned what it was not given."""

    exit_code = 219
