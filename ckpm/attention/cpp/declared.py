"""The kernel sets that a C++ file declares with CKPM_KERNEL_SET, and their kernels.

The file is read as text, without a compiler: comments are skipped, neighbouring literals are joined, and directives of
the preprocessor have no effect.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ckpm.attention.cpp.index import Pattern
from ckpm.base.bounded import read_text
from ckpm.base.errors import CkPrefillError, InputError
from ckpm.matrix.defects import split
from ckpm.matrix.dialects import DEFAULT_FAMILY, check_upstream, dialect
from ckpm.matrix.keys import Key
from ckpm.matrix.selection import Selection, select

MACRO = "CKPM_KERNEL_SET"
_TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/)|(?P<literal>"(?:[^"\\\n]|\\.)*")|(?P<word>[A-Za-z_]\w*)|(?P<other>.)""",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSet:
    """``patterns`` of an ``upstream``'s kernels, declared under ``name`` at ``place`` (file:line)."""

    name: str
    upstream: str
    patterns: tuple[str, ...]
    location: str


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    line: int


def declarations(file: Path) -> tuple[KernelSet, ...]:
    """The kernel sets of a C++ file in their order, each ``CKPM_KERNEL_SET(name, "upstream", "pattern", ...)``."""
    try:
        tokens = list(_tokens(read_text(file)))
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: it can't be read: {error}. Name a C++ file.", kind="declaration") from error
    starts = [
        at
        for at, token in enumerate(tokens)
        if (token.kind, token.text) == ("word", MACRO) and (at == 0 or tokens[at - 1].text not in ("define", "undef"))
    ]
    sets = tuple(_declaration(tokens[at:], file) for at in starts)
    if not sets:
        raise InputError(
            f"{file}: no {MACRO} is in it. Declare the kernels that the program needs.", kind="declaration"
        )
    names = [kernel_set.name for kernel_set in sets]
    if repeated := next((kernel_set for at, kernel_set in enumerate(sets) if kernel_set.name in names[:at]), None):
        raise InputError(f"{repeated.location}: {repeated.name} is declared twice. Rename one.", kind="declaration")
    return sets


def _tokens(text: str) -> Iterator[_Token]:
    line = 1
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or ""
        if kind != "skip":
            yield _Token(kind, match[0], line)
        line += match[0].count("\n")


def _declaration(tokens: Sequence[_Token], file: Path) -> KernelSet:
    """The set whose macro is the first of ``tokens``."""
    location = f"{file}:{tokens[0].line}"
    arguments: list[list[_Token]] = [[]]
    if len(tokens) > 1 and tokens[1].text == "(":
        for token in tokens[2:]:
            if token.text == ")":
                name, *literals = (list(argument) for argument in arguments)
                if len(name) == 1 and name[0].kind == "word" and len(literals) >= 2:
                    upstream, *patterns = (_join(literal, location) for literal in literals)
                    return KernelSet(name=name[0].text, upstream=upstream, patterns=tuple(patterns), location=location)
                break
            if token.text == ",":
                arguments.append([])
            else:
                arguments[-1].append(token)
    raise InputError(
        f'{location}: write {MACRO}(name, "upstream", "field=value ...", ...), with literals only.', kind="declaration"
    )


def _join(literals: Sequence[_Token], location: str) -> str:
    if not literals or any(literal.kind != "literal" or "\\" in literal.text for literal in literals):
        text = " ".join(literal.text for literal in literals)
        raise InputError(f"{location}: {text or 'nothing'} stands where a plain literal should be.", kind="declaration")
    return "".join(literal.text[1:-1] for literal in literals)


def kernels_of(declared: KernelSet, arch: str) -> tuple[Key, ...]:
    """The kernels of an arch that fit a set's patterns and that this CK compiles, each once."""
    keys: dict[str, Key] = {}
    for text in declared.patterns:
        try:
            pattern = Pattern.parse(text)
            named = check_upstream(declared.upstream).dialect
            families = pattern.conditions.get("family") or (DEFAULT_FAMILY,)
            names = tuple(dialect(named).family(name).name for name in families)
        except (ValueError, CkPrefillError) as error:
            raise InputError(f"{declared.location}: {declared.name}: {error}", kind="declaration") from error
        sound, _ = split(select(dialect(named), Selection(archs=(arch,), families=names)), named)
        fitting = [key for key in sound if pattern.fits(key)]
        if not fitting:
            raise InputError(
                f"{declared.location}: {declared.name}: no kernel of {arch} fits '{text}'.", kind="declaration"
            )
        keys |= {key.name: key for key in fitting}
    return tuple(keys.values())
