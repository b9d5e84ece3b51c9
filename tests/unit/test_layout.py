"""The rooms of the house: who may import whom, in which order inner rooms stand, how long and how deep functions are.

Every rule is a function over texts, so that each is seen to fail on a file that breaks it.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.unit.parsed import nodes

ROOT = Path(__file__).parents[2]
ROOMS = ("matrix", "kernels", "emulator", "reports", "dispatcher", "suites", "tests/mutants")
MAY_IMPORT = {
    "matrix": (),
    "kernels": ("matrix",),
    "emulator": (),
    "reports": ("kernels", "matrix"),
    "dispatcher": ("kernels", "matrix"),
    "suites": ("kernels", "matrix"),
    "tests/mutants": ("emulator", "kernels", "matrix", "suites"),
}
EMULATOR_USERS = (
    "attention/launch/device.py",
    "kernels/code/code_object.py",
    "base/trust.py",
)  # the files of kernels/ that may
# What stands in a room, the lowest first: an import goes to something lower. "*" is every module at the room's root
# that has no place of its own. All files of an inner room count as one. A family says how it is launched and launching
# asks the family: the two share a place.
ORDER = {
    "matrix": ("base", "*", "published", "configurations", "problems", "changes", "cli", "__main__"),
    "kernels": (
        *(
            "errors",
            "*",
            "base",
            "upstream",
            "families launch",
            "code",
            "build",
            "parity",
            "bench benchmark",
            "timing",
            "guard",
            "decode",
            "containers",
            "cluster",
        ),
        *("cli", "__main__"),
    ),
    "emulator": (
        "faults",
        "errors",
        "options",
        "code_object",
        "image",
        "lowering",
        "*",
        "inspection",
        "device",
        "cli",
        "__main__",
    ),
    "dispatcher": (
        *(
            "errors",
            "problems",
            "*",
            "cpp",
            "arrays",
            "call jit",
            "appending backward familiar",
            "bench benchmark",
            "cli",
            "__main__",
        ),
    ),
    "reports": ("errors", "*", "junit", "gates", "timing", "page", "release", "calibration", "cli", "__main__"),
}
MAX_FILES = 16  # Python files in a folder of a room, __init__.py left out
CROWDED = {"kernels/families": 20, "attention/launch": 20}  # of those that hold more; none may be added to the list
MAX_LINES = 50  # of a function
MAX_DEPTH = 5  # levels of indentation of a statement in a function

Sources = Mapping[str, str]  # path from the root, with slashes -> text


@functools.cache
def sources() -> Sources:
    files = [file for room in ROOMS for file in (ROOT / room).rglob("*.py")]
    return {file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8") for file in sorted(files)}


def imported(text: str) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of everything that a file imports, inside functions too."""
    for node in nodes(text):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def room_of(path: str) -> str:
    """The room of a file, or of a dotted name written with slashes; "" outside."""
    return next((room for room in ROOMS if path.startswith(f"{room}/")), "")


def forbidden_imports(files: Sources) -> list[str]:
    """Imports across rooms in a direction that design.md doesn't have, of the orchestration, and relative ones."""
    complaints = []
    for path, text in files.items():
        allowed = (room_of(path), *MAY_IMPORT[room_of(path)], *(["emulator"] if path in EMULATOR_USERS else []))
        for line, name in imported(text):
            target = room_of(name.replace(".", "/") + "/")
            if name.startswith(".") or name.partition(".")[0] in ("noxfile", "SConstruct"):
                complaints.append(f"{path}:{line}: imports {name}")
            elif (target or name.partition(".")[0] == "tests") and target not in allowed:
                complaints.append(f"{path}:{line}: {room_of(path)} may not import {name}")
    return complaints


def place(path: str) -> int | None:
    """Where a file, or a dotted name written with slashes, stands in its room's order; None outside of it."""
    room, _, inner = path.partition("/")
    name = inner.partition("/")[0].removesuffix(".py")
    order = ORDER.get(room, ())
    if not name or name == "__init__" or not order:
        return None
    known = {each: at for at, names in enumerate(order) for each in names.split()}
    return known.get(name, known["*"])


def upward_imports(files: Sources) -> list[str]:
    """Imports within a room from something lower to something higher: of such, cycles are made."""
    complaints = []
    for path, text in files.items():
        here = place(path)
        for line, name in imported(text):
            there = place(name.replace(".", "/")) if name.startswith(room_of(path).replace("/", ".") + ".") else None
            if here is not None and there is not None and there > here:
                complaints.append(f"{path}:{line}: {name} stands above it")
    return complaints


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


@pytest.mark.parametrize("rule", [forbidden_imports, upward_imports, crowded_folders, large_functions])
def test_the_house_is_in_order(rule: Callable[[Sources], list[str]]) -> None:
    assert rule(sources()) == []


