"""The syntax of our own Python files, each parsed once a process: several test modules look at all of them."""

from __future__ import annotations

import ast
import functools


@functools.cache
def nodes(text: str) -> tuple[ast.AST, ...]:
    """Every node of a file with this text. Nobody changes them."""
    return tuple(ast.walk(ast.parse(text)))
