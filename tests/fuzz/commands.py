"""The commands that read files of others, with their arguments, valid files and exit codes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import ckpm_emulator.cli
from ckpm.attention.launch.counters import LIBRARY_FACTS, METRICS, Measured, Measurements
from ckpm.base.junit import write_junit
from ckpm.base.results import Results
from ckpm.commands import main as ckpm
from ckpm.commands import split
from ckpm.matrix.problems.performance import performance_problems
from tests.fuzz.compiled import LIBRARY, prepare_code
from tests.fuzz.hostile import BYTES, DOCUMENT, TEXT, Change
from tests.unit.matrix.test_validate import YAML
from tests.unit.reports.board_samples import write_parcel
from tests.unit.reports.release.samples import make_bundle, update_sums
from tests.unit.reports.report_samples import SLOWER, case, write
from tests.unit.reports.timing_samples import timings

Main = Callable[[list[str]], int]
EMULATOR = "python -m ckpm_emulator"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """``argv`` runs in a copy of ``folder`` with one of ``inputs`` made hostile.

    ``ends`` is the exit code with the valid files. ``amend`` hides a change, in half of the cases.
    """

    name: str
    main: Main
    argv: tuple[str, ...]
    folder: str
    inputs: dict[str, tuple[Change, ...]]
    ends: int = 0
    amend: Callable[[Path], None] | None = None


def _of(line: str, folder: str, inputs: dict[str, tuple[Change, ...]], ends: int = 0) -> Command:
    """A command line of ckpm, or one that begins with EMULATOR."""
    tokens = line.removeprefix(EMULATOR).split()
    name, main = (EMULATOR, ckpm_emulator.cli.main) if line.startswith(EMULATOR) else (split(tokens)[0], ckpm)
    return Command(name=name, main=main, argv=tuple(tokens), folder=folder, inputs=inputs, ends=ends)


def commands() -> tuple[Command, ...]:
    """The table: each reader of files that others write (docs/reference/security.md), by one or two of its commands."""
    kinds = ("manifest", "batch-prefill", "page-fault", "gate", "counters")
    report = {**{f"build/gfx950/aiter/{kind}.json": DOCUMENT for kind in kinds}, "build/parity.json": DOCUMENT}
    bundled = ("verdict.json", "SHA256SUMS", "waivers.yaml", "stages.yaml", "ledger.yaml")
    bundle = {f"bundle/{name}": TEXT for name in bundled}
    return (
        _of("count --sweep sweep.json --arch gfx950", "files", {"sweep.json": DOCUMENT}),
        _of("validate configuration.yaml", "files", {"configuration.yaml": DOCUMENT}),
        _of("report --junit results.json --output out.xml", "files", {"results.json": DOCUMENT}, ends=8),
        _of("model counters.json", "files", {"counters.json": DOCUMENT}),
        _of("timing show timing.json", "files", {"timing.json": DOCUMENT}),
        _of("report --merge one.xml two.xml --output out.xml", "files", {"one.xml": TEXT, "two.xml": TEXT}),
        _of("report --input build --html out.html --output out.md", "report", report, ends=8),
        replace(_of("verify-bundle bundle --unsigned", "bundle", bundle), amend=lambda at: update_sums(at / "bundle")),
        _of("verify-bundle bundle.tar --unsigned", "bundle", {"bundle.tar": BYTES}),
        _of("gpu-results run.tar.xz", "board", {"run.tar.xz": BYTES}),
        _of("python -m ckpm_emulator coverage library.o", "code", {"library.o": BYTES}),
        _of("python -m ckpm_emulator inspect code.co --arch gfx950", "code", {"code.co": BYTES}),
        _of("workflows collect --plan plan.json --artifacts artifacts --output joined", "jobs", _JOBS),
    )


_JOB = "artifacts/results-gfx950-aiter-batch_prefill/gfx950/aiter"
_JOBS = {
    "plan.json": DOCUMENT,
    f"{_JOB}/dispatch.xml": TEXT,
    f"{_JOB}/gate.json": DOCUMENT,
    "artifacts/library-gfx950-aiter-batch_prefill-1of1/gfx950/aiter/manifest.json": DOCUMENT,
}


def prepare(top: Path) -> None:
    """Write the valid files of all commands, in a folder for each ``Command.folder``."""
    _files(top / "files")
    _report(top / "report")
    prepare_code(top / "code")
    write_parcel(top / "board" / "run")
    _jobs(top / "jobs")
    folder, tar = make_bundle(top / "made")
    (top / "bundle").mkdir()
    shutil.move(folder, top / "bundle" / "bundle")
    shutil.move(tar, top / "bundle" / "bundle.tar")


def _files(folder: Path) -> None:
    folder.mkdir(parents=True)
    lists = {"data_type": ["bf16"], "pipeline": ["qr_async"], "mask": ["no"], "bias": ["no"]}
    sweep = {"variant": "fwd", "trait_config": {name: {"values": values} for name, values in lists.items()}}
    (folder / "sweep.json").write_text(json.dumps(sweep))
    (folder / "configuration.yaml").write_text(YAML)
    Results((case(), case("dispatch/a", "failed", "O differs", "line"))).write(folder / "results.json")
    _counters("performance/one").write(folder / "counters.json")
    timings().write(folder / "timing.json")
    for name in ("one", "two"):
        write_junit(Results((case(f"dispatch/{name}"), case(f"page-fault/{name}"))), folder / f"{name}.xml")


def _counters(problem: str, **provenance: str) -> Measurements:
    counts = {**dict.fromkeys(METRICS, 0), "workgroups": 16, "waves": 64, "mfma_flops": 10**6, "mfma_cycles": 240_000}
    measured = Measured(
        problem=problem, kernel="k", dtype="bf16", occupancy_waves=2, compulsory_bytes=10**6, counters=counts
    )
    facts = {**dict.fromkeys(LIBRARY_FACTS, "x"), "arch": "gfx950", "tier": "smoke", **provenance}
    return Measurements(provenance=facts, problems=(measured,), left_out={})


def _report(folder: Path) -> None:
    """Write an output folder of suites and gates. One gate fails."""
    write(folder / "build", rows=[SLOWER])
    stored = json.loads((folder / LIBRARY / "manifest.json").read_text())
    facts = {name: str(stored[name]) for name in LIBRARY_FACTS}
    _counters(performance_problems("smoke")[0].name, **facts).write(folder / LIBRARY / "counters.json")
    Results((case("names/aiter"),)).write(folder / "build" / "parity.json")


def _jobs(folder: Path) -> None:
    target = {"arch": "gfx950", "upstream": "aiter", "library": "batch_prefill"}
    plan = {
        "check_commands": {},
        "builds": [{**target, "shard": "1/1", "command": "nox -s build-gfx950"}],
        "runs": [{**target, "suites": ["dispatch"], "gate": True, "command": "nox -s test-dispatch perf-gate"}],
    }
    (folder / _JOB).mkdir(parents=True)
    (folder / "plan.json").write_text(json.dumps(plan))
    write_junit(Results((case("dispatch/a"),)), folder / _JOB / "dispatch.xml")
    (folder / _JOB / "gate.json").write_text('{"rows": [1]}')
    file = folder / "artifacts/library-gfx950-aiter-batch_prefill-1of1/gfx950/aiter/manifest.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"kernels": {"k": {}}}))
