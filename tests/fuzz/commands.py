"""The commands that read a user's file, with their arguments, valid files and exit codes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

import ckpm_emulator.cli
from ckpm.attention.launch.counters import LIBRARY_FACTS, METRICS, Measured, Measurements
from ckpm.base.junit import write_junit
from ckpm.base.results import Results
from ckpm.cluster import site
from ckpm.commands import main as ckpm
from ckpm.commands import split
from ckpm.kernels.library import write_manifest
from ckpm.matrix.problems.ledger import LEDGER
from ckpm.matrix.problems.performance import performance_problems
from tests.fuzz.code_damage import CODE, launch
from tests.fuzz.compiled import LIBRARY, prepare_code, prepare_library, prepare_loadable
from tests.fuzz.hostile import BYTES, DOCUMENT, TEXT, Change
from tests.fuzz.tree import BUILD, CODEGEN, HEADER, INSTANCES, KNOWN, NEWEST, PARITY, prepare_tree
from tests.unit import manifests
from tests.unit.matrix.test_validate import YAML
from tests.unit.reports.release.samples import make_bundle, update_sums
from tests.unit.reports.report_samples import SLOWER, case, write
from tests.unit.reports.timing_samples import timings

FILTER = "def keep(key):\n    return key.hdim_q == 128 and key.load != 'gload'\n"
Main = Callable[[list[str]], int]


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
    """A command line of ckpm; ``python -m`` begins one of the others in ``_OTHERS``."""
    tokens = line.split()
    for start, main in _OTHERS.items():
        if line.startswith(start):
            argv = tokens[len(start.split()) :]
            return Command(name=start, main=main, argv=tuple(argv), folder=folder, inputs=inputs, ends=ends)
    return Command(name=split(tokens)[0], main=ckpm, argv=tuple(tokens), folder=folder, inputs=inputs, ends=ends)


_OTHERS: dict[str, Main] = {
    "python -m ckpm_emulator": ckpm_emulator.cli.main,
    "python -m tests.fuzz.code_damage": launch,
    "python -m ckpm.kernels.library.write_manifest": lambda argv: write_manifest.main(*argv),
}


def commands() -> tuple[Command, ...]:
    """The table, without commands that compile or run a kernel before they read a file."""
    selected = "--arch gfx950 --tier smoke"
    python, manifest = {"filter.py": (*TEXT, *TEXT)}, {f"{LIBRARY}/manifest.json": DOCUMENT}
    gated = {**manifest, "baselines/gfx950/embedded/aiter.static.txt": TEXT}
    loaded = {**manifest, f"{LIBRARY}/libckpm.so": BYTES}
    of_site = {"site.yaml": DOCUMENT}
    tested = {**manifest, "ledger.yaml": DOCUMENT}
    history = {**manifest, "baselines/gfx950/embedded/aiter.history.jsonl": DOCUMENT}
    kinds = ("manifest", "batch-prefill", "page-fault", "gate", "counters")
    report = {**{f"build/gfx950/aiter/{kind}.json": DOCUMENT for kind in kinds}, "build/parity.json": DOCUMENT}
    plan = "planned/build/gfx950/aiter/plan.json"
    bundled = ("verdict.json", "SHA256SUMS", "waivers.yaml", "stages.yaml", "ledger.yaml")
    bundle = {f"bundle/{name}": TEXT for name in bundled}
    folder = "--work . --arch gfx950 --upstream aiter --only static --baselines baselines"
    return (
        *(_of(f"{name} {selected} --filter-file filter.py", "files", python) for name in ("list", "count")),
        _of(f"list --format json {selected} --filter-file filter.py --output out.json", "files", python),
        _of("count --sweep sweep.json --arch gfx950", "files", {"sweep.json": DOCUMENT}),
        _of("validate configuration.yaml", "files", {"configuration.yaml": DOCUMENT}),
        _of("validate configuration.json --format json", "files", {"configuration.json": DOCUMENT}, ends=8),
        _of(f"python -m ckpm.kernels.library.write_manifest {plan}", "files", {plan: DOCUMENT}),
        _of(f"measure --library {LIBRARY}/libckpm.so --output out.json", "loadable", loaded, ends=9),
        _of("measure --output out.json --upstream aiter", "loadable", loaded, ends=9),
        _of("build --arch gfx950 --cluster slurm --cluster-file site.yaml", "files", of_site, ends=4),
        _of(PARITY, "tree", {HEADER: TEXT, CODEGEN: TEXT, INSTANCES: DOCUMENT}),
        _of(BUILD, "newest", {HEADER: TEXT, CODEGEN: TEXT}, ends=2),
        _of("report --junit results.json --output out.xml", "files", {"results.json": DOCUMENT}, ends=8),
        _of("model counters.json", "files", {"counters.json": DOCUMENT}),
        _of("timing show timing.json", "files", {"timing.json": DOCUMENT}),
        _of("report --merge one.xml two.xml --output out.xml", "files", {"one.xml": TEXT, "two.xml": TEXT}),
        _of(f"report --manifest {LIBRARY}/manifest.json", "library", manifest),
        _of(f"gate {folder}", "library", gated),
        _of(f"accept {folder} --reason tried", "library", gated),
        _of(f"gate --history {folder}", "library", history),
        _of("report --input build --html out.html", "report", report, ends=8),
        _of("report --input build --html out.html --output out.md", "report", report, ends=8),
        _of("report --input build --table out.csv", "report", report),
        replace(_of("verify-bundle bundle --unsigned", "bundle", bundle), amend=lambda at: update_sums(at / "bundle")),
        _of("verify-bundle bundle.tar --unsigned", "bundle", {"bundle.tar": BYTES}),
        _of(f"cpp index {LIBRARY} --output out.txt", "library", manifest),
        _of("cpp kernels program.cpp", "files", {"program.cpp": TEXT}),
        _of("python -m ckpm_emulator coverage library.o", "code", {"library.o": BYTES}),
        _of("python -m ckpm_emulator coverage code.co", "code", {"code.co": (*BYTES, *CODE)}),
        _of("python -m ckpm_emulator inspect library.o --arch gfx950", "code", {"library.o": BYTES}),
        _of("python -m ckpm_emulator inspect code.co --arch gfx950", "code", {"code.co": (*BYTES, *CODE)}),
        _of("python -m tests.fuzz.code_damage code.co", "code", {"code.co": CODE}),
        _of("test --suite dispatch --work . --case none --ledger ledger.yaml", "report", tested, ends=9),
        _of("workflows collect --plan plan.json --artifacts artifacts --output joined", "jobs", _JOBS),
    )  # fmt: skip


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
    prepare_library(top / "library", top / "code" / "library.o")
    prepare_loadable(top / "loadable", top / "code" / "library.o")
    prepare_tree(top / "tree", KNOWN)
    prepare_tree(top / "newest", NEWEST)
    _jobs(top / "jobs")
    folder, tar = make_bundle(top / "made")
    (top / "bundle").mkdir()
    shutil.move(folder, top / "bundle" / "bundle")
    shutil.move(tar, top / "bundle" / "bundle.tar")


def _files(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "filter.py").write_text(FILTER)
    (folder / "program.cpp").write_text('CKPM_KERNEL_SET(set, "aiter", "dtype=bf16 lse=true");\n')
    lists = {"data_type": ["bf16"], "pipeline": ["qr_async"], "mask": ["no"], "bias": ["no"]}
    sweep = {"variant": "fwd", "trait_config": {name: {"values": values} for name, values in lists.items()}}
    (folder / "sweep.json").write_text(json.dumps(sweep))
    (folder / "configuration.yaml").write_text(YAML)
    (folder / "configuration.json").write_text(json.dumps(yaml.safe_load(YAML)))
    left_out = ("kernels", "kernel_count", "artifacts")
    facts = {name: value for name, value in manifests.document({}).items() if name not in left_out}
    plan = {"folder": "build/gfx950/aiter", "steps": [], "environment": {}, "facts": facts}
    planned = folder / "planned/build/gfx950/aiter"
    planned.mkdir(parents=True)
    (planned / "plan.json").write_text(json.dumps(plan))
    Results((case(), case("dispatch/a", "failed", "O differs", "line"))).write(folder / "results.json")
    _counters("performance/one").write(folder / "counters.json")
    timings().write(folder / "timing.json")
    for name in ("one", "two"):
        write_junit(Results((case(f"dispatch/{name}"), case(f"page-fault/{name}"))), folder / f"{name}.xml")
    shutil.copy(Path("reports/release/stages.yaml"), folder)
    shutil.copy(site.DEFAULTS, folder / "site.yaml")


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
    shutil.copy(LEDGER, folder / "ledger.yaml")


def _jobs(folder: Path) -> None:
    target = {"arch": "gfx950", "upstream": "aiter", "library": "batch_prefill"}
    plan = {
        "check_commands": {},
        "builds": [{**target, "shard": "1/1", "command": "nox -s build-gfx950"}],
        "runs": [{**target, "command": "nox -s test-dispatch perf-gate"}],
    }
    (folder / _JOB).mkdir(parents=True)
    (folder / "plan.json").write_text(json.dumps(plan))
    write_junit(Results((case("dispatch/a"),)), folder / _JOB / "dispatch.xml")
    (folder / _JOB / "gate.json").write_text('{"rows": [1]}')
    file = folder / "artifacts/library-gfx950-aiter-batch_prefill-1of1/gfx950/aiter/manifest.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"kernels": {"k": {}}}))
