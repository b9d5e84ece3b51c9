"""Dispatch functions of generated text: the conditions of each kernel, in order; and the comparison of two.

Upstream's fmha_batch_prefill_api.cpp and our dispatch.hip are nests of if / else-if chains (dtype, head dim, kernel).
Conditions are compared as sets of requirements, the tile condition's workgroup count by its values.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ckpm.kernels.parity.bindings import is_without_effect, local_names, unknown_statement
from ckpm.kernels.parity.c_arithmetic import CNumber, Formula, call, make
from ckpm.kernels.parity.conditions import FALSE, TRUE, condition_text, conjuncts, parse_condition
from ckpm.kernels.parity.cpp_constants import decide_constants, fold_constants
from ckpm.kernels.parity.cpp_text import Function, If, Plain, Program, Scope, read, statements
from ckpm.kernels.parity.cpp_tokens import (
    Tokens,
    closing_angle,
    closing_bracket,
    spell,
    split_arguments,
    text_error,
    tokenize,
)
from ckpm.kernels.parity.launches import stages

FUNCTION = "fmha_batch_prefill"
# The parameters in canonical text: the request's traits, its arguments, the stream.
_PARAMETERS = ("t", "a", "s")
_UTILISATION = "min_cu_util_rate"
_BLOCKS = "get_num_blocks"
_COUNT_UNITS: Tokens = ("count_units",)  # of a function ``bool NAME(unsigned& count)``, whatever its name
_LEVELS = {
    FUNCTION: ("dtype", "head dim", "kernel"),
    "fmha_fwd": ("device", "dtype", "head dim", "kernel"),
    "fmha_fwd_appendkv": ("device", "dtype", "head dim", "kernel"),
    "fmha_fwd_pagedkv": ("device", "dtype", "head dim", "kernel"),
    "fmha_fwd_splitkv": ("device", "dtype", "head dim", "kernel", "combine kernel"),
    "fmha_bwd": ("device", "dtype", "head dim", "kernels"),
}
_VERSION = ("2",)  # the template argument of fmha_bwd, which CK declares for one version of its interface
_SHOWN = 5

# Usual batch sizes, heads and lengths, and values at which 32-bit arithmetic wraps.
_SAMPLES = {
    "a.batch": (0, 1, 3, 257, 65_536),
    "a.nhead_q": (1, 5, 128, 65_537),
    "a.max_seqlen_q": (0, 1, 63, 64, 127, 128, 129, 100_000, 2**31 - 1),
    "kM0": (64, 128),
}


@dataclass(frozen=True, slots=True)
class Node:
    """One branch. ``requires`` are canonical conditions that must hold all; ``takes`` is the kernel's trait or ''.

    ``arguments`` are those of the kernel's function, or what a branch without a kernel returns. ``chained`` is True for
    else-if. ``nodes`` are the branches inside, in order.
    """

    requires: frozenset[str]
    chained: bool
    takes: str = ""
    arguments: str = ""
    nodes: tuple[Node, ...] = ()

    def __str__(self) -> str:
        return " && ".join(sorted(self.requires)) or "always"


@dataclass(frozen=True, slots=True)
class Dispatch:
    """``utilisation`` is the constant of the tile condition; ``blocks`` its workgroup count; '' and None if absent.

    ``nodes`` begin with the conditions under which the function returns before it looks for a kernel (no device);
    ``otherwise`` is what it returns after the last kernel; ``stages`` are the (condition, launch) of the template that
    launches the stages of a kernel, if the text has one; ``levels`` are the names of the nest's levels.
    """

    nodes: tuple[Node, ...]
    otherwise: str
    utilisation: str
    blocks: Formula | None
    functions: Mapping[str, Formula] = field(default_factory=dict)
    stages: frozenset[tuple[str, str]] = frozenset()
    levels: tuple[str, ...] = _LEVELS[FUNCTION]

    def kernels(self) -> Iterator[Node]:
        """Yield all branches that take a kernel, in the order in which they are tried."""
        pending = list(reversed(self.nodes))
        while pending:
            node = pending.pop()
            if node.takes:
                yield node
            pending += reversed(node.nodes)


def parse(text: str, name: str = FUNCTION) -> Dispatch:
    """Read the dispatch function ``name``, which is one of _LEVELS."""
    program = read(text)
    named = [f for f in program.functions if f.name == name and f.argument in (None, _VERSION)]
    if len(named) != 1:
        raise text_error(f"expected one function {name}, found {len(named)}")
    (function,) = named
    parts = {part.name: part for part in program.functions if part.name in (f"{name}_v3", f"{name}_v2")}
    if not parts:
        return dataclasses.replace(_read_nest(program, function, name), stages=stages(program, f"{name}_"))
    # since 2026 fmha_fwd asks V3's nest first, under a condition of its own
    requires = _condition_of_v3(program, function, name, parts.keys())
    first, second = (_read_nest(program, parts[f"{name}_{version}"], name) for version in ("v3", "v2"))
    (first_checks, first_kernels), (checks, kernels) = _apart(first), _apart(second)
    if dataclasses.replace(first, nodes=first_checks) != dataclasses.replace(second, nodes=checks):
        raise text_error(f"{name}_v3 and {name}_v2 differ before or after their kernels")
    return dataclasses.replace(second, nodes=(*checks, Node(requires, chained=False, nodes=first_kernels), *kernels))


def _condition_of_v3(program: Program, function: Function, name: str, parts: Collection[str]) -> frozenset[str]:
    """The condition under which a function tries NAME_v3 before NAME_v2. Another use of the two is refused."""
    local = _parameters(function, name)
    chain, *rest = statements(function.body)
    if len(parts) == 2 and isinstance(chain, If) and len(chain.branches) == 1 and len(rest) == 1:
        condition, body = chain.branches[0]
        tried = tuple(token for token in program.resolve(body, function.scope, local) if token not in ("{", "}"))
        last = program.resolve(rest[0].tokens, function.scope, local) if isinstance(rest[0], Plain) else ()
        if tried == tokenize(f"float r = {name}_v3(t, a, s); if(r >= 0) return r;") and last == tokenize(
            f"return {name}_v2(t, a, s)"
        ):
            return frozenset((condition_text(parse_condition(program.resolve(condition, function.scope, local))),))
    raise text_error(f"{name} does not try {name}_v3 under one condition and return {name}_v2 else")


def _apart(dispatch: Dispatch) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
    """The nodes without kernels, and the others."""
    kernels = tuple(node for node in dispatch.nodes if node.takes or node.nodes)
    return tuple(node for node in dispatch.nodes if node not in kernels), kernels


def _parameters(function: Function, name: str) -> dict[str, Tokens]:
    if len(function.parameters) != len(_PARAMETERS):
        raise text_error(f"{name} has {len(function.parameters)} parameters, expected {len(_PARAMETERS)}")
    return {parameter[-1]: (word,) for parameter, word in zip(function.parameters, _PARAMETERS, strict=True)}


def _read_nest(program: Program, function: Function, name: str) -> Dispatch:
    """Read a function whose statements are declarations, the branches of its nest, and what it returns after them."""
    local = {part.name: _COUNT_UNITS for part in program.functions if _counts_units(part)} | _parameters(function, name)
    scope = function.scope
    nodes: list[Node] = []
    blocks, otherwise = None, ""
    for statement in statements(function.body):
        tokens = statement.tokens if isinstance(statement, Plain) else ()
        if is_without_effect(statement):
            continue
        if otherwise:
            raise unknown_statement(function, statement)
        if isinstance(statement, If):
            nodes += _branches(program, function, f"{name}_", statement, scope, local)
        elif tokens[:2] == ("using", "namespace"):
            scope = (*function.scope, *tokens[2::2])
        elif _BLOCKS in tokens[: tokens.index("=") if "=" in tokens else 0]:
            blocks = _lambda(tokens)
        elif tokens[:1] == ("return",):
            otherwise = spell(program.resolve(tokens[1:], scope, local))
        elif tokens[:1] == ("float",) and tokens[2:3] == ("=",):
            local[tokens[1]] = program.resolve(tokens[3:], scope, local)
        elif names := local_names(program, tokens, scope, local):
            local |= names
        elif tokens[:1] != ("unsigned",) or tokens[2:] not in ((), ("=", "0")):  # the count of units, set by a check
            raise unknown_statement(function, statement)
    functions = {
        helper.name: _formula(helper.parameters, helper.result, helper.body)
        for helper in program.functions
        if blocks is not None and helper.name in blocks.returned
    }
    return Dispatch(
        tuple(nodes), otherwise, spell(local.get(_UTILISATION, ())), blocks, functions, levels=_LEVELS[name]
    )


def _counts_units(function: Function) -> bool:
    """True for ``bool NAME(unsigned& count)`` that sets the count to the multiprocessors of the device."""
    if function.result != ("bool",) or [parameter[:2] for parameter in function.parameters] != [("unsigned", "&")]:
        return False
    count = function.parameters[0][-1]
    uses = [part.tokens for part in statements(function.body) if isinstance(part, Plain) and count in part.tokens]
    values = [tokens[2:] for tokens in uses if tokens[:2] == (count, "=")]
    cast = tokenize("static_cast<unsigned>(")
    bare = [value[len(cast) : -1] if value[: len(cast)] == cast else value for value in values]
    return len(uses) == len(bare) == 1 and len(bare[0]) == 3 and bare[0][1:] == (".", "multiProcessorCount")


def _branches(
    program: Program, function: Function, specialised: str, chain: If, scope: Scope, outer: Mapping[str, Tokens]
) -> Iterator[Node]:
    """Yield the branches of a chain. A branch without a kernel has neither nodes nor a trait.

    A branch that is never taken is left out; a branch that is always taken is replaced by its content.
    """
    for index, (condition, body) in enumerate(chain.branches):
        parsed = decide_constants(parse_condition(program.resolve(condition or ("true",), scope, outer)))
        if parsed == FALSE:
            continue
        requires = frozenset(filter(None, map(condition_text, conjuncts(parsed))))
        local = dict(outer)
        inside: list[Node] = []
        takes = arguments = ""
        block = list(statements(body))
        for statement, following in itertools.zip_longest(block, block[1:]):
            tokens = statement.tokens if isinstance(statement, Plain) else ()
            if is_without_effect(statement):
                continue
            if isinstance(statement, If):
                inside += _branches(program, function, specialised, statement, scope, local)
            elif tokens[:1] == ("return",):
                takes, arguments = _taken(specialised, program.resolve(tokens[1:], scope, local))
            elif tokens[1:2] == ("=",) and following == Plain(("return", tokens[0])):
                local[tokens[0]] = program.resolve(tokens[2:], scope, local)
            elif names := local_names(program, tokens, scope, local):
                local |= names
            else:
                raise unknown_statement(function, statement)
        if not takes and len(inside) == 1 and not inside[0].requires:
            takes, arguments, inside = inside[0].takes, inside[0].arguments, list(inside[0].nodes)
        yield Node(requires, index > 0, takes, arguments, tuple(inside))
        if parsed == TRUE:
            return


def _taken(specialised: str, returned: Tokens) -> tuple[str, str]:
    if specialised not in returned:
        return "", spell(returned)
    if returned[:2] != (specialised, "<"):
        raise text_error(f"a branch returns '{spell(returned)[:120]}' and not {specialised}<TRAIT>(...)")
    end = closing_angle(returned, 1)
    return spell(fold_constants(returned[2:end])), spell(returned[end + 1 :])


def _lambda(tokens: Tokens) -> Formula:
    """Read the lambda of ``auto NAME = [&](TYPE a) {...}``."""
    start = closing_bracket(tokens, tokens.index("=") + 1) + 1
    end = closing_bracket(tokens, start)
    body = closing_bracket(tokens, end + 1)
    return _formula(tuple(split_arguments(tokens[start + 1 : end])), (), tokens[end + 2 : body])


def _formula(parameters: Sequence[Tokens], result: Tokens, body: Tokens) -> Formula:
    constants = []
    returned: Tokens = ()
    for statement in statements(body):
        if not isinstance(statement, Plain):
            raise text_error(f"'{spell(body)[:120]}' is more than constants and one returned value")
        tokens = statement.tokens
        if tokens[0] == "return":
            returned = tokens[1:]
        elif "=" in tokens and all(map(_is_name, tokens[: tokens.index("=")])):
            equals = tokens.index("=")
            constants.append((tokens[equals - 1], _type(tokens[: equals - 1]), tokens[equals + 1 :]))
        else:
            raise text_error(f"'{spell(tokens)[:120]}' is neither a constant nor the returned value")
    return Formula(
        tuple((parameter[-1], _type(parameter[:-1])) for parameter in parameters),
        tuple(constants),
        returned,
        _type(result),
    )


def _is_name(piece: str) -> bool:
    return piece == "::" or piece.isidentifier()


def _type(tokens: Sequence[str]) -> Tokens:
    return tuple(token for token in tokens if token not in ("const", "constexpr", "auto", "static", "inline"))


def compare(upstream: Dispatch, project: Dispatch, names: Mapping[str, str]) -> list[str]:
    """Return a line for each difference; empty if both dispatch alike.

    ``names`` gives the kernel's name for a dispatch trait, for messages.
    """
    lines = []
    if upstream.utilisation != project.utilisation:
        lines.append(
            f"{_UTILISATION}: upstream {upstream.utilisation or 'absent'}, ours {project.utilisation or 'absent'}"
        )
    if upstream.otherwise != project.otherwise:
        lines.append(f"without a kernel upstream returns {upstream.otherwise or 'nothing'}, ours {project.otherwise}")
    for sides, only in (("upstream", upstream.stages - project.stages), ("ours", project.stages - upstream.stages)):
        lines += [f"stages: only {sides} launches {launch} if {when or 'true'}" for when, launch in sorted(only)]
    return (
        lines
        + _compare_blocks(upstream, project)
        + _compare_level(upstream.nodes, project.nodes, names, (), upstream.levels)
    )


def _compare_level(
    upstream: Sequence[Node],
    project: Sequence[Node],
    names: Mapping[str, str],
    path: tuple[str, ...],
    levels: tuple[str, ...],
) -> list[str]:
    level = levels[min(len(path), len(levels) - 1)]
    where = f" in {' / '.join(path)}" if path else ""

    def label(node: Node) -> str:
        return names.get(node.takes, node.takes) if node.takes else f"'{node}'"

    # The label of a kernel is its trait, of a level its condition; repeated labels are numbered.
    upstream_nodes, project_nodes = _by_label(upstream, label), _by_label(project, label)
    lines = []
    if missing := [key for key in upstream_nodes if key not in project_nodes]:
        lines.append(f"{level}: {len(missing)} branches of upstream are missing{where}: {_some(missing)}")
    if extra := [key for key in project_nodes if key not in upstream_nodes]:
        lines.append(f"{level}: {len(extra)} branches are not upstream's{where}: {_some(extra)}")
    left, right = (
        [key for key in upstream_nodes if key in project_nodes],
        [key for key in project_nodes if key in upstream_nodes],
    )
    if left != right:
        at, upstream_key, project_key = next(
            (at, a, b) for at, (a, b) in enumerate(zip(left, right, strict=True)) if a != b
        )
        lines.append(f"{level}: another order{where}: branch {at} is upstream's {upstream_key}, ours {project_key}")
    changed = []
    for key in left:
        a, b = upstream_nodes[key], project_nodes[key]
        if difference := _compare_node(a, b):
            changed.append(f"{level} {key}{where}: {difference}")
        if a.nodes or b.nodes:
            lines += _compare_level(a.nodes, b.nodes, names, (*path, key), levels)
    lines += changed[:_SHOWN]
    if len(changed) > _SHOWN:
        lines.append(f"{level}: {len(changed) - _SHOWN} more branches differ{where}")
    return lines


def _compare_node(upstream: Node, project: Node) -> str:
    differences = []
    if only := upstream.requires - project.requires:
        differences.append(f"only upstream requires {' && '.join(sorted(only))}")
    if only := project.requires - upstream.requires:
        differences.append(f"only ours requires {' && '.join(sorted(only))}")
    if upstream.takes != project.takes or upstream.arguments != project.arguments:
        differences.append(
            f"upstream calls <{upstream.takes}>{upstream.arguments}, ours <{project.takes}>{project.arguments}"
        )
    if not upstream.takes and upstream.chained != project.chained:
        differences.append(
            f"upstream {'else if' if upstream.chained else 'if'}, ours {'else if' if project.chained else 'if'}"
        )
    return "; ".join(differences)


def _by_label(nodes: Sequence[Node], label: object) -> dict[str, Node]:
    assert callable(label)
    by_label: dict[str, Node] = {}
    for node in nodes:
        key = word = str(label(node))
        turn = itertools.count(2)
        while key in by_label:
            key = f"{word} ({next(turn)})"
        by_label[key] = node
    return by_label


def _some(labels: Sequence[str]) -> str:
    more = f", and {len(labels) - _SHOWN} more" if len(labels) > _SHOWN else ""
    return ", ".join(labels[:_SHOWN]) + more


def _compare_blocks(upstream: Dispatch, project: Dispatch) -> list[str]:
    if upstream.blocks is None or project.blocks is None:
        if (upstream.blocks is None) == (project.blocks is None):
            return []
        return [f"{_BLOCKS}: only {'ours' if upstream.blocks is None else 'upstream'} has it"]
    for sample in itertools.product(*_SAMPLES.values()):
        values = {name: make(value, False) for name, value in zip(_SAMPLES, sample, strict=True)}
        rows = values.pop("kM0")
        upstream_count, project_count = _blocks(upstream, rows, values), _blocks(project, rows, values)
        if upstream_count != project_count:
            sample_text = ", ".join(f"{name} {value}" for name, value in zip(_SAMPLES, sample, strict=True))
            return [
                f"{_BLOCKS}: for {sample_text} upstream gives {_number_text(upstream_count)}, "
                f"ours {_number_text(project_count)}"
            ]
    return []


def _blocks(dispatch: Dispatch, rows: CNumber, values: Mapping[str, CNumber]) -> CNumber:
    assert dispatch.blocks is not None
    return call(dispatch.blocks, (rows,), values, dispatch.functions)


def _number_text(number: CNumber) -> str:
    return f"{number.value}{'u' if number.unsigned else ''}"
