"""Failures of benchmarks. Exit codes 240-242, one for each class."""

from __future__ import annotations

from matrix.base.errors import CkPrefillError


class BenchmarkRecordError(CkPrefillError):
    """A file of a benchmark's results that can't be read, is damaged, or is of another run."""

    exit_code = 240


class WrongNumbersError(CkPrefillError):
    """Kernels whose numbers differ from the reference, or that faulted. All others were run."""

    exit_code = 241


class NothingMeasuredError(CkPrefillError):
    """A benchmark of which no case could be run."""

    exit_code = 242
