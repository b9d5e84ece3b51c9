"""What a report is made of: manifests, results of suites, parity, gates and the ledger, read from an output folder.

Nothing is left out silently: a file that can't be read, or results of a library that isn't there, is an error that
names it, and no report is written.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels.base.results import LIBRARY_SHA256, Case, Results, read_results
from kernels.launch.counters import LIBRARY_FACTS, Measurements, read_measurements
from matrix.problems.ledger import LEDGER, Ledger, read_ledger
from matrix.problems.problem import FAMILY_SUITE, SUITES
from reports.errors import GateError, NothingToReportError, OrphanResultsError
from reports.gates import baseline
from reports.gates.budgets import Budgets, read_budgets
from reports.gates.comparing import read_thresholds
from reports.gates.emulated import COUNTERS
from reports.gates.statistics import WARM
from reports.page.case_text import Told, told
from reports.resources import read_manifest
from reports.verdicts import Gate

_SUITES = (*SUITES, FAMILY_SUITE)
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """A built library: its manifest, and the results of the suites that were run on it, by suite."""

    place: Path  # of the manifest
    label: str  # the manifest's folders: arch/upstream
    manifest: Mapping[str, Any]
    suites: Mapping[str, Results]
    measured: Measurements | None  # what the emulated gate counted

    @property
    def upstream(self) -> str:
        return str(self.manifest["upstream"])

    def results_file(self, suite: str) -> Path:
        return self.place.with_name(f"{suite}.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """A case of a suite, and what its text tells."""

    library: Library
    suite: str
    case: Case
    told: Told


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Everything that was found. ``gates`` are by file; ``today`` decides which ledger entries have expired.

    ``history`` holds the lines of the libraries' histories (reports.gates.baseline.accept) by arch/toolchain/upstream.
    """

    folder: Path
    libraries: tuple[Library, ...]
    cases: tuple[Tested, ...]  # of all suites
    parity: Results | None
    gates: Mapping[Path, Gate]
    history: Mapping[str, tuple[Mapping[str, Any], ...]]
    ledger: Ledger
    budgets: Budgets
    today: datetime.date


def gates_of(inputs: Inputs, library: Library, arch: str) -> list[Gate]:
    """The gates that judged a library for an arch: they name it, or lie beside its manifest."""
    folder = library.place.parent
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


def measured_seconds(inputs: Inputs, library: Library, arch: str) -> dict[str, float]:
    """Seconds of a launch on a GPU with a warm cache, by problem. The emulator's times are none of a GPU."""
    return {
        row.subject: row.candidate * _SECONDS[row.unit]
        for gate in gates_of(inputs, library, arch)
        if not gate.provenance.get("gpu", "").startswith("emulated")
        for row in gate.rows
        if row.gate == "gpu" and row.metric == WARM and row.unit in _SECONDS and row.candidate and row.candidate > 0
    }


