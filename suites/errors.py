"""Failures of a run of GPU tests. Exit codes 80-89, one for each class."""

from __future__ import annotations

from ckpm.base.errors import CkPrefillError


class CasesFailedError(CkPrefillError):
    """Cases failed, passed in spite of the ledger, or could not be run. The results are written nevertheless."""

    exit_code = 80


class NotBuiltError(CkPrefillError):
    """There is no built library of the arch and upstream. The message says which session builds it."""

    exit_code = 81


class WorkerStartError(CkPrefillError):
    """Worker processes die or hang before their first case. The message holds their last words."""

    exit_code = 82


class NothingRanError(CkPrefillError):
    """No case of the suite could be run by this library, or no case has such a name: that is no success."""

    exit_code = 83


class WrongLibraryError(CkPrefillError):
    """A library of another arch or upstream than was asked for, or one that disagrees with its manifest."""

    exit_code = 84


class MutantsSurvivedError(CkPrefillError):
    """The tests detected too few of the planted defects (tests/mutants)."""

    exit_code = 85


class RefusedError(CkPrefillError):
    """A worker said that it can't start, and why: its message and exit code are those of the error that it met."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code
