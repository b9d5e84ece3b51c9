"""The inputs of a report: manifests, results of suites, parity, gates and the ledger, read from an output folder.

No input is left out silently. A file that can't be read is a row of the report that fails its verdict. So are results
of another build, and results without their library.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ckpm.attention.launch.counters import COUNTERS, LIBRARY_FACTS, Measurements
from ckpm.base.errors import CheckFailedError, InconclusiveError, InputError
from ckpm.base.results import LIBRARY_SHA256, CaseResult, Results
from ckpm.kernels.library.manifest import MANIFEST, Manifest
from ckpm.matrix.problems.ledger import LEDGER, Ledger, read_ledger
from ckpm.matrix.sessions import sessions
from ckpm.reports.gates import baseline
from ckpm.reports.gates.budgets import Budgets, read_budgets
from ckpm.reports.gates.comparing import read_thresholds
from ckpm.reports.resources import read_manifest
from ckpm.reports.verdicts import CANDIDATE, FAMILY, STATIC, WARM, Gate
from ckpm.timing.record import Timings
from ckpm.timing.score import SCORE, Score
from ckpm.timing.sweeps.results import SweepResults as Benchmark

_GATES = tuple(f"{folder}{name}*.json" for name in ("gate", "gpu") for folder in ("", "*/*/"))
TIMINGS = "timing.json"
_TABLES = "timing-*.json"  # of ckpm timing tables, in the folder above the libraries
_BENCHMARKS = "benchmark/*.json"  # of ckpm sweep run
_Record = TypeVar("_Record")
_ORPHAN = f"the tested library's {MANIFEST} is missing. Put it beside this file, or build and test again."
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryResults:
    """A built library: its manifest, and the results of its suites, by suite."""

    manifest_file: Path
    label: str  # the manifest's folders: arch/upstream
    manifest: Manifest
    suites: Mapping[str, Results]
    measured: Measurements | None  # counts of the emulated gate
    timings: Timings | None = None  # of ckpm timing model

    @property
    def upstream(self) -> str:
        return self.manifest.upstream

    @property
    def family(self) -> str:
        """The library's name in its folder ``<upstream>-<library>``, '' for batch prefill's."""
        return _family(self.manifest_file, self.manifest)

    def options(self, arch: str) -> str:
        """The options that name the library in a command."""
        return _options(arch, self.upstream, self.family)

    def results_file(self, suite: str) -> Path:
        return self.manifest_file.with_name(f"{suite}.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """A case of a suite, and the library that it ran on."""

    library: LibraryResults
    suite: str
    case: CaseResult


@dataclass(frozen=True, slots=True)
class Uncounted:
    """A file that the report does not count: a damaged one, or results of another build."""

    file: Path
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportInputs:
    """All inputs. ``gates`` are by file; ``today`` decides which ledger entries have expired.

    ``history`` has the lines of the libraries' histories (reports.gates.baseline.accept) by arch/toolchain/upstream.
    """

    folder: Path
    libraries: tuple[LibraryResults, ...]
    cases: tuple[Tested, ...]  # of all suites
    parity: Results | None
    gates: Mapping[Path, Gate]
    history: Mapping[str, tuple[baseline.Acceptance, ...]]
    ledger: Ledger
    budgets: Budgets
    today: datetime.date
    tables: Mapping[Path, Timings] = field(default_factory=dict)  # by file
    benchmarks: Mapping[Path, Benchmark] = field(default_factory=dict)  # by file
    score: Score | None = None  # of the timing model
    uncounted: tuple[Uncounted, ...] = ()

    @property
    def uncounted_files(self) -> set[Path]:
        return {uncounted.file for uncounted in self.uncounted}

    def timings(self) -> Iterator[tuple[str, Timings]]:
        """Every file of modelled times, with its library's label or its own name."""
        for library in self.libraries:
            if library.timings:
                yield library.label, library.timings
        for file, timings in self.tables.items():
            yield str(file.relative_to(self.folder)), timings


def gates_of(inputs: ReportInputs, library: LibraryResults, arch: str) -> list[Gate]:
    """Gates of an arch that name the library's upstream and family, or that judged the library."""
    named = library.upstream, library.family
    return [
        gate
        for file, gate in inputs.gates.items()
        if gate.provenance.get("arch", arch) == arch
        and (
            (gate.provenance.get("upstream"), gate.provenance.get(FAMILY, "")) == named
            or _manifest_of(file, gate) == library.manifest_file.resolve()
        )
    ]


