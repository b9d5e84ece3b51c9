"""The task list: sessions to use, develop and ship this project. Options go after `--`; each session takes its own.

- nox -s build-gfx950                          build the smoke tier, in minutes on two cores
- nox -s build-gfx950 -- --tier full           build every kernel of the default upstream
- nox -s build-gfx950 test-large-kv perf-gate  build, then test and judge the library; `-- --rocm` with ROCm and a GPU
- nox -s ckpm -- why NAME                      run any command of ckpm
- nox -t develop -l                            list the sessions of a group
"""

from __future__ import annotations

import contextlib
import difflib
import fcntl
import itertools
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import nox
import nox.registry
from nox.command import CommandFailed
from nox.logger import logger

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["build-gfx950"]
nox.options.reuse_existing_virtualenvs = True

# Remove variables of the user that keep Python from importing this folder, and pip's own but those of _SOURCES.
_SOURCES = r"(\w*INDEX\w*|FIND_LINKS|TRUSTED_HOST|PROXY|\w*CERT|\w*TIMEOUT|RETRIES|CONSTRAINT|CONFIG_FILE|CACHE_DIR)"
for variable in [name for name in os.environ if re.fullmatch(rf"PYTHONSAFEPATH|PIP_(?!{_SOURCES}$)\w+", name)]:
    del os.environ[variable]

# JSON, because nox may be the only package of its environment. ckpm/matrix/sessions.py describes the fields.
TABLE = json.loads((Path(__file__).parent / "matrix/sessions.json").read_text())
GPUS = {arch: row["gpu"] for arch, row in TABLE["archs"].items()}
EMULATED = [arch for arch, row in TABLE["archs"].items() if row["emulated"]]
SUITES = TABLE["suites"]
DEPENDABOT = ".github/dependabot.yml"
TEST_FILES = ("tests/", "emulator/")
PROGRAMS: list[Path] = []  # the environment's bin/. Not in a file: several runs of nox may share its folder
BUILT: set[str] = set()  # archs of the libraries that this call of nox built, and "decode"
COMMANDS: dict[str, tuple[str, ...]] = {}  # session -> its command of ckpm, with the options that it always passes
OPTIONS: dict[str, list[str]] = {}  # session -> its part of the options after `--`

Session = Callable[[nox.Session], None]


class Tests(NamedTuple):
    """Tests of `nox -s tests -- NAME`: arguments of `python -m`, usual files, EXTRA of requirements-EXTRA.txt."""

    help: str
    arguments: Sequence[str] = ("pytest",)
    files: Sequence[str] = ()
    extra: str = ""


TESTS = {name: Tests(**row) for name, row in TABLE["tests"].items()}
# nox -l prints it
__doc__ = "\n".join(
    (__doc__, "nox -s tests -- NAME runs:", "", *(f"- {name:11}{group.help}" for name, group in TESTS.items()))
)


def session(name: str, group: str, *command: str, what: str = "") -> Callable[[Session], Session]:
    """Register a session in the shared environment, with its command of ckpm.

    ``what`` replaces the function's docstring in ``nox -l``.
    """
    if command:
        COMMANDS[name] = command

    def add(function: Session) -> Session:
        function.__doc__ = what or function.__doc__
        nox.session(name=name, venv_backend="none", requires=["environment"], tags=[group])(function)
        return function

    return add


def program(name: str) -> str:
    """The path of a program of the shared environment."""
    return str(PROGRAMS[-1] / name)


def run(session: nox.Session, *command: str) -> None:
    """Run a Python module with the environment's Python."""
    session.run(program("python"), "-m", *command)


def run_each(*commands: Callable[[], object]) -> None:
    """Run commands that don't need each other; the first failure is raised after the last command."""
    failures = []
    for command in commands:
        try:
            command()
        except CommandFailed as error:
            failures.append(error)
    if failures:
        raise failures[0]


def options_of(session: nox.Session) -> list[str]:
    """The options of the line that concern a session."""
    return OPTIONS.get(session.name, list(session.posargs))


def run_command(session: nox.Session, *options: str) -> None:
    """Run the session's command of ckpm with the options of the line that concern it."""
    run(session, "ckpm", *COMMANDS[session.name], *options, *options_of(session))


def split_options(session: nox.Session) -> None:
    """Split the options of the line among its sessions; fail if one concerns none (ckpm/session_options.py)."""
    manifest = session._runner.manifest  # nox has no public name for the sessions of a call
    names = [runner.name for runner, _ in manifest.list_all_sessions() if runner.name in manifest]
    sessions = [name for name in names if name != "environment"]
    if session.posargs and COMMANDS.keys() & set(sessions):
        line = json.dumps({"commands": COMMANDS, "sessions": sessions, "options": session.posargs})
        command = (program("python"), "-m", "ckpm.session_options", line)
        OPTIONS.update(json.loads(session.run(*command, silent=True, log=False)))


