"""Every failure has one exit code, no two have the same, and each lies in its room's range: read from the sources."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from ckpm.base.errors import CkPrefillError
from ckpm_emulator.errors import EmulatorError
from tests.unit.parsed import nodes

ROOT = Path(__file__).parents[2]
ROOMS = (
    *("base", "matrix", "kernels", "attention", "suites", "decode", "cluster", "docker", "bench", "reports"),
    *("workflows", "emulator/ckpm_emulator", "ckpm"),
)
MODULES = (
    *("ckpm.base.errors", "ckpm.docker.errors", "ckpm.cluster.errors"),
    *("ckpm.decode.guard.errors", "ckpm.attention.sweeps.stored.errors"),
    *("ckpm.reports.errors", "ckpm_emulator.errors", "ckpm.suites.errors", "ckpm.workflows.errors"),
    *(
        "ckpm.attention.errors",
        "ckpm.attention.jit.errors",
        "ckpm.attention.cpp.errors",
        "ckpm.attention.sweeps.errors",
    ),
)
RANGES = {
    "ckpm.base.errors": (*range(2, 40), *range(90, 100)),
    "ckpm.docker.errors": range(100, 110),
    "ckpm.cluster.errors": range(110, 120),
    "ckpm.decode.guard.errors": range(230, 240),
    "ckpm.reports.errors": range(40, 60),
    "ckpm_emulator.errors": range(60, 80),
    "ckpm.suites.errors": range(80, 90),
    "ckpm.workflows.errors": range(120, 130),
    "ckpm.attention.jit.errors": range(220, 225),
    "ckpm.attention.cpp.errors": range(225, 230),
    "ckpm.attention.sweeps.stored.errors": range(240, 241),
    "ckpm.attention.sweeps.errors": range(241, 245),
    "ckpm.attention.errors": range(200, 220),
}
# bases that are never raised, and the failure of a worker, whose code is that of the error that the worker met
WITHOUT_CODE = {"CkPrefillError", "UnknownWordError", "EmulatorError", "RefusedError"}
# programs that stand in for another one, whose codes they give; not our command lines
STAND_INS = {"kernels/code/toolchains/offload_bundler.py"}


def sources() -> list[Path]:
    return [ROOT / "noxfile.py", *(file for room in ROOMS for file in sorted((ROOT / room).rglob("*.py")))]


def errors_of(module: ModuleType) -> dict[str, type]:
    """The classes of a module that are failures and defined there, by name."""
    bases = (CkPrefillError, EmulatorError)
    return {
        name: one
        for name, one in inspect.getmembers(module, inspect.isclass)
        if issubclass(one, bases) and one.__module__ == module.__name__
    }


def repeated(codes: list[int]) -> list[int]:
    return sorted(code for code, count in Counter(codes).items() if count > 1)


def literal_codes(text: str) -> list[str]:
    """Where a program ends itself with a number, or gives one an exit code, outside a class of errors."""
    found = []
    for node in nodes(text):
        numbers: list[ast.expr | None] = []
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("sys.exit", "SystemExit", "os._exit", "exit"):
            numbers = [*node.args]
        elif isinstance(node, ast.keyword) and node.arg in ("exit_code", "code", "success_codes"):
            numbers = [node.value]
        elif isinstance(node, ast.Compare) and ast.unparse(node.left).endswith(("exit_code", "returncode")):
            numbers = [*node.comparators]
        found += [
            f"{number.lineno}: {number.value}"
            for number in numbers
            if isinstance(number, ast.Constant) and isinstance(number.value, int) and number.value not in (0, 1)
        ]
    return found


def test_no_code_is_used_twice() -> None:
    codes = [
        one.__dict__["exit_code"]
        for name in MODULES
        for one in errors_of(importlib.import_module(name)).values()
        if "exit_code" in one.__dict__ and one.__name__ not in WITHOUT_CODE
    ]
    assert repeated(codes) == []
    assert len(codes) > 60
    assert repeated([*codes, codes[3]]) == [codes[3]]


@pytest.mark.parametrize("name", MODULES)
def test_every_failure_has_a_code_of_its_own_in_its_room_s_range(name: str) -> None:
    for error, one in errors_of(importlib.import_module(name)).items():
        if error in WITHOUT_CODE:
            continue
        code = one.__dict__.get("exit_code")
        assert code is not None, f"{error} has no code of its own"
        assert code in RANGES[name], f"{error}: {code}"


def test_failures_are_defined_in_the_errors_modules_alone() -> None:
    """A class with a code elsewhere would be overlooked here."""
    elsewhere = [
        f"{file.relative_to(ROOT)}: {node.name}"
        for file in sources()
        if file.name != "errors.py"
        for node in nodes(file.read_text())
        if isinstance(node, ast.ClassDef)
        and (
            any(isinstance(line, ast.Assign) and "exit_code" in ast.unparse(line.targets[0]) for line in node.body)
            or {ast.unparse(base) for base in node.bases} & {"CkPrefillError", "EmulatorError"}
        )
    ]
    assert elsewhere == []


def test_bases_without_a_code_are_never_raised() -> None:
    raised = [
        f"{file.relative_to(ROOT)}: {found}"
        for file in sources()
        for found in re.findall(r"raise (?:CkPrefillError|UnknownWordError|EmulatorError)\b", file.read_text())
    ]
    assert raised == []


def test_no_exit_code_is_written_as_a_number() -> None:
    found = {
        str(file.relative_to(ROOT)): literal_codes(file.read_text())
        for file in sources()
        if str(file.relative_to(ROOT)) not in STAND_INS
    }
    assert {file: numbers for file, numbers in found.items() if numbers} == {}
    planted = literal_codes("sys.exit(45)\nif done.returncode == 30: pass\nrun(success_codes=80)")
    assert planted == ["1: 45", "2: 30", "3: 80"]


def test_the_pages_name_the_ranges() -> None:
    page = (ROOT / "docs/reference/machine.md").read_text()
    assert "2-19 and 90-99 `matrix`, 20-39 `kernels`, 40-59 `reports`, 60-79 `emulator`, 80-89 `ckpm.suites`" in page
