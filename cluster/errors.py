"""Failures of many machines. Exit codes 110 to 119, one for each class.

A unit that a worker's compiler refuses is CompileError (21), as on one machine.
"""

from __future__ import annotations

from ckpm.base.errors import CkPrefillError


class PackagesMissingError(CkPrefillError):
    """Dask or dask-jobqueue is not installed. The message has the command that installs them."""

    exit_code = 110


class SchedulerError(CkPrefillError):
    """No Dask scheduler answers at an address, or the scheduler ended during the command."""

    exit_code = 111
    infrastructure = True


class NoWorkersError(CkPrefillError):
    """A scheduler has no suitable worker, or all its workers have gone."""

    exit_code = 112
    infrastructure = True


class ForeignWorkerError(CkPrefillError):
    """A worker has another commit, toolchain, upstream or library than the client."""

    exit_code = 113


class WorkersKilledError(CkPrefillError):
    """Several workers died during one unit or case, which is not tried again."""

    exit_code = 114


class SlurmError(CkPrefillError):
    """Slurm is missing or refuses a job. The message has the output of sbatch."""

    exit_code = 115
    infrastructure = True


class WorkerFailedError(CkPrefillError):
    """A worker failed: its disk is full, it lacks the upstream, or this program has a defect."""

    exit_code = 116
