"""All output goes through the two modules that make foreign text harmless."""

from __future__ import annotations

import ast
import io
from pathlib import Path

import pytest
from rich.table import Table

from ckpm.base.console import PlainConsole
from ckpm.base.entry import exit_code
from ckpm.base.errors import RecordError, UsageError
from ckpm.base.records import Source
from ckpm.base.results import CaseResult, Results
from ckpm.reports.junit import summary
from tests.unit.sources import nodes, sources

PRINTERS = {
    "ckpm/base/display.py",
    "ckpm/base/console.py",
    # run before anything is installed, or in place of a compiler, and print only their own text
    *(f"ckpm/workflows/{name}.py" for name in ("attempt", "outputs", "tag", "verdict")),
    *("ckpm/cluster/guard.py", "ckpm/kernels/code/toolchains/offload_bundler.py"),
}


def find_prints(text: str) -> list[str]:
    """Lines that call Python's print or make a console of rich."""
    return [
        f"{node.lineno}: {ast.unparse(node.func)}"
        for node in nodes(text)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("print", "rich.print", "Console")
    ]


def test_rooms_print_by_display_and_console() -> None:
    prints = {name: find_prints(text) for name, text in sources().items() if name.startswith("ckpm/")}
    assert len(prints) > 200
    assert {name for name, lines in prints.items() if lines} <= PRINTERS
    assert find_prints("def f(x):\n    print(x)\n    out = Console()") == ["2: print", "3: Console"]


HOSTILE = "[bold]a[/bold] :smile: \x1b[31m\u202e"
HARMLESS = "[bold]a[/bold] :smile: \\x1b[31m\\u202e"


def test_console_shows_markup_and_escape_codes_as_text() -> None:
    output = io.StringIO()
    console = PlainConsole(file=output, width=100, force_terminal=True)
    table = Table(title=HOSTILE)
    table.add_column(HOSTILE)
    table.add_row(HOSTILE)
    console.print(table)
    console.print(HOSTILE)
    assert output.getvalue().count(HARMLESS) == 4
    assert "\u202e" not in output.getvalue()


def test_exit_code_escapes_name_in_error(capsys: pytest.CaptureFixture[str]) -> None:
    def command() -> int:
        raise UsageError(f"{HOSTILE} is unknown")

    assert exit_code(command) == UsageError.exit_code
    assert capsys.readouterr().err == f"error: {HARMLESS} is unknown\n"


def test_name_in_file_cannot_forge_line(tmp_path: Path) -> None:
    case = CaseResult(suite="s", classname="c", name="a\npassed: b", outcome="failed", message="m\rn")
    assert summary(Results((case,))).splitlines()[-1] == "failed: a passed: b: m n"
    file = tmp_path / "record.json"
    file.write_text('{"a\\nerror: b": 1}')
    with pytest.raises(RecordError) as caught:
        Source(file, "a record", "Write it again.", RecordError).read().allow(["c"])
    assert str(caught.value) == f"{file}: a\\nerror: b: no such field. Write it again."
