"""What a checkout has that its dialect doesn't know: values of axes for which the matrix has no keys."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from matrix.dialects import Dialect

_ENUMERATION = re.compile(r"enum\s+(?:class|struct)?\s*(\w+)\s*(?::[^{;]*)?\{([^}]*)\}")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def newer_words(dialect: Dialect, files: Iterable[Path], root: Path) -> tuple[str, ...]:
    """A line for each enumerator in C++ ``files`` below ``root`` that is none of the dialect's. Raises OSError."""
    wanted = dialect.enumerators
    if not wanted:
        return ()
    lines = []
    for file in sorted(files):
        text = file.read_text(encoding="utf-8", errors="replace")
        if not any(name in text for name in wanted):
            continue
        code = _COMMENT.sub(_blank, text)
        for enumeration in _ENUMERATION.finditer(code):
            known = wanted.get(enumeration[1])
            members = [member for part in enumeration[2].split(",") if (member := part.partition("=")[0].strip())]
            at = f"{file.relative_to(root)}:{code.count(chr(10), 0, enumeration.start()) + 1}"
            lines += [f"{enumeration[1]}::{one} ({at})" for one in members if known and one not in known]
    return tuple(lines)


def _blank(comment: re.Match[str]) -> str:
    """As many lines: places stay what they are."""
    return "\n" * comment[0].count("\n")
