"""Failures of many machines. Exit codes 110-119, one for each class. None but ``ForeignWorkerError`` is about kernels.

A unit that a worker's compiler refuses is CompileError (21), as on one machine.
"""

from __future__ import annotations

from ckpm.base.errors import CkPrefillError


class PackagesMissingError(CkPrefillError):
    """Dask or dask-jobqueue is not installed here. The message holds the command that installs them."""

    exit_code = 110


class SchedulerError(CkPrefillError):
    """No Dask scheduler answers at an address, or it went away in the middle."""

    exit_code = 111
    infrastructure = True


class NoWorkersError(CkPrefillError):
    """A scheduler without a worker that can do what is asked for, or whose workers have all gone."""

    exit_code = 112
    infrastructure = True


class ForeignWorkerError(CkPrefillError):
    """A worker of another commit, toolchain or upstream than the client, or that sees another library."""

    exit_code = 113


class WorkersKilledError(CkPrefillError):
    """A unit or case whose workers died one after the other: it is not tried on yet another one."""

    exit_code = 114


class SlurmError(CkPrefillError):
    """Slurm is not there or takes no job. The message holds what sbatch said."""

    exit_code = 115
    infrastructure = True


class WorkerFailedError(CkPrefillError):
    """A worker could not do its part: its disk is full, it lacks the upstream, or this program is mistaken there."""

    exit_code = 116
