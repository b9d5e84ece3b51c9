"""Nothing is printed past what makes foreign text harmless: read from the sources, and tried with a hostile name."""

from __future__ import annotations

import ast
import io
from pathlib import Path

import pytest
from rich.table import Table

from ckpm.base.console import PlainConsole, say
from ckpm.base.entry import exit_code
from ckpm.base.errors import RecordError, UsageError
from ckpm.base.records import Source
from ckpm.base.results import Case, Results
from ckpm.reports.junit.write import summary
from tests.unit.parsed import nodes

ROOT = Path(__file__).parents[2]
ROOMS = ("matrix", "kernels", "reports", "dispatcher", "suites", "workflows")
PRINTERS = {  # besides those of ROOMS that go through these two
    "base/display.py",
    "base/console.py",
    # run before anything is installed, or in place of a compiler, and print their own words
    *("workflows/attempt.py", "workflows/outputs.py", "workflows/verdict.py"),
    *("cluster/guard.py", "kernels/code/toolchains/offload_bundler.py"),
}


def printed(text: str) -> list[str]:
    """Where a source prints with Python's print, or makes a console of rich's own."""
    return [
        f"{node.lineno}: {ast.unparse(node.func)}"
        for node in nodes(text)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("print", "rich.print", "Console")
    ]


def test_everything_is_printed_by_what_makes_it_harmless() -> None:
    files = [file for room in ROOMS for file in (ROOT / room).rglob("*.py")]
    past = {str(file.relative_to(ROOT)): printed(file.read_text(encoding="utf-8")) for file in files}
    assert {name for name, places in past.items() if places} <= PRINTERS
    assert printed("def f(x):\n    print(x)\n    out = Console()") == ["2: print", "3: Console"]


HOSTILE = "[bold]a[/bold] :smile: \x1b[31m\u202e"
HARMLESS = "[bold]a[/bold] :smile: \\x1b[31m\\u202e"


def test_a_console_shows_markup_emoji_and_escape_codes_as_text() -> None:
    output = io.StringIO()
    console = PlainConsole(file=output, width=100, force_terminal=True)
    table = Table(title=HOSTILE)
    table.add_column(HOSTILE)
    table.add_row(HOSTILE)
    console.print(table)
    console.print(HOSTILE)
    say(console, HOSTILE)
    assert output.getvalue().count(HARMLESS) == 5
    assert "\u202e" not in output.getvalue()


def test_an_error_is_one_of_ours_whatever_the_name_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    def command() -> int:
        raise UsageError(f"{HOSTILE} is unknown")

    assert exit_code(command) == UsageError.exit_code
    assert capsys.readouterr().err == f"error: {HARMLESS} is unknown\n"


def test_a_name_in_a_file_forges_no_line(tmp_path: Path) -> None:
    case = Case(suite="s", classname="c", name="a\npassed: b", outcome="failed", message="m\rn")
    assert summary(Results((case,))).splitlines()[-1] == "failed: a\\npassed: b: m\\rn"
    file = tmp_path / "record.json"
    file.write_text('{"a\\nerror: b": 1}')
    with pytest.raises(RecordError) as caught:
        Source(file, "a record", "Write it again.", RecordError).read().allow(["c"])
    assert str(caught.value) == f"{file}: a\\nerror: b: no such field. Write it again."
