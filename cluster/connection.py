"""A client's connection to a Dask scheduler: workers, who they are, and what became of a task.

What Dask says of a task that went wrong becomes a failure of ours in one place, for builds and suites alike.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distributed import Client, Future, KilledWorker
from distributed import TimeoutError as DaskTimeoutError
from distributed.client import FutureCancelledError
from distributed.comm import CommClosedError

from ckpm.base.console import number
from ckpm.base.errors import CkPrefillError
from ckpm.cluster.credentials import of
from ckpm.cluster.errors import (
    ForeignWorkerError,
    NoWorkersError,
    SchedulerError,
    WorkerFailedError,
    WorkersKilledError,
)
from ckpm.cluster.identity import Identity
from ckpm.cluster.session import Session

GPU = "GPU"  # the resource that workers with a GPU have: dask worker --resources GPU=1
PATIENCE_SECONDS = 60.0  # with a scheduler that has no worker, and with one that does not answer
_POLL_SECONDS = 5.0
_RESULT_POLL_SECONDS = 20.0  # a thousand threads may ask
_RESTART = "start its workers from the client's commit, with the same requirements"
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Connection:
    """A client of the scheduler at ``address``, and the session that it has on every worker."""

    client: Any
    address: str
    credentials: str
    session: str

    @property
    def workers(self) -> Mapping[str, Mapping[str, Any]]:
        """Workers by address, as the scheduler describes them."""
        workers: Mapping[str, Mapping[str, Any]] = self.client.scheduler_info(n_workers=-1)["workers"]
        return workers

    @property
    def threads(self) -> int:
        """Tasks that run at once."""
        return sum(worker["nthreads"] for worker in self.workers.values())

    @property
    def gpus(self) -> int:
        return int(sum(worker["resources"].get(GPU, 0) for worker in self.workers.values()))

    def words(self) -> str:
        """How much there is."""
        return f"{number(len(self.workers), 'worker')} with {number(self.threads, 'thread')}"

    def demand_same(self, client: Identity, ask: Callable[[], Identity]) -> None:
        """Let every worker say who it is, with ``ask``; all must be as the client is.

        Raises:
            ForeignWorkerError: some are not; the message names each with both identities.
            WorkerFailedError: a worker can't say, for instance because it lacks the upstream.
        """
        answers = self.client.run(ask, on_error="return")
        names = {address: worker["id"] for address, worker in self.workers.items()}
        foreign, failed = [], []
        for address, answer in answers.items():
            name = f"worker {names.get(address, address)} ({address})"
            if isinstance(answer, Identity):
                differing = "; ".join(client.differences(answer))
                foreign += [f"{name}: {differing}"] if differing else []
            elif isinstance(answer, CkPrefillError):
                failed.append(f"{name}: {answer}")
            else:  # it has no such function, or one of another commit, which pickles something else
                foreign.append(f"{name}: it can't say who it is ({type(answer).__name__}: {answer})")
        if foreign:
            raise ForeignWorkerError("\n".join([f"workers are not as this client is: {_RESTART}.", *foreign]))
        if failed:
            raise WorkerFailedError("\n".join(["workers can't do their part:", *failed]))


def connect(address: str, credentials: str = "") -> Any:
    """A Dask client. ``credentials`` is a folder of credentials.py; '' leaves them to Dask's configuration.

    Raises SchedulerError: nobody answers there.
    """
    security = {"security": of(Path(credentials))} if credentials else {}
    try:
        return Client(address, timeout=PATIENCE_SECONDS / 4, set_as_default=False, **security)
    except (OSError, DaskTimeoutError, ValueError, TypeError) as error:  # the last: tls:// without credentials
        raise SchedulerError(
            f"no Dask scheduler answers at {address} ({error}). Start one with `dask scheduler`, and workers with "
            "`dask worker ADDRESS` in a clone of this commit, or use --cluster slurm."
        ) from error


@contextlib.contextmanager
def opened(address: str, credentials: str, hopeless: Callable[[], str], say: Say) -> Iterator[Connection]:
    """A connection with at least one worker; at the end everything of it on the workers ends, whatever ended it.

    ``hopeless`` is asked now and then while there is no worker: why there will be none, or ''.

    Raises:
        SchedulerError, NoWorkersError.
    """
    with connect(address, credentials) as client:
        connection = Connection(client, address, credentials, f"ckpm-{secrets.token_hex(6)}")
        _wait_for_workers(connection, hopeless, say)
        client.register_plugin(Session(connection.session), name=connection.session)
        try:
            yield connection
        finally:
            with contextlib.suppress(
                CommClosedError, DaskTimeoutError, OSError
            ):  # the scheduler has gone: so have they
                client.unregister_worker_plugin(connection.session)


def _wait_for_workers(connection: Connection, hopeless: Callable[[], str], say: Say) -> None:
    said = False
    while True:
        with contextlib.suppress(DaskTimeoutError):
            connection.client.wait_for_workers(1, timeout=_POLL_SECONDS)
            return
        if why := hopeless():
            raise NoWorkersError(why)
        if not said:
            say("waiting for workers")
            said = True


def patience(address: str) -> Callable[[], str]:
    """For :func:`opened`: give up a scheduler without workers after a while."""
    end = time.monotonic() + PATIENCE_SECONDS

    def hopeless() -> str:
        if time.monotonic() < end:
            return ""
        return (
            f"the scheduler at {address} has had no worker for {PATIENCE_SECONDS:.0f} s. "
            f"Start some in a clone of this commit: dask worker {address}"
        )

    return hopeless


def result(future: Future, client: Any, label: str) -> Any:
    """What a task returned. ``label`` names its work for people.

    Raises:
        ForeignWorkerError, WorkerFailedError: the worker said so.
        WorkersKilledError: its workers died one after the other.
        NoWorkersError: all workers have been gone for a while.
        SchedulerError: the scheduler has gone, or the task was cancelled.
    """
    deserted = 0.0
    while True:
        try:
            return future.result(timeout=_RESULT_POLL_SECONDS)
        except DaskTimeoutError:
            deserted = 0.0 if client.scheduler_info(n_workers=1)["workers"] else deserted + _RESULT_POLL_SECONDS
            if deserted >= PATIENCE_SECONDS:
                raise NoWorkersError(
                    f"{label}: all workers have gone and none has come back. Start some and run the same command "
                    "again: what was finished is kept."
                ) from None
        except CkPrefillError:
            raise
        except BaseException as error:
            raise failure_of(error, label) from error


def failure_of(error: BaseException, label: str) -> BaseException:
    """Our failure for what Dask says of a task."""
    if isinstance(error, KilledWorker):
        return WorkersKilledError(
            f"{label}: {error.allowed_failures + 1} workers died while they had it, the last one "
            f"{error.last_worker.address}. It is not tried again. A worker dies if its machine or job runs out of "
            "memory or time: give the workers fewer threads, or more of both."
        )
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return error
    if isinstance(error, CommClosedError | FutureCancelledError | OSError):
        return SchedulerError(f"{label}: the connection to the scheduler ended ({type(error).__name__}: {error}).")
    return WorkerFailedError(f"{label}: a worker could not do it: {type(error).__name__}: {error}")
