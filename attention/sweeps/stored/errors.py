"""Failures of what a benchmark leaves. Exit code 240."""

from __future__ import annotations

from ckpm.base.errors import CkPrefillError


class BenchmarkRecordError(CkPrefillError):
    """A file of a benchmark's results that can't be read, is damaged, or is of another run."""

    exit_code = 240
