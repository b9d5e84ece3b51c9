"""Run the commands of every page, without those that need a GPU, a cluster, CK or hours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.docs.pages import blocks, name_of, page_files
from tests.docs.running import Place, not_printed, prepare, run_page


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A copy that no command changes."""
    return prepare(tmp_path_factory.mktemp("planted"))


def _runnable(file: Path) -> bool:
    return any(
        block.kind == "diff" or block.is_run for block in blocks("", file.read_text()) if block.kind != "{toctree}"
    )


@pytest.mark.parametrize("file", [file for file in page_files() if _runnable(file)], ids=name_of)
def test_run_page_follows_every_page(file: Path, tmp_path: Path) -> None:
    page = list(blocks(name_of(file), file.read_text(encoding="utf-8")))
    assert run_page(page, prepare(tmp_path)) == []


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        (["```console", "$ git log --no-such-option", "```"], "p.md:2: $ git log --no-such-option\nended with 128"),
        (["```console exit=3", "$ test -d matrix", "```"], "ended with 0, expected 3"),
        (["```console", "$ ckpm count", "total 385 385", "```"], "did not print, in this order: total 385"),
        (["```console", "$ cd matrix", "$ cat archs.yaml", "$ cat matrix/archs.yaml", "```"], "p.md:4: $ cat matrix"),
        (["```diff", "--- a/LICENSE", "+++ b/LICENSE", "@@ -1,1 +1,1 @@", "-no", "+x", "```"], "p.md:1: error: patch"),
    ],
)
def test_run_page_with_mistake_complains(lines: Sequence[str], complaint: str, copy: Place) -> None:
    (reported,) = run_page(list(blocks("p.md", "\n".join(lines))), copy)
    assert complaint in reported


def test_not_printed_keeps_order_ignores_spaces() -> None:
    lines = ["first   line", "second", "third"]
    assert not_printed(["first line", "...", "third"], lines) == ""
    assert not_printed(["third", "second"], lines) == "second"
    assert not_printed(["first line", "first line"], lines) == "first line"
