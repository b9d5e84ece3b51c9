"""Kernels compiled on demand: rendered, compiled, and kept as libraries for every later process of this user.

:func:`compile_each` works on many at once. While the first are compiled the next are rendered. Each library is handed
out as soon as it is finished, so that a caller loads it while others are still compiled.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import queue
import signal
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from ckpm.attention.jit.entries import VERSION, Entries, EntryRecord, content_key, texts
from ckpm.attention.jit.orders import Order, Place, order_for
from ckpm.attention.jit.worker import TALLY
from ckpm.base import settings
from ckpm.base.entry import FAILURES
from ckpm.base.errors import CkPrefillError, CompileError, RecordError, ServiceError, UsageError
from ckpm.base.files import StoppedError, name_write_errors
from ckpm.base.jobs import job_count
from ckpm.base.processes import ProcessPool, group, own_environment, python_command
from ckpm.base.records import Source
from ckpm.base.rocm_choice import default_toolchain
from ckpm.base.store import draft_folder
from ckpm.kernels.code.toolchains import Toolchain, detect
from ckpm.kernels.library.request import listed_by_tree
from ckpm.kernels.upstream.tree import Tree
from ckpm.matrix.keys import Key
from ckpm.matrix.options import DEFAULT_UPSTREAM

log = logging.getLogger(__name__)
_SECONDS_A_LINE = 10.0  # between two lines of progress
_LAST_LINES = 15  # of a log that ends without an error of ours
_TRACEBACK = 1  # Python's exit code


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledKernels:
    """A finished library of the kernel ``name``. ``asked`` is the caller's key or name of the kernel.

    ``compiled`` is False if the library was in the cache. ``folder`` contains ``libckpm.so``, ``manifest.json`` and
    ``kernels.txt``.

    Seconds: ``render`` before the cache is read, ``wait`` for another process that compiles the same, ``build``
    elapsed, ``compilers`` the sum over all compilers.
    """

    request: str | Key
    name: str
    folder: Path
    compiled: bool
    render: float
    wait: float = 0.0
    build: float = 0.0
    compilers: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """A library to compile or to take from the cache. ``render``: seconds spent to find its key."""

    key: str | Key
    order: Order
    content: str
    render: float

    @property
    def name(self) -> str:
        return self.order.names[0]


def compile_keys(
    keys: Sequence[str | Key],
    arch: str,
    upstream: str = DEFAULT_UPSTREAM,
    *,
    toolchain: str = "",
    ck_root: Path | None = None,
    headers: Path | None = None,
    jobs: int | None = None,
) -> tuple[Path, ...]:
    """The folder of a finished library for each of ``keys``, in their order; arguments as :func:`compile_each`."""
    origin = where(upstream, toolchain=toolchain, ck_root=ck_root, headers=headers)
    folders = {library.request: library.folder for library in compile_each(keys, arch, origin, jobs=jobs)}
    return tuple(folders[key] for key in keys)


def where(
    upstream: str = DEFAULT_UPSTREAM, *, toolchain: str = "", ck_root: Path | None = None, headers: Path | None = None
) -> Place:
    """Origin of the kernels. The defaults of ``toolchain`` and of ``checkout``'s ``ck_root`` are those of builds."""
    root = settings.ck_root(ck_root, [upstream])
    return Place(
        upstream=upstream,
        toolchain=toolchain or default_toolchain(),
        ck_root=os.path.realpath(root) if root and upstream == "checkout" else "",
        headers=os.path.realpath(headers) if headers else "",
    )


