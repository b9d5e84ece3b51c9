"""Connect a client to a Dask scheduler: credentials, workers and their identities, and results of tasks.

Dask's failures of tasks are translated into ours here, for builds and suites.

A Dask scheduler runs programs as its user for every client that reaches it. The scheduler of `--cluster slurm` listens
on the network, so it only answers clients with the certificate of the run, which only this user can read.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distributed import Client, Future, KilledWorker, Security
from distributed import TimeoutError as DaskTimeoutError
from distributed.client import FutureCancelledError
from distributed.comm import CommClosedError

from ckpm.base.console import number
from ckpm.base.errors import CkPrefillError, InconclusiveError, ServiceError, SetupError
from ckpm.base.files import write_atomically
from ckpm.cluster.identity import Identity
from ckpm.cluster.session import Session

GPU = "GPU"  # the resource of workers with a GPU: dask worker --resources GPU=1
PATIENCE_SECONDS = 60.0  # of waiting for a worker, or for an answer of the scheduler
_POLL_SECONDS = 5.0
_RESULT_POLL_SECONDS = 20.0  # long, because up to a thousand threads wait
_CERTIFICATE, _KEY = "certificate.pem", "key.pem"
_RESTART = "start its workers from the client's commit, with the same requirements"
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Connection:
    """A client of the scheduler at ``address``, with its session on every worker."""

    client: Any
    address: str
    credentials: str
    session: str

    @property
    def workers(self) -> Mapping[str, Mapping[str, Any]]:
        """Descriptions of the workers by address."""
        workers: Mapping[str, Mapping[str, Any]] = self.client.scheduler_info(n_workers=-1)["workers"]
        return workers

    @property
    def threads(self) -> int:
        """Number of tasks that run at once."""
        return sum(worker["nthreads"] for worker in self.workers.values())

    @property
    def gpus(self) -> int:
        return int(sum(worker["resources"].get(GPU, 0) for worker in self.workers.values()))

    def describe(self) -> str:
        """Numbers of workers and threads, for people."""
        return f"{number(len(self.workers), 'worker')} with {number(self.threads, 'thread')}"

    def demand_same(self, client: Identity, identify: Callable[[], Identity]) -> None:
        """Compare the identity of every worker with the client's. Workers run ``identify``.

        Different workers are a SetupError, which names each with both identities. A worker without an identity, for
        instance because it lacks the upstream, is an InconclusiveError.
        """
        answers = self.client.run(identify, on_error="return")
        names = {address: worker["id"] for address, worker in self.workers.items()}
        foreign, failed = [], []
        for address, answer in answers.items():
            name = f"worker {names.get(address, address)} ({address})"
            if isinstance(answer, Identity):
                differing = "; ".join(client.differences(answer))
                foreign += [f"{name}: {differing}"] if differing else []
            elif isinstance(answer, CkPrefillError):
                failed.append(f"{name}: {answer}")
            else:  # it lacks the function, or has the function of another commit
                foreign.append(f"{name}: it has no identity ({type(answer).__name__}: {answer})")
        if foreign:
            raise SetupError(
                "\n".join([f"workers differ from this client: {_RESTART}.", *foreign]), kind="foreign-worker"
            )
        if failed:
            raise InconclusiveError("\n".join(["workers failed:", *failed]), kind="worker-failed")


def connect(address: str, credentials: str = "") -> Any:
    """A Dask client. ``credentials`` is a folder of :func:`make_credentials`; '' means Dask's configuration."""
    security = {"security": read_credentials(Path(credentials))} if credentials else {}
    try:
        return Client(address, timeout=PATIENCE_SECONDS / 4, set_as_default=False, **security)
    except (OSError, DaskTimeoutError, ValueError, TypeError) as error:  # TypeError: tls:// without credentials
        raise ServiceError(
            f"no Dask scheduler answers at {address} ({error}). Start one with `dask scheduler`, and workers with "
            "`dask worker ADDRESS` in a clone of this commit, or use --cluster slurm.",
            kind="scheduler",
        ) from error


