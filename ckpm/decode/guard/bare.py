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
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ckpm.base.errors import InputError, UsageError
from ckpm.decode.guard.candidates import Constant
from ckpm.decode.guard.compiling import configurations, is_kernel, jit_function, module_of
from ckpm.decode.guard.figures import KernelBudget
from ckpm.decode.guard.table import CaseRow, Guarded, GuardedKernels

ACCEPTED_SUFFIX = ".guard.json"  # of the accepted figures, beside the file
_COMMENT = re.compile(r"#\s*guard:(.*)")
_TYPE = re.compile(r"\*{0,2}[a-z]+[0-9][0-9a-z]*(:\d+)?")
_BUDGET = ("vgpr", "vgpr_spills", "lds_bytes", "waves")

Signature = Mapping[str, str | tuple[Constant]]  # by argument: its type, or a constant in a tuple


@dataclass(frozen=True, slots=True, kw_only=True)
class _BareKernel:
    name: str
    function: Any
    signature: Signature


def table_of(file: Path, archs: Sequence[str], signatures: Sequence[str], budget: KernelBudget) -> GuardedKernels:
    """Make a table of every kernel of the file, all with one budget.

    ``signatures``: ``KERNEL: x=*bf16:16, n=i32, BLOCK=64``, each instead of the comment above that kernel.
    """
    options = dict(_option(option) for option in signatures)
    kernels = list(_kernels(file, options))
    if unknown := [name for name in options if name not in {kernel.name for kernel in kernels}]:
        names = ", ".join(kernel.name for kernel in kernels)
        raise UsageError(f"--signature {unknown[0]}: no kernel of {file.name}, which has {names}.")
    if wrong := [line for kernel in kernels for line in _complaints(kernel)]:
        raise InputError(f"{file}: " + "; ".join(wrong), kind="signature")
    guarded = tuple(_guard(file, kernel, tuple(archs), budget) for kernel in kernels)
    return GuardedKernels(file=file, accepted=file.with_name(file.stem + ACCEPTED_SUFFIX), kernels=guarded)


def budget_of(text: str) -> KernelBudget:
    """Parse a budget such as ``vgpr=128,waves=2``."""
    figures: dict[str, int] = {}
    for word in filter(None, text.split(",")):
        name, _, value = (part.strip() for part in word.partition("="))
        if name not in _BUDGET or not value.isdecimal():
            raise UsageError(f"--budget {word}: must be NAME=COUNT, with {', '.join(_BUDGET)}.")
        figures[name] = int(value)
    return KernelBudget(**figures)


def _kernels(file: Path, options: Mapping[str, Signature]) -> Iterator[_BareKernel]:
    module = module_of(file)
    with tokenize.open(file) as stream:
        text = stream.read()
    here = {name: value for name, value in vars(module).items() if is_kernel(value) and _is_of(value, file)}
    called = _callees(text, here)
    comments = _comments(text)
    names = [name for name in here if name in options or name in comments or name not in called]
    if not names:
        raise InputError(f"{file}: no Triton kernel in this file: write @triton.jit above one.", kind="kernel-file")
    for name in names:
        signature = options.get(name)
        yield _BareKernel(
            name=name, function=here[name], signature=comments.get(name, {}) if signature is None else signature
        )


def _is_of(function: Any, file: Path) -> bool:
    """True if the function is defined in the file, and not imported."""
    return Path(jit_function(function).fn.__code__.co_filename).resolve() == file.resolve()


def _callees(text: str, kernels: Mapping[str, Any]) -> set[str]:
    """Kernels that another kernel calls: its parts, which are not launched."""
    called = set()
    for function in ast.walk(ast.parse(text)):
        if isinstance(function, ast.FunctionDef) and function.name in kernels:
            calls = (node.func for node in ast.walk(function) if isinstance(node, ast.Call))
            called |= {callee.id for callee in calls if isinstance(callee, ast.Name)} & (
                kernels.keys() - {function.name}
            )
    return called


def _comments(text: str) -> dict[str, Signature]:
    """Read the comments directly above a kernel and its decorators."""
    lines = text.split("\n")  # as Python counts them: a form feed ends no line
    signatures: dict[str, Signature] = {}
    for function in ast.parse(text).body:
        if not isinstance(function, ast.FunctionDef):
            continue
        line = min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)]) - 2
        while line >= 0 and lines[line].lstrip().startswith("#"):
            if match := _COMMENT.match(lines[line].strip()):
                signatures[function.name] = {**_signature(match[1], function.name), **signatures.get(function.name, {})}
            line -= 1
    return signatures


def _option(text: str) -> tuple[str, Signature]:
    name, colon, rest = text.partition(":")
    if not colon or not name.strip().isidentifier():
        raise UsageError(f"--signature {text}: must be 'KERNEL: x=*bf16:16, n=i32, BLOCK=64'.")
    return name.strip(), _signature(rest, name.strip())


def _signature(text: str, kernel: str) -> Signature:
    signature: dict[str, str | tuple[Constant]] = {}
    for word in filter(None, (part.strip() for part in text.split(","))):
        name, sign, value = (part.strip() for part in word.partition("="))
        if not sign or not name.isidentifier():
            raise UsageError(f"{kernel}: '{word}' in its signature: must be ARGUMENT=TYPE or ARGUMENT=CONSTANT.")
        signature[name] = value if _TYPE.fullmatch(value) else (_constant(value, word, kernel),)
    return signature


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


def _complaints(kernel: _BareKernel) -> list[str]:
    """List arguments without type or constant, and types or constants without argument."""
    function = jit_function(kernel.function)
    chosen = {name for configuration in configurations(kernel.function) for name in configuration}
    missing = [
        f"{parameter.name}={'CONSTANT' if parameter.is_constexpr else 'TYPE'}"
        for parameter in function.params
        if parameter.name not in kernel.signature
        and parameter.name not in chosen
        and not (parameter.is_constexpr and parameter.has_default)
    ]
    lines = []
    if missing:
        lines.append(
            f"{kernel.name}: its arguments have no types. Write above it '# guard: {', '.join(missing)}' "
            f"with types as *bf16:16 or i32, or give --signature '{kernel.name}: ...'"
        )
    if unknown := [name for name in kernel.signature if name not in function.arg_names]:
        lines.append(f"{kernel.name}: it has no argument {', '.join(unknown)}: take them out of its signature")
    if typed := [
        parameter.name
        for parameter in function.params
        if parameter.is_constexpr and isinstance(kernel.signature.get(parameter.name), str)
    ]:
        lines.append(f"{kernel.name}: {', '.join(typed)} are tl.constexpr: give constants and no types")
    return lines


def _guard(file: Path, kernel: _BareKernel, archs: tuple[str, ...], budget: KernelBudget) -> Guarded:
    own = configurations(kernel.function)
    chosen = {name for configuration in own for name in configuration}
    defaults = {
        parameter.name: parameter.default
        for parameter in jit_function(kernel.function).params
        if parameter.is_constexpr and parameter.has_default and parameter.name not in chosen
    }
    constants = {name: value[0] for name, value in kernel.signature.items() if isinstance(value, tuple)}
    types = {name: value for name, value in kernel.signature.items() if isinstance(value, str)}
    return Guarded(
        name=kernel.name,
        file=file,
        function=kernel.name,
        archs=archs,
        cases=(CaseRow(signature=types, constexprs={**defaults, **constants}),),
        configurations=own or ({},),
        budget=budget,
        breaks_budget=False,
    )