def measured_seconds(inputs: ReportInputs, library: LibraryResults, arch: str) -> dict[str, float]:
    """Seconds of a launch on a GPU with a warm cache, by problem. The emulator's times don't count."""
    return {
        row.subject: row.candidate * _SECONDS[row.unit]
        for gate in gates_of(inputs, library, arch)
        if not gate.provenance.get("gpu", "").startswith("emulated")
        for row in gate.rows
        if row.gate == "gpu" and row.metric == WARM and row.unit in _SECONDS and row.candidate and row.candidate > 0
    }


def gather(
    folder: Path, ledger: Path = LEDGER, today: datetime.date | None = None, baselines: Path = baseline.FOLDER
) -> ReportInputs:
    """Read the output of sessions: ``<arch>/<upstream>/manifest.json``; ``<suite>.json``, ``counters.json`` and
    ``timing.json`` beside it; ``gate*.json`` and ``gpu*.json`` beside it or in the folder; ``parity.json``,
    ``timing-*.json``, ``model-score.json`` and ``benchmark/*.json`` in the folder.
    """
    manifests = sorted(folder.glob(f"*/*/{MANIFEST}"))
    results = sorted(file for suite in sessions().suites for file in folder.glob(f"*/*/{suite}.json"))
    parity = folder / "parity.json"
    gates = sorted(file for pattern in _GATES for file in folder.glob(pattern))
    tables, benchmarks = (sorted(folder.glob(pattern)) for pattern in (_TABLES, _BENCHMARKS))
    if not (manifests or results or gates or tables or benchmarks or parity.exists()):
        raise InconclusiveError(
            f"{folder}: nothing to report: no <arch>/<upstream>/manifest.json, parity.json or gate.json. "
            "Build and test first (ckpm build, ckpm test --suite large-kv), or name another folder with --input.",
            kind="nothing-to-report",
        )
    reader = _ReportReader([Uncounted(file, _ORPHAN) for file in results if not file.with_name(MANIFEST).exists()])
    built = reader.read_all(read_manifest, manifests)
    libraries = tuple(_library(reader, file, manifest) for file, manifest in built.items())
    by_place = {file.resolve(): manifest for file, manifest in built.items()}
    return ReportInputs(
        folder=folder,
        libraries=libraries,
        cases=tuple(
            Tested(library=library, suite=suite, case=case)
            for library in libraries
            for suite, results in library.suites.items()
            for case in results.cases
        ),
        parity=reader.read(lambda path: _parity(path, built.values()), parity),
        gates=reader.read_all(lambda path: _gate(path, by_place), gates),
        history=_history(libraries, baselines),
        ledger=read_ledger(ledger),
        budgets=read_budgets(read_thresholds(STATIC)),
        today=today or datetime.date.today(),
        tables=reader.read_all(Timings.read, tables),
        benchmarks=reader.read_all(Benchmark.read, benchmarks),
        score=reader.read(Score.read, folder / SCORE),
        uncounted=tuple(reader.uncounted),
    )


def files_of(folder: Path) -> list[Path]:
    """Every file that :func:`gather` reads of a folder."""
    beside = ("manifest.json", COUNTERS, TIMINGS, *(f"{suite}.json" for suite in sessions().suites))
    patterns = (*(f"*/*/{name}" for name in beside), "parity.json", _TABLES, SCORE, _BENCHMARKS, *_GATES)
    return [file for pattern in patterns for file in folder.glob(pattern)]


@dataclass(frozen=True, slots=True)
class _ReportReader:
    """Reads records of files, and collects the files that don't count."""

    uncounted: list[Uncounted]

    def read(self, read_record: Callable[[Path], _Record], file: Path) -> _Record | None:
        """The file's record; None if there is no file or it doesn't count."""
        try:
            return read_record(file) if file.exists() else None
        except (InputError, InconclusiveError, CheckFailedError) as error:
            self.uncounted.append(Uncounted(file, str(error).removeprefix(f"{file}: ")))
        return None

    def read_all(self, read_record: Callable[[Path], _Record], files: Iterable[Path]) -> dict[Path, _Record]:
        return {file: record for file in files if (record := self.read(read_record, file)) is not None}


def _library(reader: _ReportReader, file: Path, manifest: Manifest) -> LibraryResults:
    """A library, with counts and results of the same build."""
    files = {file.with_name(f"{suite}.json"): suite for suite in sessions().suites}
    results = reader.read_all(lambda path: _results(path, file, manifest), files)
    return LibraryResults(
        manifest_file=file,
        label=f"{file.parent.parent.name}/{file.parent.name}",
        manifest=manifest,
        suites={files[path]: suite_results for path, suite_results in results.items()},
        measured=reader.read(lambda path: _measurements(path, manifest), file.with_name(COUNTERS)),
        timings=reader.read(lambda path: _timings(path, manifest), file.with_name(TIMINGS)),
    )


