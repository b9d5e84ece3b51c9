"""Failures of a plan. Their exit codes are among those of the dispatcher, 200-219."""

from __future__ import annotations

from ckpm.base.errors import CkPrefillError


class InvalidProblemError(CkPrefillError):
    """A problem that breaks a rule or contradicts itself. The message has a line for each complaint."""

    exit_code = 200


class NullPointerError(CkPrefillError):
    """A tensor without an address where the problem needs one."""

    exit_code = 204


class LaunchError(CkPrefillError):
    """A library refused a launch, or the launch faulted. The message is the library's or the device's."""

    exit_code = 214


class OtherKernelError(CkPrefillError):
    """A library that takes no kernel's name ran another one than was chosen."""

    exit_code = 215
