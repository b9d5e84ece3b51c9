"""The inputs of a report: manifests, results of suites, parity, gates and the ledger, read from an output folder.

No input is left out silently: a file that can't be read, or results of a missing library, is an error that names it,
and no report is written.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ckpm.attention.launch.counters import COUNTERS, LIBRARY_FACTS, Measurements
from ckpm.base.errors import CheckFailedError, InconclusiveError
from ckpm.base.results import LIBRARY_SHA256, CaseResult, Results
from ckpm.kernels.library.manifest import MANIFEST, Manifest
from ckpm.matrix.problems.case import FAMILY_SUITE, SUITES
from ckpm.matrix.problems.ledger import LEDGER, Ledger, read_ledger
from ckpm.reports.gates import baseline
from ckpm.reports.gates.budgets import Budgets, read_budgets
from ckpm.reports.gates.comparing import read_thresholds
from ckpm.reports.gates.statistics import WARM
from ckpm.reports.resources import read_manifest
from ckpm.reports.verdicts import STATIC, Gate
from ckpm.timing.record import Timings
from ckpm.timing.score import SCORE, Score
from ckpm.timing.sweeps.results import SweepResults as Benchmark

_SUITES = (*SUITES, FAMILY_SUITE)
_GATES = tuple(f"{folder}{name}*.json" for name in ("gate", "gpu") for folder in ("", "*/*/"))
TIMINGS = "timing.json"
_TABLES = "timing-*.json"  # of ckpm timing tables, in the folder above the libraries
_BENCHMARKS = "benchmark/*.json"  # of ckpm sweep run
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

    def results_file(self, suite: str) -> Path:
        return self.manifest_file.with_name(f"{suite}.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """A case of a suite, and the library that it ran on."""

    library: LibraryResults
    suite: str
    case: CaseResult


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

    def timings(self) -> Iterator[tuple[str, Timings]]:
        """Every file of modelled times, with its library's label or its own name."""
        for library in self.libraries:
            if library.timings:
                yield library.label, library.timings
        for file, timings in self.tables.items():
            yield str(file.relative_to(self.folder)), timings


def gates_of(inputs: ReportInputs, library: LibraryResults, arch: str) -> list[Gate]:
    """Gates of an arch that name the library's upstream, or are beside its manifest."""
    folder = library.manifest_file.parent
    return [
        gate
        for file, gate in inputs.gates.items()
        if gate.provenance.get("arch", arch) == arch
        and (
            gate.provenance.get("upstream") == library.upstream
            or file.parent == folder
            or Path(gate.provenance.get("candidate", "-")).parent == folder.absolute()
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
    results = sorted(file for suite in _SUITES for file in folder.glob(f"*/*/{suite}.json"))
    parity = folder / "parity.json"
    gates = sorted(file for pattern in _GATES for file in folder.glob(pattern))
    tables, benchmarks = (sorted(folder.glob(pattern)) for pattern in (_TABLES, _BENCHMARKS))
    if not (manifests or results or gates or tables or benchmarks or parity.exists()):
        raise InconclusiveError(
            f"{folder}: nothing to report: no <arch>/<upstream>/manifest.json, parity.json or gate.json. "
            "Build and test first (ckpm build, ckpm test --suite large-kv), or name another folder with --input.",
            kind="nothing-to-report",
        )
    for file in results:
        if not file.with_name(MANIFEST).exists():
            raise CheckFailedError(
                f"{file}: results of a library whose manifest.json is missing: the tested library is unknown. "
                "Put the manifest beside it, or build and test again.",
                kind="orphan-results",
            )
    libraries = tuple(_library(file) for file in manifests)
    return ReportInputs(
        folder=folder,
        libraries=libraries,
        cases=tuple(
            Tested(library=library, suite=suite, case=case)
            for library in libraries
            for suite, results in library.suites.items()
            for case in results.cases
        ),
        parity=Results.read(parity) if parity.exists() else None,
        gates={file: Gate.read(file) for file in gates},
        history=_history(libraries, baselines),
        ledger=read_ledger(ledger),
        budgets=read_budgets(read_thresholds(STATIC)),
        today=today or datetime.date.today(),
        tables={file: Timings.read(file) for file in tables},
        benchmarks={file: Benchmark.read(file) for file in benchmarks},
        score=Score.read(score) if (score := folder / SCORE).exists() else None,
    )


def files_of(folder: Path) -> list[Path]:
    """Every file that :func:`gather` reads of a folder."""
    beside = ("manifest.json", COUNTERS, TIMINGS, *(f"{suite}.json" for suite in _SUITES))
    patterns = (*(f"*/*/{name}" for name in beside), "parity.json", _TABLES, SCORE, _BENCHMARKS, *_GATES)
    return [file for pattern in patterns for file in folder.glob(pattern)]


def _library(file: Path) -> LibraryResults:
    """Read a library, with counts and results of the same build."""
    counters, timing = file.with_name(COUNTERS), file.with_name(TIMINGS)
    paths = {suite: file.with_name(f"{suite}.json") for suite in _SUITES}
    manifest = read_manifest(file)
    measured = Measurements.read(counters) if counters.exists() else None
    timings = Timings.read(timing) if timing.exists() else None
    for path, record, remedy in (
        (counters, measured, "Run the gate again"),
        (timing, timings, "Run ckpm timing model again"),
    ):
        other = [name for name in LIBRARY_FACTS if record and record.provenance[name] != getattr(manifest, name)]
        if other:
            raise CheckFailedError(
                f"{path}: made from another build than the library beside it: {other[0]} differs. {remedy}.",
                kind="orphan-results",
            )
    suites = {suite: Results.read(path) for suite, path in paths.items() if path.exists()}
    digest = manifest.library_sha256
    for suite, results in suites.items():
        if digest and results.facts.get(LIBRARY_SHA256, digest) != digest:
            raise CheckFailedError(
                f"{paths[suite]}: results of another build than the one beside it: its library had the sha256 "
                f"{results.facts[LIBRARY_SHA256]}. Run it again: ckpm test --suite {suite} "
                f"--arch {manifest.archs[0]} --upstream {manifest.upstream}{_family(file, manifest, suite)}",
                kind="orphan-results",
            )
    return LibraryResults(
        manifest_file=file,
        label=f"{file.parent.parent.name}/{file.parent.name}",
        manifest=manifest,
        suites=suites,
        measured=measured,
        timings=timings,
    )


def _family(file: Path, manifest: Manifest, suite: str) -> str:
    """The ``--family`` option of a library in folder ``<upstream>-<family>``."""
    library = file.parent.name.removeprefix(f"{manifest.upstream}-")
    return f" --family {library}" if suite == FAMILY_SUITE else ""


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
