"""Shards are merged whole or not at all: a truncated, empty or repeated one is an error that names the file."""

from __future__ import annotations

from pathlib import Path

import pytest
from junitparser import JUnitXml

from ckpm.base.junit import write_junit
from ckpm.base.outputs import write_output
from ckpm.base.results import Case, Results
from ckpm.commands import main


def shard(file: Path, *names: str, outcome: str = "passed") -> str:
    cases = [Case(suite="s", classname="c", name=name, outcome=outcome, message="m", seconds=1.0) for name in names]
    write_junit(Results(tuple(cases)), file)
    return str(file)


def test_suites_of_one_name_are_joined(tmp_path: Path) -> None:
    output = tmp_path / "merged.xml"
    shards = [shard(tmp_path / "1.xml", "a", "b"), shard(tmp_path / "2.xml", "c")]
    assert main(["report", "--merge", *shards, "--output", str(output)]) == 0
    (suite,) = JUnitXml.fromfile(str(output))
    assert [case.name for case in suite] == ["a", "b", "c"]
    assert (suite.name, suite.tests, suite.failures, suite.time) == ("s", 3, 0, 3.0)


def test_failure_of_shard_fails_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shards = [shard(tmp_path / "1.xml", "a"), shard(tmp_path / "2.xml", "b", outcome="failed")]
    assert main(["report", "--merge", *shards, "--output", str(tmp_path / "m.xml")]) == 8
    assert "1 of 2 cases failed, the first is b" in capsys.readouterr().err
    assert JUnitXml.fromfile(str(tmp_path / "m.xml")).failures == 1


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text[: len(text) // 2], "no whole XML, was it cut short?"),
        (lambda text: "", "no whole XML, was it cut short?"),
        (lambda text: text.replace('tests="2"', 'tests="3"'), "its header counts 3 cases, the file has 2"),
        (lambda text: "<testsuites/>", "no case in it"),
        (lambda text: "<html/>", "no JUnit"),
    ],
)
def test_damaged_shard_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], damage, message) -> None:  # type: ignore[no-untyped-def]
    good, bad, output = shard(tmp_path / "1.xml", "a"), tmp_path / "2.xml", tmp_path / "merged.xml"
    shard(bad, "b", "c")
    bad.write_text(damage(bad.read_text()))
    write_output(output, b"an earlier run's")
    assert main(["report", "--merge", good, str(bad), "--output", str(output)]) == 3
    printed = capsys.readouterr().err
    assert f"error: {bad}: " in printed
    assert message in printed
    assert not output.exists()


def test_missing_shard_and_one_given_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    good, again, output = shard(tmp_path / "1.xml", "a"), shard(tmp_path / "2.xml", "a"), str(tmp_path / "merged.xml")
    assert main(["report", "--merge", good, str(tmp_path / "none.xml"), "--output", output]) == 3
    assert main(["report", "--merge", good, again, "--output", output]) == 3
    assert f"{again}: a is in {good}, too" in capsys.readouterr().err
    assert main(["report", "--merge", good, good, "--output", output]) == 3
    assert main(["report", "--merge", good, "--output", good]) == 2
    monkeypatch.chdir(tmp_path)
    assert main(["report", "--merge", good, "--output", "1.xml"]) == 2
    assert [case.name for suite in JUnitXml.fromfile(good) for case in suite] == ["a"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('<!DOCTYPE x [<!ENTITY a "b">]><testsuite name="&a;"/>', "line 1: no JUnit: it declares a document type"),
        ("<testsuites>" + "<testsuite>" * 100, "nested deeper than 64 levels"),
        ('<testsuite tests="many"><testcase name="a"/></testsuite>', "no whole XML, was it cut short? "),
        (
            '<testsuite name="\u202e" tests="2"><testcase name="a"/></testsuite>',
            "suite \\u202e: its header counts 2 cases, ",
        ),
    ],
)
def test_hostile_shard_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str) -> None:
    file = tmp_path / "hostile.xml"
    file.write_text(text)
    assert main(["report", "--merge", str(file), "--output", str(tmp_path / "m.xml")]) == 3
    assert message in capsys.readouterr().err
    assert not (tmp_path / "m.xml").exists()
