"""Exit codes: one for each kind of failure, defined in ckpm/base/errors.py and listed on a page."""

from __future__ import annotations

import ast
import inspect
import re

from ckpm.base import errors
from ckpm.base.errors import CkPrefillError
from tests.unit.sources import ROOT, nodes, sources

# programs that stand in for another one, whose codes they give; not our command lines
STAND_INS = {"ckpm/kernels/code/toolchains/offload_bundler.py"}
CLASSES = {
    name: error_class
    for name, error_class in inspect.getmembers(errors, inspect.isclass)
    if issubclass(error_class, CkPrefillError) and error_class.__module__ == errors.__name__
}


def literal_codes(text: str) -> list[str]:
    """Lines where a program ends itself with a number, or gives one an exit code, outside a class of errors."""
    lines = []
    for node in nodes(text):
        numbers: list[ast.expr | None] = []
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("sys.exit", "SystemExit", "os._exit", "exit"):
            numbers = [*node.args]
        elif isinstance(node, ast.keyword) and node.arg in ("exit_code", "code", "success_codes"):
            numbers = [node.value]
        elif isinstance(node, ast.Compare) and ast.unparse(node.left).endswith(("exit_code", "returncode")):
            numbers = [*node.comparators]
        lines += [
            f"{number.lineno}: {number.value}"
            for number in numbers
            if isinstance(number, ast.Constant) and isinstance(number.value, int) and number.value not in (0, 1)
        ]
    return lines


def test_page_of_codes_lists_every_class_and_code() -> None:
    """docs/reference/machine.md: rows of `| code | classes | meaning |`."""
    page = (ROOT / "docs/reference/machine.md").read_text()
    rows = re.findall(r"^\| (\d+) \| (.*?) \|", page, flags=re.M)
    listed = {name: int(code) for code, names in rows for name in re.findall(r"`(\w+Error)`", names)}
    raised = {
        name: error_class.exit_code
        for name, error_class in CLASSES.items()
        if name not in ("CkPrefillError", "RefusedError")
    }
    assert listed == raised


def test_failures_outside_errors_module_are_subclasses() -> None:
    """A class with a code of its own elsewhere would be missing on the page."""
    elsewhere = [
        f"{file}: {node.name}"
        for file, text in sources().items()
        if file not in ("ckpm/base/errors.py", "emulator/ckpm_emulator/errors.py")
        for node in nodes(text)
        if isinstance(node, ast.ClassDef)
        and (
            any(isinstance(line, ast.Assign) and "exit_code" in ast.unparse(line.targets[0]) for line in node.body)
            or {ast.unparse(base) for base in node.bases} & {"CkPrefillError"}
        )
    ]
    assert elsewhere == []


def test_base_class_is_never_raised() -> None:
    raised = [
        f"{file}: {statement}"
        for file, text in sources().items()
        for statement in re.findall(r"raise CkPrefillError\b", text)
    ]
    assert raised == []


def test_exit_code_as_number_is_noticed() -> None:
    programs = {**sources(), "noxfile.py": (ROOT / "noxfile.py").read_text()}
    literals = {file: literal_codes(text) for file, text in programs.items() if file not in STAND_INS}
    assert {file: numbers for file, numbers in literals.items() if numbers} == {}
    planted = literal_codes("sys.exit(45)\nif done.returncode == 30: pass\nrun(success_codes=80)")
    assert planted == ["1: 45", "2: 30", "3: 80"]
