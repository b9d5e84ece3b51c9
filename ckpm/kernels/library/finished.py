"""The record ``.built`` of finished targets in an output folder, one JSON line for each target.

SCons checks whether the inputs of a target changed, never whether the target itself is whole. The record contains the
sha256 of every finished target. Before a build, targets that differ from this plan's record are deleted, and SCons
makes them again. Such targets are damaged files, and objects that a killed build left for another selection.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ckpm.base.files import name_write_errors, open_plain, sha256_of, write_atomically
from ckpm.kernels.library.plan import BuildPlan, BuildStep

RECORD = ".built"


@dataclass(frozen=True, slots=True)
class FinishedEntry:
    """A finished target: the signature of the step that made it, its size, time of writing and sha256."""

    signature: str
    size: int
    mtime_ns: int
    sha256: str


def note(folder: Path, step: BuildStep) -> None:
    """Record a step's target as finished. One write, so that threads and a sudden end leave whole lines."""
    file = Path(step.target)
    stat = file.stat()
    entry = FinishedEntry(step.signature, stat.st_size, stat.st_mtime_ns, sha256_of(file))
    line = json.dumps([step.target, *dataclasses.astuple(entry)]) + "\n"
    descriptor = os.open(folder / RECORD, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def demand_plain(folder: Path) -> None:
    """Refuse a record that is a link, whose target would be overwritten, or a folder."""
    file = folder / RECORD
    with name_write_errors(file, "delete it: it is made again"):
        if file.is_symlink():
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        if file.exists():
            open_plain(file).close()


def entries(folder: Path) -> dict[str, FinishedEntry]:
    """Return the last entry of every target; unreadable lines count as absent."""
    try:
        lines = (folder / RECORD).read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return {}
    entries = {}
    for line in lines:
        try:
            target, signature, size, mtime_ns, digest = json.loads(line)
        except (ValueError, TypeError):
            continue
        entries[str(target)] = FinishedEntry(signature, size, mtime_ns, digest)
    return entries


def discard_unsound(plan: BuildPlan) -> list[BuildStep]:
    """Delete and forget the targets that differ from their step's record; return the steps with damaged targets.

    Objects are hashed only if size or time differ from the record; the library and the manifest always.
    Runs in the work folder.
    """
    folder = Path(plan.folder)
    recorded = entries(folder)
    damaged, gone = [], set()
    for step in plan.steps:
        entry, file = recorded.get(step.target), Path(step.target)
        if not file.exists():
            continue
        is_current = entry is not None and entry.signature == step.signature
        if is_current and _is_sound(file, recorded[step.target], trust_time=step.kind in ("unit", "host")):
            continue
        file.unlink()
        gone.add(step.target)
        if is_current:
            damaged.append(step)
    _rewrite(folder, {target: entry for target, entry in recorded.items() if target not in gone})
    return damaged


def missing_outputs(plan: BuildPlan, work: Path) -> list[str]:
    """The library and the manifest of a plan, if they are not there as the plan's steps make them."""
    recorded = entries(work / plan.folder)
    signatures = {target: entry.signature for target, entry in recorded.items() if (work / target).is_file()}
    steps = (step for step in plan.steps if step.kind in ("library", "manifest"))
    return [step.target for step in steps if signatures.get(step.target) != step.signature]


def discard_damaged(folder: Path, targets: Sequence[str]) -> list[str]:
    """Hash finished targets, delete those that are not as recorded, return their names. Runs in the work folder."""
    recorded = entries(folder)
    bad = [name for name in targets if name in recorded and not _is_sound(Path(name), recorded[name], trust_time=False)]
    for name in bad:
        Path(name).unlink(missing_ok=True)
    return bad


def _is_sound(file: Path, entry: FinishedEntry, *, trust_time: bool) -> bool:
    stat = file.stat()
    if stat.st_size != entry.size:
        return False
    return (trust_time and stat.st_mtime_ns == entry.mtime_ns) or sha256_of(file) == entry.sha256


def _rewrite(folder: Path, recorded: Mapping[str, FinishedEntry]) -> None:
    """Write the record without repetitions, because it would grow with every build."""
    lines: Iterable[str] = (
        json.dumps([target, *dataclasses.astuple(entry)]) + "\n" for target, entry in recorded.items()
    )
    write_atomically(folder / RECORD, "".join(lines).encode())
