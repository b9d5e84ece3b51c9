"""Features of a checkout that its dialect lacks: values of axes without keys in the matrix, archs, parameters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from ckpm.base.errors import SetupError
from ckpm.kernels.upstream.headers import content
from ckpm.matrix.dialects import Dialect

_ENUMERATION = re.compile(r"enum\s+(?:class|struct)?\s*(\w+)\s*(?::[^{;]*)?\{([^}]*)\}")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_TARGET = re.compile(r"""["'](gfx[0-9][0-9a-z]*)""")
_PARAMETER = re.compile(r"(\w+)\s*(=.*)?$", re.DOTALL)


def newer_words(dialect: Dialect, files: Iterable[Path], root: Path) -> tuple[str, ...]:
    """Return a line for each enumerator and template parameter in C++ ``files`` that the dialect doesn't have.

    Raises:
        SetupError: a parameter stands at the position of another one in our text.
        OSError.
    """
    wanted = (*dialect.enumerators, *dialect.parameters)
    if not wanted:
        return ()
    lines: list[str] = []
    for file in sorted(files):
        text = content(file).decode(errors="replace")
        if any(name in text for name in wanted):
            code, place = _COMMENT.sub(_blank, text), str(file.relative_to(root))
            lines += [*_enumerators(dialect, code, place), *_parameters(dialect, code, place)]
    return tuple(lines)


def newer_targets(dialect: Dialect, codegen: Path, root: Path) -> tuple[str, ...]:
    """Return a line for each arch that batch prefill's codegen names and the dialect lacks. Raises OSError."""
    if not dialect.targets:
        return ()
    text = content(codegen).decode(errors="replace")
    places = {found[1]: found.start() for found in reversed([*_TARGET.finditer(text)])}
    return tuple(
        f"{name} ({_at(str(codegen.relative_to(root)), text, start)})"
        for name, start in sorted(places.items())
        if not name.startswith(dialect.targets)
    )


def _enumerators(dialect: Dialect, code: str, place: str) -> Iterator[str]:
    for enumeration in _ENUMERATION.finditer(code):
        known = dialect.enumerators.get(enumeration[1])
        members = [member for part in enumeration[2].split(",") if (member := part.partition("=")[0].strip())]
        at = _at(place, code, enumeration.start())
        yield from (f"{enumeration[1]}::{one} ({at})" for one in members if known and one not in known)


def _parameters(dialect: Dialect, code: str, place: str) -> Iterator[str]:
    """Return parameters after the known ones with a default, which our text leaves out. Raises SetupError."""
    for name, known in dialect.parameters.items():
        template = re.search(rf"template\s*<([^;{{}}]*)>\s*struct\s+{name}(?!\w)", code)
        there = (
            [found for part in template[1].split(",") if (found := _PARAMETER.search(part.strip()))] if template else []
        )
        if not template or len(there) <= len(known):  # the same under other names
            continue
        at = _at(place, code, template.end())
        for index, parameter in enumerate(there):
            if parameter[1] in known:
                continue
            if index < len(known) or not parameter[2]:
                raise SetupError(
                    f"{at}: {name} has a parameter {parameter[1]} that dialect {dialect.name} doesn't know, and that "
                    "can't be left out: no kernel of batch prefill would compile. A new version of CK needs a file "
                    "in matrix/tables/dialects.",
                    kind="ck-tree-version",
                )
            yield f"another {parameter[1]} of {name} than its default ({at})"


def _at(place: str, text: str, start: int) -> str:
    return f"{place}:{text.count(chr(10), 0, start) + 1}"


def _blank(comment: re.Match[str]) -> str:
    """Return as many empty lines, so that line numbers stay the same."""
    return "\n" * comment[0].count("\n")