def _results(path: Path, manifest_file: Path, manifest: Manifest) -> Results:
    """A suite's results; CheckFailedError if they are of another build than the manifest's."""
    results, digest, family = Results.read(path), manifest.library_sha256, _family(manifest_file, manifest)
    if digest and (tested := results.facts.get(LIBRARY_SHA256, digest)) != digest:
        raise CheckFailedError(
            f"{path}: results of another build than the one beside it: its library had the sha256 {tested}. "
            f"Run it again: ckpm test --suite {path.stem} {_options(manifest.archs[0], manifest.upstream, family)}",
            kind="stale",
        )
    return results


def _gate(path: Path, built: Mapping[Path, Manifest]) -> Gate:
    """A gate's result; CheckFailedError if the library that it judged is missing, or was built again since.

    ``built`` are manifests by resolved path.
    """
    gate = Gate.read(path)
    facts, file = gate.provenance, _manifest_of(path, gate)
    named, sha256 = "arch" in facts and "upstream" in facts, facts.get(f"{CANDIDATE} {LIBRARY_SHA256}")
    if sha256 and named and not file.exists():
        raise CheckFailedError(f"{path}: {_ORPHAN}", kind="stale")
    if sha256 and file.exists():
        manifest = built[file] if file in built else read_manifest(file)
        options = _options(facts["arch"], facts["upstream"], facts.get(FAMILY, "")) if named else ""
        command = f"ckpm gate {options}" if named else "ckpm compare"
        _demand_same_build(path, {LIBRARY_SHA256: sha256}, manifest, f"Run {command} again")
    return gate


def _manifest_of(path: Path, gate: Gate) -> Path:
    """The manifest of the library that a gate judged: of the one that it names if that is here, else beside it."""
    named = (path.parent / gate.provenance.get(CANDIDATE, MANIFEST)).parent / MANIFEST
    here = os.path.exists(named)  # noqa: PTH110 - False also for a text that can't be a path
    return (named if here else path.with_name(MANIFEST)).resolve()


def _parity(path: Path, built: Iterable[Manifest]) -> Results:
    """Parity's results; CheckFailedError if a library was built from another tree of the same upstream."""
    results = Results.read(path)
    for manifest in built:
        compared = results.facts.get(manifest.upstream, manifest.upstream_identity)
        if compared != manifest.upstream_identity:
            raise CheckFailedError(
                f"{path}: cases of another {manifest.upstream} than the library's: {compared}, not "
                f"{manifest.upstream_identity}. Run it again: {parity_command(path)}",
                kind="stale",
            )
    return results


def parity_command(output: Path) -> str:
    """The command that writes parity's results."""
    return f"ckpm parity --output {output}"


def _options(arch: str, upstream: str, family: str) -> str:
    return f"--arch {arch} --upstream {upstream}{f' --family {family}' if family else ''}"


def _measurements(path: Path, manifest: Manifest) -> Measurements:
    measured = Measurements.read(path)
    options = _options(measured.provenance["arch"], manifest.upstream, _family(path, manifest))
    _demand_same_build(path, measured.provenance, manifest, f"Run ckpm gate {options} again")
    return measured


def _timings(path: Path, manifest: Manifest) -> Timings:
    timings = Timings.read(path)
    _demand_same_build(path, timings.provenance, manifest, "Run ckpm timing model again")
    return timings


def _demand_same_build(path: Path, provenance: Mapping[str, Any], manifest: Manifest, remedy: str) -> None:
    facts = {name: getattr(manifest, name) for name in LIBRARY_FACTS} | {LIBRARY_SHA256: manifest.library_sha256}
    if other := [name for name, value in facts.items() if provenance.get(name, value) != value]:
        raise CheckFailedError(
            f"{path}: made from another build than the manifest lists: {other[0]} differs. {remedy}.", kind="stale"
        )


def _family(file: Path, manifest: Manifest) -> str:
    folder, upstream = file.parent.name, f"{manifest.upstream}-"
    return folder.removeprefix(upstream) if folder.startswith(upstream) else ""


def _history(libraries: Iterable[LibraryResults], baselines: Path) -> dict[str, tuple[baseline.Acceptance, ...]]:
    """Read the history of each library's baselines."""
    histories: dict[str, tuple[baseline.Acceptance, ...]] = {}
    for library in libraries:
        for arch in library.manifest.archs:
            for file in sorted((baselines / arch).glob("*/*.history.jsonl")):
                if file.name != f"{library.upstream}.history.jsonl":  # an upstream's name may look like a pattern
                    continue
                histories[f"{arch}/{file.parent.name}/{library.upstream}"] = baseline.read_history(file)
    return histories
