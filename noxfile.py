"""The task list. Sessions are a few lines over `ckpm`; options go after `--`.

nox -s build-gfx950                          the smoke tier, in minutes on two cores
nox -s build-gfx950 -- --tier full           every kernel of the default upstream
nox -s build-gfx950 -- --upstream flash-attn --where "key.dtype == 'bf16'"
nox -s build-gfx950 test-large-kv            then run what was built: on a GPU of the arch, else on the emulator
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["build-gfx950"]
nox.options.reuse_existing_virtualenvs = True

GPUS = {"gfx90a": "MI200", "gfx942": "MI300", "gfx950": "MI350"}
EMULATED = ("gfx942", "gfx950")
CORRUPTION = "tests/faults/test_corruption.py"
PROGRAMS = "programs"  # written by `environment` into nox's cache folder: where the programs are

RUNNING = ("test-batch", "test-large", "test-mutants", "test-page", "test-dispatch", "test-fwd", "sanitize-", "perf-")
# what this call of nox is going to run on the emulator needs its core: compiled while the kernels are
CORE = ["--emulator"] if any(word.startswith(RUNNING) for word in sys.argv) else []

Session = Callable[[nox.Session], None]


def session(name: str, what: str | None = None) -> Callable[[Session], Session]:
    """A session in the shared environment (the compiler alone is 100 MB: one copy is enough).

    ``what`` is its line in ``nox -l``, for want of a docstring.
    """

    def add(function: Session) -> Session:
        function.__doc__ = what or function.__doc__
        nox.session(name=name, venv_backend="none", requires=["environment"])(function)
        return function

    return add


def program(session: nox.Session, name: str) -> str:
    """A program of the shared environment, wherever nox put it: below --envdir, under another name if that is long."""
    return str(Path((session.cache_dir / PROGRAMS).read_text()) / name)


def run(session: nox.Session, *command: str) -> None:
    """Run a command of ours with the environment's Python."""
    session.run(program(session, "python"), "-m", *command)


def refuse_options(session: nox.Session) -> None:
    """End a session that has no use for what stands behind `--`: whoever wrote that expects something of it."""
    if session.posargs:
        session.error(f"this session has no options, and was given {' '.join(session.posargs)}")


def tests_of(session: nox.Session, *usual: str) -> list[str]:
    """What pytest is called with: the session's usual words, unless those after `--` name files; then these options."""
    named = any(word.startswith("tests/") for word in session.posargs)
    return [*(() if named else usual), *session.posargs]


def judged() -> list[tuple[str, ...]]:
    """The options of each `ckpm gate`: by what this call of nox builds."""
    decode = [("--family", "decode", "--arch", arch) for arch in EMULATED] if "build-decode" in sys.argv else []
    library = [()] if not decode or any(word.startswith("build-gfx") for word in sys.argv) else []
    return [*library, *decode]


def run_suite(session: nox.Session, suite: str, *options: str) -> None:
    """Run a suite of GPU tests on the library that was built; options after `--` are ckpm.suites's."""
    run(session, "ckpm", "test", "--suite", suite, *options, *session.posargs)


# virtualenv and not uv: upstream packages are fetched with pip's configuration, so pip must be in the environment
@nox.session(venv_backend="virtualenv")
def environment(session: nox.Session) -> None:
    """Install the pinned requirements; every other session asks for this one."""
    session.install("--quiet", "--require-hashes", "-r", "requirements.txt")
    (session.cache_dir / PROGRAMS).write_text(str(Path(session.bin).absolute()))


def add_build(arch: str, gpu: str) -> None:
    @session(f"build-{arch}", f"Build a library for {gpu} and print its kernels.")
    def build(session: nox.Session) -> None:
        run(session, "ckpm", "build", "--arch", arch, "--resources", *CORE, *session.posargs)


def add_sanitizer(arch: str, gpu: str) -> None:
    @session(f"sanitize-{arch}", f"Every check of the emulator on {gpu} kernels: poison, wave orders, races and more.")
    def sanitize(session: nox.Session) -> None:
        run_suite(session, "sanitize", "--arch", arch)


for arch, gpu in GPUS.items():
    add_build(arch, gpu)
for arch in EMULATED:
    add_sanitizer(arch, GPUS[arch])


