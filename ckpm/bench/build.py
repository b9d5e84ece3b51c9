"""Figures of enumerating, rendering and building. Large build graphs are measured with a stub as compiler."""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ckpm.base import jobs
from ckpm.base.errors import InconclusiveError
from ckpm.base.paths import PROJECT
from ckpm.base.processes import own_environment, python_command, tool_environment
from ckpm.bench.figures import Figure, judge_least, judge_most, seconds_of
from ckpm.kernels.code.precompiled import run_unit
from ckpm.kernels.code.toolchains import Toolchain, compile_command
from ckpm.kernels.families.render import DEFAULT_SIZE, Unit, plan_units, render
from ckpm.kernels.families.spellings import features as features_of
from ckpm.kernels.library.request import BuildRequest, prepare, scons_command
from ckpm.kernels.library.run_step import EVENT, run_command
from ckpm.kernels.upstream import codegen_runner
from ckpm.kernels.upstream.tree import Tree
from ckpm.matrix.dialects import APIS, archs, dialect
from ckpm.matrix.selection import Selection, select

NEWEST = "rocm-libraries-2026"


@dataclass(frozen=True, slots=True)
class _Run:
    """A whole process: wall seconds, peak resident bytes, lines printed."""

    seconds: float
    peak_bytes: int
    lines: int


