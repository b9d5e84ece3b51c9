"""Run the compile steps of a plan on the workers of a scheduler, for SConstruct. Linking and the manifest stay here.

SCons runs each step in a thread, which writes the worker's object to its path. Graph, order, object cache, events and
failure records are those of a build on one machine.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ckpm.base.errors import CkPrefillError, RecordError, ServiceError, SetupError
from ckpm.base.files import write_atomically
from ckpm.base.records import Source, as_text
from ckpm.cluster.compiling import CompiledStep, Job, Recipe, compile_job
from ckpm.cluster.connection import connect, result
from ckpm.kernels.library.plan import BuildStep
from ckpm.kernels.library.run_step import FinishedStep, execute_here, refuse_steps

NAME = "cluster.json"  # in the folder of plan.json
_HOPELESS = (SetupError, ServiceError)  # the other steps would fail in the same way


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteBuild:
    """The scheduler and the recipe of a build, in a file for SConstruct."""

    scheduler: str
    credentials: str
    session: str
    recipe: Recipe

    def write(self, file: Path) -> None:
        """Replace ``file`` in one step."""
        write_atomically(file, as_text(dataclasses.asdict(self)))

    @classmethod
    def read(cls, file: Path) -> RemoteBuild:
        """Read what :meth:`write` wrote."""
        remedy = "'ckpm build --scheduler ADDRESS' writes it."
        source = Source(location=file, what="the scheduler of a build", remedy=remedy, error=RecordError)
        return source.read().record(cls)


class RemoteSteps:
    """The steps of one SCons run, for several threads."""

    def __init__(self, client: Any, build: RemoteBuild) -> None:
        self._client, self._build = client, build
        self._lock = threading.Lock()
        self._futures: set[Any] = set()

    @classmethod
    def connect(cls, file: Path) -> RemoteSteps:
        """Connect to the scheduler in a file, for the life of the process."""
        build = RemoteBuild.read(file)
        return cls(connect(build.scheduler, build.credentials), build)

    def execute(self, step: BuildStep, environment: Mapping[str, str]) -> FinishedStep:
        """Run a compile step on a worker, and any other step here (:data:`ckpm.kernels.library.run_step.Execute`)."""
        if step.kind not in ("unit", "host"):
            return execute_here(step, environment)
        try:
            compiled = self._compile(step)
        except CkPrefillError as error:
            if isinstance(error, _HOPELESS):
                refuse_steps()
            return FinishedStep(1, str(error), refused=error.exit_code)
        if compiled.code == 0:
            try:
                Path(step.target).write_bytes(compiled.data)  # run_step deletes a partial file
            except OSError as error:
                return FinishedStep(1, f"{step.target} can't be written: {error}", compiled.worker)
        return FinishedStep(compiled.code, compiled.output, compiled.worker)

    def _compile(self, step: BuildStep) -> CompiledStep:
        job = Job(
            session=self._build.session,
            recipe=self._build.recipe,
            source=step.sources[0],
            text=Path(step.sources[0]).read_bytes(),
            kernels=step.kernels,
            signature=step.signature,
        )
        key = f"{step.label}-{self._build.session}"
        future = self._client.submit(compile_job, job, key=key, pure=False)
        with self._lock:
            self._futures.add(future)
        try:
            compiled: CompiledStep = result(future, self._client, step.label)
        finally:
            with self._lock:
                self._futures.discard(future)
        return compiled

    def stop(self) -> None:
        """End the steps on workers, and start no further step."""
        refuse_steps()
        with self._lock:
            futures = list(self._futures)
        with contextlib.suppress(Exception):  # this process ends anyway
            self._client.cancel(futures, force=True)