@session("test-batch-prefill")
def test_batch_prefill(session: nox.Session) -> None:
    """The functional matrix: masks, windows, bias, ALiBi, soft cap, dropout, LSE, layouts, lengths."""
    run_suite(session, "batch-prefill")


@session("test-large-kv")
def test_large_kv(session: nox.Session) -> None:
    """KV pools over 2 and 4 GB, very many pages, pools at every kind of base address."""
    run_suite(session, "large-kv")


@session("test-page-fault")
def test_page_fault(session: nox.Session) -> None:
    """Page tables and pools of exact length with unmapped memory behind them."""
    run_suite(session, "page-fault")


@session("test-dispatch")
def test_dispatch(session: nox.Session) -> None:
    """Which kernel the API chooses for which problem, and what it refuses."""
    run_suite(session, "dispatch")


@session("test-fwd")
def test_fwd(session: nox.Session) -> None:
    """Every kernel of a library of fwd's or the backward families at least once: `-- --family bwd_dq_dk_dv`."""
    named = any(word.partition("=")[0] == "--family" for word in session.posargs)  # an option has one value
    run_suite(session, "kernels", *(() if named else ("--family", "fwd")))


@session("test-dispatcher")
def test_dispatcher(session: nox.Session) -> None:
    """Arrays through the dispatcher to real kernels on the emulator, orders, the device's own memory, random calls."""
    run(session, "pytest", *tests_of(session, "tests/attention"))


@session("test-benchmark")
def test_benchmark(session: nox.Session) -> None:
    """The tile engine's fwd_ci.json whole: compiled, every kernel run and compared with a float64 reference."""
    run(session, "pytest", *tests_of(session, "tests/sweeps"))


@session("test-examples")
def test_examples(session: nox.Session) -> None:
    """The files of examples/ as docs/reference/examples.md shows them, with a table of seconds: `-- fwd masks`."""
    run(session, "examples", *session.posargs)


@session("perf-gate")
def perf_gate(session: nox.Session) -> None:
    """Judge what was built against its baseline: it fails if regressed, inconclusive or not comparable.

    That is a library, or after build-decode in one line the decode kernels of both archs.
    """
    for which in judged():
        run(session, "ckpm", "gate", *which, *session.posargs)


@session("perf-accept")
def perf_accept(session: nox.Session) -> None:
    """Make the figures of what perf-gate judges the baseline: `nox -s perf-accept -- --reason TEXT`."""
    for which in judged():
        run(session, "ckpm", "accept", *which, *session.posargs)


@session("perf-compare")
def perf_compare(session: nox.Session) -> None:
    """Time two libraries in turns on the GPU that is here: `-- --baseline A/libckpm.so --candidate B/libckpm.so`."""
    run(session, "ckpm", "compare", "--output", "build/gpu.json", *session.posargs)


@session("timing-tables")
def timing_tables(session: nox.Session) -> None:
    """V3 against V2 on the timing model, for the tables of CK's pull request 6054, where `report` shows them."""
    run(session, "ckpm", "timing", "tables", "--output", "build/timing-tables.json", *session.posargs)


@session("report")
def report(session: nox.Session) -> None:
    """All results in build/ as Markdown and as one HTML file; fails if they are no pass."""
    run(session, "ckpm", "report", "--output", "build/report.md", "--html", "build/report.html", *session.posargs)


# an environment of its own: Playwright is 50 MB that nothing else needs
@nox.session(name="test-report", venv_backend="virtualenv")
def test_report(session: nox.Session) -> None:
    """The HTML report in a headless Chromium, which has to be installed (Debian: apt-get install chromium)."""
    session.install("--quiet", "--require-hashes", "-r", "requirements.txt", "-r", "requirements-browser.txt")
    session.run("python", "-m", "pytest", *tests_of(session, "tests/browser"))


@session("parity")
def parity(session: nox.Session) -> None:
    """Compare the matrix with the upstreams' own codegen: names, bindings, dispatch, machine code."""
    run(session, "ckpm", "parity", "--output", "build/parity.json", *session.posargs)


@session("reproduce")
def reproduce(session: nox.Session) -> None:
    """Build twice in two folders without cache and compare every artifact."""
    run(session, "ckpm", "build", "--reproduce", *session.posargs)


