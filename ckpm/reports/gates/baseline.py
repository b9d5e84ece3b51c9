"""Baselines: the figures of an accepted build, as JSON Lines for each arch, toolchain, upstream and gate.

``baselines/<arch>/<toolchain>/<upstream>.<gate>.jsonl`` begins with a line of facts of the build. The line counts the
subjects, so that a truncated file is noticed. Then each kernel or problem has a line, in the order of their names.
``<upstream>.history.jsonl`` beside it has a line for each acceptance. A library of other families has its own files,
named like its folder in build/: ``<upstream>-fwd``.

The toolchain is ``embedded``, which is pinned, or an installed one with its versions,
``rocm-hipcc-HIP-7.0.2-clang21.1.8``: each version of ROCm has its folder.

Baselines of all gates and their history change together, or not at all. :func:`accept` first writes the new content of
every file into one journal beside them, in one step. From then on the figures are accepted: if the process is killed,
the next command that reads these baselines writes the files.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ckpm.base.bounded import read_bytes, read_text
from ckpm.base.errors import GateError, InconclusiveError
from ckpm.base.files import hold_lock, is_special, name_write_errors, write_atomically
from ckpm.base.paths import data
from ckpm.base.records import Source, as_line
from ckpm.base.tablefile import Count, Text
from ckpm.kernels.library.manifest import Manifest
from ckpm.kernels.upstream.trees import OWN_HEADERS
from ckpm.reports.verdicts import EMULATED, FAMILY, STATIC

FOLDER = data("reports", "baselines")
# facts that must be equal for figures to be comparable; flags may differ, because a gate judges their effect.
# `identity` is the toolchain's
IDENTITY = ("arch", "toolchain", "identity", "upstream", "upstream_identity", "dialect", "mask_impl", "selection")
CHECKOUT = "checkout"
ROCM = "rocm"  # an installed toolchain, whose version differs between machines
_SHOWN = 10
_LOOK = "Look at the figures (ckpm report --manifest FILE), then"
_CORRECT = "Restore it from git, or remove lines that are not complete."
_DELETE = "Delete it, and accept once more."
_WORD = re.compile(r"[A-Za-z0-9._-]+")

Figures = Mapping[str, Mapping[str, float]]  # by subject, then metric


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """Accepted figures of a build. ``facts`` holds IDENTITY and the ``reason`` of the acceptance."""

    facts: Mapping[str, str]
    figures: Figures

    def text(self) -> str:
        """The file's content: stable, so that a change of one figure is a change of one line."""
        lines = [{"facts": dict(self.facts), "subjects": len(self.figures)}]
        for subject, figures in sorted(self.figures.items()):
            lines.append({"subject": subject, "figures": {metric: _number(figures[metric]) for metric in figures}})
        return "".join(map(as_line, lines))


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """Commands for remedies: one makes a library's figures the baseline, one builds the kernels of a selection."""

    accept: str = "ckpm accept --reason TEXT"
    build: Callable[[str], str] = "ckpm build {}".format


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineHead:
    """The first line of a baseline; ``subjects`` counts the lines after it."""

    facts: Mapping[str, str]
    subjects: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectFigures:
    """A line of a baseline: the figures of a kernel or a problem."""

    subject: Text
    figures: Mapping[Text, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """A line of a history: date and reason of an acceptance, and each metric's sum over the subjects."""

    date: str
    gate: str
    reason: str
    identity: str  # of the toolchain
    upstream_identity: str
    subjects: int
    sums: Mapping[str, float]


def toolchain_folder(facts: Mapping[str, str]) -> str:
    """The folder's name for a toolchain: ``embedded``, or name and versions of an installed one."""
    if facts["toolchain"] != ROCM:
        return facts["toolchain"]
    return "-".join(re.findall(r"[A-Za-z0-9._]+", facts["identity"].replace("clang ", "clang")))


def _has_text(file: Path, text: str) -> bool:
    """True if the file has exactly this text. A file of another size is not read, however large it is."""
    expected = text.encode()
    return file.is_file() and file.stat().st_size == len(expected) and read_bytes(file, len(expected)) == expected


def path_of(facts: Mapping[str, str], gate: str, folder: Path = FOLDER) -> Path:
    """Path of the baseline of a build with these facts."""
    name = "-".join(facts[part] for part in ("upstream", FAMILY) if part in facts)
    parts = [facts["arch"], toolchain_folder(facts), name]
    for part in parts:
        if not _WORD.fullmatch(part) or part.startswith("."):
            raise GateError(f"{part!r} can't be part of a baseline's path.")
    arch, toolchain, name = parts
    return folder / arch / toolchain / f"{name}.{gate}.jsonl"


def identity_of(manifest: Manifest, arch: str) -> dict[str, str]:
    """IDENTITY of a built library for one of its archs."""
    facts = {"arch": arch}
    for name in IDENTITY[1:]:
        value = getattr(manifest, name)
        if not value or "\n" in value:
            raise GateError(f"the manifest's field {name} is not a line of text: {value!r}. {manifest.remedy}")
        facts[name] = value
    return facts


def read(file: Path, commands: Commands = Commands()) -> Baseline:
    """Read a baseline.

    Raises InconclusiveError: the file is missing, truncated or damaged, or has a figure that is not a number.
    """
    if not file.exists():
        raise GateError(f"{file}: there is no baseline. {_LOOK}: {commands.accept}")
    remedy = f"Restore it from git, or accept anew: {commands.accept}."
    head, *lines = Source(location=file, what="a baseline", remedy=remedy, error=GateError).read_lines()
    stored = head.record(BaselineHead)
    figures: dict[str, Mapping[str, float]] = {}
    for line in lines:
        row = line.record(SubjectFigures)
        if row.subject in figures:
            raise line.get("subject").fail("is the subject of a line before")
        figures[row.subject] = row.figures
    if len(figures) != stored.subjects or not figures:
        raise head.get("subjects").fail(f"is {stored.subjects}, but {len(figures)} follow")
    return Baseline(facts=stored.facts, figures=figures)


def demand_same(
    baseline: Baseline,
    identity: Mapping[str, str],
    file: Path,
    present: Collection[str] | None = None,
    commands: Commands = Commands(),
) -> None:
    """Raise InconclusiveError if the baseline is of another arch, toolchain, upstream, dialect, mask set or selection.

    A package may not change. The text of a checkout or of our own headers and the flags may change: the gate shows the
    effect. ``present`` are the subjects of this build, if they are known: the message then names missing subjects.
    """
    accepted, built = _comparable(baseline.facts), _comparable(identity)
    names = dict.fromkeys((*IDENTITY, *identity))
    other = [name for name in names if accepted.get(name) != built.get(name)]
    if other:
        lines = [f"  {name}: {baseline.facts.get(name)} / {identity.get(name)}" for name in other]
        gone = [subject for subject in sorted(baseline.figures) if present is not None and subject not in present]
        lines += [f"  built: 1 / 0: {subject}" for subject in gone[:_SHOWN]]
        lines += [f"  and {len(gone) - _SHOWN} more that are not built"] if len(gone) > _SHOWN else []
        if "selection" in other:
            lines.append(f"Build the baseline's selection: {commands.build(baseline.facts['selection'])}")
        if other != ["selection"]:
            lines.append(f"{_LOOK}: {commands.accept}")
        raise GateError("\n".join((f"{file}: not comparable: baseline / this build differ in", *lines)))


def _comparable(identity: Mapping[str, str]) -> dict[str, str]:
    """The identity without the text that a gate judges: a checkout's, and that of our own headers."""
    package = "" if identity.get("upstream") == CHECKOUT else identity.get("upstream_identity", "")
    return {**identity, "upstream_identity": package.partition(OWN_HEADERS)[0]}


def history_of(identity: Mapping[str, str], folder: Path = FOLDER) -> Path:
    """Path of the history: a line for each acceptance, the newest last."""
    return path_of(identity, "history", folder)


def read_history(file: Path) -> tuple[Acceptance, ...]:
    """Read the lines of a history, the oldest first."""
    source = Source(location=file, what="a baseline's history", remedy=_CORRECT, error=InconclusiveError)
    return tuple(line.record(Acceptance) for line in source.read_lines())


def _number(value: float) -> float:
    """The number that JSON writes in the shortest form."""
    return int(value) if value == int(value) else value


def accept(
    identity: Mapping[str, str], measured: Mapping[str, Figures], reason: str, folder: Path = FOLDER
) -> list[Path]:
    """Store each gate's figures as its baseline, with a line of history: date, reason, sum of each metric.

    Figures and reason that equal the baseline's add no line. The caller holds :func:`hold_baselines`. Return the paths
    of the baselines.
    """
    reason = " ".join(reason.split())
    if not reason:
        raise GateError("a baseline is accepted with a reason: --reason TEXT.")
    _demand_finite(measured)
    texts, lines = {}, []
    for gate, figures in measured.items():
        file = path_of(identity, gate, folder)
        if is_special(file):  # writing would wait for whoever reads the pipe
            raise GateError(f"{file}: a pipe or a device is in the baseline's place. Remove it.")
        text = Baseline(facts={**identity, "reason": reason}, figures=figures).text()
        if not _has_text(file, text):
            texts[file.name] = text
            lines.append(_line(identity, gate, figures, reason))
    history = history_of(identity, folder)
    if history.exists():
        read_history(history)  # a damaged history gets no further line
        lines.insert(0, read_text(history))
    if texts:
        write_atomically(_journal(identity, folder), json.dumps({**texts, history.name: "".join(lines)}).encode())
        _complete(identity, folder)
    return [path_of(identity, gate, folder) for gate in measured]


def others_selection(identity: Mapping[str, str], measured: Mapping[str, Figures], folder: Path) -> dict[str, Baseline]:
    """Baselines of another selection, by a text with each file's rows now and after. Damaged ones are left out."""
    by_change = {}
    for gate, figures in measured.items():
        file = path_of(identity, gate, folder)
        with contextlib.suppress(GateError):
            stored = read(file)
            if stored.facts.get("selection") != identity["selection"]:
                what = "problems" if gate == EMULATED else "kernels"
                by_change[f"{file}: {len(stored.figures)} {what} -> {len(figures)}"] = stored
    return by_change


def demand_selection(
    others: Mapping[str, Baseline], measured: Mapping[str, Figures], identity: Mapping[str, str], commands: Commands
) -> None:
    """Raise GateError if there are baselines of another selection, whose figures would be lost."""
    for change, stored in others.items():
        has_rows = measured.get(STATIC, {}).keys() <= stored.figures.keys()
        partial = f"Or update the rows of the built kernels alone: {commands.accept} --partial\n" if has_rows else ""
        raise GateError(
            f"{change}: accepted for {stored.facts['selection']}; this build is {identity['selection']}\n"
            f"Build the baseline's selection: {commands.build(stored.facts['selection'])}\n"
            f"{partial}"
            f"Or replace the baseline by this build's figures: {commands.accept} --replace"
        )


def merge(accepted: Baseline, figures: Figures, identity: Mapping[str, str], file: Path, commands: Commands) -> Figures:
    """The figures of a baseline with those of some of its subjects replaced, of a build that differs in its selection.

    Raises GateError if the build differs in more, or has a subject that the baseline lacks.
    """
    demand_same(accepted, {**identity, "selection": accepted.facts["selection"]}, file, None, commands)
    if new := [subject for subject in figures if subject not in accepted.figures]:
        raise GateError(
            f"{file}: has no row of {new[0]}, and --partial adds none. "
            f"Build the baseline's selection, then accept: {commands.build(accepted.facts['selection'])}"
        )
    return {**accepted.figures, **figures}


@contextlib.contextmanager
def hold_baselines(identity: Mapping[str, str], folder: Path = FOLDER) -> Iterator[None]:
    """Complete a build's baselines and their history, as :func:`complete`, and hold their lock."""
    file = _journal(identity, folder).with_suffix(".lock")
    with hold_lock(file, "name another folder with --baselines"):
        try:
            _complete(identity, folder)
            yield
        finally:
            file.unlink(missing_ok=True)  # git would list it. FileLock takes no lock whose file is gone


def complete(identity: Mapping[str, str], folder: Path = FOLDER) -> None:
    """Write the files that an interrupted :func:`accept` left. Wait for one that runs."""
    if _journal(identity, folder).is_file():
        with hold_baselines(identity, folder):
            pass  # they are complete


def _complete(identity: Mapping[str, str], folder: Path) -> None:
    journal = _journal(identity, folder)
    if not journal.is_file():
        return
    source = Source(location=journal, what="a journal of accepted figures", remedy=_DELETE, error=InconclusiveError)
    for name, text in source.read().texts().items():
        if name != Path(name).name:
            raise GateError(f"{journal}: {name!r} is not a file beside it. {_DELETE}")
        write_atomically(journal.with_name(name), text.encode())
    with name_write_errors(journal):
        journal.unlink()


def _journal(identity: Mapping[str, str], folder: Path) -> Path:
    return path_of(identity, "accepting", folder).with_suffix(".json")


def _demand_finite(measured: Mapping[str, Figures]) -> None:
    for figures in measured.values():
        if not figures:
            raise GateError("there is no figure to accept.")
        for subject, metrics in figures.items():
            if bad := [metric for metric, value in metrics.items() if not math.isfinite(value)]:
                raise GateError(f"{subject}: {', '.join(bad)}: not a finite number, can't be accepted.")


def _line(identity: Mapping[str, str], gate: str, figures: Figures, reason: str) -> str:
    sums: dict[str, float] = {}
    for metric, value in (item for metrics in figures.values() for item in metrics.items()):
        sums[metric] = sums.get(metric, 0) + value
    line = Acceptance(
        date=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        gate=gate,
        reason=reason,
        identity=identity["identity"],
        upstream_identity=identity["upstream_identity"],
        subjects=len(figures),
        sums=sums,
    )
    return as_line(dataclasses.asdict(line))