def _list(folder: Path, *options: str) -> _Run:
    """The best of three runs of ``ckpm list`` with all families."""
    runs = []
    for _ in range(3):
        with (folder / "names.txt").open("wb") as output:
            started = time.perf_counter()
            command = python_command("-m", "ckpm", "list", "--family", "all", *options)
            process = subprocess.Popen(command, env=own_environment(), stdout=output, stderr=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
            seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise InconclusiveError(f"{' '.join(command)} ended with {process.returncode}.", kind="bench")
        lines = (folder / "names.txt").read_bytes().count(b"\n")
        runs.append(_Run(seconds, usage.ru_maxrss * 1024, lines))
    return min(runs, key=lambda run: run.seconds)


def compare_enumeration(tree: Tree, folder: Path) -> list[Figure]:
    """List nine families on gfx950 with both mask sets, and compare with upstream's codegen; filter over all archs."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for mask, seconds in (("simplified", 1.0), ("generic", 1.5)):
        run = _list(folder, "--dialect", NEWEST, "--mask", mask)
        rows.append(
            judge_most(
                f"list {run.lines:,} kernels of nine families ({NEWEST}, {mask} masks), whole process",
                f"{run.seconds:.2f} s, {run.peak_bytes / 1e6:.0f} MB",
                f"< {seconds} s, < 200 MB",
                run.seconds / seconds,
                run.peak_bytes / 200e6,
            )
        )
    matrix_run = _list(folder, "--dialect", tree.dialect)
    listed: list[int] = []
    codegen_seconds = seconds_of(
        lambda: listed.append(len(codegen_runner.list_names(tree, "gfx950", ",".join(APIS), 0, "simplified")))
    )
    if listed != [matrix_run.lines]:
        raise InconclusiveError(
            f"{tree.name} lists {listed} kernels, the matrix {matrix_run.lines}; Run ckpm parity.", kind="bench"
        )
    ratio = codegen_seconds / matrix_run.seconds
    every = _list(folder, "--dialect", NEWEST, "--arch", ",".join(archs()), "--filter", "*_d128_*")
    what = f"list --filter over all archs and families ({every.lines:,} kernels), whole process"
    return [
        *rows,
        judge_least(
            f"list {matrix_run.lines:,} kernels of {tree.name}, against its own codegen, whole processes",
            f"{matrix_run.seconds:.2f} s against {codegen_seconds:.1f} s: {ratio:.0f} times faster",
            ">= 10 times",
            ratio / 10,
        ),
        judge_most(what, f"{every.seconds:.2f} s", "< 3 s", every.seconds / 3),
    ]


# Run in an upstream's codegen folder: seconds of its own rendering, without start-up and imports.
_CODEGEN_PROGRAM = """
import inspect, sys, tempfile, time
from pathlib import Path
sys.path.insert(0, ".")
import codegen.ops.fmha_batch_prefill as codegen
targets = [["gfx950"]] if "targets" in inspect.signature(codegen.write_blobs).parameters else []
seconds = []
for _ in range(5):
    with tempfile.TemporaryDirectory(dir=sys.argv[1]) as folder:
        started = time.perf_counter()
        codegen.write_blobs(*targets, Path(folder), "", 0, [-1], "simplified")
        seconds.append(time.perf_counter() - started)
print(min(seconds))
"""
_RENDER_PROGRAM = "import sys; from ckpm.bench.build import render_once; render_once(*sys.argv[1:])"


def render_once(dialect_name: str, receipt: str, folder: str) -> None:
    """Enumerate and render a dialect's gfx950 set below a new folder."""
    keys = select(dialect(dialect_name), Selection(archs=("gfx950",), receipt=int(receipt)))
    with tempfile.TemporaryDirectory(dir=folder) as target:
        render(keys, plan_units(keys), dialect_name, features_of(dialect_name), Path(target))


def compare_rendering(tree: Tree, folder: Path) -> list[Figure]:
    """Time the newest set in a whole process, and the packaged set against the upstream's own codegen.

    The packaged set is timed inside the processes, because Python's start takes longer than the work.
    """
    command = python_command("-c", _RENDER_PROGRAM, NEWEST, "200", str(folder))
    newest = min(seconds_of(lambda: subprocess.run(command, env=own_environment(), check=True)) for _ in range(3))
    count = len(select(dialect(NEWEST), Selection(archs=("gfx950",), receipt=200)))
    packaged = len(select(dialect(tree.dialect), Selection(archs=("gfx950",))))
    codegen_command = [sys.executable, "-B", "-c", _CODEGEN_PROGRAM, str(folder)]
    codegen_seconds, own_seconds = [], []
    for _ in range(3):  # alternating, so that other work of the machine slows both
        run = subprocess.run(
            codegen_command, cwd=tree.fmha, env=tool_environment(), check=True, capture_output=True, text=True
        )
        codegen_seconds.append(float(run.stdout))
        own_seconds += [seconds_of(lambda: render_once(tree.dialect, "0", str(folder))) for _ in range(5)]
    ratio = min(codegen_seconds) / min(own_seconds)
    what = f"enumerate and render {count} kernels ({NEWEST}, receipt 200), whole process"
    return [
        judge_most(what, f"{newest:.2f} s", "< 1.5 s", newest / 1.5),
        judge_least(
            f"enumerate and render {packaged} kernels of {tree.name}, against its own codegen, start-up left out",
            f"{1000 * min(own_seconds):.0f} ms against {1000 * min(codegen_seconds):.0f} ms: {ratio:.1f} times faster",
            ">= 5 times",
            ratio / 5,
        ),
    ]


def compare_merged(tree: Tree, toolchain: Toolchain, folder: Path) -> Figure:
    """Compile one merged unit, and each of its kernels alone with the same flags.

    All take the precompiled headers of builds, which an unmeasured call makes. Minutes are of processor time, so that
    other work of the machine does not count.
    """
    keys = select(dialect(tree.dialect), Selection(archs=("gfx950",), receipt=200))
    unit = next(unit for unit in plan_units(keys) if len(unit.keys) == DEFAULT_SIZE)
    features = features_of(tree.dialect, selector_takes_base=tree.selector_takes_base)
    singles = [Unit(f"single{index}", (key,)) for index, key in enumerate(unit.keys)]
    files = render(unit.keys, [unit, *singles], tree.dialect, features, folder)["units"]

    def compile_all(sources: Sequence[Path]) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        for source in sources:
            command = compile_command(
                toolchain,
                archs=("gfx950",),
                source=str(source),
                output=str(source.with_suffix(".o")),
                includes=[str(include) for include in (*tree.includes, PROJECT / "kernels/include")],
                cuid="0" * 16,
                prefix_map={},
            )
            environment = tool_environment(toolchain.environment)
            code, output = run_unit(command, environment, run_command, tree.identity)
            if code != 0:
                raise InconclusiveError(f"{source} doesn't compile: {output[-2000:]}", kind="bench")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    compile_all(files[1:2])
    merged, single = compile_all(files[:1]), compile_all(files[1:])
    rate, single_rate = 60 * len(unit.keys) / merged, 60 * len(unit.keys) / single
    return judge_least(
        f"build {len(unit.keys)} kernels merged, against one compiler call a kernel",
        f"{rate:.1f} against {single_rate:.1f} kernels a processor minute: {rate / single_rate:.1f} times",
        ">= 2.5 times",
        rate / single_rate / 2.5,
    )


def _stub(folder: Path) -> Toolchain:
    """A toolchain whose compiler copies the source to the object, to measure the build graph alone."""
    script = folder / "stub"
    script.write_text(
        "#!/bin/sh\n"
        "for word; do case $before in -c) in=$word;; -o) out=$word;; esac; before=$word; done\n"
        'exec cp "${in:-/dev/null}" "$out"\n'
    )
    script.chmod(0o755)
    return Toolchain(
        name="stub",
        identity="stub",
        compiler=(str(script),),
        search=(),
        flags=(),
        linker=(str(script),),
        link_flags=(),
        environment={},
    )


@dataclass(frozen=True, slots=True)
class _Build:
    """One run of render, plan and SCons. Of the ``steps`` that compile, some ran and some came from the cache."""

    seconds: float
    peak_bytes: int
    steps: int
    compiled: int
    retrieved: int


def _scons(request: BuildRequest) -> _Build:
    """Build up to the library (the manifest reads real code objects, which the stub doesn't make)."""
    started = time.perf_counter()
    plan, _ = prepare(request)
    library = next(step.target for step in plan.steps if step.kind == "library")
    command = [*scons_command(f"{plan.folder}/plan.json", jobs.processors(), request.object_cache), library]
    environment = tool_environment(plan.environment)
    process = subprocess.run(command, cwd=request.work, env=environment, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - started
    if process.returncode != 0:
        raise InconclusiveError(
            f"the graph's build failed: {process.stdout[-2000:]}{process.stderr[-2000:]}", kind="bench"
        )
    events = [json.loads(line[len(EVENT) :]) for line in process.stdout.splitlines() if line.startswith(EVENT)]
    count = Counter(event["event"] for event in events if event["kind"] in ("unit", "host"))
    return _Build(
        seconds=seconds,
        peak_bytes=resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024,
        steps=sum(step.kind in ("unit", "host") for step in plan.steps),
        compiled=count["done"],
        retrieved=count["retrieved"],
    )


def measure_graph(tree: Tree, folder: Path) -> list[Figure]:
    """Time builds of 6,000 kernels: an added axis value, nothing to do, a second checkout with a warm cache."""
    keys = select(dialect(NEWEST), Selection(archs=("gfx950",), receipt=200, mask_impl="generic"))[:6000]
    filter_file = folder / "first6000.py"
    filter_file.write_text(f"names = { ({key.name for key in keys})!r}\ndef keep(key):\n    return key.name in names\n")
    selection = Selection(archs=("gfx950",), receipt=200, mask_impl="generic", filter_files=(filter_file,))
    first, second = folder / "first", folder / "second"
    first.mkdir()
    second.mkdir()
    request = BuildRequest(
        selection=dataclasses.replace(selection, where=("key.bias != 'alibi'",)),
        tree=dataclasses.replace(tree, dialect=NEWEST),
        toolchain=_stub(folder),
        work=first,
        object_cache=folder / "cache",
    )
    _scons(request)
    whole = dataclasses.replace(request, selection=selection)
    added = _scons(whole)
    holding = sum(any(key.bias == "alibi" for key in unit.keys) for unit in plan_units(keys))
    idle = _scons(whole)
    other = _scons(dataclasses.replace(whole, work=second))
    units = idle.steps - 2  # the dispatch and the harness hold no kernel
    return [
        judge_most(
            f"nothing to do on {len(keys)} kernels in {units} units (stub compiler)",
            f"{idle.seconds:.1f} s, {idle.peak_bytes / 1e9:.2f} GB, {idle.compiled} compiled",
            "< 10 s, < 1 GB, 0 compiled",
            idle.seconds / 10,
            idle.peak_bytes / 1e9,
            idle.compiled,
        ),
        Figure(
            "second checkout with a warm cache (stub compiler)",
            f"{other.retrieved} of {other.steps} objects from the cache, {other.compiled} compiled",
            "100 %, 0",
            other.retrieved == other.steps and other.compiled == 0,
        ),
        Figure(
            f"axis value 'alibi' added: {holding} of {units} units hold it (stub compiler)",
            f"{added.compiled - 1} units and the dispatch compiled",
            f"{holding} units",
            added.compiled - 1 == holding,
        ),
    ]
