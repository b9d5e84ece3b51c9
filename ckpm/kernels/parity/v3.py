"""fwd_v3 against an upstream's own files, which no codegen writes: its instances, its dispatch, its machine code.

An instance has its file's name and binds a traits type with data type and mask. The rest of that type (tile, pads,
pipeline) shows in the machine code. Dispatch is compared branch by branch, without our conditions on device and head
dims, which upstream leaves to its caller (families/fwd_v3.py).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ckpm.base.errors import UpstreamError
from ckpm.base.processes import ProcessPool
from ckpm.base.results import CaseResult
from ckpm.kernels.code.toolchains import Toolchain
from ckpm.kernels.families import fwd_v3
from ckpm.kernels.families.fwd_v3 import trait
from ckpm.kernels.families.spellings import features
from ckpm.kernels.parity import machine_code
from ckpm.kernels.parity.bindings import is_without_effect, local_names, unknown_statement
from ckpm.kernels.parity.conditions import condition_text, conjuncts, parse_condition
from ckpm.kernels.parity.cpp_text import Function, If, Plain, Program, read, statements
from ckpm.kernels.parity.cpp_tokens import Tokens, closing_angle, spell, text_error, tokenize
from ckpm.kernels.parity.names import ParityFinding, Title, error_case, judge
from ckpm.kernels.upstream.tree import Tree
from ckpm.matrix.dialects import dialect
from ckpm.matrix.enumeration import enumerate_keys
from ckpm.matrix.keys import Key
from ckpm.matrix.published import compare_names

DISPATCH = "fmha_fwd_v3.cpp"
_FUNCTION = "fmha_fwd_v3"
_TAKES = "fmha_fwd_v3_kernel_dispatch"
_FALLBACK = tokenize("return std::make_pair(false, -1.f)")
_OWN = ("get_device_name().compare(", "a.hdim_qk == ", "a.hdim_v == ")

Conjunction = frozenset[str]


@dataclass(frozen=True, slots=True)
class Branch:
    """A kernel's traits and the conditions of a request for it, in canonical text."""

    takes: str
    requires: Conjunction

    def __str__(self) -> str:
        return f"<{self.takes}> if {' && '.join(sorted(self.requires)) or 'always'}"


def texts_case(tree: Tree, arch: str) -> CaseResult:
    """Compare names, traits and dispatch for an arch that has kernels."""
    started = time.monotonic()
    title = Title(tree.name, arch, fwd_v3.NAME, "instance files")
    keys = _keys(tree, arch)
    try:
        files = instances(tree)
        difference = compare_names(sorted(key.name for key in keys), sorted(files))
        findings = [
            ParityFinding("names", difference.lines(), f"the same: {len(files)} names of files"),
            _compare_traits(keys, files),
            _compare_dispatch(tree.dialect, keys, _read(tree.fmha / DISPATCH)),
        ]
    except UpstreamError as error:
        return error_case(title, error, started)
    return judge(title, findings, started)


def machine_code_case(tree: Tree, arch: str, toolchain: Toolchain, *, cache: Path, jobs: int) -> CaseResult:
    """Compare the machine code of every kernel, from upstream's file and from ours."""
    started = time.monotonic()
    title = Title(tree.name, arch, fwd_v3.NAME, "machine code")
    try:
        files = instances(tree)
    except UpstreamError as error:
        return error_case(title, error, started)
    pairs = [(key, files[key.name]) for key in _keys(tree, arch) if key.name in files]
    with ProcessPool(jobs) as pool:
        rows = machine_code.compare(pairs, tree, toolchain, arch, cache=cache, pool=pool)()
    if errors := [f"{row.name}: {row.error}" for row in rows if row.error]:
        return error_case(title, UpstreamError("\n".join(errors), kind="codegen"), started)
    lines = [f"{row.name}: {row.difference}" for row in rows if row.difference]
    same = [f"  {row.code_bytes} bytes  {row.name}" for row in rows]
    note = "\n".join([f"the same: machine code of {len(same)} kernels ({toolchain.identity}):", *same])
    return judge(title, [ParityFinding("machine code", tuple(lines), note)], started)


def instances(tree: Tree) -> Mapping[str, str]:
    """Return the texts of upstream's instance files by name. Raises UpstreamError if a file can't be read."""
    return {file.stem: _read(file) for file in sorted((tree.fmha / "instances").glob("fmha_fwd_v3_*.cpp"))}


def dispatch_branches(text: str) -> list[Branch]:
    """Return the branches of ``fmha_fwd_v3`` that take a kernel, in the order in which they are tried.

    A branch requires its own conditions, those around it, and the opposite of those tried before it unless its own
    imply the opposite.

    Raises UpstreamError: the function is missing or can't be followed.
    """
    program = read(text)
    functions = [function for function in program.functions if function.name == _FUNCTION]
    if len(functions) != 1:
        raise text_error(f"expected one function {_FUNCTION}, found {len(functions)}")
    return list(_branches(program, functions[0], functions[0].body, (), ()))


