"""Failures of the guard over Triton kernels. Exit codes 230-239, one for each class."""

from __future__ import annotations

from ckpm.base.errors import CkPrefillError


class TritonMissingError(CkPrefillError):
    """Triton is not installed here. The message holds the command that installs it."""

    exit_code = 230


class KernelFileError(CkPrefillError):
    """A file or function that should be a Triton kernel and is none, or a kernel that the table describes wrongly."""

    exit_code = 231


class OverBudgetError(CkPrefillError):
    """No configuration of a kernel fits its budget, or one fits that has to break it. Names each with the reason."""

    exit_code = 232


class UnacceptedError(CkPrefillError):
    """Figures that are not the accepted ones, better or worse, new or gone. The message lists them."""

    exit_code = 233


class AcceptedFileError(CkPrefillError):
    """A file of accepted figures that can't be read as one. Names file and field."""

    exit_code = 234


class SignatureError(CkPrefillError):
    """Types or constants of a kernel's arguments are missing, or said of what it has not. Names them all."""

    exit_code = 235