def refuse_options(session: nox.Session) -> None:
    """Fail if options were passed to a session that has none."""
    if session.posargs:
        session.error(f"this session has no options, and was given {' '.join(session.posargs)}")


def add_options(arguments: Sequence[str], files: Sequence[str], options: Sequence[str]) -> list[str]:
    """Return the arguments of a module with the options of the line, whose files replace the usual ``files``."""
    named = any(word.startswith(TEST_FILES) for word in options)
    return [*arguments, *(() if named else files), *options]


@contextlib.contextmanager
def alone(session: nox.Session, environment: Path) -> Iterator[None]:
    """Keep other runs of nox from changing an environment at the same time."""
    environment.mkdir(parents=True, exist_ok=True)
    with (environment / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            session.log(f"waiting for another run of nox that changes {environment}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def install(session: nox.Session, environment: Path, *files: str) -> str:
    """Install pinned requirements unless the environment's stamp has the same ones; return its Python.

    The stamp is empty while pip works. pip takes a package that a run was interrupted in for a whole one.
    """
    stamp, python = environment / "requirements.txt", str(environment / "bin/python")
    wanted = "".join(Path(file).read_text() for file in files)
    with alone(session, environment):
        installed = stamp.read_text() if stamp.is_file() else None
        if installed != wanted:
            session.log(f"installing {' '.join(files)}, which takes a minute or two, once")
            stamp.write_text("")
            options = [
                "--quiet",
                "--no-compile",
                "--require-hashes",
                *(word for file in files for word in ("-r", file)),
            ]
            options += ["--force-reinstall"] if installed == "" else []
            session.run(python, "-m", "pip", "install", *options, external=True, log=False, silent=True)
            stamp.write_text(wanted)
    return python


def install_extra(session: nox.Session, *extras: str) -> str:
    """Make an environment with more requirements than the shared environment; return its Python."""
    folder = session.cache_dir / f"environment-{'-'.join(extras)}"
    with alone(session, folder):
        if not (folder / "bin/pip").exists():  # the last that venv makes
            session.run(program("python"), "-m", "venv", str(folder), silent=True)
    return install(session, folder, "requirements.txt", *(f"requirements-{extra}.txt" for extra in extras))


# virtualenv and not uv: upstream packages are fetched with pip's configuration, so pip must be in the environment
@nox.session(venv_backend="virtualenv", tags=["use"])
def environment(session: nox.Session) -> None:
    """Install the pinned requirements; the other sessions require this session."""
    install(session, Path(session.bin).parent, "requirements.txt")
    PROGRAMS.append(Path(session.bin).absolute())
    split_options(session)


def has_option(arguments: list[str], option: str) -> bool:
    """Return True if ``--option VALUE`` or ``--option=VALUE`` is among the arguments."""
    return any(word.partition("=")[0] == option for word in arguments)


@contextlib.contextmanager
def ending_line(session: nox.Session) -> Iterator[None]:
    """End the line of sessions if a build fails: later sessions would judge the library of an earlier build."""
    config = session._runner.global_config
    usual, config.stop_on_first_error = config.stop_on_first_error, True
    yield
    config.stop_on_first_error = usual


def libraries(arguments: list[str]) -> list[tuple[str, ...]]:
    """``--arch`` for each library that this call of nox built; [()] if it built none, or with ``--arch`` already."""
    if has_option(arguments, "--arch"):
        return [()]
    return [("--arch", arch) for arch in GPUS if arch in BUILT] or [()]


def add_build(arch: str, gpu: str) -> None:
    command = ("build", "--arch", arch, "--resources", "--emulator")
    what = f"Build a library for {gpu} and print its kernels."

    @session(TABLE["build"].format(arch=arch), "use", *command, what=what)
    def build(session: nox.Session) -> None:
        BUILT.add(arch)
        with ending_line(session):
            run_command(session)


def add_suite(suite: str, arch: str = "") -> None:
    row = SUITES[suite]
    options = (*(("--arch", arch) if arch else ()), *(("--device", row["device"]) if "device" in row else ()))
    name, what = (row[field].format(arch=arch, gpu=GPUS.get(arch)) for field in ("session", "help"))

    @session(name, "use", "test", "--suite", suite, *options, what=what)
    def test(session: nox.Session) -> None:
        line = options_of(session)
        # only without --family in the line: an option has one value
        family = ("--family", "fwd") if suite == "kernels" and not has_option(line, "--family") else ()
        run_each(*(partial(run_command, session, *family, *choice) for choice in libraries([*options, *line])))


for arch, gpu in GPUS.items():
    add_build(arch, gpu)
for suite, row in SUITES.items():
    for arch in EMULATED if "{arch}" in row["session"] else ("",):
        add_suite(suite, arch)


@session("test-objects", "use")
def test_objects(session: nox.Session) -> None:
    """Run AITER's hand-written code objects from its package, against float64: `-- --family pa`, half an hour."""
    command = ("tests.programs.conformance", "objects", "--arch")
    run_each(*(partial(run, session, *command, arch, *session.posargs) for arch in EMULATED))


def judge(session: nox.Session) -> None:
    """Run the session's command on the libraries that this call of nox built, or on the default library."""
    decode = [("--family", "decode", "--arch", arch) for arch in EMULATED] if "decode" in BUILT else []
    others = libraries(options_of(session)) if BUILT - {"decode"} or not decode else []
    run_each(*(partial(run_command, session, *choice) for choice in [*others, *decode]))


@session(TABLE["gate"], "use", "gate")
def perf_gate(session: nox.Session) -> None:
    """Compare libraries with their baseline; fail if one regressed, is inconclusive or is not comparable."""
    judge(session)


@session("perf-accept", "use", "accept")
def perf_accept(session: nox.Session) -> None:
    """Accept the values of the built libraries as baseline: `nox -s perf-accept -- --reason TEXT`."""
    judge(session)


@session("report", "use", "report", "--output", "build/report.md", "--html", "build/report.html")
def report(session: nox.Session) -> None:
    """Write all results in build/ as Markdown and as one HTML file; fail if a check did not pass."""
    run_command(session)


@session("doctor", "use", "doctor")
def doctor(session: nox.Session) -> None:
    """Check toolchains, upstreams, GPU and caches; print a remedy for each missing item, and what --rocm can do."""
    run_command(session)


@session("first-gpu-run", "use", "first-gpu-run")
def first_gpu_run(session: nox.Session) -> None:
    """Answer on this machine's GPU what the emulator can't, and write one file; the same line goes on after a stop."""
    run_command(session)


@session("ckpm", "use")
def ckpm(session: nox.Session) -> None:
    """Run a command of ckpm: `nox -s ckpm -- compare --baseline A/libckpm.so --candidate B/libckpm.so`."""
    run(session, "ckpm", *session.posargs)


# Triton is a compiler of 1 GB
@session("build-decode", "use", "guard", "reports/guard.yaml")
def build_decode(session: nox.Session) -> None:
    """Compile the decode kernels and check their registers; `-- --accept REASON` accepts changed values."""
    BUILT.add("decode")
    python = install_extra(session, "triton")
    with ending_line(session):
        session.run(python, "-m", "ckpm", *COMMANDS["build-decode"], *options_of(session), external=True)
        session.run(python, "-m", "ckpm", "decode", "build", external=True)


@session("test-decode", "use")
def test_decode(session: nox.Session) -> None:
    """Test the decode kernels on the emulated device against float64, and configurations that the guard refuses."""
    python = install_extra(session, "triton")
    session.run(python, "-m", *add_options(("pytest",), ("tests/decode",), session.posargs), external=True)


@session("tests", "develop")
def tests(session: nox.Session) -> None:
    """Run unit tests, the emulator's tests and tests that compile; `-- NAME` runs one group, such as gate or fuzz."""
    unit, emulator, compiled = (TESTS[name] for name in ("unit", "emulator", "compiled"))
    if not session.posargs:
        run_each(
            partial(run, session, *unit.arguments, "-m", "not nightly", *unit.files, *emulator.files),
            partial(run, session, *compiled.arguments, *compiled.files),
        )
        return
    name, *options = session.posargs
    if name not in TESTS:
        if not (name.startswith("-") or Path(name.partition("::")[0]).exists()):
            close = difflib.get_close_matches(name, TESTS, n=1)
            hint = f"did you mean '{close[0]}'?" if close else f"groups are {', '.join(TESTS)}"
            session.error(f"there is no group or file of tests '{name}'; {hint}")
        run(session, *add_options(("pytest",), (*unit.files, *emulator.files, *compiled.files), session.posargs))
        return
    if name == "emulator":
        session.env["CXX"] = f"{program('python')} -m ziglang c++"
    chosen = TESTS[name]
    python = install_extra(session, chosen.extra) if chosen.extra else program("python")
    session.run(python, "-m", *add_options(chosen.arguments, chosen.files, options), external=True)


@session("test-callers", "develop")
def test_callers(session: nox.Session) -> None:
    """Run callers' test files and backends: `-- --aiter CLONE --flashinfer CLONE --sglang FOLDER --vllm FOLDER`."""
    python = install_extra(session, "torch", "triton")
    session.run(python, "-m", "tests.callers", *session.posargs, external=True)


@session("lint", "develop")
def lint(session: nox.Session) -> None:
    """Run ruff, mypy, import-linter, typos, and clang-format over the C++ in git."""
    refuse_options(session)

    def clang_format() -> None:
        patterns = ["*.cpp", "*.h", "*.hpp", "*.hip"]
        sources = session.run("git", "ls-files", *patterns, external=True, silent=True, log=False).split()
        session.log(f"clang-format --dry-run --Werror, {len(sources)} files")
        session.run(program("clang-format"), "--dry-run", "--Werror", *sources, log=False)

    run_each(
        partial(run, session, "ruff", "check", "."),
        partial(run, session, "ruff", "format", "--check", "."),
        partial(run, session, "mypy"),
        partial(session.run, program("lint-imports"), "--no-cache", env={"PYTHONPATH": "emulator"}),
        partial(session.run, program("typos")),
        clang_format,
    )


@nox.session(venv_backend="virtualenv", tags=["develop"])
def docs(session: nox.Session) -> None:
    """Build the pages of docs/ as HTML in build/docs; fail if a link leads nowhere."""
    refuse_options(session)
    install(session, Path(session.bin).parent, "docs/requirements.txt")
    session.run("sphinx-build", "--fail-on-warning", "--keep-going", "--quiet", "-b", "html", "docs", "build/docs")


@session("parity", "develop", "parity", "--output", "build/parity.json")
def parity(session: nox.Session) -> None:
    """Compare the matrix with the upstreams' own codegen: names, bindings, dispatch, machine code."""
    run_command(session)


@session("timing-score", "develop", "timing", "score")
def timing_score(session: nox.Session) -> None:
    """Score the timing model on published measurements; `-- --tier smoke` compiles nothing."""
    run_command(session)


@session("docker", "ship")
def docker(session: nox.Session) -> None:
    """Write and lint the Dockerfiles, build the local images twice and compare their ids."""
    run(session, "ckpm", "images", "lint")
    run(session, "ckpm", "images", "build", *session.posargs)


@session("in-container", "ship")
def in_container(session: nox.Session) -> None:
    """Run sessions inside an image: `nox -s in-container -- build-gfx950 test-large-kv --image debian-rocm-test`."""
    run(session, "ckpm", "in-container", *session.posargs)


@session("workflows", "ship")
def workflows(session: nox.Session) -> None:
    """Check that the workflows fit their templates and GitHub's schema, with zizmor and actionlint."""
    refuse_options(session)
    files = sorted(map(str, Path(".github/workflows").glob("*.yml")))
    zizmor = (program("zizmor"), "--offline", "--pedantic", "--no-progress")  # a program without a module
    actionlint = shutil.which("actionlint")  # not on PyPI as a wheel, so it can't be pinned with the others
    run_each(
        partial(run, session, "ckpm", "workflows", "render", "--check"),
        partial(run, session, "check_jsonschema", "--builtin-schema", "vendor.github-workflows", *files),
        partial(run, session, "check_jsonschema", "--builtin-schema", "vendor.dependabot", DEPENDABOT),
        partial(session.run, *zizmor, *files, DEPENDABOT, external=True),
        *([partial(session.run, actionlint, *files, external=True)] if actionlint else []),
    )
    if not actionlint:
        session.warn("actionlint is not on PATH: its checks were left out")


@session("release-qualification", "ship", "qualify")
def release_qualification(session: nox.Session) -> None:
    """Run every stage of a release on a clean commit; write verdict and bundle. `-- --tier smoke` is a rehearsal."""
    run_command(session)


def nearest_sessions(arguments: Sequence[str]) -> Iterator[str]:
    """Yield a line for each mistyped session of a command line, with the nearest one."""
    names, chosen = list(nox.registry.get()), False
    for word in itertools.takewhile(lambda word: word != "--", arguments):
        if word.startswith("-"):
            chosen = word in ("-s", "-e", "--session", "--sessions")
        elif chosen and word not in names and (close := difflib.get_close_matches(word, names, n=1)):
            yield f"there is no session '{word}'; did you mean '{close[0]}'?"


for line in nearest_sessions(sys.argv):
    logger.error(line)
