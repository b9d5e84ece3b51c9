"""The checks of the pages of docs/ and README. ``nox -s tests -- docs`` runs the commands that they show."""

from __future__ import annotations

import ast
import importlib
import re
import runpy
from pathlib import Path

import pytest

import ckpm
from ckpm.base.entry import EXPLAINED
from ckpm.matrix.dialects import dialect, dialect_names, upstreams
from ckpm.matrix.enumeration import enumerate_names
from ckpm.matrix.selection import Selection, select
from ckpm.reports.verdicts import VERDICTS
from tests.docs.checks import check_page
from tests.docs.pages import ROOT, Command, blocks, name_of, page_files


@pytest.mark.parametrize("file", page_files(), ids=name_of)
def test_page_has_no_complaint(file: Path) -> None:
    assert check_page(name_of(file), file.read_text(encoding="utf-8")) == []


def test_page_files_include_every_page() -> None:
    names = {name_of(file) for file in page_files()}
    assert names >= {"README.md", "docs/index.md", "docs/first-hour.md", "docs/howto/first-gpu-run.md"}
    assert sum(len(list(blocks(name_of(file), file.read_text()))) for file in page_files()) > 30


def test_messages_page_explains_kinds_that_failures_have() -> None:
    text = (ROOT / "docs/reference/messages.md").read_text()
    headings = set(re.findall(r"^### (\S+)$", text, re.MULTILINE))
    assert headings == EXPLAINED | {
        "unsupported",
        "not-passed",
    }  # a verdict on cases; a report, whose last line is its path
    code = "\n".join(file.read_text() for file in (ROOT / "ckpm").rglob("*.py"))
    kinds = set(re.findall(r'kind(?: =|=) ?"([a-z-]+)"', code)) | {word.replace(" ", "-") for word in VERDICTS}
    assert kinds >= EXPLAINED


def test_exports_of_ckpm_are_names_of_its_list() -> None:
    nodes = ast.parse((ROOT / "ckpm/__init__.pyi").read_text()).body
    names = {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert {*ckpm.__all__, "torch"} == names


def test_api_page_lists_all_exports_of_ckpm_but_its_modules() -> None:
    text = (ROOT / "docs/reference/api.md").read_text()
    listed = re.findall(r"^\.\. autoapi(?:function|class):: (\S+)\.(\w+)$", text, re.MULTILINE)
    documented = {name: getattr(importlib.import_module(module), name) for module, name in listed}
    exported = {name: getattr(ckpm, name) for name in ckpm.__all__ if name not in ("aiter", "Problem")}
    assert exported.items() <= documented.items()


def page(*lines: str, fence: str = "console") -> str:
    return "\n".join(["# Page", "", f"```{fence}", *lines, "```", ""])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (page("$ nox -s build-gfx95"), "p.md:4: nox has no session build-gfx95"),
        (page("$ nox -s build-gfx950 -- --teir full"), "nox: --teir concerns no session of this line"),
        (page("$ nox -s build-gfx950 -- --tier fulll"), "p.md:4: ckpm: tier: fulll is none of smoke"),
        (page("$ nox build-gfx950"), "sessions are named with -s"),
        (page("$ nox -s in-container -- test-larg-kv"), "sessions: test-larg-kv is none of"),
        (page("$ ckpm lst"), "there is no command 'lst'"),
        (page("$ ckpm count --arch gfx1200"), "unknown arch 'gfx1200'"),
        (page("$ cat x | python -m nothing"), "python -m nothing: no module with a command line"),
        (page("$ python -m pytest tests/unit/none.py"), "pytest: there is no tests/unit/none.py"),
        (page("$ rm -rf build"), "no test runs the program rm"),
        (page("$ echo 'half"), "p.md:4: no shell can read it"),
        (page("nox -s build-gfx950"), "p.md:4: a block of commands begins with '$ '"),
        (page("$ nox -s report", fence="console slow"), "p.md:3: unknown mark 'slow'"),
        (page("$ nox -s report", fence="bash"), "p.md:3: a block of kind 'bash'"),
        (page("--- a/README.md", "+++ b/README.md", "@@ -1,1 +1,1 @@", "-not in the file", "+x", fence="diff"),
         "p.md:3: error: patch failed: README.md"),
        (page("--- a/REDME.md", "+++ b/REDME.md", "@@ -1,1 +1,1 @@", "-x", "+y", fence="diff"),
         "p.md: a change of REDME.md, which is not there"),
        (page("from ckpm.decode.guard.figures import Budget", fence="python"), "p.md:4: cannot import name 'Budget'"),
        (page("from ckpm.decode.guards import x", fence="python"), "p.md:4: No module named 'ckpm.decode.guards'"),
        ("| a | |\n| --- | --- |\n| b | c |\n", "p.md:1: a column of the table has no name"),
        ("See `matrix/arch.yaml`.", "p.md:1: there is no matrix/arch.yaml"),
        ("See `matrix/dialects/<dialect>/bwd.yaml`.", "p.md:1: there is no matrix/dialects/<dialect>"),
        ("It ends with `CheckFailedError` (44).", "p.md:1: CheckFailedError ends with 8, not with 44"),
        ("It ends with exit code 99999.", "p.md:1: nothing ends with 99999"),
        ("See <http://example.com/x>.", "p.md:1: not a complete https address"),

    ],
)  # fmt: skip
def test_check_page_reports_mistake(text: str, complaint: str) -> None:
    (message,) = check_page("p.md", text)
    assert complaint in message


