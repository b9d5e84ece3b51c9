"""Failures of reporting. Exit codes 40-59, one for each class."""

from __future__ import annotations

from ckpm.base.errors import CkPrefillError


class FailedCasesError(CkPrefillError):
    """A results file has cases that failed or could not be checked; the report was written nevertheless."""

    exit_code = 40


class NoManifestError(CkPrefillError):
    """There is no manifest.json where a built library was expected."""

    exit_code = 41


class ManifestError(CkPrefillError):
    """A file that is not a manifest: not JSON, or a field is missing or of another kind. The message names it."""

    exit_code = 42


class RegressedError(CkPrefillError):
    """A gate found a figure worse than the baseline, or outside its budget. The message names kernel and metric."""

    exit_code = 43


class InconclusiveError(CkPrefillError):
    """A gate's measurements are too noisy for a verdict. Never a pass."""

    exit_code = 44


class GateError(CkPrefillError):
    """A gate could not run or compare: a baseline that is missing, corrupt or of another build, a missing figure."""

    exit_code = 45


class ShardError(CkPrefillError):
    """A JUnit file of a shard that is missing, truncated, not JUnit, or empty. The message names the file."""

    exit_code = 46


class NothingToReportError(CkPrefillError):
    """A folder without any result that a report could be made of."""

    exit_code = 47


class OrphanResultsError(CkPrefillError):
    """Results of a suite beside which the library's manifest is missing."""

    exit_code = 48


class NotPassedError(CkPrefillError):
    """The report was written, and its verdict is not `passed`. The message has the reasons."""

    exit_code = 49


class DirtyError(CkPrefillError):
    """A checkout or an upstream that is not as it was committed or published. The message names the files."""

    exit_code = 50


class UnpinnedImageError(CkPrefillError):
    """An image without the digest of its content: the same name may be another image tomorrow."""

    exit_code = 51


class StageFailedError(CkPrefillError):
    """The command of a stage ended with an error. The message has the command."""

    exit_code = 52


class StageRecordError(CkPrefillError):
    """A stage's record, or a file in it, that is damaged, or of another commit, library or command."""

    exit_code = 53


class MissingStageError(CkPrefillError):
    """A stage that was neither run nor taken from a shard; a release needs every stage."""

    exit_code = 54


class WaiverError(CkPrefillError):
    """Known defects without a waiver for this release, or with an expired one."""

    exit_code = 55


class BundleFileError(CkPrefillError):
    """A file of a bundle that was changed, added, renamed or removed. The message names it."""

    exit_code = 56


class SignatureError(CkPrefillError):
    """A bundle that could not be signed, or whose signature is missing, wrong, or of an unknown signer."""

    exit_code = 57


class StatementError(CkPrefillError):
    """A bundle whose provenance, SBOM, verdict or records contradict its files. The message names both."""

    exit_code = 58


class ArchiveError(CkPrefillError):
    """Not a bundle, or with names, links or archive members that a bundle can't have. The message names them."""

    exit_code = 59
