"""Compile steps of a plan on the workers of a scheduler, for SConstruct; linking and the manifest stay here.

SCons asks for each step from a thread of its own and finds the object in its place, as if it had been compiled here:
graph, order, object cache, events and failure records are those of a build on one machine.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ckpm.base.errors import CkPrefillError, RecordError
from ckpm.base.files import write_atomically
from ckpm.base.records import Source, as_text
from ckpm.cluster.compiling import Compiled, Job, Recipe, compile_job
from ckpm.cluster.connection import connect, result
from ckpm.cluster.errors import ForeignWorkerError, NoWorkersError, SchedulerError
from ckpm.cluster.identity import Identity, Sources
from ckpm.kernels.library.plan import Step
from ckpm.kernels.library.run_step import Ran, execute_here, refuse_steps

NAME = "cluster.json"  # beside plan.json
_HOPELESS = (ForeignWorkerError, NoWorkersError, SchedulerError)  # the other steps would meet the same


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the compilers of a build run, and what they are given: the file that SConstruct is called with."""

    scheduler: str
    credentials: str
    session: str
    recipe: Recipe

    def write(self, file: Path) -> None:
        """Replace ``file`` in one step. Raises DiskFullError, OutputError."""
        write_atomically(file, as_text(dataclasses.asdict(self)))

    @classmethod
    def read(cls, file: Path) -> Place:
        """Raises RecordError."""
        remedy = "'python -m kernels build --scheduler ADDRESS' writes it."
        document = Source(place=file, what="the place of a build's compilers", remedy=remedy, error=RecordError).read()
        recipe = document.get("recipe")
        return cls(
            scheduler=document.get("scheduler").word(),
            credentials=document.get("credentials").text(),
            session=document.get("session").word(),
            recipe=Recipe(
                sources=Sources(**recipe.get("sources").texts()),
                archs=tuple(one.word() for one in recipe.get("archs").items()),
                families=tuple(one.word() for one in recipe.get("families").items()),
                identity=Identity(**recipe.get("identity").texts()),
            ),
        )


class RemoteSteps:
    """The steps of one SCons run. Everything here is called from several threads."""

    def __init__(self, client: Any, place: Place) -> None:
        self._client, self._place = client, place
        self._lock = threading.Lock()
        self._futures: set[Any] = set()

    @classmethod
    def of(cls, file: Path) -> RemoteSteps:
        """Connect as a file says. The connection lasts as long as the process. Raises RecordError, SchedulerError."""
        place = Place.read(file)
        return cls(connect(place.scheduler, place.credentials), place)

    def execute(self, step: Step, environment: Mapping[str, str]) -> Ran:
        """A step on a worker, or here if it is no compile step. See :data:`ckpm.kernels.library.run_step.Execute`."""
        if step.kind not in ("unit", "host"):
            return execute_here(step, environment)
        try:
            compiled = self._compile(step)
        except CkPrefillError as error:
            if isinstance(error, _HOPELESS):
                refuse_steps()
            return Ran(1, str(error), refused=error.exit_code)
        if compiled.code == 0:
            try:
                Path(step.target).write_bytes(compiled.data)  # what is left of it after a failure, run_step deletes
            except OSError as error:
                return Ran(1, f"{step.target} can't be written: {error}", compiled.worker)
        return Ran(compiled.code, compiled.output, compiled.worker)

    def _compile(self, step: Step) -> Compiled:
        job = Job(
            session=self._place.session,
            recipe=self._place.recipe,
            source=step.sources[0],
            text=Path(step.sources[0]).read_bytes(),
            kernels=step.kernels,
            signature=step.signature,
        )
        key = f"{step.label}-{self._place.session}"
        future = self._client.submit(compile_job, job, key=key, pure=False)
        with self._lock:
            self._futures.add(future)
        try:
            compiled: Compiled = result(future, self._client, step.label)
        finally:
            with self._lock:
                self._futures.discard(future)
        return compiled

    def stop(self) -> None:
        """No step starts any more, and those that run on workers end."""
        refuse_steps()
        with self._lock:
            futures = list(self._futures)
        with contextlib.suppress(Exception):  # whatever is the matter with the connection: this process is to end
            self._client.cancel(futures, force=True)
