"""The core's C++ stays readable: no function over 60 lines. Formatting itself is checked by `nox -s lint`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ckpm_emulator import toolchain

MOST_LINES = 60
# The last line of a function's head, its brace and its body, in text formatted by .clang-format: there the brace stands
# alone on its line, and the closing brace begins a line in the same column.
FUNCTION = re.compile(
    r"^(?!.*\b(?:struct|class|enum|union|namespace|extern)\b)(.+)\n( *)\{\n(?:.*\n)*?\2\}", re.MULTILINE
)


def functions(text: str) -> dict[str, int]:
    """The lines of each function, by the last line of its head."""
    return {match[1]: match[0].count("\n") + 1 for match in FUNCTION.finditer(text)}


def test_function_is_measured_with_its_head() -> None:
    text = "struct S\n{\n    int f(int a,\n          int b)\n    {\n        if(a)\n        {\n        }\n    }\n};\n"
    assert functions(text) == {"          int b)": 6}


@pytest.mark.parametrize(
    "path",
    sorted(path for path in toolchain.CORE.rglob("*") if path.suffix in (".cpp", ".h")),
    ids=lambda path: path.relative_to(toolchain.CORE).as_posix(),
)
def test_no_function_is_long(path: Path) -> None:
    assert {head: lines for head, lines in functions(path.read_text()).items() if lines > MOST_LINES} == {}
