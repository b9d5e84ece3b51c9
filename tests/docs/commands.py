"""Check the commands of a page: programs, sessions of nox, and commands of ckpm with options and values."""

from __future__ import annotations

import functools
import importlib.util
import re
import shlex
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import nox.registry

from ckpm.base.errors import CkPrefillError
from ckpm.commands import parse
from ckpm.docker.images import images
from ckpm.matrix.dialects import check_arch, dialect, upstreams
from ckpm.matrix.problems.case import FAMILY_SUITE, SUITES, TIERS
from ckpm.reports.release.libraries import parser as libraries_parser
from ckpm_emulator.cli import _parser as emulator_parser
from tests.docs.pages import ROOT
from tests.programs.__main__ import parser as programs_parser
from tests.programs.conformance.__main__ import parser as conformance_parser

PARSERS: dict[str, Callable[[], Any]] = {
    "ckpm_emulator": emulator_parser,
    "ckpm.reports.release.libraries": libraries_parser,
    "tests.programs": programs_parser,
    "tests.programs.conformance": conformance_parser,
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
        return [complaint for words in simple_commands(command) for complaint in _check_command(words)]
    except ValueError as error:
        return [f"no shell can read it: {error}"]


def simple_commands(command: str) -> Iterator[list[str]]:
    """The words of each command of a list or pipeline, without redirections and assignments before it."""
    first_line = command.partition("\n")[0] if "<<" in command else command.replace("\\\n", " ")
    lexer = shlex.shlex(first_line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    skip = False
    for word in [*lexer, ";"]:
        if word in _OPERATORS:
            while words and _ASSIGNMENT.fullmatch(words[0]):
                words.pop(0)
            if words:
                yield words
            words, skip = [], False
        elif skip:
            skip = False
        elif word in _REDIRECTIONS:
            skip = True
            if words and words[-1] == "2":  # of 2>&1
                words.pop()
        else:
            words.append(word)


def _check_command(words: Sequence[str]) -> list[str]:
    program, *rest = words
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
        places = [word.partition("::")[0] for word in options if word.startswith("tests/")]
        return [f"pytest: there is no {place}" for place in places if not (ROOT / place).exists()]
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
    known: dict[str, Callable[[str], Any]] = {
        "arch": check_arch,
        "dialect": dialect,
        "upstream": lambda name: _check_name(name, (*upstreams(), "checkout")),
        "tier": lambda name: _check_name(name, TIERS),
        "suite": lambda name: _check_name(name, (*SUITES, FAMILY_SUITE)),
        "image": lambda name: None if "@" in name else _check_name(name, tuple(images())),
        "sessions": lambda name: _check_name(name, tuple(sessions())),
    }
    for option, check in known.items():
        given = chosen.get(option)
        for value in given if isinstance(given, list | tuple) else [given]:
            try:
                for word in str(value).split(",") if value is not None else []:
                    check(word)
            except (CkPrefillError, ValueError) as error:
                yield f"{option}: {error}"


def _check_name(name: str, known: Sequence[str]) -> None:
    if name not in known:
        raise ValueError(f"{name} is none of {', '.join(known)}")


def _check_nox(words: Sequence[str]) -> list[str]:
    """Check that the sessions exist, and that the commands they start have these options."""
    if words in (["-l"], ["--list"]):
        return []
    if words[:1] != ["-s"]:
        return [f"nox {shlex.join(words)}: sessions are named with -s"]
    names, options = list(words[1:]), []
    if "--" in names:
        names, options = names[: names.index("--")], names[names.index("--") + 1 :]
    if not names:
        return ["nox -s: no session"]
    noxfile().BUILT.clear()
    found = [f"nox has no session {name}" for name in names if name not in sessions()]
    return found or [
        text for name in names for started in started_by(name, options) for text in _check_command(started)
    ]


@functools.cache
def sessions() -> dict[str, Any]:
    """The functions of noxfile.py by session, without the session `environment`."""
    noxfile()
    return {name: one.func for name, one in nox.registry.get().items() if name != "environment"}


class Recorder:
    """A stand-in for the session object of nox that keeps commands instead of running them."""

    def __init__(self, options: Sequence[str], cache_dir: Path) -> None:
        self.posargs, self.cache_dir, self.bin = list(options), cache_dir, "/bin"
        self.env: dict[str, str] = {}
        self.started: list[list[str]] = []
        (cache_dir / "programs").write_text("/programs")

    def install(self, *words: str) -> None:
        pass

    def run(self, *words: Any, **_options: Any) -> str:
        self.started.append([str(word) for word in words])
        return ""


def started_by(session: str, options: Sequence[str]) -> list[list[str]]:
    """Return the commands of this project that a session starts, as ``python -m ...``."""
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(options, Path(folder))
        sessions()[session](recorder)
    own = [words for words in recorder.started if words[0] == "/programs/python" and words[1] == "-m"]
    return [["python", *words[1:]] for words in own if words[2] in {*PARSERS, "ckpm", "pytest"}]
