"""Imports of a process at its start: each build starts SCons, and each command waits for its imports."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from ckpm.commands import COMMANDS, reads_only_the_matrix

ROOT = Path(__file__).parents[3]
SCONSTRUCT = "\n".join(
    ast.unparse(node) for node in ast.parse((ROOT / "SConstruct").read_text()).body if isinstance(node, ast.ImportFrom)
)
COMMAND = "from ckpm.commands import parser; parser('{}')"


@pytest.mark.parametrize(
    ("code", "needed", "absent"),
    [
        (SCONSTRUCT, "SCons.CacheDir", {"yaml", "filelock", "ckpm.matrix.dialects", "rich"}),
        (COMMAND.format("images"), "ckpm.docker.images", {"httpx2", "unearth", "numpy", "SCons", "elftools"}),
        (COMMAND.format("build"), "ckpm.kernels.library.request", {"httpx2", "unearth", "numpy", "SCons"}),
        (COMMAND.format("qualify"), "ckpm.reports.release.commands", {"httpx2", "unearth", "cyclonedx", "SCons"}),
        (
            COMMAND.format("model"),
            "ckpm.reports.gates.model_command",
            {"ckpm.reports.release", "ckpm.reports.page", "SCons", "numpy"},
        ),
    ],
    ids=["SConstruct", "images", "build", "qualify", "model"],
)
def test_process_loads_nothing_that_only_others_need(code: str, needed: str, absent: set[str]) -> None:
    listing = f"{code}\nimport sys\nprint(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", listing], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split())
    assert needed in loaded
    assert not absent & loaded


def test_commands_of_matrix_are_recognised() -> None:
    names = {name for name in COMMANDS if reads_only_the_matrix([*name.split(), "--help"])}
    assert names == {"list", "count", "why", "show", "validate", "problems", "match"}
    assert not reads_only_the_matrix([])
    assert not reads_only_the_matrix(["nonsense"])