def gather(
    folder: Path, ledger: Path = LEDGER, today: datetime.date | None = None, baselines: Path = baseline.FOLDER
) -> Inputs:
    """Read what sessions leave: ``<arch>/<upstream>/manifest.json``, ``<suite>.json`` and ``counters.json`` beside it,
    ``gate*.json`` and ``gpu*.json`` there or above, ``parity.json`` above.

    Raises:
        NothingToReportError: the folder holds none of them.
        OrphanResultsError: results lie where no manifest is, or are those of another build.
        ManifestError, ResultsError, GateError, TableError: a file that can't be read; the message names it.
    """
    manifests = sorted(folder.glob("*/*/manifest.json"))
    results = sorted(file for suite in _SUITES for file in folder.glob(f"*/*/{suite}.json"))
    parity = folder / "parity.json"
    gates = sorted(
        file for name in ("gate*.json", "gpu*.json") for place in ("", "*/*/") for file in folder.glob(place + name)
    )
    if not (manifests or results or gates or parity.exists()):
        raise NothingToReportError(
            f"{folder}: nothing to report: no <arch>/<upstream>/manifest.json, parity.json or gate.json. "
            "Build and test first (nox -s build-gfx950 test-large-kv), or name another folder with --input."
        )
    for file in results:
        if not file.with_name("manifest.json").exists():
            raise OrphanResultsError(
                f"{file}: results of a library whose manifest.json is missing: nobody could tell what was tested. "
                "Put the manifest beside it, or build and test again."
            )
    libraries = tuple(_library(file) for file in manifests)
    return Inputs(
        folder=folder,
        libraries=libraries,
        cases=tuple(
            Tested(library=library, suite=suite, case=case, told=told(case))
            for library in libraries
            for suite, found in library.suites.items()
            for case in found.cases
        ),
        parity=read_results(parity) if parity.exists() else None,
        gates={file: Gate.read(file) for file in gates},
        history=_history(libraries, baselines),
        ledger=read_ledger(ledger),
        budgets=read_budgets(read_thresholds()),
        today=today or datetime.date.today(),
    )


def _library(file: Path) -> Library:
    """Raises ManifestError, ResultsError; OrphanResultsError for counts or results of another build."""
    counters = file.with_name(COUNTERS)
    places = {suite: file.with_name(f"{suite}.json") for suite in _SUITES}
    manifest = read_manifest(file)
    measured = read_measurements(counters) if counters.exists() else None
    other = [name for name in LIBRARY_FACTS if measured and measured.provenance[name] != manifest.get(name)]
    if other:
        raise OrphanResultsError(
            f"{counters}: counted on another build than the one beside it: {other[0]} differs. Run the gate again."
        )
    suites = {suite: read_results(place) for suite, place in places.items() if place.exists()}
    digest = manifest.get("artifacts", {}).get(manifest.get("library"))
    for suite, found in suites.items():
        if digest and found.facts.get(LIBRARY_SHA256, digest) != digest:
            raise OrphanResultsError(
                f"{places[suite]}: results of another build than the one beside it: its library had the sha256 "
                f"{found.facts[LIBRARY_SHA256]}. Run it again: python -m tests.gpu --suite {suite} "
                f"--arch {manifest['archs'][0]} --upstream {manifest['upstream']}{_family(file, manifest, suite)}"
            )
    return Library(
        place=file,
        label=f"{file.parent.parent.name}/{file.parent.name}",
        manifest=manifest,
        suites=suites,
        measured=measured,
    )


def _family(file: Path, manifest: Mapping[str, Any], suite: str) -> str:
    """The option that names a library of fwd's families, after which its folder is called."""
    library = file.parent.name.removeprefix(f"{manifest['upstream']}-")
    return f" --family {library}" if suite == FAMILY_SUITE else ""


def _history(libraries: Iterable[Library], baselines: Path) -> dict[str, tuple[Mapping[str, Any], ...]]:
    """Raises GateError: a line that is none of a history."""
    found: dict[str, tuple[Mapping[str, Any], ...]] = {}
    for library in libraries:
        for arch in library.manifest["archs"]:
            for file in sorted((baselines / arch).glob(f"*/{library.upstream}.history.jsonl")):
                lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
                name = f"{arch}/{file.parent.name}/{library.upstream}"
                found[name] = tuple(_accepted(file, number, line) for number, line in enumerate(lines, 1))
    return found


def _accepted(file: Path, number: int, text: str) -> Mapping[str, Any]:
    try:
        line = json.loads(text)
        words = all(isinstance(line[name], str) for name in ("date", "gate", "reason"))
        sums = line["sums"]
        good = words and all(isinstance(value, int | float) for value in sums.values())
    except (ValueError, TypeError, KeyError, AttributeError):
        good = False
    if not good:
        raise GateError(f"{file}:{number}: no line of a baseline's history. Restore it from git.")
    found: Mapping[str, Any] = line
    return found
