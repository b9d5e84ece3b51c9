"""Cases on the workers of a Dask scheduler, as ckpm/suites/pool.py runs them in processes of this machine.

A worker keeps a warm process, which has loaded the library, for each of its threads; on a worker with several GPUs each
process has a GPU of its own. Each case is a task of its own. A case that kills its process ends alone, as on one
machine. Cases of a lost worker go to others. A case whose workers die repeatedly is reported.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distributed import as_completed

from ckpm.base.errors import DeviceError, RefusedError, ServiceError, SetupError
from ckpm.base.files import sha256_of
from ckpm.base.rocm_places import HIP_VISIBLE
from ckpm.cluster.connection import GPU, Connection, result
from ckpm.cluster.identity import Identity, project
from ckpm.cluster.session import resource_here, session_here, task_here
from ckpm.kernels.abi import V3_SWITCH
from ckpm.suites.pool import ENVIRONMENT, START_SECONDS, Reply, Worker, worker_command
from ckpm.suites.suites import Case

Place = tuple[str, Worker | None]  # the GPU of a process, '' for any; the process, None before it is started


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The setup of ckpm/suites/worker.py, its variables, and the client's facts about itself and the library."""

    session: str
    process: Mapping[str, Any]
    environment: Mapping[str, str]
    library: str
    library_sha256: str
    client: Identity


@dataclass(frozen=True, kw_only=True)
class RemotePool:
    """The pool of a connection. ``setup`` is the argument of ckpm/suites/worker.py, as JSON."""

    connection: Connection
    setup: Mapping[str, Any]
    library: Path
    library_sha256: str

    def run(self, cases: Sequence[Case]) -> Iterator[tuple[Case, Reply]]:
        """Run cases as :meth:`ckpm.suites.pool.Pool.run` does."""
        there = self.connection
        there.demand_same(project(), project)
        needs = {GPU: 1} if self.setup["device"] == "hip" else None
        if needs and not there.gpus:
            raise ServiceError(
                f"no worker of {there.address} has a GPU: start some with `dask worker {there.address} --resources "
                f"{GPU}=1`, or with gpus: 1 in the file of --cluster-file.",
                kind="no-workers",
            )
        setup = Setup(
            session=there.session,
            process=self.setup,
            environment={**ENVIRONMENT, V3_SWITCH: os.environ.get(V3_SWITCH, "")},
            library=str(self.library),
            library_sha256=self.library_sha256,
            client=project(),
        )
        # the expensive ones first, or one would run alone at the end
        ordered = sorted(cases, key=lambda case: -case.seconds)
        futures = {
            there.client.submit(
                run_case, setup, case, key=f"{case.name}-{there.session}", pure=False, resources=needs, priority=-index
            ): case
            for index, case in enumerate(ordered)
        }
        started = False
        try:
            for future in as_completed(list(futures), loop=there.client.loop):
                case = futures.pop(future)
                yield case, _reply(result(future, there.client, case.name), started)
                started = True
        finally:
            with contextlib.suppress(Exception):  # the session's end comes next, whatever is wrong with the connection
                there.client.cancel(list(futures), force=True)


@dataclass(frozen=True, slots=True)
class CaseMachines:
    """The machines of a connection, which run cases for a suite."""

    connection: Connection

    def describe(self) -> str:
        return self.connection.describe()

    def pool(self, setup: Mapping[str, Any], library: Path) -> RemotePool:
        """The pool of a library's cases."""
        return RemotePool(connection=self.connection, setup=setup, library=library, library_sha256=sha256_of(library))


def _reply(reply: Reply, started: bool) -> Reply:
    """Return a task's reply. If no process starts, the first task fails the run, a later one only its case."""
    if "not started" not in reply:
        return reply
    message, code = reply["not started"], reply["exit_code"]
    if started:
        return {"outcome": "infrastructure", "message": f"not run, {message}", "elapsed": 0.0}
    raise RefusedError(message, code) if code else DeviceError(message, kind="worker-start")


def run_case(setup: Setup, case: Case) -> Reply:
    """Run a case on a worker; return its reply with ``elapsed`` seconds, or the reason why no process started."""
    session = session_here(setup.session)
    key, worker = task_here()
    session.once("same", lambda: _demand_same(setup, worker))
    gpus = resource_here(GPU) if setup.process["device"] == "hip" else 0
    places: list[Place] = session.once("places", lambda: [(gpu, None) for gpu in visible_gpus(gpus, os.environ)])
    started = time.monotonic()
    current: list[Worker] = []

    def begun(process: Worker) -> None:
        """End the process with the session and with its case, which may be over already."""
        session.at_end(process.kill)
        current.append(process)
        if not session.is_wanted(key):
            process.kill()

    def end() -> None:
        for process in current:
            process.kill()

    gpu, process = _take(places)
    try:
        with session.ended_by(key, end):
            if process is None or not process.alive:  # the session ends processes that seem no longer needed
                environment = {**setup.environment, **({HIP_VISIBLE[0]: gpu} if gpu else {})}
                process = Worker(worker_command(setup.process), environment, START_SECONDS, begun)
            current[:] = [process]
            if not session.is_wanted(key):  # it waited, and the case was over before it was taken
                process.kill()
            return {**process.run(case), "elapsed": time.monotonic() - started}
    except (RefusedError, DeviceError) as error:
        where = f"worker {worker}, GPU {gpu}" if gpu else f"worker {worker}"
        return {
            "not started": f"{where}: {error}",
            "exit_code": error.exit_code if isinstance(error, RefusedError) else 0,
        }
    finally:
        places.append((gpu, process))


def _take(places: list[Place]) -> Place:
    """Take a place where no case runs. A worker with several GPUs has one for each; others have any number."""
    try:
        return places.pop()
    except IndexError:
        return "", None


def visible_gpus(count: int, variables: Mapping[str, str]) -> Sequence[str]:
    """The GPUs of a worker with ``count`` of them, each as HIP_VISIBLE_DEVICES of a process; none for fewer than 2.

    Raises SetupError: the worker's own variable shows fewer.
    """
    if count < 2:
        return ()
    name = next((name for name in HIP_VISIBLE if variables.get(name)), "")
    entries = variables[name].split(",") if name else [str(number) for number in range(count)]
    if len(entries) < count:
        raise SetupError(
            f"a worker has {GPU}={count}, and its {name}={variables[name]} shows {len(entries)}: start it with "
            f"--resources {GPU}={len(entries)}, or with the other GPUs.",
            kind="foreign-worker",
        )
    return entries[:count]


def _demand_same(setup: Setup, worker: str) -> None:
    """Refuse a worker that has another commit or sees another library."""
    differences = setup.client.differences(project())
    try:
        digest = sha256_of(Path(setup.library))
    except OSError as error:
        digest = f"none ({error.strerror})"
    if digest != setup.library_sha256:
        differences.append(f"{setup.library}: the client's sha256 {setup.library_sha256}, the worker's {digest}")
    if differences:
        raise SetupError(
            f"worker {worker}: {'; '.join(differences)}. A worker must have the client's commit, and see the library "
            "under the same path: build in a folder that all machines share (--work).",
            kind="foreign-worker",
        )
