"""CK's own programs of googletest, compiled from the packaged tree with the sources of Debian's googletest."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ckpm.base.errors import UsageError
from ckpm.kernels.code import toolchains
from tests.programs.conformance.ck_tree import build_program
from tests.programs.program_builder import cache_of, toolchain

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
    tc, source = toolchain(), folder / "src" / unit
    texts = [file.read_text() for file in sorted(folder.rglob("*")) if file.suffix in (".cc", ".h")]
    digest = hashlib.sha256("".join(texts).encode()).hexdigest()
    output = cache_of("googletest", *toolchains.describe(tc).values(), digest) / f"{source.stem}.o"
    if output.is_file():
        return output
    plain = [flag for flag in tc.link_flags if flag != "-shared"]
    draft = output.with_suffix(f".{os.getpid()}.o")
    command = [*tc.linker, *plain, "-std=c++17", "-c", str(source), f"-I{folder}", f"-I{folder / 'include'}"]
    done = subprocess.run(
        [*command, "-o", str(draft)], env={**os.environ, **tc.environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{unit}: {done.stderr[-4000:]}"
    draft.replace(output)
    return output
