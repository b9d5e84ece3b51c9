"""Check the commands of a page: programs, sessions of nox, and commands of ckpm with options and values."""

from __future__ import annotations

import functools
import importlib.util
import re
import shlex
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import nox.registry

from ckpm.base.errors import CkPrefillError
from ckpm.commands import parse
from ckpm.docker.images import images
from ckpm.matrix.dialects import check_arch, dialect, upstreams
from ckpm.matrix.problems.case import TIERS
from ckpm.matrix.sessions import sessions as session_table
from ckpm.reports.release.libraries import parser as libraries_parser
from ckpm.session_options import split_options
from ckpm_emulator.cli import _parser as emulator_parser
from conformance.__main__ import parser as conformance_parser
from programs.__main__ import parser as programs_parser
from tests.docs.pages import ROOT
from tests.programs.conformance.__main__ import parser as ck_parser

PARSERS: dict[str, Callable[[], Any]] = {
    "ckpm_emulator": emulator_parser,
    "ckpm.reports.release.libraries": libraries_parser,
    "conformance": conformance_parser,
    "programs": programs_parser,
    "tests.programs.conformance": ck_parser,
}
# programs of others, whose options are not checked
PROGRAMS = {
    *("apt-get", "cat", "cd", "cp", "export", "git", "grep", "head", "ls", "mkdir", "mmdebstrap", "mount"),
    *("pip", "pre-commit", "sha256sum"),
    *("sbatch", "squeue", "sinfo", "scancel", "ssh-keygen", "rocminfo", "dmesg", "sed", "tail", "tar", "tee", "test"),
}
_OPERATORS = {"&&", "||", "|", ";", "&"}
_REDIRECTIONS = {">", ">>", "<", "<<", ">&", "2>&1"}
_ASSIGNMENT = re.compile(r"[A-Z_]+=.*")


