"""CK's own programs of googletest, compiled from the packaged tree with the sources of Debian's googletest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ckpm.base.errors import UsageError
from programs.program_builder import cache_of, compile_host, identity
from tests.programs.conformance.ck_tree import build_program

GOOGLETEST = "usr/src/googletest/googletest"  # below a root, of Debian's package googletest
_UNITS = ("gtest-all.cc", "gtest_main.cc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """A program's files in the packaged tree, and the flags of CK's CMake files."""

    files: Sequence[str]
    flags: Sequence[str] = ()


def executable(name: str, row: Mapping[str, Sequence[str]], root: Path) -> Path:
    """Build the program of a row of the suite's table."""
    chosen = Sources(**row)
    folder = root / GOOGLETEST
    if not (folder / "src" / _UNITS[0]).is_file():
        raise UsageError(f"{folder} is not there: install Debian's package googletest below --root.")
    flags = ("-isystem", str(folder / "include"), *chosen.flags)
    return build_program(name, "", chosen.files, flags, [_compile_unit(folder, unit) for unit in _UNITS])


def _compile_unit(folder: Path, unit: str) -> Path:
    """Compile a source of googletest for the host."""
    texts = [file.read_text() for file in sorted(folder.rglob("*")) if file.suffix in (".cc", ".h")]
    output = cache_of("googletest", *identity(), *texts) / f"{Path(unit).stem}.o"
    return compile_host(folder / "src" / unit, output, "-std=c++17", f"-I{folder}", f"-I{folder / 'include'}")
