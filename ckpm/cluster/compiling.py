"""Compile a unit on a worker, with the worker's compiler and headers.

A worker receives the text of a source and returns an object. It shares no folder with the client. It compares its
identity with the client's, plans the step with the same function, and compares the signatures. Flags, toolchain,
upstream and our headers are part of a signature, so a worker can't return a foreign object.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from distributed import get_worker

from ckpm.base import settings
from ckpm.base.errors import CkPrefillError, InconclusiveError, SetupError
from ckpm.base.processes import tool_environment
from ckpm.cluster.identity import BuildSources, Identity
from ckpm.cluster.session import Session, session_here, task_here
from ckpm.kernels.code.toolchains import detect
from ckpm.kernels.library.plan import BuildStep
from ckpm.kernels.library.request import BuildRequest, compile_step, identity_of
from ckpm.kernels.library.run_step import run_command
from ckpm.matrix.selection import Selection

_GUARD = Path(__file__).resolve().parent / "guard.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The common part of a build's compile steps, and the identity of the client."""

    sources: BuildSources
    archs: tuple[str, ...]
    families: tuple[str, ...]
    identity: Identity


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One step. ``source`` is a path below the work folder, ``text`` the bytes of the source."""

    session: str
    recipe: Recipe
    source: str
    text: bytes
    kernels: tuple[str, ...]
    signature: str


@dataclass(frozen=True, slots=True)
class CompiledStep:
    """Result of a compiler: exit code, output, the object if it succeeded, and the worker's name."""

    code: int
    output: str
    data: bytes
    worker: str


def compile_job(job: Job) -> CompiledStep:
    """Compile one step; workers run this function.

    Raises SetupError if this worker differs from the client, InconclusiveError if it can't compile.
    """
    session = session_here(job.session)
    key, name = task_here()
    try:
        request, identity = session.once("request", lambda: _request(job.recipe))
        with tempfile.TemporaryDirectory(prefix="ckpm-", dir=get_worker().local_directory) as folder:
            step = _own_step(job, request, identity, Path(folder))
            environment = tool_environment(request.toolchain.environment)
            code, output = _run(session, key, step, Path(folder), environment)
            data = (Path(folder) / step.target).read_bytes() if code == 0 else b""
    except (CkPrefillError, OSError) as error:
        if isinstance(error, SetupError) and error.kind == "foreign-worker":
            raise SetupError(f"worker {name}: {error}", kind=error.kind) from None
        raise InconclusiveError(f"worker {name} can't compile: {error}", kind="worker-failed") from None
    return CompiledStep(code, output, data, name)


def _request(recipe: Recipe) -> tuple[BuildRequest, tuple[str, ...]]:
    """The client's request with this machine's toolchain and tree, and the identity of the request."""
    cache = settings.cache_folder()
    if differences := recipe.identity.differences(recipe.sources.identity(cache)):
        raise SetupError("; ".join(differences), kind="foreign-worker")
    request = BuildRequest(
        selection=Selection(archs=recipe.archs, families=recipe.families),
        tree=recipe.sources.tree(cache),
        toolchain=detect(recipe.sources.toolchain, cache=cache),
        work=Path(),
        object_cache=None,
    )
    return request, identity_of(request)


def _own_step(job: Job, request: BuildRequest, identity: tuple[str, ...], folder: Path) -> BuildStep:
    """Write the job's source, and plan its step with this machine's paths."""
    source = folder / job.source
    source.parent.mkdir(parents=True)
    source.write_bytes(job.text)
    step = compile_step(request, identity, source, job.kernels)
    if step.signature != job.signature or step.sources != (job.source,):
        raise SetupError(
            f"it would compile {job.source} with other flags, headers or paths than the client", kind="foreign-worker"
        )
    (folder / step.target).parent.mkdir(parents=True)
    return step


def _run(session: Session, key: str, step: BuildStep, folder: Path, environment: dict[str, str]) -> tuple[int, str]:
    """Run a step's command. It ends with its task and with this process."""
    read_end, write_end = os.pipe()
    os.set_inheritable(read_end, True)
    with os.fdopen(write_end, "wb") as owner, contextlib.ExitStack() as stack:
        stack.callback(os.close, read_end)
        stack.enter_context(session.ended_by(key, owner.close))
        command = (sys.executable, "-I", "-S", str(_GUARD), str(read_end), *step.argv)
        return run_command(command, environment, folder)