def compile_each(
    keys: Sequence[str | Key], arch: str, origin: Place, *, jobs: int | None = None
) -> Generator[CompiledKernels, None, None]:
    """Compile libraries of ``keys`` (or names) for ``arch``. Yield each as soon as it is finished; each key once.

    ``jobs`` compilers run at once (default: by processors and memory). If another process compiles the same library,
    this one waits for it. A library with the same text, arch, flags, compiler and CK is taken from the cache. If the
    caller ends early, so do the compilers.

    Raises:
        CompileError, ServiceError: raised when all others are finished; the message names each failed kernel.
    """
    if jobs is not None and jobs < 1:
        raise UsageError(f"--jobs {jobs}: at least one compiler must run")
    distinct_keys = list(dict.fromkeys(keys))
    cache = settings.cache_folder()
    tree, compiler = _source(origin, cache)
    entries = Entries(cache)
    most = job_count(jobs)
    finished: queue.SimpleQueue[Future[CompiledKernels]] = queue.SimpleQueue()
    # compilers for each library, so that all together stay within ``most``
    share = max(1, most // max(1, min(most, len(distinct_keys))))
    with ProcessPool(most, "jit") as pool:
        for key in distinct_keys:
            job = _job(key, origin, arch, tree, compiler)
            pool.submit(_obtain, job, entries, share, pool).add_done_callback(finished.put)
        yield from _successes(finished, len(distinct_keys))


def _source(origin: Place, cache: Path) -> tuple[Tree, Toolchain]:
    compiler = detect(origin.toolchain, cache=cache)
    return origin.tree(cache), compiler


def _job(key: str | Key, origin: Place, arch: str, tree: Tree, compiler: Toolchain) -> _Job:
    started = time.monotonic()
    order, members = order_for(key, origin, arch, tree.dialect)
    request = order.request(tree, compiler, Path())
    listed_by_tree(request, [*members[:1]])  # before a library of it is compiled or taken from the cache
    content = content_key(request, texts(request, members))
    return _Job(key=key, order=order, content=content, render=time.monotonic() - started)


def _successes(finished: queue.SimpleQueue[Future[CompiledKernels]], count: int) -> Iterator[CompiledKernels]:
    """Yield each library when it is finished. At the end raise the failures as one error."""
    failures: list[CkPrefillError] = []
    for _ in range(count):
        try:
            yield finished.get().result()
        except (CompileError, ServiceError) as error:
            failures.append(error)
    if len(failures) == 1:
        raise failures[0]
    if failures:
        kind = CompileError if any(isinstance(failure, CompileError) for failure in failures) else ServiceError
        messages = "\n".join(map(str, failures))
        raise kind(f"{len(failures)} kernels could not be compiled; the others are finished.\n{messages}", kind="jit")


def _obtain(job: _Job, entries: Entries, jobs: int, pool: ProcessPool) -> CompiledKernels:
    """The library of a job: from the cache, from another process, or compiled here."""
    finished = functools.partial(CompiledKernels, request=job.key, name=job.name, render=job.render)
    if folder := entries.get(job.content):
        return finished(folder=folder, compiled=False)
    started = time.monotonic()
    with entries.lock(job.content, pool.stopping):
        waited = time.monotonic() - started
        if folder := entries.get(job.content):
            return finished(folder=folder, compiled=False, wait=waited)
        log.info(f"compiling {job.name} for {job.order.arch}: about 20 s on an idle processor, once for a user")
        begun = time.monotonic()
        with name_write_errors(entries.top, "set CKPM_CACHE to another folder"), draft_folder(entries.top) as draft:
            _run_worker(job, entries, draft, jobs, pool)
            compilers = _compilers(draft / TALLY)
            seconds = time.monotonic() - begun
            record = EntryRecord(
                version=VERSION, content=job.content, kernel=job.name, arch=job.order.arch, seconds=seconds,
                compilers=compilers,
            )  # fmt: skip
            built = next(draft.glob("build/*/*"))
            folder = entries.put(job.content, built, record, draft)
        entries.forget_log(job.content)
        log.info(f"compiled {job.name} in {seconds:.0f} s")
    return finished(folder=folder, compiled=True, wait=waited, build=seconds, compilers=compilers)


def _run_worker(job: _Job, entries: Entries, draft: Path, jobs: int, pool: ProcessPool) -> None:
    """Compile a job in ``draft``, in a process of its own."""
    if pool.stopping.is_set():
        raise StoppedError
    order, failures = draft / "order.json", draft / "failures"
    job.order.write(order)
    command = python_command("-m", "ckpm.attention.jit.worker", str(order), str(jobs))
    environment = own_environment({FAILURES: str(failures)})
    lines: list[str] = []
    with group(command, cwd=draft, environment=environment) as worker, pool.among(worker):
        assert worker.stdout is not None
        with _progress(job.name, lines):
            lines.extend(worker.stdout)
    if pool.stopping.is_set():
        raise StoppedError
    if worker.returncode == 0:
        return
    text = "".join(lines)
    file = entries.keep_log(job.content, text)
    if worker.returncode < 0:
        raise ServiceError(
            f"{job.name}: {signal.Signals(-worker.returncode).name} ended its compilation for {job.order.arch} (a "
            f"system without memory does that); the log is {file}. Ask again, with fewer --jobs at once.",
            kind="jit-killed",
        )
    what = f"{job.name}: it could not be compiled for {job.order.arch}: {_reason(failures, text)}\nThe log is {file}."
    if worker.returncode not in (CompileError.exit_code, _TRACEBACK):  # a full disk, a limit: not the kernel
        raise ServiceError(f"{what} Fix that and ask again.", kind="jit")
    raise CompileError(
        f"{what} Fix the errors in it and compile again: nothing of this attempt is kept as finished.", kind="jit"
    )


@contextlib.contextmanager
def _progress(name: str, lines: Sequence[str]) -> Iterator[None]:
    """Log every few seconds that the compilation of a kernel goes on, with the last of the worker's ``lines``."""
    ended, begun = threading.Event(), time.monotonic()

    def report() -> None:
        while not ended.wait(_SECONDS_A_LINE):
            log.info(f"{name}: {time.monotonic() - begun:.0f} s so far; {lines[-1].strip() if lines else 'starting'}")

    thread = threading.Thread(target=report, daemon=True, name="jit progress")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _reason(failures: Path, log: str) -> str:
    """The error that ended a worker, or the end of its log if it recorded no error."""
    with contextlib.suppress(OSError, RecordError):
        line = failures.read_text(encoding="utf-8").splitlines()[-1]
        return Source(failures, "a failure", "", RecordError).parse(line).get("message").text()
    return "\n".join(log.splitlines()[-_LAST_LINES:])


def _compilers(file: Path) -> float:
    return Source(file, "a worker's times", "Ask again.", RecordError).read().get("compilers").number()
