"""Failures of reporting. Exit codes 40-59, one for each class."""

from __future__ import annotations

from matrix.errors import CkPrefillError


class FailedCasesError(CkPrefillError):
    """A results file holds cases that failed or could not be checked; the report was written nevertheless."""

    exit_code = 40


class NoManifestError(CkPrefillError):
    """There is no manifest.json where a built library was expected."""

    exit_code = 41


class ManifestError(CkPrefillError):
    """A file that is no manifest of a library: no JSON, or a field is missing or of another kind. Says which."""

    exit_code = 42
