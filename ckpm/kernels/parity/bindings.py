"""The bindings of a kernel's host function, read from upstream's rendered instance and from ours, and compared.

Both texts specialise ``fmha_batch_prefill_`` (or ``fmha_fwd_``) for a dispatch trait and launch one kernel type through
aliases and constants of their own. Both are expanded until only CK's names are left, so that the texts need not look
alike. A function that launches several kernels is read by ckpm/kernels/parity/launches.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ckpm.base.errors import UpstreamError
from ckpm.kernels.parity.conditions import condition_text
from ckpm.kernels.parity.cpp_constants import fold_constants
from ckpm.kernels.parity.cpp_text import Braces, Function, If, Plain, Program, Statement, declaration, read, statements
from ckpm.kernels.parity.cpp_tokens import Tokens, closing_angle, closing_bracket, spell, split_arguments, text_error

SPECIALISED = "fmha_batch_prefill_"
LAUNCHER = "make_kernel"
# Our text reports the selected kernel with it; upstream's prints the kernel's name where the request asks for it.
_NOTED = ("ckpm", "::", "note_selected", "(")
_PRINTED = ("std", "::", "cout", "<<")
_LOGGED = (".", "log_level_", ">", "0")
_ASSIGNING = frozenset(("=", "++", "--", *(f"{operator}=" for operator in "+-*/%&|^")))


@dataclass(frozen=True, slots=True)
class Binding:
    """One launch of a specialisation, all fields canonical text.

    ``launch`` holds the template arguments of ``make_kernel<...>``; ``call`` the whole expression with the launch, in
    which ``KERNEL`` stands for the kernel type and ``argument0``, ``argument1`` for the function's parameters;
    ``guard`` is the preprocessor condition around it, '' if it is always compiled; ``when`` is the condition of a
    request for this launch, '' if it always launches.
    """

    dispatch_trait: str
    kernel: str
    launch: str
    call: str
    guard: str
    when: str = ""


def bindings(text: str, specialised: str = SPECIALISED) -> list[Binding]:
    """Return a Binding for each ``template <> float fmha_batch_prefill_<TRAIT>(...) {...}``, in the order of the text.

    ``specialised`` is the function's name in another family; its argument may contain more than the trait.
    """
    program = read(text)
    return [
        _binding(program, function)
        for function in program.functions
        if function.name == specialised and function.argument is not None
    ]


def differences(upstream: Binding, project: Binding) -> list[str]:
    """Return a line for each field that differs, with the first difference. Empty if they are equal."""
    lines = []
    for field in dataclasses.fields(Binding):
        upstream_value, project_value = getattr(upstream, field.name), getattr(project, field.name)
        if upstream_value != project_value:
            lines.append(
                f"{field.name}: upstream {_around(upstream_value, project_value)}, "
                f"ours {_around(project_value, upstream_value)}"
            )
    return lines


def _around(text: str, other: str, width: int = 60) -> str:
    """Return the part of ``text`` where it starts to differ from ``other``."""
    same = next((at for at, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), min(len(text), len(other)))
    start = max(0, same - width)
    end = same + width
    return f"'{'...' * (start > 0)}{text[start:end]}{'...' * (end < len(text))}'"


def local_names(
    program: Program, statement: Tokens, scope: tuple[str, ...], local: Mapping[str, Tokens]
) -> dict[str, Tokens]:
    """Return the names that a statement inside a function declares; empty for most statements.

    The parts of ``auto [a, b] = VALUE`` become ``part0(VALUE)``, ``part1(VALUE)``. A value that assigns is refused: it
    would be lost where the name isn't used.
    """
    values = statement[statement.index("=") + 1 :] if "=" in statement else ()
    if any(piece in _ASSIGNING and before != "[" for before, piece in pairwise(("=", *values))):  # [=] captures
        raise text_error(f"'{spell(statement)[:120]}' assigns inside a declaration")
    if "[" in statement and "=" in statement and statement.index("[") < statement.index("=") and "auto" in statement:
        start = statement.index("[", statement.index("auto"))
        end = closing_bracket(statement, start)
        if tuple(statement[end + 1 : end + 2]) == ("=",):
            value = program.resolve(statement[end + 2 :], scope, local)
            names = statement[start + 1 : end : 2]
            return {name: (f"part{at}", "(", *value, ")") for at, name in enumerate(names)}
    pair = declaration(statement)
    return {} if pair is None else {pair[0]: program.resolve(pair[1], scope, local)}


def _returned_expression(program: Program, function: Function) -> Tokens:
    """Return the function's returned expression in canonical tokens; parameters are ``argument0``, ``argument1``..."""
    local: dict[str, Tokens] = {parameter[-1]: (f"argument{at}",) for at, parameter in enumerate(function.parameters)}
    returned: Tokens = ()
    for statement in statements(function.body):
        tokens = statement.tokens if isinstance(statement, Plain) else ()
        if is_without_effect(statement):
            continue
        if tokens[:1] == ("return",) and not returned:
            returned = program.resolve(tokens[1:], function.scope, local)
        elif names := local_names(program, tokens, function.scope, local):
            local |= names
        else:
            raise unknown_statement(function, statement)
    return returned


