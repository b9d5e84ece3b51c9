"""Every error class has an exit code of its own, in the range of its room."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections import Counter
from types import ModuleType

import pytest

from ckpm.base.errors import CkPrefillError
from ckpm_emulator.base.errors import CkPrefillError as EmulatorError
from tests.unit.sources import ROOT, nodes, sources

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
# bases that are never raised, and the error of a worker, which has the code of the worker's error
WITHOUT_CODE = {"CkPrefillError", "UnknownWordError", "EmulatorError", "RefusedError"}
# programs that replace other programs and return their codes
STAND_INS = {"kernels/code/toolchains/offload_bundler.py"}


FILES = {"noxfile.py": (ROOT / "noxfile.py").read_text(), **sources()}


def errors_of(module: ModuleType) -> dict[str, type]:
    """The error classes that a module defines, by name."""
    bases = (CkPrefillError, EmulatorError)
    return {
        name: one
        for name, one in inspect.getmembers(module, inspect.isclass)
        if issubclass(one, bases) and one.__module__ == module.__name__
    }


def repeated_codes(codes: list[int]) -> list[int]:
    return sorted(code for code, count in Counter(codes).items() if count > 1)


def literal_codes(text: str) -> list[str]:
    """Lines that write an exit code as a number, outside of an error class."""
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


def test_exit_codes_are_unique() -> None:
    codes = [
        one.__dict__["exit_code"]
        for name in MODULES
        for one in errors_of(importlib.import_module(name)).values()
        if "exit_code" in one.__dict__ and one.__name__ not in WITHOUT_CODE
    ]
    assert repeated_codes(codes) == []
    assert len(codes) > 60
    assert repeated_codes([*codes, codes[3]]) == [codes[3]]


@pytest.mark.parametrize("name", MODULES)
def test_exit_codes_are_in_range_of_room(name: str) -> None:
    for error, one in errors_of(importlib.import_module(name)).items():
        if error in WITHOUT_CODE:
            continue
        code = one.__dict__.get("exit_code")
        assert code is not None, f"{error} has no code of its own"
        assert code in RANGES[name], f"{error}: {code}"


def test_error_classes_are_defined_in_errors_modules() -> None:
    elsewhere = [
        f"{file}: {node.name}"
        for file, text in FILES.items()
        if not file.endswith("/errors.py")
        for node in nodes(text)
        if isinstance(node, ast.ClassDef)
        and (
            any(isinstance(line, ast.Assign) and "exit_code" in ast.unparse(line.targets[0]) for line in node.body)
            or {ast.unparse(base) for base in node.bases} & {"CkPrefillError", "EmulatorError"}
        )
    ]
    assert elsewhere == []


def test_base_classes_are_never_raised() -> None:
    raised = [
        f"{file}: {found}"
        for file, text in FILES.items()
        for found in re.findall(r"raise (?:CkPrefillError|UnknownWordError|EmulatorError)\b", text)
    ]
    assert raised == []


def test_exit_codes_are_not_written_as_numbers() -> None:
    found = {file: literal_codes(text) for file, text in FILES.items() if file not in STAND_INS}
    assert {file: numbers for file, numbers in found.items() if numbers} == {}
    planted = literal_codes("sys.exit(45)\nif done.returncode == 30: pass\nrun(success_codes=80)")
    assert planted == ["1: 45", "2: 30", "3: 80"]


def test_page_lists_ranges() -> None:
    page = (ROOT / "docs/reference/machine.md").read_text()
    assert "2-19 and 90-99 `matrix`, 20-39 `kernels`, 40-59 `reports`, 60-79 `emulator`, 80-89 `ckpm.suites`" in page
