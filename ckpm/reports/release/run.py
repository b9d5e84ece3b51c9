"""Run each stage unless it passed before with the same inputs, on this machine or in a shard's folder."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ckpm.base.errors import CheckFailedError, InconclusiveError, RecordError, SetupError, TrustError
from ckpm.base.files import make_folder, name_write_errors, sha256_of
from ckpm.base.processes import ended_by_signals, group, own_environment, owned_command, python_command, run_git
from ckpm.kernels.upstream.trees import damage, package_folder
from ckpm.matrix.dialects import PackagedUpstream
from ckpm.reports.release.record import FOLDER, Facts, StageRecord, record_path
from ckpm.reports.release.stages import StageStep

Execute = Callable[[StageStep, Path, int], int]
log = logging.getLogger(__name__)
_PINNED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:-]*@sha256:[0-9a-f]{64}")
_SCP = re.compile(r"(?:[^@/:]+@)?(?P<host>[^@/:]+):(?P<path>[^/].*)")  # git@HOST:PATH
_SHOWN = 10
OVERDUE = 124  # the exit code of a step that was ended at its time limit, as of timeout(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class QualificationPlan:
    """Steps and their folders.

    ``work`` is the folder of build/. ``only`` are names of stages, empty for all. ``shards`` are folders like ``work``
    of other machines. ``epoch`` is the commit's time, for SOURCE_DATE_EPOCH. A step is finished if its exit code is in
    ``finished``. ``after_failure`` gets the step and the other exit code; None: a failure ends the run.
    """

    steps: tuple[StageStep, ...]
    facts: Facts
    work: Path
    epoch: int
    only: Collection[str] = ()
    shards: Sequence[Path] = ()
    finished: Collection[int] = (0,)
    after_failure: Callable[[StageStep, int], None] | None = None


def execute(step: StageStep, work: Path, epoch: int, output: Path | None = None, seconds: float | None = None) -> int:
    """Run a step's command in ``work``. Return the exit code, OVERDUE after ``seconds``.

    What the command prints is added to the file ``output``; None: it goes to this terminal.
    """
    wide = {} if output is None else {"COLUMNS": "1000"}  # a folded path would not be known as a path
    environment = own_environment({"SOURCE_DATE_EPOCH": str(epoch), **wide})
    command = owned_command(python_command("-m", "ckpm", *step.command))
    with contextlib.ExitStack() as stack:
        stream = None
        if output is not None:
            make_folder(output.parent)
            with name_write_errors(output):
                stream = stack.enter_context(output.open("ab")).fileno()
        stack.enter_context(contextlib.suppress(subprocess.TimeoutExpired))
        with ended_by_signals(), group(command, cwd=work, environment=environment, output=stream) as process:
            return process.wait(seconds)
    return OVERDUE


def run(plan: QualificationPlan, execute: Execute = execute) -> Mapping[str, StageRecord]:
    """Run steps. Return the records of finished steps by name. If a step fails, earlier records are kept."""
    for shard in plan.shards:
        if not any(shard.glob(f"{FOLDER}/*/*.json")):
            raise RecordError(
                f"{shard}: no record of a stage in {FOLDER}. Name the folder that holds its build/.", kind="stage"
            )
    passed: dict[str, StageRecord] = {}
    for number, step in enumerate(plan.steps, 1):
        chosen = not plan.only or step.stage in plan.only
        missing = [need for need in step.needs if need not in passed or passed[need].code]
        if missing:
            if not chosen:
                continue
            if plan.after_failure:
                log.info(f"{step.name}: not run: it needs {', '.join(missing)}")
                continue
            raise InconclusiveError(
                f"{step.name} needs {', '.join(missing)}: run it first, or name its --shard.", kind="missing-stage"
            )
        inputs = {file: digest for need in step.needs for file, digest in passed[need].outputs.items()}
        record = _from_shards(plan, step, inputs) or _kept(plan, step, inputs)
        if record is None and chosen:
            log.info(f"stage {number} of {len(plan.steps)}, {step.name}: {step.shown}")
            started = time.monotonic()
            record = _run(plan, step, inputs, execute)
            log.info(f"{step.name}: {time.monotonic() - started:.0f} s")
        if record is not None:
            passed[step.name] = record
    return passed


def demand_all(steps: Sequence[StageStep], passed: Mapping[str, StageRecord]) -> None:
    """Raise InconclusiveError if a step was neither run nor taken from a shard."""
    if missing := [step.name for step in steps if step.name not in passed]:
        raise InconclusiveError(
            f"not run, and in no shard: {', '.join(missing)}. A release needs every stage.", kind="missing-stage"
        )


def _run(plan: QualificationPlan, step: StageStep, inputs: Mapping[str, str], execute: Execute) -> StageRecord | None:
    (plan.work / record_path(step.arch, step.stage)).unlink(missing_ok=True)
    make_folder(plan.work)
    code = execute(step, plan.work, plan.epoch)
    if code and plan.after_failure is None:
        raise CheckFailedError(
            f"{step.name}: exit code {code}. Run it alone with: {step.shown}\n"
            "What passed before it is kept: the same qualification goes on from here.",
            kind="stage",
        )
    missing = [file for file in step.outputs.values() if not (plan.work / file).is_file()]
    if missing and not code:
        raise CheckFailedError(
            f"{step.name}: ended without an error, but left no {', '.join(missing)}: {step.shown}", kind="stage"
        )
    changed = [file for file, digest in inputs.items() if sha256_of(plan.work / file) != digest]
    if changed:
        raise CheckFailedError(
            f"{step.name}: inputs changed while it ran: {', '.join(changed)}. Run ckpm qualify again.", kind="stage"
        )
    record = StageRecord(
        stage=step.stage,
        arch=step.arch,
        command=step.command,
        facts=plan.facts,
        inputs=inputs,
        outputs={file: sha256_of(plan.work / file) for file in step.outputs.values() if file not in missing},
        code=code,
    )
    if code in plan.finished:
        record.write(plan.work)
    if code and plan.after_failure:
        plan.after_failure(step, code)
    return record if code in plan.finished else None


def _kept(plan: QualificationPlan, step: StageStep, inputs: Mapping[str, str]) -> StageRecord | None:
    """The record of an earlier run in this folder, if its inputs are the same and its outputs unchanged."""
    file = plan.work / record_path(step.arch, step.stage)
    if not file.exists():
        return None
    try:
        record = StageRecord.read(file)
    except RecordError as error:
        log.info(f"{step.name}: record ignored: {error}")
        return None
    reasons = record.differences(step, plan.facts, inputs, plan.finished) or record.find_damage(plan.work)
    if reasons:
        log.info(f"{step.name}: runs again, changed since it passed: {'; '.join(reasons)}")
        return None
    log.info(f"{step.name}: {'ended' if record.code else 'passed'} earlier for the same inputs")
    return record


def _from_shards(plan: QualificationPlan, step: StageStep, inputs: Mapping[str, str]) -> StageRecord | None:
    """A shard's record; its outputs are copied here. A record that doesn't fit its shard is an error."""
    accepted: StageRecord | None = None
    for shard in plan.shards:
        file = shard / record_path(step.arch, step.stage)
        if not file.exists():
            continue
        record = StageRecord.read(file)
        if reasons := record.differences(step, plan.facts, inputs) or record.find_damage(shard):
            raise RecordError(f"{file}: results that don't belong to this release: {'; '.join(reasons)}.", kind="stage")
        if accepted and accepted.outputs != record.outputs:
            raise RecordError(
                f"{file}: other outputs than another shard has for {step.name}. Name one of them.", kind="stage"
            )
        accepted = accepted or _copy(record, shard, plan.work)
    if accepted:
        log.info(f"{step.name}: from a shard")
    return accepted


def _copy(record: StageRecord, shard: Path, work: Path) -> StageRecord:
    for name in record.outputs:
        target = work / name
        if os.path.realpath(target) == os.path.realpath(shard / name):
            continue
        make_folder(target.parent)
        with name_write_errors(target):
            beside = target.with_name(f".{target.name}.{os.getpid()}")
            shutil.copyfile(shard / name, beside)
            beside.replace(target)
    record.write(work)
    return record


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """A clean clone of this project. ``epoch``: its commit's time in seconds since 1970, for all of a bundle.

    ``source`` is the URI of its remote ``origin``, '' without one on the network.
    """

    root: Path
    commit: str
    epoch: int
    source: str = ""


def read_checkout(root: Path) -> Checkout:
    """Read a checkout, in which no file is changed or unknown to git."""
    changed = _git(root, "status", "--porcelain", "--untracked-files=all").splitlines()
    if changed:
        more = [f"and {len(changed) - _SHOWN} more"] if len(changed) > _SHOWN else []
        raise SetupError(
            f"{root}: a release is made of a commit, and these files are not as committed. Commit or stash them:\n  "
            + "\n  ".join([*changed[:_SHOWN], *more]),
            kind="dirty",
        )
    commit, epoch = _git(root, "show", "--no-patch", "--format=%H %ct", "HEAD").split()
    origin = _git(root, "config", "--default", "", "--get", "remote.origin.url").strip()
    return Checkout(root=root, commit=commit, epoch=int(epoch), source=source_uri(origin))


def source_uri(origin: str) -> str:
    """``git+https://HOST/PATH`` of a remote, also of one over SSH, without credentials; '' for a folder."""
    if match := _SCP.fullmatch(origin):
        return f"git+https://{match['host']}/{match['path']}"
    parts = urlsplit(origin)
    if parts.scheme not in ("https", "ssh") or not parts.hostname:
        return ""
    port = f":{parts.port}" if parts.port and parts.scheme == "https" else ""
    return f"git+https://{parts.hostname}{port}/{parts.path.lstrip('/')}"


