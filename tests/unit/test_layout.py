"""The contract of the rooms (pyproject.toml, checked by import-linter), and the size of folders and functions."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.sources import ROOT, Sources, nodes, sources

SEARCH = {**os.environ, "PYTHONPATH": "emulator"}
LINT = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", "--no-logo"]
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
LAYERS = [room for layer in CONTRACTS[0]["layers"] for room in layer.replace("|", ":").split(" : ")]
MAX_FILES = 16  # Python files in a folder of a room, without __init__.py
CROWDED = {  # folders with more files. No folder may be added
    "ckpm/base": 25,
    "ckpm/kernels/families": 20,
    "ckpm/timing": 17,
}
MAX_LINES = 50  # of a function
MAX_DEPTH = 5  # levels of indentation of a statement in a function


def crowded_folders(files: Sources) -> list[str]:
    folders: dict[str, int] = {}
    for path in files:
        folder, _, name = path.rpartition("/")
        folders[folder] = folders.get(folder, 0) + (name != "__init__.py")
    return [f"{folder}: {count} files" for folder, count in folders.items() if count > CROWDED.get(folder, MAX_FILES)]


def large_functions(files: Sources) -> list[str]:
    complaints = []
    for path, text in files.items():
        for node in nodes(text):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                depth = max(inner.col_offset for inner in ast.walk(node) if isinstance(inner, ast.stmt)) // 4
                if lines > MAX_LINES or depth > MAX_DEPTH:
                    complaints.append(f"{path}:{node.lineno}: {node.name}: {lines} lines, {depth} levels")
    return complaints


@pytest.mark.parametrize("rule", [crowded_folders, large_functions])
def test_folders_and_functions_are_small(rule: Callable[[Sources], list[str]]) -> None:
    assert rule(sources()) == []


def test_contract_lists_every_room() -> None:
    rooms = {f"ckpm.{file.parent.name}" for file in (ROOT / "ckpm").glob("*/__init__.py")}
    assert {*LAYERS} == rooms


def test_contract_is_kept() -> None:
    done = subprocess.run(LINT, cwd=ROOT, env=SEARCH, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_emulator_imports_nothing_of_ckpm() -> None:
    imports = re.compile(r"^\s*(from|import) (ckpm|tests)\b", re.MULTILINE)
    files = [file for file in (ROOT / "emulator").rglob("*.py") if imports.search(file.read_text())]
    assert files == []


ALLOWED = {
    "ckpm/suites/pool.py": "from ckpm.kernels import plan\nimport ckpm.matrix\nfrom ckpm.base import files",
    "ckpm/attention/launch/device.py": "from ckpm_emulator import device",
    "ckpm/kernels/code/code_object.py": "import ckpm_emulator",
    "ckpm/kernels/code/emulated.py": "from ckpm_emulator import device",
}
PLANTED = {  # file: its text, and the line that reports it
    "ckpm/matrix/rules.py": ("import ckpm.kernels.plan", "ckpm.matrix is not allowed to import ckpm.kernels:"),
    "ckpm/base/files.py": ("def f():\n    import ckpm.kernels", "ckpm.base is not allowed to import ckpm.kernels:"),
    "ckpm/attention/plan.py": ("from ckpm.suites import pool", "ckpm.attention is not allowed to import ckpm.suites:"),
    "ckpm/docker/images.py": ("from ckpm import cluster", "ckpm.docker is not allowed to import ckpm.cluster:"),
    "ckpm_emulator/image.py": ("import ckpm.base.files", "ckpm_emulator is not allowed to import ckpm:"),
    "ckpm/reports/cli.py": ("from ckpm_emulator import image", "ckpm.reports.cli -> ckpm_emulator.image (l.1)"),
    "ckpm/kernels/cli.py": ("from tests import unit", "ckpm.kernels.cli -> tests (l.1)"),
    "ckpm/kernels/plan.py": ("import noxfile", "ckpm.kernels.plan -> noxfile (l.1)"),
    "ckpm/reports/one.py": ("from ckpm.reports import two", "ckpm.reports"),
    "ckpm/reports/two.py": ("import ckpm.reports.one", "ckpm.reports"),
}


@pytest.mark.parametrize("broken", [False, True])
def test_contract_with_planted_imports_is_broken(broken: bool, tmp_path: Path) -> None:
    planted = {name: text for name, (text, _) in PLANTED.items()} if broken else {}
    rooms = {f"{room.replace('.', '/')}/__init__.py": "" for room in LAYERS}
    for name, text in {
        **rooms,
        **ALLOWED,
        "ckpm/kernels/plan.py": "",
        "ckpm_emulator/device.py": "",
        **planted,
    }.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        for folder in [each for each in file.parents if each.is_relative_to(tmp_path) and each != tmp_path]:
            (folder / "__init__.py").touch()
    config = (ROOT / "pyproject.toml").read_text()
    (tmp_path / "pyproject.toml").write_text(re.sub(r"ignore_imports = \[.*?\n\]", "", config, flags=re.S))
    done = subprocess.run(LINT, cwd=tmp_path, capture_output=True, text=True, check=False)
    kept = 0 if broken else len(CONTRACTS)
    assert f"{kept} kept, {len(CONTRACTS) - kept} broken" in done.stdout, done.stdout
    assert [line for _, line in PLANTED.values() if broken and line not in done.stdout] == [], done.stdout


def test_crowded_folder_and_large_function_are_found() -> None:
    files = {f"a/{number}.py": "" for number in range(MAX_FILES + 1)}
    assert crowded_folders(files) == ["a: 17 files"]
    assert crowded_folders({**dict(list(files.items())[1:]), "a/__init__.py": ""}) == []
    long = "def f():\n" + "    x = 1\n" * MAX_LINES
    assert large_functions({"a.py": long}) == ["a.py:1: f: 51 lines, 1 levels"]
    assert large_functions({"a.py": "def f():\n" + "    x = 1\n" * (MAX_LINES - 1)}) == []
    deep = "".join("    " * level + line for level, line in enumerate(["def f(x):\n", *["if x:\n"] * 5, "x = 1\n"]))
    assert large_functions({"a.py": deep}) == ["a.py:1: f: 7 lines, 6 levels"]
    flatter = "".join("    " * level + line for level, line in enumerate(["def f(x):\n", *["if x:\n"] * 4, "x = 1\n"]))
    assert large_functions({"a.py": flatter}) == []
