"""Workers as jobs of Slurm, by dask-jobqueue, for as long as one command runs."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ckpm.base.console import number
from ckpm.base.jobs import UNIT_BYTES
from ckpm.cluster.connection import GPU, Say
from ckpm.cluster.credentials import forget, make
from ckpm.cluster.errors import SlurmError
from ckpm.cluster.identity import PROJECT
from ckpm.cluster.site import Site

_LOG_LINES = 15  # of a job that ended at once
_PASSED_ON = ("CKPM_CACHE", "XDG_CACHE_HOME", "CK_ROOT")


@contextlib.contextmanager
def slurm(site: Site, workers: int, logs: Path, say: Say) -> Iterator[tuple[str, str, Callable[[], str]]]:
    """A scheduler in this process and ``workers`` jobs; at the end the jobs are cancelled.

    Yields the scheduler's address, the folder of the credentials that it asks for, and a function that says why no
    worker will come, '' while one may.

    Raises:
        SlurmError: Slurm is not there, or refuses the jobs.
    """
    if shutil.which("sbatch") is None:
        raise SlurmError("--cluster slurm: there is no sbatch on this machine. Run this where jobs are submitted.")
    from dask_jobqueue import SLURMCluster

    secret = logs / "tls"
    try:
        cluster = SLURMCluster(**_options(site, logs), security=make(secret), protocol="tls://")
    except (OSError, RuntimeError, ValueError) as error:
        raise SlurmError(f"no scheduler can be started here for --cluster slurm: {error}.") from error
    with contextlib.ExitStack() as stack:
        stack.callback(forget, secret)
        stack.enter_context(cluster)
        jobs = _submit(cluster, workers)
        say(f"Slurm: {number(len(jobs), 'job')} submitted ({', '.join(jobs)}), scheduler {cluster.scheduler_address}")
        yield cluster.scheduler_address, str(secret), lambda: _hopeless(jobs, logs)


def _options(site: Site, logs: Path) -> dict[str, Any]:
    """Arguments of SLURMCluster. A job runs as many compilers at once as its processors and its memory allow."""
    from dask.utils import parse_bytes

    paths = {"PYTHONPATH": str(PROJECT), **{name: os.environ[name] for name in _PASSED_ON if name in os.environ}}
    exports = [f"export {name}={shlex.quote(value)}" for name, value in paths.items()]
    memory = parse_bytes(site.memory)
    return {
        "cores": max(1, min(site.cores, memory // UNIT_BYTES)),
        "job_cpu": site.cores,
        "processes": 1,
        "memory": site.memory,
        "walltime": site.walltime,
        "queue": site.partition or None,
        "account": site.account or None,
        "interface": site.interface or None,
        "python": site.python or None,
        "job_name": "ckpm",
        "log_directory": str(logs),
        "job_extra_directives": [*([f"--gres=gpu:{site.gpus}"] if site.gpus else []), *site.directives],
        "job_script_prologue": [*exports, *site.prologue],
        "worker_extra_args": ["--resources", f"{GPU}={site.gpus}"] if site.gpus else [],
        "scheduler_options": {"dashboard": False, "dashboard_address": None},
        "silence_logs": "error",
    }


def _submit(cluster: Any, workers: int) -> tuple[str, ...]:
    """Submit the jobs; their ids. Raises SlurmError."""

    async def submitted() -> None:
        await cluster

    _demand_acceptable(cluster.job_script())
    cluster.scale(jobs=workers)
    try:
        cluster.sync(submitted)
    except (RuntimeError, AssertionError) as error:  # the latter is what a job that was not submitted ends in
        raise SlurmError(f"Slurm did not take {workers} jobs, but would take one: {error}") from error
    return tuple(str(job.job_id) for job in cluster.workers.values())


def _demand_acceptable(script: str) -> None:
    """Raises SlurmError: Slurm would not take such a job."""
    command = ["sbatch", "--test-only"]
    run = subprocess.run(command, input=script, capture_output=True, text=True, errors="replace", check=False)
    if run.returncode != 0:
        raise SlurmError(f"Slurm takes no such job: {' '.join(run.stderr.split())}. See --cluster-file.")


def _hopeless(jobs: tuple[str, ...], logs: Path) -> str:
    """Why none of the jobs will become a worker: all have ended. '' while one waits, runs, or nobody knows."""
    command = ["squeue", "--noheader", "--format=%i", f"--jobs={','.join(jobs)}"]
    run = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if run.returncode == 0 and run.stdout.strip():
        return ""
    if run.returncode != 0 and "Invalid job id" not in run.stderr:
        return ""  # the controller is busy
    written = sorted(logs.glob("ckpm-*.err"), key=lambda file: file.stat().st_mtime)
    words = written[-1].read_text(errors="replace").splitlines()[-_LOG_LINES:] if written else []
    return "\n".join([f"all jobs have ended, and no worker came of them. Logs: {logs}", *words])