def demand_undamaged(package: PackagedUpstream, cache: Path) -> None:
    """Raise SetupError if a file of the unpacked upstream is not as published, or can't be checked."""
    if damaged := damage(package, cache):
        folder = package_folder(package, cache)
        more = [f"and {len(damaged) - _SHOWN} more"] if len(damaged) > _SHOWN else []
        lines = "\n  ".join([*damaged[:_SHOWN], *more])
        raise SetupError(
            f"upstream {package.name} in {folder} is not as published. Delete it: it is unpacked again.\n  {lines}",
            kind="dirty",
        )


def demand_pinned(images: Sequence[str]) -> None:
    """Raise TrustError for an image without a digest."""
    for image in images:
        if not _PINNED.fullmatch(image):
            raise TrustError(
                f"image {image}: not pinned. Name it as NAME@sha256: and 64 hexadecimal digits.", kind="unpinned-image"
            )


def _git(root: Path, *arguments: str) -> str:
    try:
        done = run_git(root, *arguments)
    except OSError as error:
        raise SetupError(
            f"git can't be started ({error.strerror}): a release needs it to know its commit.", kind="dirty"
        ) from error
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip()
        raise SetupError(f"{root}: git: {reason}. A release is made in a clone with a commit.", kind="dirty")
    return done.stdout.decode(errors="surrogateescape")