def test_every_file_is_looked_at() -> None:
    looked_at = sources()
    assert {room_of(path) for path in looked_at} == set(ROOMS) == set(MAY_IMPORT)
    assert all(path in looked_at for path in EMULATOR_USERS)


@pytest.mark.parametrize(
    ("path", "text", "complaint"),
    [
        ("matrix/rules.py", "import ckpm.base.errors", "1: matrix may not import ckpm.base.errors"),
        ("base/files.py", "def f():\n    from emulator import image", "2: matrix may not import ckpm_emulator.image"),
        (
            "emulator/ckpm_emulator/image.py",
            "from ckpm.base import errors",
            "1: emulator may not import ckpm.base.errors",
        ),
        ("kernels/library/plan.py", "from ckpm_emulator import image", "1: kernels may not import ckpm_emulator.image"),
        ("kernels/library/plan.py", "import ckpm.reports", "1: kernels may not import reports"),
        ("reports/cli.py", "from ckpm_emulator import image", "1: reports may not import ckpm_emulator.image"),
        ("reports/cli.py", "from ckpm.suites import pool", "1: reports may not import ckpm.suites.pool"),
        ("kernels/cli.py", "from tests import unit", "1: kernels may not import tests.unit"),
        ("kernels/cli.py", "import ckpm.attention", "1: kernels may not import dispatcher"),
        ("attention/plan.py", "from ckpm.reports import cli", "1: dispatcher may not import ckpm.reports.cli"),
        ("suites/pool.py", "import ckpm.reports.cli", "1: suites may not import ckpm.reports.cli"),
        ("kernels/library/plan.py", "import noxfile", "1: imports noxfile"),
        ("kernels/library/plan.py", "from . import request", "1: imports ..request"),
    ],
)
def test_a_planted_import_is_noticed(path: str, text: str, complaint: str) -> None:
    assert forbidden_imports({path: text}) == [f"{path}:{complaint}"]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("attention/launch/device.py", "from ckpm_emulator import device"),
        ("kernels/library/plan.py", "import ckpm.matrix.keys\nimport json\nfrom ckpm.base import files"),
        ("suites/pool.py", "from ckpm.suites import cli\nfrom ckpm.kernels import errors\nimport ckpm.matrix"),
    ],
)
def test_what_is_permitted_is_no_complaint(path: str, text: str) -> None:
    assert forbidden_imports({path: text}) == []


@pytest.mark.parametrize(
    ("path", "text", "complaints"),
    [
        ("base/files.py", "from ckpm.matrix import keys", 1),
        ("base/files.py", "from ckpm.base import errors", 0),
        ("matrix/keys.py", "import ckpm.matrix.problems.ledger", 1),
        ("matrix/keys.py", "from ckpm.matrix.rules import RULES", 0),
        ("base/files.py", "from ckpm.kernels.families.cpp import x", 1),
        ("base/errors.py", "from ckpm.base import files", 1),
        ("base/files.py", "from ckpm.base.errors import DiskFullError", 0),
        ("kernels/upstream/trees.py", "def f():\n    from ckpm.kernels.parity import cases", 1),
        ("attention/arrays/posing.py", "from ckpm.attention.call import fmha", 1),
        ("reports/junit/write.py", "from ckpm.reports.gates.static import GATE", 1),
        ("reports/junit/write.py", "from ckpm.reports.verdicts import Gate", 0),
        ("reports/gates/static.py", "from ckpm.reports import cli", 1),
    ],
)
def test_a_planted_cycle_between_inner_rooms_is_noticed(path: str, text: str, complaints: int) -> None:
    assert len(upward_imports({path: text})) == complaints


def test_a_crowded_folder_and_a_large_function_are_noticed() -> None:
    files = {f"base/{number}.py": "" for number in range(MAX_FILES + 1)}
    assert crowded_folders(files) == ["base: 17 files"]
    assert crowded_folders({**dict(list(files.items())[1:]), "base/__init__.py": ""}) == []
    long = "def f():\n" + "    x = 1\n" * MAX_LINES
    assert large_functions({"a.py": long}) == ["a.py:1: f: 51 lines, 1 levels"]
    assert large_functions({"a.py": "def f():\n" + "    x = 1\n" * (MAX_LINES - 1)}) == []
    deep = "".join("    " * level + line for level, line in enumerate(["def f(x):\n", *["if x:\n"] * 5, "x = 1\n"]))
    assert large_functions({"a.py": deep}) == ["a.py:1: f: 7 lines, 6 levels"]
    flatter = "".join("    " * level + line for level, line in enumerate(["def f(x):\n", *["if x:\n"] * 4, "x = 1\n"]))
    assert large_functions({"a.py": flatter}) == []
