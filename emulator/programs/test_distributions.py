"""Programs of another distribution: the loader there starts them, and a refusal names the option."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ckpm_emulator import code_object, standalone
from ckpm_emulator.errors import InputError
from programs.program_builder import sample
from programs.test_programs import output, run

LOADER = Path("/lib64/ld-linux-x86-64.so.2")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A distribution that has this machine's loader."""
    (tmp_path / "lib64").mkdir()
    (tmp_path / "lib64" / LOADER.name).symlink_to(LOADER.resolve())
    return tmp_path


def _newer_program(folder: Path) -> Path:
    """A program that needs a version of the C library which no machine has."""
    library, program, script = folder / "libnewer.so", folder / "program", folder / "names"
    script.write_text("GLIBC_2.999 { global: newer; };\n")
    zig = [sys.executable, "-m", "ziglang", "cc", "-x", "c", "-"]
    shared = ("-shared", f"-Wl,--version-script={script}", "-Wl,-soname,libnewer.so")
    subprocess.run([*zig, *shared, "-o", str(library)], input="void newer(void) {}", text=True, check=True)
    text = "void newer(void); int main() { newer(); }"
    subprocess.run([*zig, f"-L{folder}", "-lnewer", "-o", str(program)], input=text, text=True, check=True)
    return program


def test_program_for_newer_library_names_option(root: Path) -> None:
    program = _newer_program(root)
    done = run(program)
    assert done.returncode == InputError.exit_code
    here = (os.confstr("CS_GNU_LIBC_VERSION") or "").split()[1]
    message = (
        f"{program} needs glibc 2.999; this machine has {here}. Name the root of its distribution: run --root {root}"
    )
    assert message in done.stderr.decode()


def test_program_of_root_runs_with_its_loader(root: Path) -> None:
    text = output(sample("queries"), options=("--root", str(root))).decode()
    assert "arch gfx950:" in text
    assert output(sample("calls"), "recursion", "3", options=("--root", str(root), "--arch", "gfx942"))


def test_root_without_loader_is_refused(tmp_path: Path) -> None:
    done = run(sample("queries"), options=("--root", str(tmp_path)))
    assert done.returncode == InputError.exit_code
    assert "has no lib64/ld-linux-x86-64.so.2" in done.stderr.decode()


def test_arch_is_that_of_program_behind_loader(tmp_path: Path) -> None:
    module = tmp_path / "code"
    module.write_bytes(dict(code_object.code_objects(sample("calls")))["gfx942"])
    assert standalone.arch_of([str(LOADER), "--library-path", str(tmp_path), str(module)]) == "gfx942"
