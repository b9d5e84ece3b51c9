"""Hostile files: refused with file, line and reason, before they cost memory or time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ckpm.base.bounded import BoundsError, check_xml, read_text
from ckpm.base.errors import RecordError, TableError
from ckpm.base.files import sha256_of
from ckpm.base.records import Source
from ckpm.base.tablefile import load, plain
from tests.fuzz.hostile import LAUGHS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LAUGHS, ":6: not a table: more than 200,000 values, with what aliases stand for."),
        ("a: " + "[" * 30_000, ":1: not a table: nested deeper than 64 levels."),
        ("a:\n" + "".join(" " * n + "b:\n" for n in range(1, 300)), ":65: not a table: nested deeper than 64 levels."),
        ("a: &a [*a]\n", ":1: not a table: nested without end"),
        ("a: " + "9" * 5000, ":1: a: not a value: a number of 5000 characters"),
        ("a: 1." + "0" * 60, ":1: a: not a value: a number of 62 characters"),
        ("a: !!python/object/apply:os.system [x]\n", ":1: a: "),
        ("? [a, b]\n: 1\n", ":1: : a name must be a word, no collection."),
    ],
)
def test_hostile_tables_are_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "table.yaml"
    file.write_text(text)
    with pytest.raises(TableError) as caught:
        load(file).get("a").integer()
    assert str(caught.value).startswith(f"{file}{message}")


def test_table_over_largest_size_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "table.yaml"
    file.write_text("a: 1\n" + "#" * ((4 << 20) - 5))
    assert load(file).get("a").integer() == 1
    file.write_text("a: 1\n" + "#" * ((4 << 20) - 4))
    with pytest.raises(TableError, match="more than 4 MiB"):
        load(file)


def test_aliases_of_ordinary_tables_are_accepted(tmp_path: Path) -> None:
    file = tmp_path / "table.yaml"
    file.write_text("a: &a [1, 2]\n" + "".join(f"b{n}: *a\n" for n in range(1000)))
    assert plain(load(file).get("b999")) == [1, 2]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a": NaN}', "NaN is not a number of JSON"),
        ('{"a": -Infinity}', "-Infinity is not a number of JSON"),
        ('{"a": 1e400}', "1e400 is not a finite number"),
        (f'{{"a": {"9" * 5000}}}', "a number of 5000 characters"),
        (r'{"a": ["\ud800"]}', "holds half a surrogate pair"),
        (r'{"\udfff": 1}', "holds half a surrogate pair"),
        ("[" * 100_000, "nested too deeply"),
        ('[{"a": 1, "b": {}, "a": 1}]', "'a' is there twice"),
        ("", "Expecting value"),
        ("\udcff", "can't decode byte 0xff"),
        (f"[{'[],' * 2_000_000}1]", "more than 4,000,000 values"),
    ],
)
def test_hostile_records_are_refused(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "record.json"
    file.write_text(text, errors="surrogateescape")
    with pytest.raises(RecordError, match="can't be read as a manifest: ") as caught:
        Source(file, "a manifest", "Build again.", RecordError).read()
    assert reason in str(caught.value)


def test_pipe_and_folder_are_refused_at_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for read in (read_text, sha256_of):
        with pytest.raises(OSError, match="it is a pipe or a device"):
            read(pipe)
        with pytest.raises(OSError, match="it is a pipe or a device"):
            read(Path("/dev/zero"))
        with pytest.raises(IsADirectoryError):
            read(tmp_path)
        with pytest.raises(OSError, match="no file can have this name"):
            read(tmp_path / "a\0b")


BOMB = """<?xml version="1.0"?>
<!DOCTYPE a [<!ENTITY b "x"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;"><!ENTITY d "&c;&c;&c;&c;&c;&c;&c;&c;">]>
<a>&d;</a>"""


@pytest.mark.parametrize(
    ("text", "reason", "line"),
    [
        (BOMB, "it declares a document type", 2),
        ('<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>', "it declares a document type", 1),
        ("<a>\n" * 100, "nested deeper than 64 levels", 65),
        ("<a>" + "<b/>" * 500_001 + "</a>", "more than 500,000 elements", 1),
    ],
)
def test_hostile_xml_is_refused(text: str, reason: str, line: int) -> None:
    with pytest.raises(BoundsError) as caught:
        check_xml(text.encode())
    assert (str(caught.value), caught.value.line) == (reason, line)


def test_ordinary_xml_is_accepted() -> None:
    check_xml(("<a>" + "<b><c>&amp;&#65;</c></b>" * 1000 + "</a>").encode())