@session("bench")
def bench(session: nox.Session) -> None:
    """Measure the promised figures as ratios in one run."""
    run(session, "ckpm", "bench", "--output", "reports/bench.md", *session.posargs)


@session("tests")
def tests(session: nox.Session) -> None:
    """Unit tests, the emulated device and its opcodes, then the tests that compile real kernels."""
    if session.posargs:
        run(session, "pytest", *tests_of(session, "tests/unit", "tests/emulator", "tests/build"))
    else:
        run(session, "pytest", "-n", "auto", "tests/unit", "tests/emulator")
        run(session, "pytest", "-n", "auto", "--dist", "loadgroup", "-m", "not nightly", "tests/build")


@session("test-gate")
def test_gate(session: nox.Session) -> None:
    """Changes planted in CK and in this project, built for real, must make perf-gate name kernel and metric."""
    run(session, "pytest", *tests_of(session, "tests/gate"))


@session("test-prefill")
def test_prefill(session: nox.Session) -> None:
    """What the ledger excuses upstreams for passes with ckpm's kernels; defects planted in its headers are found."""
    run(session, "pytest", *tests_of(session, "tests/prefill"))


@session("test-faults")
def test_faults(session: nox.Session) -> None:
    """Killed at 50 random moments, full disks, clocks that jump, two runs at once: what comes out stays the same."""
    run(session, "pytest", *tests_of(session, "tests/faults", "--ignore", CORRUPTION))


@session("test-corruption")
def test_corruption(session: nox.Session) -> None:
    """Every kind of file that is kept between runs damaged in turn, 200 times: made again or named, never used."""
    run(session, "pytest", *tests_of(session, CORRUPTION))


@session("fuzz")
def fuzz(session: nox.Session) -> None:
    """2,000 hostile files for all commands that read one: `nox -s fuzz -- --seed N --inputs N`."""
    run(session, "tests.fuzz", *session.posargs)


@session("test-mutants")
def test_mutants(session: nox.Session) -> None:
    """Defects planted in a built library, drawn by `-- --seed N --count M`: what sees each, and what survives."""
    run(session, "tests.mutants", *session.posargs)


@session("test-emulator")
def test_emulator(session: nox.Session) -> None:
    """The emulated device and its opcodes on a core built by zig, as on a machine without a compiler."""
    session.env["CXX"] = f"{program(session, 'python')} -m ziglang c++"
    run(session, "pytest", "-n", "auto", *tests_of(session, "tests/emulator"))


@session("test-programs")
def test_programs(session: nox.Session) -> None:
    """HIP programs, unmodified, on the emulated device; CK's own example with its CPU verification among them."""
    run(session, "pytest", *tests_of(session, "tests/programs"))


@session("lint")
def lint(session: nox.Session) -> None:
    """Run ruff, mypy, import-linter, typos, and clang-format over the C++ in git."""
    refuse_options(session)
    run(session, "ruff", "check", ".")
    run(session, "ruff", "format", "--check", ".")
    run(session, "mypy")
    session.run(program(session, "lint-imports"), "--no-cache")
    session.run(program(session, "typos"))
    patterns = ["*.cpp", "*.h", "*.hpp", "*.hip"]
    sources = session.run("git", "ls-files", *patterns, external=True, silent=True, log=False).split()
    session.run(program(session, "clang-format"), "--dry-run", "--Werror", *sources)


@nox.session(venv_backend="virtualenv")
def docs(session: nox.Session) -> None:
    """The pages of docs/ as HTML in build/docs, in an environment of their own; a link that leads nowhere fails."""
    refuse_options(session)
    session.install("--quiet", "--require-hashes", "-r", "docs/requirements.txt")
    session.run("sphinx-build", "--fail-on-warning", "--keep-going", "--quiet", "-b", "html", "docs", "build/docs")


@session("test-docs")
def test_docs(session: nox.Session) -> None:
    """What the pages of docs/ and README show: every command, in order, in a copy of this clone."""
    run(session, "pytest", *tests_of(session, "tests/docs"))


@session("docker")
def docker(session: nox.Session) -> None:
    """Render and lint the Dockerfiles, build the local images twice and compare their ids."""
    run(session, "ckpm", "images", "lint")
    run(session, "ckpm", "images", "build", *session.posargs)


