"""Start workers as jobs of Slurm with dask-jobqueue, for the time of one command."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ckpm.base.console import number
from ckpm.base.errors import ServiceError
from ckpm.base.files import make_folder
from ckpm.base.jobs import UNIT_BYTES
from ckpm.base.processes import search_path
from ckpm.cluster.connection import GPU, make_credentials
from ckpm.cluster.site import Site

_LOG_LINES = 15  # of a job that ended at once
_LOOPBACK = "127.0.0.1:0"  # Dask always starts a server of plain HTTP, by default on all interfaces
log = logging.getLogger(__name__)
_PASSED_ON = ("CKPM_CACHE", "XDG_CACHE_HOME", "CK_ROOT")


@contextlib.contextmanager
def slurm(site: Site, workers: int, logs: Path) -> Iterator[tuple[str, str, Callable[[], str]]]:
    """Start a scheduler in this process and ``workers`` jobs. At the end, the jobs are cancelled.

    Yields the scheduler's address, the folder of its credentials, and a function that returns the reason why no worker
    will come, or ''.
    """
    if shutil.which("sbatch") is None:
        raise ServiceError(
            "--cluster slurm: this machine has no sbatch. Run this where jobs are submitted.", kind="slurm"
        )
    make_folder(logs)
    with contextlib.ExitStack() as stack:
        try:
            # a folder of this run: others write their logs beside it
            private = tempfile.TemporaryDirectory(prefix="tls.", dir=logs, ignore_cleanup_errors=True)
            secret = stack.enter_context(private)
            credentials = make_credentials(Path(secret))
            cluster = _cluster_class()(**_options(site, logs), security=credentials, protocol="tls://")
        except (OSError, RuntimeError, ValueError) as error:
            raise ServiceError(
                f"no scheduler can be started here for --cluster slurm: {error}.", kind="slurm"
            ) from error
        stack.enter_context(cluster)
        jobs = _submit(cluster, workers)
        log.info(
            f"Slurm: {number(len(jobs), 'job')} submitted ({', '.join(jobs)}), scheduler {cluster.scheduler_address}"
        )
        yield cluster.scheduler_address, secret, lambda: _hopeless(jobs, logs)


def _cluster_class() -> Any:
    """Import SLURMCluster. The import replaces the handler of SIGINT by one that ends with 0, so keep ours."""
    before = signal.getsignal(signal.SIGINT)
    try:
        from dask_jobqueue import SLURMCluster
    finally:
        signal.signal(signal.SIGINT, before)
    return SLURMCluster


def _options(site: Site, logs: Path) -> dict[str, Any]:
    """Arguments of SLURMCluster. Processors and memory of a job limit its number of compilers."""
    from dask.utils import parse_bytes

    paths = {**search_path(), **{name: os.environ[name] for name in _PASSED_ON if name in os.environ}}
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
        "worker_extra_args": [
            *("--no-dashboard", "--dashboard-address", _LOOPBACK),
            *(["--resources", f"{GPU}={site.gpus}"] if site.gpus else []),
        ],
        "scheduler_options": {"dashboard": False, "dashboard_address": _LOOPBACK},
        "silence_logs": "error",
    }


def _submit(cluster: Any, workers: int) -> tuple[str, ...]:
    """Submit the jobs and return their ids."""

    async def submit() -> None:
        await cluster

    _demand_acceptable(cluster.job_script())
    cluster.scale(jobs=workers)
    try:
        cluster.sync(submit)
    except (RuntimeError, AssertionError) as error:  # AssertionError: a job was not submitted
        raise ServiceError(f"Slurm refused {workers} jobs, but accepts one: {error}", kind="slurm") from error
    return tuple(str(job.job_id) for job in cluster.workers.values())


def _demand_acceptable(script: str) -> None:
    """Test a job with sbatch; refuse it if sbatch does."""
    command = ["sbatch", "--test-only"]
    run = subprocess.run(command, input=script, capture_output=True, text=True, errors="replace", check=False)
    if run.returncode != 0:
        raise ServiceError(f"Slurm refuses the job: {' '.join(run.stderr.split())}. See --cluster-file.", kind="slurm")


def _hopeless(jobs: tuple[str, ...], logs: Path) -> str:
    """The reason why no worker will come: all jobs have ended. '' if a job waits or runs, or its state is unknown."""
    command = ["squeue", "--noheader", "--format=%i", f"--jobs={','.join(jobs)}"]
    run = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if run.returncode == 0 and run.stdout.strip():
        return ""
    if run.returncode != 0 and "Invalid job id" not in run.stderr:
        return ""  # the controller is busy
    files = (file for job in jobs for file in logs.glob(f"ckpm-{job}.*err"))  # and not those of other runs
    written = sorted(files, key=lambda file: file.stat().st_mtime)
    lines = written[-1].read_text(errors="replace").splitlines()[-_LOG_LINES:] if written else []
    return "\n".join([f"all jobs have ended before a worker started. Logs: {logs}", *lines])
