"""Commands with an output keep the user's files: devices, inputs and foreign files stay."""

from __future__ import annotations

import argparse
import ast
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from ckpm import commands as cli
from ckpm.base import outputs
from ckpm.base.errors import OutputError, UsageError
from ckpm.base.files import is_special, sha256_of, write_atomically
from ckpm.base.outputs import RECORD, demand_ours, forget_output, is_ours, write_output
from ckpm.base.results import CaseResult, Results
from ckpm.kernels.families import render
from tests.unit.sources import ROOT, nodes, sources

# what writes or removes a file in another way than ckpm/base/files.py and outputs.py
_OWN_WAYS = ("write_text", "write_bytes", "unlink", "rename", "replace_file", "open")


def output_options(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for action in parser._actions if action.dest in outputs.OPTIONS and action.type is Path]


PARSERS = {name: cli.parser(name) for name in cli.COMMANDS}
WRITING = {name: parser for name, parser in PARSERS.items() if output_options(parser)}


def test_writing_commands_are_found() -> None:
    assert set(WRITING) >= {
        *("list", "build", "parity", "measure", "bench", "test", "report", "gate", "compare", "timing model"),
        *("timing tables", "cpp index", "workflows collect"),
    }


def test_options_named_output_are_listed() -> None:
    for name, parser in PARSERS.items():
        for action in parser._actions:
            if action.type is Path and ("write" in (action.help or "") or "output" in action.dest):
                assert action.dest in outputs.OPTIONS or action.nargs == "+", f"{name} {action.dest}"


def _required_arguments(parser: argparse.ArgumentParser, but: argparse.Action, value: str) -> list[str]:
    arguments = []
    for action in parser._actions:
        if action.required and action is not but:
            argument = next(iter(action.choices or ["x"])) if not action.type else value
            arguments += [action.option_strings[0], argument] if action.option_strings else [argument]
    return arguments


@pytest.mark.parametrize("name", WRITING)
def test_output_that_is_input_is_refused(name: str, tmp_path: Path) -> None:
    parser = WRITING[name]
    input_file, link = tmp_path / "mine", tmp_path / "link"
    input_file.write_text("kept")
    link.symlink_to(input_file)
    inputs = [action for action in parser._actions if action.type is Path and action.dest not in outputs.OPTIONS]
    for input_option in inputs:
        for output in output_options(parser):
            options = [] if not input_option.option_strings else [input_option.option_strings[0], str(input_file)]
            rest = _required_arguments(parser, output, str(input_file))
            with pytest.raises(UsageError, match="it is read by this command, and would be lost: name another"):
                parser.parse_args([*rest, *options, output.option_strings[0], str(link)])
    assert input_file.read_text() == "kept"


@pytest.mark.parametrize("name", [name for name, parser in WRITING.items() if len(output_options(parser)) > 1])
def test_two_results_in_one_file_are_refused(name: str, tmp_path: Path) -> None:
    parser, file, link = WRITING[name], tmp_path / "both", tmp_path / "link"
    link.symlink_to(file)
    first, second, *_ = output_options(parser)
    rest = _required_arguments(parser, first, str(tmp_path / "input"))
    with pytest.raises(UsageError, match="two results of this command"):
        parser.parse_args([*rest, first.option_strings[0], str(file), second.option_strings[0], str(link)])
    parser.parse_args([*rest, first.option_strings[0], "/dev/null", second.option_strings[0], "/dev/null"])


@pytest.mark.parametrize("name", ["manifest.json", "libckpm.so"])
def test_index_in_place_of_its_library_is_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text("kept")
    assert cli.main(["cpp", "index", str(tmp_path), "--output", str(tmp_path / name)]) == 2
    assert "it is read by this command, and would be lost: name another" in capsys.readouterr().err
    assert (tmp_path / name).read_text() == "kept"


def test_commands_write_by_common_functions() -> None:
    checked = 0
    for file, text in sources().items():
        names = {f"{node.value.id}.{node.attr}" for node in nodes(text)
                 if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)}  # fmt: skip
        if not {f"args.{option}" for option in outputs.OPTIONS} & names:
            continue
        checked += 1
        for call in (node for node in nodes(text) if isinstance(node, ast.Call)):
            on = ast.unparse(call.func)
            assert not (on.rsplit(".", 1)[-1] in _OWN_WAYS and "summary_file" not in on), f"{file}:{call.lineno}: {on}"
    assert checked >= 8


def test_write_to_device_keeps_it() -> None:
    before = Path("/dev/null").stat()
    write_atomically(Path("/dev/null"), b"x")
    forget_output(Path("/dev/null"))
    assert Path("/dev/null").stat().st_rdev == before.st_rdev
    assert is_special(Path("/dev/null"))


def test_write_to_pipe_keeps_it(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_output(pipe, b"all of it")
    assert os.read(reader, 100) == b"all of it"
    os.close(reader)
    assert pipe.is_fifo()
    assert [file.name for file in tmp_path.iterdir()] == ["pipe"]


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_write_to_standard_output_by_name(tmp_path: Path, name: str) -> None:
    link, out = tmp_path / "link", tmp_path / "out"
    link.symlink_to(name)
    code = (
        "from pathlib import Path; from ckpm.base.outputs import write_output, forget_output\n"
        f"link = Path({str(link)!r}); print('before'); forget_output(link)\n"
        "write_output(link, b'it\\n'); print('after')"
    )
    with out.open("wb") as stream:
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, stdout=stream, check=True)
    assert out.read_bytes() == b"before\nit\nafter\n"
    assert link.is_symlink()


