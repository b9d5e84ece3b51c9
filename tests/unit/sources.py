"""The Python files of both packages, each read and parsed once in a process."""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("ckpm", "emulator/ckpm_emulator")
Sources = Mapping[str, str]  # path from the root, with slashes -> text


@functools.cache
def sources() -> Sources:
    files = sorted(file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))
    return {file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8") for file in files}


@functools.cache
def nodes(text: str) -> tuple[ast.AST, ...]:
    """All nodes of a file with this text. Callers must not change them."""
    return tuple(ast.walk(ast.parse(text)))
