"""Failures of reporting. Exit codes 40-59, one for each class."""

from __future__ import annotations

from matrix.base.errors import CkPrefillError


class FailedCasesError(CkPrefillError):
    """A results file holds cases that failed or could not be checked; the report was written nevertheless."""

    exit_code = 40


class NoManifestError(CkPrefillError):
    """There is no manifest.json where a built library was expected."""

    exit_code = 41


class ManifestError(CkPrefillError):
    """A file that is no manifest of a library: no JSON, or a field is missing or of another kind. Says which."""

    exit_code = 42


class RegressedError(CkPrefillError):
    """A gate found something worse than the accepted baseline, or outside its budget. Names kernel and metric."""

    exit_code = 43


class InconclusiveError(CkPrefillError):
    """A gate's measurements are too noisy to say whether anything changed. Never a pass."""

    exit_code = 44


class GateError(CkPrefillError):
    """A gate could not run or compare: a baseline that is missing, corrupt or of another build, a missing figure."""

    exit_code = 45


class ShardError(CkPrefillError):
    """A JUnit file of a shard that is missing, truncated, no JUnit, or empty. The message names the file."""

    exit_code = 46


class NothingToReportError(CkPrefillError):
    """A folder without any result that a report could be made of."""

    exit_code = 47


class OrphanResultsError(CkPrefillError):
    """Results of a suite beside which the library's manifest is missing."""

    exit_code = 48


class NotPassedError(CkPrefillError):
    """The report was written, and its verdict is not `passed`. The message says what keeps it from that."""

    exit_code = 49
