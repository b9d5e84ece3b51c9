"""Failures of reporting. Exit codes 40-59, one for each class."""

from __future__ import annotations

from ckpm.base.errors import CkPrefillError


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


class DirtyError(CkPrefillError):
    """A checkout or an upstream that is not as it was committed or published. The message names the files."""

    exit_code = 50


class UnpinnedImageError(CkPrefillError):
    """An image that is named without the digest of its content: tomorrow the same name may be another image."""

    exit_code = 51


class StageFailedError(CkPrefillError):
    """The command of a stage ended with an error. The message holds the command."""

    exit_code = 52


class StageRecordError(CkPrefillError):
    """A stage's record, or what it lists, that is damaged, or of another commit, library or command. Says which."""

    exit_code = 53


class MissingStageError(CkPrefillError):
    """A stage that was neither run nor taken from a shard: nothing can be released without it."""

    exit_code = 54


class WaiverError(CkPrefillError):
    """Known defects that nobody accepted for this release, or acceptances that have expired."""

    exit_code = 55


class BundleFileError(CkPrefillError):
    """A file of a bundle that was changed, added, renamed or removed. The message names it."""

    exit_code = 56


class SignatureError(CkPrefillError):
    """A bundle that could not be signed, or whose signature is missing, wrong, or by nobody who may sign."""

    exit_code = 57


class StatementError(CkPrefillError):
    """A bundle whose provenance, SBOM, verdict or records contradict its files. The message names both."""

    exit_code = 58


class ArchiveError(CkPrefillError):
    """No bundle, or one with names, links or archive members that no bundle of ours has. The message names them."""

    exit_code = 59