@session("test-docker")
def test_docker(session: nox.Session) -> None:
    """Build the emulator's image with a real engine, and run sessions inside."""
    run(session, "pytest", *tests_of(session, "tests/docker"))


@session("in-container")
def in_container(session: nox.Session) -> None:
    """Run sessions inside an image: `nox -s in-container -- build-gfx950 test-large-kv --image debian-rocm-test`."""
    run(session, "ckpm", "in-container", *session.posargs)


# an environment of its own: the laptop's needs no Dask
@nox.session(name="test-cluster", venv_backend="virtualenv")
def test_cluster(session: nox.Session) -> None:
    """Builds and suites on two workers, one of which is killed, and as jobs of Slurm if it is installed."""
    session.install("--quiet", "--require-hashes", "-r", "requirements.txt", "-r", "requirements-cluster.txt")
    session.run("python", "-m", "pytest", *tests_of(session, "tests/cluster"))


# an environment of their own, too: Triton is a compiler of 1 GB
def install_triton(session: nox.Session) -> None:
    session.install("--quiet", "--require-hashes", "-r", "requirements.txt", "-r", "requirements-triton.txt")


@nox.session(name="build-decode", venv_backend="virtualenv")
def build_decode(session: nox.Session) -> None:
    """Compile the decode kernels and judge registers, spills and waves; `-- --accept REASON` accepts what differs."""
    install_triton(session)
    session.run("python", "-m", "ckpm", "guard", "decode/guard.yaml", *session.posargs)
    session.run("python", "-m", "ckpm", "decode", "build")


@nox.session(name="test-decode", venv_backend="virtualenv")
def test_decode(session: nox.Session) -> None:
    """The decode kernels on the emulated device against float64, and configurations that the guard has to refuse."""
    install_triton(session)
    session.run("python", "-m", "pytest", *tests_of(session, "tests/decode"))


@nox.session(name="test-triton", venv_backend="virtualenv")
def test_triton(session: nox.Session) -> None:
    """Triton kernels of many kinds on the emulated gfx942 and gfx950 against NumPy."""
    install_triton(session)
    session.run("python", "-m", "pytest", *tests_of(session, "tests/triton"))


@session("doctor")
def doctor(session: nox.Session) -> None:
    """What was found here: toolchains, upstreams, device, caches; and what to do about what is missing."""
    run(session, "ckpm", "doctor", *session.posargs)


@session("plan")
def plan(session: nox.Session) -> None:
    """What a change since a revision can touch, and what to run for it: `nox -s plan -- --since main`."""
    run(session, "ckpm", "plan", *session.posargs)


@session("workflows")
def workflows(session: nox.Session) -> None:
    """Compare the workflows with their templates, and check them with GitHub's schema, zizmor and actionlint."""
    refuse_options(session)
    files = sorted(map(str, Path(".github/workflows").glob("*.yml")))
    run(session, "ckpm", "workflows", "render", "--check")
    run(session, "check_jsonschema", "--builtin-schema", "vendor.github-workflows", *files)
    zizmor = program(session, "zizmor")  # a program without a module
    session.run(zizmor, "--offline", "--pedantic", "--no-progress", *files, external=True)
    if actionlint := shutil.which("actionlint"):  # not on PyPI as a wheel, so it can't be pinned with the others
        session.run(actionlint, *files, external=True)
    else:
        session.warn("actionlint is not on PATH: what only it finds was not looked for")


@session("run-workflow")
def run_workflow(session: nox.Session) -> None:
    """Run a workflow's jobs on this machine, each in a clone: `nox -s run-workflow -- pull-request`."""
    run(session, "ckpm", "workflows", "run", *session.posargs)


@session("collect")
def collect(session: nox.Session) -> None:
    """Join the results of a workflow's jobs in one report; fail if a planned result is missing."""
    run(session, "ckpm", "workflows", "collect", *session.posargs)


@session("release-qualification")
def release_qualification(session: nox.Session) -> None:
    """Every stage of a release on a clean commit, the verdict and the bundle; a rehearsal with `-- --tier smoke`."""
    run(session, "ckpm", "qualify", *session.posargs)