def _branches(
    program: Program, function: Function, body: Tokens, required: Sequence[str], before: Sequence[Conjunction]
) -> Iterator[Branch]:
    local: dict[str, Tokens] = {
        parameter[-1]: (name,) for parameter, name in zip(function.parameters, "as", strict=True)
    }
    for statement in statements(body):
        if isinstance(statement, If):
            earlier = list(before)
            for condition, inside in statement.branches:
                tokens = program.resolve(condition or ("true",), function.scope, local)
                own = frozenset(_bare(condition_text(part)) for part in conjuncts(parse_condition(tokens)))
                own -= {""}
                yield from _branches(program, function, inside, (*required, *own), earlier)
                earlier.append(own)
        elif isinstance(statement, Plain) and (names := local_names(program, statement.tokens, function.scope, local)):
            local |= names
        elif isinstance(statement, Plain) and statement.tokens[:1] == ("return",) and _TAKES in statement.tokens:
            returned = program.resolve(statement.tokens[1:], function.scope, local)
            start = returned.index(_TAKES) + 1
            takes = _bare(spell(returned[start + 1 : closing_angle(returned, start)]))
            yield Branch(takes, _requirements(frozenset(required), before))
        elif statement != Plain(_FALLBACK) and not is_without_effect(statement):
            raise unknown_statement(function, statement)


def _requirements(required: Conjunction, before: Sequence[Conjunction]) -> Conjunction:
    """Return ``required`` and the opposite of each of ``before`` that ``required`` doesn't exclude."""
    more = set()
    for condition in before:
        if any(_contradicts(part, required) for part in condition):
            continue
        more.add(_opposite(next(iter(condition))) if len(condition) == 1 else f"!({' && '.join(sorted(condition))})")
    return required | more


def _contradicts(part: str, required: Conjunction) -> bool:
    left, operator, _ = part.partition(" == ")
    another_value = bool(operator) and any(
        requirement.startswith(f"{left} == ") and requirement != part for requirement in required
    )
    return _opposite(part) in required or another_value


def _opposite(part: str) -> str:
    if " == " in part:
        return part.replace(" == ", " != ")
    return part.replace(" != ", " == ") if " != " in part else f"!({part})"


def _bare(text: str) -> str:
    """Remove the namespace that upstream's file opens and ours spells out."""
    return text.replace("ck_tile::", "")


def _keys(tree: Tree, arch: str) -> list[Key]:
    return enumerate_keys(dialect(tree.dialect).family(fwd_v3.NAME), arch=arch)


def _compare_traits(keys: Sequence[Key], files: Mapping[str, str]) -> ParityFinding:
    lines = []
    for key in keys:
        if key.name in files:
            upstream_trait, project_trait = _bound(files[key.name], key.name), _bare(spell(tokenize(trait(key))))
            lines += (
                [f"{key.name}: upstream binds {upstream_trait}, ours {project_trait}"]
                if upstream_trait != project_trait
                else []
            )
    return ParityFinding("bindings", tuple(lines), f"the same: traits of {len(files)} instances")


def _bound(text: str, name: str) -> str:
    """Return the type that an instance file names kernel_traits."""
    tokens = tokenize(text)
    start = ("using", "kernel_traits", "=")
    for at in range(len(tokens)):
        if tokens[at : at + 3] == start:
            return _bare(spell(tokens[at + 3 : tokens.index(";", at)]))
    raise text_error(f"{name}: upstream's file names no kernel_traits")


def _compare_dispatch(dialect_name: str, keys: Sequence[Key], text: str) -> ParityFinding:
    upstream_branches = [str(branch) for branch in dispatch_branches(text)]
    project_branches = [
        str(Branch(branch.takes, frozenset(part for part in branch.requires if not part.startswith(_OWN))))
        for branch in dispatch_branches(fwd_v3.dispatch_text(keys, features(dialect_name)))
    ]
    lines = [f"upstream's is missing: {branch}" for branch in upstream_branches if branch not in project_branches]
    lines += [f"not upstream's: {branch}" for branch in project_branches if branch not in upstream_branches]
    if not lines and upstream_branches != project_branches:
        lines.append("the branches are the same, in another order")
    note = (
        f"the same: order and conditions of {len(upstream_branches)} dispatch branches "
        "(ours also asks for device and head dims)"
    )
    return ParityFinding("dispatch", tuple(lines), note)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UpstreamError(f"{file}: upstream's file can't be read: {error.strerror}", kind="codegen") from error