def make_credentials(folder: Path) -> Security:
    """Write new credentials to a folder that all machines share and only this user can enter."""
    security = Security.temporary()
    write_atomically(folder / _CERTIFICATE, security.tls_ca_file.encode())
    write_atomically(folder / _KEY, security.tls_client_key.encode())
    (folder / _KEY).chmod(0o600)
    return read_credentials(folder)


def read_credentials(folder: Path) -> Security:
    """The credentials in a folder, for client, scheduler and workers."""
    files = {"cert": str(folder / _CERTIFICATE), "key": str(folder / _KEY)}
    roles = {f"tls_{role}_{part}": file for role in ("client", "scheduler", "worker") for part, file in files.items()}
    return Security(tls_ca_file=files["cert"], require_encryption=True, **roles)


@contextlib.contextmanager
def connection_to(address: str, credentials: str, hopeless: Callable[[], str]) -> Iterator[Connection]:
    """Connect, and wait for at least one worker. At the end, every process of this connection on the workers ends.

    ``hopeless`` is called while workers are missing. It returns '' or the reason why none will come.
    """
    with connect(address, credentials) as client:
        connection = Connection(client, address, credentials, f"ckpm-{secrets.token_hex(6)}")
        _wait_for_workers(connection, hopeless)
        client.register_plugin(Session(connection.session), name=connection.session)
        try:
            yield connection
        finally:
            with contextlib.suppress(CommClosedError, DaskTimeoutError, OSError):  # no scheduler: the processes ended
                client.unregister_worker_plugin(connection.session)


def _wait_for_workers(connection: Connection, hopeless: Callable[[], str]) -> None:
    announced = False
    while True:
        with contextlib.suppress(DaskTimeoutError):
            connection.client.wait_for_workers(1, timeout=_POLL_SECONDS)
            return
        if why := hopeless():
            raise ServiceError(why, kind="no-workers")
        if not announced:
            log.info("waiting for workers")
            announced = True


def patience(address: str) -> Callable[[], str]:
    """A function for :func:`connection_to` that gives up after PATIENCE_SECONDS without a worker."""
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
    """The result of a task. ``label`` names the task for people.

    Raises the worker's error, a ServiceError if all workers were gone for PATIENCE_SECONDS, or :func:`failure_of`.
    """
    deserted = 0.0
    while True:
        try:
            return future.result(timeout=_RESULT_POLL_SECONDS)
        except DaskTimeoutError:
            deserted = 0.0 if client.scheduler_info(n_workers=1)["workers"] else deserted + _RESULT_POLL_SECONDS
            if deserted >= PATIENCE_SECONDS:
                raise ServiceError(
                    f"{label}: all workers have gone and none has come back. Start some and run the same command "
                    "again. A build goes on from its compiled units, a suite from its first case.",
                    kind="no-workers",
                ) from None
        except CkPrefillError:
            raise
        except BaseException as error:
            raise failure_of(error, label) from error


def failure_of(error: BaseException, label: str) -> BaseException:
    """Our failure for Dask's failure of a task."""
    if isinstance(error, KilledWorker):
        return InconclusiveError(
            f"{label}: {error.allowed_failures + 1} workers died while they had it, the last one "
            f"{error.last_worker.address}. It is not tried again. A worker dies if its machine or job runs out of "
            "memory or time: give the workers fewer threads, or more of both.",
            kind="workers-killed",
        )
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return error
    if isinstance(error, CommClosedError | FutureCancelledError | OSError):
        return ServiceError(
            f"{label}: the connection to the scheduler ended ({type(error).__name__}: {error}).", kind="scheduler"
        )
    return InconclusiveError(f"{label}: a worker failed: {type(error).__name__}: {error}", kind="worker-failed")
