"""The core's C++ stays readable: no function over 60 lines. Formatting itself is checked by `nox -s lint`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckpm_emulator import toolchain

MOST_LINES = 60
TYPE = re.compile(r"(template <.*> ?)?(typedef )?(struct|class|enum|union|namespace|extern)\b")


def functions(text: str) -> Iterator[tuple[str, int]]:
    """Head and number of lines, head included, of each function that is defined in text formatted by .clang-format.

    There the brace that opens a function stands alone on its line. The closing brace begins a line in the same column.
    A head follows an empty line, a comment, a preprocessor line, the end of another declaration or a brace.
    """
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        opening = re.fullmatch(r"( *)\{", lines[at])
        at += 1
        if not opening:
            continue
        first = at - 1
        while first > 0 and not re.search(r"^\s*(//|#|$|public:|private:)|[;{}]$|; *//", lines[first - 1]):
            first -= 1
        head = " ".join(line.strip() for line in lines[first : at - 1])
        if TYPE.match(head):
            continue
        end = next(i for i in range(at, len(lines)) if lines[i].startswith(opening[1] + "}"))
        yield head, end - first + 1
        at = end + 1


def test_functions_are_measured_with_their_heads() -> None:
    body = "    one();\n" * 3
    text = (
        f"struct S\n{{\n    int a; // one\n    S(int x)\n        : a(x)\n    {{\n        if(x)\n        {{\n"
        f"            one();\n        }}\n    }}\n}};\n\n// Does.\ntemplate <typename T>\nint f(int a,\n      int b)\n"
        f"{{\n{body}}}\n\nint g() {{ return 1; }}\n"
    )
    assert list(functions(text)) == [("S(int x) : a(x)", 8), ("template <typename T> int f(int a, int b)", 8)]


def test_core_has_functions() -> None:
    heads = [head for path in toolchain.CORE.rglob("*.cpp") for head, _ in functions(path.read_text())]
    assert len(heads) > 300
    assert any("run_wave(" in head for head in heads)


@pytest.mark.parametrize(
    "path",
    sorted(path for path in toolchain.CORE.rglob("*") if path.suffix in (".cpp", ".h")),
    ids=lambda path: path.relative_to(toolchain.CORE).as_posix(),
)
def test_no_function_is_long(path: Path) -> None:
    long = {head: lines for head, lines in functions(path.read_text()) if lines > MOST_LINES}
    assert not long
