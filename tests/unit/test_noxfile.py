"""The arguments of pytest in a nox session."""

from __future__ import annotations

import functools
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@functools.cache
def noxfile() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "noxfile.py"))


@pytest.mark.parametrize(
    ("after_dashes", "called_with"),
    [
        ([], ["tests/programs"]),
        (["-k", "saxpy"], ["tests/programs", "-k", "saxpy"]),
        (["-x", "tests/programs/test_graphs.py"], ["-x", "tests/programs/test_graphs.py"]),
        (["tests/programs/test_graphs.py::test_a"], ["tests/programs/test_graphs.py::test_a"]),
    ],
)
@pytest.mark.filterwarnings("ignore::FutureWarning")  # of sessions registered twice: other tests load the file, too
def test_tests_of_adds_options_and_replaces_folder(after_dashes: list[str], called_with: list[str]) -> None:
    assert noxfile()["tests_of"](SimpleNamespace(posargs=after_dashes), "tests/programs") == called_with