def test_write_to_socket_keeps_it(tmp_path: Path) -> None:
    target = tmp_path / "there"
    socket.socket(socket.AF_UNIX).bind(str(target))
    with pytest.raises(OutputError, match="it is a socket, which can't be opened"):
        write_output(target, b"x")
    assert target.is_socket()


def test_forget_output_removes_only_own_unchanged_files(tmp_path: Path) -> None:
    own_file, changed, foreign = (tmp_path / name for name in ("ours", "changed", "foreign"))
    for file in (own_file, changed):
        write_output(file, b"a result")
    changed.write_text("a result, with the user's notes")
    foreign.write_text("the user's")
    assert [is_ours(file) for file in (own_file, changed)] == [True, False]
    for file in (own_file, changed, foreign, tmp_path / "absent"):
        forget_output(file)
    assert sorted(file.name for file in tmp_path.iterdir()) == [RECORD, "changed", "foreign"]
    with pytest.raises(UsageError, match="changed: it is there, and not as this command writes it"):
        demand_ours([own_file, changed])


def test_forget_output_with_file_gone_ends_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_output(tmp_path / "ours", b"a result")

    def remove_and_accept(file: Path) -> bool:
        file.unlink()  # as another run does
        return True

    monkeypatch.setattr("ckpm.base.outputs.is_ours", remove_and_accept)
    forget_output(tmp_path / "ours")


def test_file_that_two_runs_wrote_at_once_is_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, record = tmp_path / "smoke.xml", outputs.record

    def record_late(folder: Path, sums: Mapping[str, str]) -> None:
        monkeypatch.setattr(outputs, "record", record)
        write_output(file, b"of another run")
        record(folder, sums)

    monkeypatch.setattr(outputs, "record", record_late)
    write_output(file, b"of a run")
    demand_ours([file])


def test_forget_output_keeps_link(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    link.symlink_to(file)
    write_output(link, b"one")
    forget_output(link)
    assert (link.is_symlink(), file.exists()) == (True, False)


def test_recorded_ignores_files_outside_folder(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"x")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / RECORD).write_text(f"{sha256_of(outside)}  ../outside\nno line\n")
    assert outputs.recorded_digests(tmp_path / "in") == {}


def test_long_record_is_shortened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "_LONGEST", 500)
    for number in range(40):
        write_output(tmp_path / "file", b"%d" % number)
    assert (tmp_path / RECORD).stat().st_size < 700
    assert is_ours(tmp_path / "file")


def test_reports_do_not_replace_their_inputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = tmp_path / "build/gfx950/aiter/manifest.json"
    manifest.parent.mkdir(parents=True)
    manifest.write_text("{}")
    for option in ("--output", "--html", "--table"):
        assert cli.main(["report", "--input", str(tmp_path / "build"), option, str(manifest)]) == 2
    assert manifest.read_text() == "{}"
    assert capsys.readouterr().err.count("name another output") == 3


def test_junit_keeps_foreign_file(tmp_path: Path) -> None:
    from ckpm.base import junit

    (tmp_path / "results.xml").write_text("pytest's")
    with pytest.raises(UsageError, match=r"results\.xml"):
        junit.clear(tmp_path / "results.json")
    results = Results((CaseResult(suite="s", classname="c", name="n", outcome="passed"),))
    junit.clear(tmp_path / "mine.json")
    junit.write_beside(results, tmp_path / "mine.json")
    junit.clear(tmp_path / "mine.json")
    assert not (tmp_path / "mine.xml").exists()
    assert junit.beside(Path("/dev/null")) is None


def test_render_goes_on_after_interrupt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sources that an interrupted command wrote are its own, and not somebody else's."""
    arguments = ["build", "--render", str(tmp_path / "src"), "--tier", "full", "--where", "key.logits and key.lse"]

    def interrupt(*arguments: object) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(render, "dispatch_text", interrupt)
        assert cli.main(arguments) == 130
    written = {file: file.stat().st_mtime_ns for file in tmp_path.glob("src/*.hip")}
    assert written
    assert cli.main(arguments) == 0
    assert {file: file.stat().st_mtime_ns for file in written} == written  # none is written twice


def test_render_keeps_users_sources(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "src"
    folder.mkdir()
    (folder / "mine.hip").write_text("mine")
    arguments = ["build", "--render", str(folder), "--tier", "full", "--where"]
    assert cli.main([*arguments, "key.logits and key.lse"]) == 0
    first = {file.name for file in folder.glob("*.hip")}
    assert cli.main([*arguments, "key.logits and key.lse and key.dropout"]) == 0
    second = {file.name for file in folder.glob("*.hip")}
    assert first - second  # files of the other selection are removed
    assert "mine.hip" in second
    (folder / "dispatch.hip").write_text("changed by the user")
    assert cli.main([*arguments, "key.logits and key.lse"]) == 2
    assert (folder / "dispatch.hip").read_text() == "changed by the user"
    assert "dispatch.hip: it is there, and not as this command writes it" in capsys.readouterr().err