def is_without_effect(statement: Statement) -> bool:
    """True for a statement that launches and changes nothing.

    It prints or notes a kernel's name, checks constants, or marks names as unused.
    """
    if isinstance(statement, If):
        (condition, body), *others = statement.branches
        prints = (isinstance(part, Plain) and _is_print(part.tokens) for part in statements(body))
        return not others and condition[1:] == _LOGGED and all(prints)
    if isinstance(statement, Braces):
        return False
    first = statement.tokens[0]
    if first == "(":
        return all(part[:3] == ("(", "void", ")") and len(part) == 4 for part in split_arguments(statement.tokens))
    return first == "static_assert" or first.startswith("# pragma") or statement.tokens[:4] == _NOTED


def _is_print(tokens: Tokens) -> bool:
    return tokens[:4] == _PRINTED and not _ASSIGNING & set(tokens)


def unknown_statement(function: Function, statement: Statement) -> UpstreamError:
    """Return the error of a statement that may change what a function launches."""
    if isinstance(statement, If):
        condition, body = statement.branches[0]
        tokens = ("if", "(", *condition, ")", "{", *body, "}")
    else:
        tokens = statement.body if isinstance(statement, Braces) else statement.tokens
    excerpt = spell(tokens)[:120]
    return text_error(f"{function.name}: '{excerpt}' is neither a declaration nor the return nor a print of the name")


def _binding(program: Program, function: Function) -> Binding:
    assert function.argument is not None
    trait = program.resolve(function.argument, function.scope, {})
    returned = _returned_expression(program, function)
    if LAUNCHER not in returned:
        raise text_error(f"{function.name}<{spell(trait)[:80]}...> returns no {LAUNCHER}<...>(...)")
    return binding(trait, returned, function)


def binding(trait: Tokens, launch: Tokens, function: Function, when: str = "") -> Binding:
    """Return the binding of a canonical expression with ``make_kernel<...>(KERNEL{}, ...)``."""
    trait, launch = fold_constants(trait), fold_constants(launch)
    start = launch.index(LAUNCHER) + 1
    end = closing_angle(launch, start)
    braces = launch.index("{", end) if "{" in launch[end:] else 0
    if launch[braces : braces + 3] != ("{", "}", ",") or braces == end + 2:
        raise text_error(f"{function.name}<{spell(trait)[:80]}...>: {LAUNCHER} is not given a kernel object KERNEL{{}}")
    kernel = launch[end + 2 : braces]
    return Binding(
        dispatch_trait=spell(trait),
        kernel=spell(kernel),
        launch=spell(_name_kernel(launch[start + 1 : end], kernel)),
        call=spell(_name_kernel(launch, kernel)),
        guard=condition_text(function.guard),
        when=when,
    )


def _name_kernel(tokens: Sequence[str], kernel: Tokens) -> Tokens:
    """Replace the kernel's type by ``KERNEL``."""
    replaced: list[str] = []
    at = 0
    while at < len(tokens):
        if tuple(tokens[at : at + len(kernel)]) == kernel:
            replaced.append("KERNEL")
            at += len(kernel)
        else:
            replaced.append(tokens[at])
            at += 1
    return tuple(replaced)
