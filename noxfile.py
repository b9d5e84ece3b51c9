"""The task list. Sessions are a few lines over `python -m matrix|kernels|reports|tests.gpu`; options go after `--`.

nox -s build-gfx950                          the smoke tier, in minutes on two cores
nox -s build-gfx950 -- --tier full           every kernel of the default upstream
nox -s build-gfx950 -- --upstream flash-attn --where "key.dtype == 'bf16'"
nox -s build-gfx950 test-large-kv            then run what was built: on a GPU of the arch, else on the emulator
"""

from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["build-gfx950"]
nox.options.reuse_existing_virtualenvs = True

PYTHON = Path(nox.options.envdir or ".nox") / "environment" / "bin" / "python"
LAST_BUILD = "build/.last"  # written by a build: the path of its manifest
LAST_SUITE = "build/.last-suite"  # written by a suite: the path of its results


def session(name):
    """A session in the shared environment (the compiler alone is 100 MB: one copy is enough)."""
    return nox.session(name=name, venv_backend="none", requires=["environment"])


def run(session, *command, **options):
    """Run a command of ours with the environment's Python."""
    session.run(str(PYTHON.absolute()), "-m", *command, **options)


def build(session, arch):
    """Build for one arch, then print its kernels."""
    Path(LAST_BUILD).unlink(missing_ok=True)
    run(session, "kernels", "build", "--arch", arch, *session.posargs, "--built", LAST_BUILD)
    if Path(LAST_BUILD).exists():  # `-- --help` builds nothing
        run(session, "reports", "resources", Path(LAST_BUILD).read_text().strip())


def run_suite(session, suite, *options):
    """Run a suite of GPU tests on the library that was built; options after `--` are tests.gpu's."""
    failed_cases = 80  # tests.gpu.errors.CasesFailedError: the report comes all the same
    Path(LAST_SUITE).unlink(missing_ok=True)
    options = [*options, *session.posargs, "--written", LAST_SUITE]
    run(session, "tests.gpu", "--suite", suite, *options, success_codes=[0, failed_cases])
    if Path(LAST_SUITE).exists():  # `-- --help` runs nothing
        results = Path(Path(LAST_SUITE).read_text().strip())
        run(session, "reports", "junit", str(results), "--output", str(results.with_suffix(".xml")))


# virtualenv and not uv: upstream packages are fetched with pip's configuration, so pip must be in the environment
@nox.session(venv_backend="virtualenv")
def environment(session):
    """Install the pinned requirements; every other session asks for this one."""
    session.install("--quiet", "--require-hashes", "-r", "requirements.txt")


@session("build-gfx90a")
def build_gfx90a(session):
    """Build a library for MI200."""
    build(session, "gfx90a")


@session("build-gfx942")
def build_gfx942(session):
    """Build a library for MI300."""
    build(session, "gfx942")


@session("build-gfx950")
def build_gfx950(session):
    """Build a library for MI350."""
    build(session, "gfx950")


@session("test-batch-prefill")
def test_batch_prefill(session):
    """The functional matrix: masks, windows, bias, ALiBi, soft cap, dropout, LSE, layouts, lengths."""
    run_suite(session, "batch-prefill")


@session("test-large-kv")
def test_large_kv(session):
    """KV pools over 2 and 4 GB, very many pages, pools at every kind of base address."""
    run_suite(session, "large-kv")


@session("test-page-fault")
def test_page_fault(session):
    """Page tables and pools of exact length with unmapped memory behind them."""
    run_suite(session, "page-fault")


@session("test-dispatch")
def test_dispatch(session):
    """Which kernel the API chooses for which problem, and what it refuses."""
    run_suite(session, "dispatch")


@session("test-fwd")
def test_fwd(session):
    """Every kernel of a library of fwd's families at least once: `nox -s test-fwd -- --family fwd_splitkv`."""
    run_suite(session, "kernels", "--family", "fwd")


@session("sanitize-gfx942")
def sanitize_gfx942(session):
    """Every check of the emulator on MI300 kernels: poison, wave orders, late loads, races, uninitialised reads."""
    run_suite(session, "sanitize", "--arch", "gfx942")


@session("sanitize-gfx950")
def sanitize_gfx950(session):
    """Every check of the emulator on MI350 kernels."""
    run_suite(session, "sanitize", "--arch", "gfx950")


@session("perf-gate")
def perf_gate(session):
    """Judge a built library against its baseline: exit code 43 regressed, 44 inconclusive, 45 could not compare."""
    run(session, "reports", "gate", *session.posargs)


@session("perf-accept")
def perf_accept(session):
    """Make a built library's figures the baseline: `nox -s perf-accept -- --reason TEXT`."""
    run(session, "reports", "accept", *session.posargs)


