"""Failures of benchmarks. Exit codes 241 and 242, one for each class."""

from __future__ import annotations

from ckpm.base.errors import CkPrefillError


class WrongNumbersError(CkPrefillError):
    """Kernels whose numbers differ from the reference, or that faulted. All others were run."""

    exit_code = 241


class NothingMeasuredError(CkPrefillError):
    """A benchmark of which no case could be run."""

    exit_code = 242