@functools.cache
def noxfile() -> ModuleType:
    """Import noxfile.py, which registers its sessions in nox."""
    spec = importlib.util.spec_from_file_location("noxfile", ROOT / "noxfile.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def complaints(command: str) -> list[str]:
    """Return complaints about a shell command without running it."""
    try:
        return [complaint for tokens in simple_commands(command) for complaint in _check_command(tokens)]
    except ValueError as error:
        return [f"no shell can read it: {error}"]


def simple_commands(command: str) -> Iterator[list[str]]:
    """The words of each command of a list or pipeline, without redirections and assignments before it."""
    first_line = command.partition("\n")[0] if "<<" in command else command.replace("\\\n", " ")
    lexer = shlex.shlex(first_line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    tokens: list[str] = []
    skip = False
    for word in [*lexer, ";"]:
        if word in _OPERATORS:
            while tokens and _ASSIGNMENT.fullmatch(tokens[0]):
                tokens.pop(0)
            if tokens:
                yield tokens
            tokens, skip = [], False
        elif skip:
            skip = False
        elif word in _REDIRECTIONS:
            skip = True
            if tokens and tokens[-1] == "2":  # of 2>&1
                tokens.pop()
        else:
            tokens.append(word)


def _check_command(tokens: Sequence[str]) -> list[str]:
    program, *rest = tokens
    match program:
        case "nox":
            return _check_nox(rest)
        case "ckpm":
            return [] if rest[:1] in (["--version"], ["--help"]) else _complaints_of_parser("ckpm", parse, rest)
        case "ckpm-emulator":
            return _check_module("ckpm_emulator", rest)
        case "python" if rest[:2] == ["-m", "ckpm"]:
            return _complaints_of_parser("ckpm", parse, rest[2:])
        case "python" if rest[:1] == ["-m"] and len(rest) > 1:
            return _check_module(rest[1], rest[2:])
        case "python" if rest in (["-"], ["-c", *rest[1:2]]):  # a script after it, which is run with the page
            return []
    return [] if program in PROGRAMS else [f"no test runs the program {program}"]


def _check_module(module: str, options: Sequence[str]) -> list[str]:
    if module == "pytest":
        paths = [word.partition("::")[0] for word in options if word.startswith(("tests/", "emulator/"))]
        return [f"pytest: there is no {path}" for path in paths if not (ROOT / path).exists()]
    if module == "venv":
        return []
    if module.startswith("examples."):
        there = (ROOT / f"{module.replace('.', '/')}.py").is_file()
        return [] if there else [f"python -m {module}: there is no such example"]
    if module not in PARSERS:
        return [f"python -m {module}: no module with a command line"]
    return _complaints_of_parser(f"python -m {module}", PARSERS[module]().parse_args, options)


def _complaints_of_parser(program: str, parse: Callable[[Sequence[str]], Any], options: Sequence[str]) -> list[str]:
    try:
        chosen = parse(list(options))
    except CkPrefillError as error:
        return [f"{program}: {error}"]
    except SystemExit as end:
        return [] if not end.code else [f"{program} {shlex.join(options)}: its parser refuses the options"]
    return [f"{program}: {complaint}" for complaint in _values(vars(chosen))]


def _values(chosen: dict[str, Any]) -> Iterator[str]:
    """Check values that parsers accept and only the commands would refuse."""
    checks: dict[str, Callable[[str], Any]] = {
        "arch": check_arch,
        "dialect": dialect,
        "upstream": lambda name: _check_name(name, (*upstreams(), "checkout")),
        "tier": lambda name: _check_name(name, TIERS),
        "suite": lambda name: _check_name(name, tuple(session_table().suites)),
        "image": lambda name: None if "@" in name else _check_name(name, tuple(images())),
        "sessions": lambda name: _check_name(name, tuple(sessions())),
    }
    for option, check in checks.items():
        values = chosen.get(option)
        for value in values if isinstance(values, list | tuple) else [values]:
            try:
                for word in str(value).split(",") if value is not None else []:
                    check(word)
            except (CkPrefillError, ValueError) as error:
                yield f"{option}: {error}"


def _check_name(name: str, names: Sequence[str]) -> None:
    if name not in names:
        raise ValueError(f"{name} is none of {', '.join(names)}")


def _check_nox(tokens: Sequence[str]) -> list[str]:
    """Check that the sessions exist, and that the commands they start have these options."""
    if tokens in (["-l"], ["--list"]):
        return []
    if tokens[:1] != ["-s"]:
        return [f"nox {shlex.join(tokens)}: sessions are named with -s"]
    names, options = list(tokens[1:]), []
    if "--" in names:
        names, options = names[: names.index("--")], names[names.index("--") + 1 :]
    if not names:
        return ["nox -s: no session"]
    noxfile().BUILT.clear()
    unknown = [f"nox has no session {name}" for name in names if name not in sessions()]
    if unknown:
        return unknown
    try:
        shares = split_options(noxfile().COMMANDS, names, options)
    except CkPrefillError as error:
        return [f"nox: {error}"]
    started = [command for name in names for command in started_by(name, shares.get(name, options))]
    return [text for command in started for text in _check_command(command)]


@functools.cache
def sessions() -> dict[str, Any]:
    """The functions of noxfile.py by session, without the session `environment`."""
    noxfile()
    return {name: session.func for name, session in nox.registry.get().items() if name != "environment"}


class Recorder:
    """A stand-in for the session object of nox that keeps commands instead of running them."""

    def __init__(self, name: str, options: Sequence[str], cache_dir: Path) -> None:
        self.name = name
        self.posargs, self.cache_dir, self.bin = list(options), cache_dir, str(cache_dir / "bin")
        self.env: dict[str, str] = {}
        self.started: list[list[str]] = []
        self._runner = SimpleNamespace(global_config=SimpleNamespace(stop_on_first_error=False))
        noxfile().PROGRAMS.append(Path("/programs"))

    def log(self, *arguments: str) -> None:
        pass

    warn = log

    def run(self, *arguments: Any, **_options: Any) -> str:
        self.started.append([str(word) for word in arguments])
        return ""


def started_by(session: str, options: Sequence[str]) -> list[list[str]]:
    """Return the commands of this project that a session starts, as ``python -m ...``."""
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(session, options, Path(folder))
        sessions()[session](recorder)
    own = [command for command in recorder.started if command[0] == "/programs/python" and command[1] == "-m"]
    return [["python", *command[1:]] for command in own if command[2] in {*PARSERS, "ckpm", "pytest"}]