@session("perf-compare")
def perf_compare(session):
    """Time two libraries in turns on the GPU that is here: `-- --baseline A/libckpm.so --candidate B/libckpm.so`."""
    run(session, "reports", "compare", "--output", "build/gpu.json", *session.posargs)


@session("report")
def report(session):
    """All results in build/ as Markdown and as one HTML file; exit code 49 if they are no pass."""
    not_passed = 49  # reports.errors.NotPassedError: the second command tells it again
    run(session, "reports", "summary", "--output", "build/report.md", success_codes=[0, not_passed])
    run(session, "reports", "html", "--output", "build/report.html")


@session("test-report")
def test_report(session):
    """The HTML report in a headless Chromium, which has to be installed (Debian: apt-get install chromium)."""
    run(session, "pytest", *(session.posargs or ["tests/browser"]))


@session("parity")
def parity(session):
    """Compare the matrix with the upstreams' own codegen: names, bindings, dispatch, machine code."""
    differences = 30  # kernels.errors.ParityError: the report is written all the same, and fails the session
    output = ["--output", "build/parity.json"]
    Path(output[1]).unlink(missing_ok=True)
    run(session, "kernels", "parity", *session.posargs, *output, success_codes=[0, differences])
    run(session, "reports", "junit", "build/parity.json", "--output", "build/parity.xml")


@session("reproduce")
def reproduce(session):
    """Build twice in two folders without cache and compare every artifact."""
    run(session, "kernels", "reproduce", *session.posargs)


@session("bench")
def bench(session):
    """Measure the promised figures as ratios in one run."""
    run(session, "kernels", "bench", "--output", "reports/bench.md", *session.posargs)


@session("tests")
def tests(session):
    """Unit tests, the emulated device and its opcodes, then the tests that compile real kernels."""
    if session.posargs:
        run(session, "pytest", *session.posargs)
    else:
        run(session, "pytest", "-n", "auto", "tests/unit", "tests/emulator")
        run(session, "pytest", "tests/build")  # one after the other: compilers take the processors


@session("test-gate")
def test_gate(session):
    """Changes planted in CK and in this project, built for real, must make perf-gate name kernel and metric."""
    run(session, "pytest", *(session.posargs or ["tests/gate"]))


@session("test-emulator")
def test_emulator(session):
    """The emulated device and its opcodes on a core built by zig, as on a machine without a compiler."""
    session.env["CXX"] = f"{PYTHON.absolute()} -m ziglang c++"
    run(session, "pytest", *(session.posargs or ["-n", "auto", "tests/emulator"]))


@session("lint")
def lint(session):
    """ruff, mypy, typos, and clang-format over the C++ that git knows."""
    run(session, "ruff", "check", ".")
    run(session, "ruff", "format", "--check", ".")
    run(session, "mypy")
    session.run(str(PYTHON.with_name("typos").absolute()))
    patterns = ["*.cpp", "*.h", "*.hpp", "*.hip"]
    sources = session.run("git", "ls-files", *patterns, external=True, silent=True, log=False).split()
    session.run(str(PYTHON.with_name("clang-format").absolute()), "--dry-run", "--Werror", *sources)


@session("doctor")
def doctor(session):
    """What was found here: toolchains, upstreams, device, caches; and what to do about what is missing."""
    run(session, "kernels", "doctor", *session.posargs)


@session("plan")
def plan(session):
    """What a change since a revision can touch, and what to run for it: `nox -s plan -- --since main`."""
    run(session, "matrix", "plan", *session.posargs)


@session("workflows")
def workflows(session):
    """The rendered workflows are those of their templates, valid by GitHub's schema, and without zizmor's findings."""
    files = sorted(map(str, Path(".github/workflows").glob("*.yml")))
    run(session, "workflows", "render", "--check")
    run(session, "check_jsonschema", "--builtin-schema", "vendor.github-workflows", *files)
    zizmor = str(PYTHON.absolute().with_name("zizmor"))  # a program without a module
    session.run(zizmor, "--offline", "--pedantic", "--no-progress", *files, external=True)


@session("run-workflow")
def run_workflow(session):
    """The steps of a workflow's jobs on this machine, each job in a clone: `nox -s run-workflow -- pull-request`."""
    run(session, "workflows", "run", *session.posargs)


@session("collect")
def collect(session):
    """One report of what the jobs of a workflow left; exit code 124 if a planned one left nothing."""
    nothing_done = 124  # workflows.errors.NothingDoneError: the last command tells it again
    run(session, "workflows", "collect", *session.posargs, success_codes=[0, nothing_done])
    if any(Path("build").glob("*/*/manifest.json")):
        report(session)
    run(session, "workflows", "collect", *session.posargs)
