"""The launches of a specialised function that launches several kernels through templates, each under a condition.

A key of split-KV is such a function: chains of ``if`` choose among instances of a class template, whose static function
launches. Template parameters are replaced by their arguments until only CK's names are left. Every statement must be a
declaration, a chain, a call of such a template, or a launch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ckpm.kernels.parity.bindings import LAUNCHER, Binding, binding, is_without_effect, local_names, unknown_statement
from ckpm.kernels.parity.conditions import (
    FALSE,
    TRUE,
    Condition,
    condition_text,
    conjunction,
    negation,
    parse_condition,
)
from ckpm.kernels.parity.cpp_constants import decide_constants
from ckpm.kernels.parity.cpp_text import Function, If, Plain, Program, Scope, Template, declaration, read, statements
from ckpm.kernels.parity.cpp_tokens import Tokens, closing_angle, closing_bracket, spell, split_arguments, text_error

_Use = tuple[int, Tokens]  # a template and its arguments
_Launch = tuple[Condition, Tokens]  # its condition and the whole expression


def launches(text: str, specialised: Sequence[str]) -> list[tuple[Binding, ...]]:
    """Return the launches of each specialisation of one of these functions, in the order of the text."""
    program = read(text)
    names = {name[-1] for name in program.templates}
    if apart := [
        function.name for function in program.functions if function.argument is not None and function.name in names
    ]:
        raise text_error(f"{apart[0]} is a template of the text and specialised there, too")
    return [
        _launches(program, function)
        for function in program.functions
        if function.name in specialised and function.argument is not None
    ]


def _launches(program: Program, function: Function) -> tuple[Binding, ...]:
    assert function.argument is not None
    trait = program.resolve(function.argument, function.scope, {})
    arguments = tuple((f"argument{at}",) for at in range(len(function.parameters)))
    local = _parameters(function, arguments)
    walk = _Walk(program, function.guard)
    bindings = tuple(
        binding(trait, launch, function, condition_text(when))
        for when, launch in walk.body(function.body, function.scope, local, ())
    )
    if not bindings:
        raise text_error(f"{function.name}<{spell(trait)[:80]}...> launches nothing")
    return bindings


def _parameters(function: Function, arguments: Sequence[Tokens]) -> dict[str, Tokens]:
    if len(arguments) != len(function.parameters) or any("=" in parameter for parameter in function.parameters):
        raise text_error(f"{function.name} of {len(function.parameters)} parameters is given {len(arguments)}")
    return {parameter[-1]: value for parameter, value in zip(function.parameters, arguments, strict=True)}


def stages(program: Program, name: str) -> frozenset[tuple[str, str]]:
    """The (condition, launch) of a template with canonical names; none if the text has no such template."""
    template = program.templates.get((name,))
    if template is None:
        return frozenset()
    function = template.functions[""]
    body = function.body
    of_lambdas = [at + 1 for at in range(1, len(body) - 2) if body[at - 1 : at + 1] == ("stream_config", "&")]
    local = {body[at]: ("own",) for at in of_lambdas}
    local |= {parameter: (f"type{at}",) for at, (parameter, _) in enumerate(template.parameters)}
    local |= {parameter[-1]: (f"argument{at}",) for at, parameter in enumerate(function.parameters)}
    return frozenset(_of_stages(program, function, body, local, TRUE))


def _of_stages(
    program: Program, function: Function, body: Tokens, outer: Mapping[str, Tokens], around: Condition
) -> Iterator[tuple[str, str]]:
    local = dict(outer)
    for statement in statements(body):
        tokens = statement.tokens if isinstance(statement, Plain) else ()
        if is_without_effect(statement):
            continue
        if isinstance(statement, If):
            for condition, inside in statement.branches:
                own = parse_condition(program.resolve(condition or ("true",), function.scope, local))
                yield from _of_stages(program, function, inside, local, conjunction((around, own)))
                around = conjunction((around, negation(own)))
        elif tokens[:1] == ("return",):
            yield condition_text(around), spell(program.resolve(tokens[1:], function.scope, local))
        elif names := local_names(program, tokens, function.scope, local):
            local |= names
        else:
            raise unknown_statement(function, statement)


class _Walk:
    """A walk through one specialised function; everything that it uses must be compiled under its ``guard``."""

    def __init__(self, program: Program, guard: Condition) -> None:
        self.program, self.guard = program, guard

    def body(
        self, body: Tokens, scope: Scope, outer: Mapping[str, Tokens], open_: tuple[_Use, ...]
    ) -> Iterator[_Launch]:
        """Yield the launches of a block. ``outer`` are the names known there, ``open_`` the templates around it."""
        local = dict(outer)
        for statement in statements(body):
            if isinstance(statement, If):
                yield from self.chain(statement, scope, local, open_)
            elif is_without_effect(statement):
                continue
            elif not isinstance(statement, Plain):
                raise text_error(f"'{spell(statement.body)[:80]}': a loop or a bare block is not followed")
            elif statement.tokens[0].startswith("#"):
                raise text_error(f"'{statement.tokens[0]}' inside a function is not followed")
            elif declarations := local_names(self.program, statement.tokens, scope, local):
                for value in declarations.values():
                    self.refuse_launch(value)
                local |= declarations
            else:
                yield from self.expression(self.program.resolve(statement.tokens, scope, local), open_)

    def chain(self, chain: If, scope: Scope, local: Mapping[str, Tokens], open_: tuple[_Use, ...]) -> Iterator[_Launch]:
        before = TRUE
        for written, body in chain.branches:
            condition = self.program.resolve(written or ("true",), scope, local)
            self.refuse_launch(condition)
            parsed = decide_constants(parse_condition(condition))
            here = conjunction((before, parsed))
            if here != FALSE:
                for when, launch in self.body(body, scope, local, open_):
                    yield conjunction((here, when)), launch
            before = conjunction((before, negation(parsed)))

    def expression(self, tokens: Tokens, open_: tuple[_Use, ...]) -> Iterator[_Launch]:
        end = 1
        while tokens[end : end + 1] == ("::",):
            end += 2
        template = self.program.templates.get(tokens[:end])
        if template is not None:
            yield from self.use(template, tokens, end, open_)
        elif LAUNCHER in tokens and tokens[0] != "return":
            self.refuse_templates(tokens)
            yield TRUE, tokens
        else:
            raise text_error(f"'{spell(tokens)[:120]}' is neither a declaration nor a known call nor a launch")

    def use(self, template: Template, tokens: Tokens, end: int, open_: tuple[_Use, ...]) -> Iterator[_Launch]:
        """Follow ``NAME<ARGUMENTS>(...)`` or ``NAME<ARGUMENTS>::FUNCTION(...)``; the name ends before ``end``."""
        close = closing_angle(tokens, end) if tokens[end : end + 1] == ("<",) else end
        rest = tokens[close + 1 :]
        name, rest = ("".join(rest[1:2]), rest[2:]) if rest[:1] == ("::",) else ("", rest)
        function = template.functions.get(name)
        if close == end or function is None or rest[:1] != ("(",) or closing_bracket(rest, 0) != len(rest) - 1:
            raise text_error(f"'{spell(tokens)[:120]}' calls no function of {spell(tokens[:end])}")
        if template.guard != self.guard:
            raise text_error(f"{spell(tokens[:end])} is compiled under other conditions than what uses it")
        arguments = tokens[end + 1 : close]
        use = (id(template), arguments)
        if use in open_:
            raise text_error(f"'{spell(tokens)[:120]}' calls itself")
        local = self.instantiate(template, [_plain(part) for part in split_arguments(arguments)])
        local |= _parameters(function, [_plain(part) for part in split_arguments(rest[1:-1])])
        yield from self.body(function.body, template.scope, local, (*open_, use))

    def instantiate(self, template: Template, arguments: Sequence[Tokens]) -> dict[str, Tokens]:
        """Return a template's parameters and members for these arguments."""
        if len(arguments) > len(template.parameters):
            raise text_error(f"a template of {len(template.parameters)} parameters is given {len(arguments)}")
        local: dict[str, Tokens] = {}
        for at, (name, default) in enumerate(template.parameters):
            value = arguments[at] if at < len(arguments) else self.program.resolve(default, template.scope, local)
            if not value:
                raise text_error(f"a template's parameter {name} is given no value")
            local[name] = _plain(value)
        for member in template.members:
            pair = declaration(member)
            assert pair is not None  # the reader accepts no other members
            local[pair[0]] = self.program.resolve(pair[1], template.scope, local)
        return local

    def refuse_launch(self, tokens: Tokens) -> None:
        """Refuse a launch in a declaration or a condition, which would be lost."""
        if LAUNCHER in tokens:
            raise text_error(f"'{spell(tokens)[:120]}' launches inside a declaration or a condition")
        self.refuse_templates(tokens)

    def refuse_templates(self, tokens: Tokens) -> None:
        if used := {name[-1] for name in self.program.templates} & set(tokens):
            raise text_error(f"'{spell(tokens)[:120]}': {used.pop()} is a template of the text, used in no plain call")


def _plain(tokens: Tokens) -> Tokens:
    """Return a value that can replace a name as it stands. Other values are refused."""
    if not all(piece == "::" or piece.isalnum() or piece.isidentifier() for piece in tokens):
        raise text_error(f"'{spell(tokens)[:80]}' is given for a parameter: only names and numbers are followed")
    return tokens