@pytest.mark.parametrize(
    ("link", "complaint"),
    [
        ("../../README.md", "docs/reference/p.md:1: no file in docs has this link: ../../README.md"),
        ("../howto/no-such.md#part", "docs/reference/p.md:1: no file in docs has this link: ../howto/no-such.md"),
        ("../howto/release.md#verify-a-bundle", ""),
        ("#part", ""),
        ("https://example.com/x", ""),
    ],
)
def test_link_out_of_pages_is_reported(link: str, complaint: str) -> None:
    """Sphinx refuses the same links, in an environment that `nox -s lint tests` does not make."""
    assert check_page("docs/reference/p.md", f"See [it]({link}).") == ([complaint] if complaint else [])


def test_pages_of_html_name_their_parts_once() -> None:
    """axe-core wants a first heading, levels of others, names of landmarks, and keyboard access to what scrolls."""
    accessible = runpy.run_path(str(ROOT / "docs/conf.py"))["accessible"]
    written = '<p role="heading">a</p><pre>b</pre><div class="table-wrapper c"></div><aside class="toc-drawer no-toc">'
    written += '<div id="search-results"></div>'
    page = (
        '<p role="heading" aria-level="2">a</p><pre tabindex="0">b</pre>'
        '<div class="table-wrapper c" tabindex="0"></div><aside class="toc-drawer no-toc" aria-label="this page">'
        '<h1>Search</h1><div id="search-results"></div>'
    )
    assert accessible(written) == accessible(page) == page


@pytest.mark.parametrize(
    "text",
    [
        page("$ FOO=1 nox -s build-gfx950 test-large-kv 2>&1 | tee build/x.log"),
        page(
            "$ nox -s ckpm -- compare --output build/gpu.json --baseline a/libckpm.so --candidate b/libckpm.so",
            fence="console gpu",
        ),
        page("$ cat > waivers.yaml <<'END'", "> waivers:", "> END", "written"),
        page("$ cd build && ckpm count > count.txt"),
        "`matrix/dialects/<dialect>/<family>.yaml`, `build/<arch>/x.json`, `CheckFailedError` (8), exit code 1, "
        "https://github.com/ROCm/rocm-libraries/pull/6932.",
    ],
)
def test_check_page_accepts_right_text(text: str) -> None:
    assert check_page("p.md", text) == []


def test_blocks_are_read_with_commands_and_output() -> None:
    text = page("$ first", "said", "...", "$ cat <<'END'", "> a", "> END", "$ last", fence="console exit=8")
    (block,) = blocks("p.md", text)
    assert block.is_run
    assert block.commands() == [
        Command(line=4, text="first", output=("said", "..."), exit_code=0),
        Command(line=7, text="cat <<'END'\na\nEND", output=(), exit_code=0),
        Command(line=10, text="last", output=(), exit_code=8),
    ]
    assert not next(blocks("p.md", page("$ x", fence="console gpu"))).is_run


def test_counts_of_kernels_are_those_of_matrix() -> None:
    text = (ROOT / "docs/reference/matrix.md").read_text()
    for name in dialect_names():
        families = dialect(name).families
        row = next(line for line in text.splitlines() if line.startswith(f"| `{name}` |"))
        for cell, chosen in zip(row.split("|")[-3:-1], (["batch_prefill"], list(families)), strict=True):
            written = [int(number.replace(",", "")) for number in re.findall(r"[\d,]{3,}", cell)]
            counts = [
                sum(
                    len(enumerate_names(dialect(name).family(family), arch="gfx950", mask_impl=mask))
                    for family in chosen
                )
                for mask in ("simplified", "generic")
            ]
            assert written == counts[: len(written)] != [], f"docs/reference/matrix.md: the row of {name}"
    default = dialect(upstreams()["aiter"].dialect)
    for tier in ("smoke", "full", "nightly"):
        row = next(line for line in text.splitlines() if line.startswith(f"| `{tier}` |"))
        count = int(re.findall(r"\d+", row.split("|")[2])[0])
        assert count == len(select(default, Selection(archs=("gfx950",), tier=tier)))


def test_picture_of_report_is_small() -> None:
    picture = (ROOT / "docs/pictures/report.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) < 300_000


def test_rules_of_device_semantics_name_tests() -> None:
    text = (ROOT / "docs/reference/device-semantics.md").read_text()
    names = {word.strip("`") for word in text.split() if "`test_" in word}
    tests = "".join(file.read_text() for file in (ROOT / "emulator").rglob("test_*.py"))
    assert names
    assert [name for name in sorted(names) if f"def {name}(" not in tests] == []
