"""What README tells people to type exists: sessions, commands and options."""

from __future__ import annotations

import functools
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from kernels import cli as kernels_cli
from matrix import cli as matrix_cli
from matrix.dialects import dialect, dialect_names, upstreams
from matrix.enumeration import enumerate_names
from matrix.selection import Selection, select
from reports import cli as reports_cli

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
WORDS = {"NAME": "fmha", "DIR": "out", "F": "f.py", "FILE": "f.yaml"}
OPTIONS_OF = {"perf-accept": (reports_cli.parser, "accept")}  # sessions whose options are no build's
COMMANDS = [line.strip().partition("   #")[0] for line in README.splitlines() if line.startswith("    ")]


@functools.cache
def sessions() -> frozenset[str]:
    """Asked for by the tests that need it, and not by each worker that collects this file."""
    command = [sys.executable, "-m", "nox", "--list"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return frozenset(re.findall(r"^[-*] ([\w-]+)", listed, re.MULTILINE)) - {"environment"}


def test_every_session_is_in_the_table_and_every_one_there_exists() -> None:
    table = README[README.index("## Sessions") : README.index("Options go after")]
    first_cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert {name for cell in first_cells for name in re.findall(r"`([\w-]+)`", cell)} == sessions()


@pytest.mark.parametrize("command", [command for command in COMMANDS if "nox -s" in command])
def test_nox_commands(command: str) -> None:
    words = shlex.split(command.partition("nox -s ")[2])
    named, options = words, []
    if "--" in words:
        named, options = words[: words.index("--")], words[words.index("--") + 1 :]
    assert set(named) <= sessions()
    for name in named if options else ():  # nox gives them to every session that is named
        parser, command = OPTIONS_OF.get(name, (kernels_cli.parser, "build"))
        assert parser().parse_args([command, *options])


@pytest.mark.parametrize("command", [command for command in COMMANDS if command.startswith("python -m")])
def test_module_commands(command: str) -> None:
    room, *argv = [WORDS.get(word, word) for word in shlex.split(command)[2:]]
    parser = {"matrix": matrix_cli.parser, "kernels": kernels_cli.parser, "reports": reports_cli.parser}[room]()
    assert parser.parse_args(argv)


def test_the_counts_of_kernels_are_those_of_the_matrix() -> None:
    for name in dialect_names():
        families = dialect(name).families
        row = next(line for line in README.splitlines() if line.startswith(f"| `{name}` |"))
        for cell, chosen in zip(row.split("|")[-3:-1], (["batch_prefill"], list(families)), strict=True):
            written = [int(number.replace(",", "")) for number in re.findall(r"[\d,]{3,}", cell)]
            counts = [
                sum(len(enumerate_names(dialect(name).family(one), arch="gfx950", mask_impl=mask)) for one in chosen)
                for mask in ("simplified", "generic")
            ]
            assert written == counts[: len(written)] != []
    default = dialect(upstreams()["aiter"].dialect)
    for tier in ("smoke", "full", "nightly"):
        row = next(line for line in README.splitlines() if line.startswith(f"| `{tier}` |"))
        count = int(re.findall(r"\d+", row.split("|")[2])[0])
        assert count == len(select(default, Selection(archs=("gfx950",), tier=tier)))
