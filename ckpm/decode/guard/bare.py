"""Make a table of the guard from a Python file with Triton kernels.

Kernels are the functions with ``@triton.jit`` that no other kernel of the file calls. Types and constants of the
arguments are in a comment above the kernel, or in ``--signature``, which takes precedence:

    # guard: x=*bf16:16, out=*bf16:16, columns=i32, BLOCK=1024
    @triton.jit
    def softmax(x, out, columns, BLOCK: tl.constexpr): ...

A type is written as Triton does, with ``:16`` for a multiple of 16; a number, text, True, False or None is a constant.
Constants may be left to the configurations of an autotuner, or to the defaults of constexpr arguments.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ckpm.base.errors import InputError, UsageError
from ckpm.decode.guard.candidates import Constant
from ckpm.decode.guard.compiling import configurations, is_kernel, jit_function, module_of
from ckpm.decode.guard.figures import Budget
from ckpm.decode.guard.table import CaseRow, Guarded, Table

ACCEPTED_SUFFIX = ".guard.json"  # of the accepted figures, beside the file
_COMMENT = re.compile(r"#\s*guard:(.*)")
_TYPE = re.compile(r"\*{0,2}[a-z]+[0-9][0-9a-z]*(:\d+)?")
_BUDGET = ("vgpr", "vgpr_spills", "lds_bytes", "waves")

Said = Mapping[str, str | tuple[Constant]]  # by argument: its type, or a constant in a tuple


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    name: str
    function: Any
    said: Said


def table_of(file: Path, archs: Sequence[str], signatures: Sequence[str], budget: Budget) -> Table:
    """Every kernel of the file with one budget.

    ``signatures``: ``KERNEL: x=*bf16:16, n=i32, BLOCK=64``, each instead of the comment above that kernel.

    Raises:
        SetupError: Triton is not installed.
        InputError: the file can't be run, or has no kernel.
        InputError: types or constants are missing, or name no argument; the message has all of them.
        UsageError: a signature that can't be read, or of no kernel.
    """
    options = dict(_option(one) for one in signatures)
    found = list(_kernels(file, options))
    if unknown := [name for name in options if name not in {one.name for one in found}]:
        known = ", ".join(one.name for one in found)
        raise UsageError(f"--signature {unknown[0]}: no kernel of {file.name}, which has {known}.")
    if wrong := [line for one in found for line in _complaints(one)]:
        raise InputError(f"{file}: " + "; ".join(wrong), kind="signature")
    guarded = tuple(_guard(file, one, tuple(archs), budget) for one in found)
    return Table(file=file, accepted=file.with_name(file.stem + ACCEPTED_SUFFIX), kernels=guarded)


def budget_of(words: str) -> Budget:
    """``vgpr=128,waves=2`` as a budget. Raises UsageError."""
    figures: dict[str, int] = {}
    for word in filter(None, words.split(",")):
        name, _, value = (part.strip() for part in word.partition("="))
        if name not in _BUDGET or not value.isdecimal():
            raise UsageError(f"--budget {word}: must be NAME=COUNT, with {', '.join(_BUDGET)}.")
        figures[name] = int(value)
    return Budget(**figures)


def _kernels(file: Path, options: Mapping[str, Said]) -> Iterator[_Found]:
    module = module_of(file)
    text = file.read_text()
    here = {name: value for name, value in vars(module).items() if is_kernel(value) and _is_of(value, file)}
    called = _callees(text, here)
    comments = _comments(text)
    names = [name for name in here if name in options or name in comments or name not in called]
    if not names:
        raise InputError(f"{file}: no Triton kernel in this file: write @triton.jit above one.", kind="kernel-file")
    for name in names:
        said = options.get(name)
        yield _Found(name=name, function=here[name], said=comments.get(name, {}) if said is None else said)


def _is_of(function: Any, file: Path) -> bool:
    """True if the function is defined in the file, and not imported."""
    return Path(jit_function(function).fn.__code__.co_filename).resolve() == file.resolve()


def _callees(text: str, kernels: Mapping[str, Any]) -> set[str]:
    """Kernels that another kernel calls: its parts, which are not launched."""
    called = set()
    for function in ast.walk(ast.parse(text)):
        if isinstance(function, ast.FunctionDef) and function.name in kernels:
            calls = (one.func for one in ast.walk(function) if isinstance(one, ast.Call))
            called |= {one.id for one in calls if isinstance(one, ast.Name)} & (kernels.keys() - {function.name})
    return called


def _comments(text: str) -> dict[str, Said]:
    """Read the comments directly above a kernel and its decorators. Raises UsageError."""
    lines = text.splitlines()
    said: dict[str, Said] = {}
    for function in ast.parse(text).body:
        if not isinstance(function, ast.FunctionDef):
            continue
        line = min([function.lineno, *(one.lineno for one in function.decorator_list)]) - 2
        while line >= 0 and lines[line].lstrip().startswith("#"):
            if match := _COMMENT.match(lines[line].strip()):
                said[function.name] = {**_said(match[1], function.name), **said.get(function.name, {})}
            line -= 1
    return said


def _option(words: str) -> tuple[str, Said]:
    name, colon, rest = words.partition(":")
    if not colon or not name.strip().isidentifier():
        raise UsageError(f"--signature {words}: must be 'KERNEL: x=*bf16:16, n=i32, BLOCK=64'.")
    return name.strip(), _said(rest, name.strip())


def _said(words: str, kernel: str) -> Said:
    said: dict[str, str | tuple[Constant]] = {}
    for word in filter(None, (part.strip() for part in words.split(","))):
        name, sign, value = (part.strip() for part in word.partition("="))
        if not sign or not name.isidentifier():
            raise UsageError(f"{kernel}: '{word}' in its signature: must be ARGUMENT=TYPE or ARGUMENT=CONSTANT.")
        said[name] = value if _TYPE.fullmatch(value) else (_constant(value, word, kernel),)
    return said


def _constant(value: str, word: str, kernel: str) -> Constant:
    try:
        constant = ast.literal_eval(value)
    except (ValueError, SyntaxError):
        constant = ...
    if constant is None or isinstance(constant, int | float | str | bool):
        return constant
    raise UsageError(
        f"{kernel}: '{word}' in its signature: {value} is neither a type, as *bf16:16 or i32, nor a constant."
    )


def _complaints(found: _Found) -> list[str]:
    """List arguments without type or constant, and types or constants without argument."""
    function = jit_function(found.function)
    chosen = {name for one in configurations(found.function) for name in one}
    missing = [
        f"{one.name}={'CONSTANT' if one.is_constexpr else 'TYPE'}"
        for one in function.params
        if one.name not in found.said and one.name not in chosen and not (one.is_constexpr and one.has_default)
    ]
    lines = []
    if missing:
        lines.append(
            f"{found.name}: its arguments have no types. Write above it '# guard: {', '.join(missing)}' "
            f"with types as *bf16:16 or i32, or give --signature '{found.name}: ...'"
        )
    if unknown := [name for name in found.said if name not in function.arg_names]:
        lines.append(f"{found.name}: it has no argument {', '.join(unknown)}: take them out of its signature")
    if typed := [one.name for one in function.params if one.is_constexpr and isinstance(found.said.get(one.name), str)]:
        lines.append(f"{found.name}: {', '.join(typed)} are tl.constexpr: give constants and no types")
    return lines


def _guard(file: Path, found: _Found, archs: tuple[str, ...], budget: Budget) -> Guarded:
    own = configurations(found.function)
    chosen = {name for one in own for name in one}
    defaults = {
        one.name: one.default
        for one in jit_function(found.function).params
        if one.is_constexpr and one.has_default and one.name not in chosen
    }
    constants = {name: value[0] for name, value in found.said.items() if isinstance(value, tuple)}
    types = {name: value for name, value in found.said.items() if isinstance(value, str)}
    return Guarded(
        name=found.name,
        file=file,
        function=found.name,
        archs=archs,
        cases=(CaseRow(signature=types, constexprs={**defaults, **constants}),),
        configurations=own or ({},),
        budget=budget,
        breaks_budget=False,
    )
