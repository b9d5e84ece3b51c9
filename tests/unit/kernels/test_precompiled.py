"""Units take precompiled headers from the cache, and are compiled without them if something is wrong with them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from ckpm.base.warming import ZIG_CACHE
from ckpm.kernels.code import precompiled


class Compiler:
    """A compiler that writes its output, and fails if a word of ``fails`` is in its command."""

    def __init__(self, *fails: str) -> None:
        self.fails, self.commands = fails, list[Sequence[str]]()

    def __call__(self, argv: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str]:
        self.commands.append(argv)
        if any(word in argv for word in self.fails):
            return 1, "broken"
        Path(argv[argv.index("-o") + 1]).write_text("output")
        return 0, ""

    def count(self, word: str) -> int:
        return sum(word in argv for argv in self.commands)


@pytest.fixture
def unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], dict[str, str]]:
    """The command of a unit for two archs, and an environment with a cache."""
    monkeypatch.setattr(precompiled, "_folders", {})
    text = '// comment\n\n#include "a.hpp"\n#include "b.hpp"\n\nint kernel;\n#include "c.hpp"\n'
    (tmp_path / "unit.hip").write_text(text)
    archs = ("--offload-arch=gfx942", "--offload-arch=gfx950")
    command = [sys.executable, *archs, "-cuid=12", "-c", str(tmp_path / "unit.hip"), "-o", str(tmp_path / "unit.o")]
    return command, {ZIG_CACHE: str(tmp_path / "cache/zig/0")}


def test_headers_are_parsed_once_for_host_and_archs(
    unit: tuple[list[str], dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    argv, environment = unit
    compiler = Compiler()
    for _ in range(2):
        assert precompiled.run_unit(argv, environment, compiler, "headers") == (0, "")
    assert [compiler.count(word) for word in ("-emit-pch", "--cuda-host-only", "-include-pch")] == [3, 1, 2]
    monkeypatch.setattr(precompiled, "_folders", {})  # another process, another unit
    precompiled.run_unit([word.replace("-cuid=12", "-cuid=13") for word in argv], environment, compiler, "headers")
    assert compiler.count("-emit-pch") == 3
    command = compiler.commands[-1]
    folder = Path(command[command.index("-include-pch") + 2])
    assert {file.name for file in folder.glob("*.pch")} == {"host.pch", "gfx942.pch", "gfx950.pch"}
    assert folder.with_suffix(".hip").read_text() == '#include "a.hpp"\n#include "b.hpp"\n'
    (folder / "gfx950.pch").chmod(0o666)  # as another user could have left it
    (folder / "host.pch").write_text("damaged")
    monkeypatch.setattr(precompiled, "_folders", {})
    precompiled.run_unit(argv, environment, compiler, "headers")
    assert [compiler.count(word) for word in ("-emit-pch", "--cuda-host-only")] == [5, 2]


def test_headers_of_another_identity_are_parsed_again(unit: tuple[list[str], dict[str, str]]) -> None:
    """clang compares the headers that were read, and sees no header that was added in front of one of them."""
    argv, environment = unit
    compiler = Compiler()
    for headers, parsed in (("headers", 3), ("one more", 6), ("headers", 6)):
        assert precompiled.run_unit(argv, environment, compiler, headers) == (0, "")
        assert compiler.count("-emit-pch") == parsed


@pytest.mark.parametrize("broken", ["-emit-pch", "-include-pch"])
def test_unit_is_compiled_without_headers_that_fail(unit: tuple[list[str], dict[str, str]], broken: str) -> None:
    argv, environment = unit
    compiler = Compiler(broken)
    for _ in range(2):
        assert precompiled.run_unit(argv, environment, compiler, "headers") == (0, "")
        assert compiler.commands[-1] == argv
    assert compiler.count("-include-pch") == (broken == "-include-pch")  # not tried again
    assert not list(Path(environment[ZIG_CACHE]).parents[1].glob("headers/*/*.pch"))


def test_unit_that_does_not_compile_keeps_headers_of_others(unit: tuple[list[str], dict[str, str]]) -> None:
    argv, environment = unit
    compiler = Compiler("-cuid=12")
    assert precompiled.run_unit(argv, environment, compiler, "headers") == (1, "broken")
    assert [compiler.count(word) for word in ("-include-pch", "-cuid=12")] == [1, 2]
    assert len(list(Path(environment[ZIG_CACHE]).parents[1].glob("headers/*/*.pch"))) == 3


def test_units_of_other_toolchains_have_none(unit: tuple[list[str], dict[str, str]]) -> None:
    compiler = Compiler()
    assert precompiled.run_unit(unit[0], {}, compiler, "headers") == (0, "")
    assert compiler.commands == [unit[0]]


def test_last_used_headers_are_kept(unit: tuple[list[str], dict[str, str]]) -> None:
    argv, environment = unit
    for number in range(6):
        assert precompiled.run_unit([argv[0], f"-DN={number}", *argv[1:]], environment, Compiler(), "headers")[0] == 0
    files = list(Path(environment[ZIG_CACHE]).parents[1].glob("headers/*/host.pch"))
    assert len(files) == len(list(files[0].parents[1].glob("*.hip"))) == 4
