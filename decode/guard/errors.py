"""Failures of the guard over Triton kernels. Exit codes 230-239, one for each class."""

from __future__ import annotations

from ckpm.base.errors import CkPrefillError


class TritonMissingError(CkPrefillError):
    """Triton is not installed here. The message has the command that installs it."""

    exit_code = 230


class KernelFileError(CkPrefillError):
    """A file or function that is not a Triton kernel, or a kernel that the table describes wrongly."""

    exit_code = 231


class OverBudgetError(CkPrefillError):
    """No configuration of a kernel fits its budget, or a bad example fits. The message names each with the reason."""

    exit_code = 232


class UnacceptedError(CkPrefillError):
    """Figures that differ from the accepted ones: better, worse, new or gone. The message lists them."""

    exit_code = 233


class AcceptedFileError(CkPrefillError):
    """A file of accepted figures that can't be read. Names file and field."""

    exit_code = 234


class SignatureError(CkPrefillError):
    """Types or constants of a kernel's arguments are missing, or name no argument. The message names them all."""

    exit_code = 235
