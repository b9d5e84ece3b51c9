"""ckpm_dispatcher.hpp, compiled by the embedded toolchain, with a built library on the emulator."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ckpm.attention.cpp.declared import declarations, kernels_of
from ckpm.attention.cpp.index import INDEX, Pattern, write_index
from ckpm.attention.cpp.running import build_program
from ckpm.attention.jit.compiling import compile_keys
from ckpm.base.paths import PROJECT
from ckpm.base.settings import cache_folder
from ckpm.kernels.code.toolchains import detect
from ckpm.kernels.library.manifest import MANIFEST
from ckpm.kernels.library.request import LIBRARY
from tests.build.real_kernel import NAME

PROGRAMS = PROJECT / "tests/data/dispatcher"
# Calls main where no libamdhip64 is loaded.
ALONE = (
    "import ctypes, os, sys; words = list(map(os.fsencode, sys.argv[1:]));"
    "sys.exit(ctypes.CDLL(sys.argv[1]).main(len(words), (ctypes.c_char_p * (len(words) + 1))(*words)))"
)


@pytest.fixture
def folder(built: Path, tmp_path: Path) -> Path:
    """A built library's folder with its index."""
    copy = tmp_path / "library"
    copy.mkdir(mode=0o755)
    for name in (LIBRARY, MANIFEST):
        shutil.copy(built / name, copy)
    write_index(copy)
    return copy


def run(program: str, *arguments: Path) -> tuple[int, str]:
    """A program's exit code and its whole output."""
    command = [sys.executable, "-m", "ckpm", "cpp", "run", str(PROGRAMS / program), *map(str, arguments)]
    done = subprocess.run(
        [*command, "--toolchain", "embedded", "--device", "emulator"],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def test_program_launches_chosen_kernel_and_agrees(folder: Path) -> None:
    """The program compares O with attention in double by itself."""
    code, output = run("prefill.cpp", folder)
    assert (code, f"kernel {NAME}" in output, f"launched {NAME}" in output) == (0, True, True), output
    assert "largest error" in output


def test_program_with_wrong_scale_fails(folder: Path, tmp_path: Path) -> None:
    """The program with another scale in its own arithmetic reports an error."""
    shutil.copy(PROGRAMS / "prefill.cpp", tmp_path)
    text = (PROGRAMS / "attention.hpp").read_text()
    planted = text.replace("std::exp(score * scale)", "std::exp(score * scale * 1.5)")
    assert planted != text
    (tmp_path / "attention.hpp").write_text(planted)
    code, output = run(str(tmp_path / "prefill.cpp"), folder)
    assert code == 1, output


def test_declared_kernel_is_compiled_on_demand_and_launched() -> None:
    """The dispatch of another C ABI chooses the declared kernel by itself."""
    (declared,) = declarations(PROGRAMS / "forward.cpp")
    (key,) = kernels_of(declared, "gfx950")
    (folder,) = compile_keys([key], "gfx950", declared.upstream, toolchain="embedded")
    code, output = run("forward.cpp", folder)
    assert (code, f"kernel {key.name}" in output, f"launched {key.name}" in output) == (0, True, True), output


@pytest.mark.parametrize(
    ("word", "reason"), [("mask=mask", "'. Compile one"), ("m=no", "'. None has a field 'mask'. C")]
)
def test_program_without_fitting_kernel_names_remedy(folder: Path, word: str, reason: str) -> None:
    index = folder / INDEX
    index.write_text(index.read_text().replace("mask=no", word))
    code, output = run("prefill.cpp", folder)
    assert (code, reason in output, "ckpm jit --declared" in output) == (2, True, True), output


@pytest.mark.parametrize("damage", ["gone", "another version", "another library's"])
def test_index_of_another_library_is_refused(folder: Path, damage: str) -> None:
    index = folder / INDEX
    text = index.read_text()
    index.unlink()
    if damage == "another version":
        index.write_text(text.replace("ckpm-kernels 1", "ckpm-kernels 2"))
    elif damage == "another library's":
        index.write_text(text.replace(NAME, f"{NAME}_else"))
    code, output = run("prefill.cpp", folder)
    assert (code, f"ckpm cpp index {folder}" in output) == (2, True), output


def test_library_of_another_c_abi(folder: Path) -> None:
    code, output = run("other_abi.cpp", folder)
    assert (code, "a library of batch_prefill has no ckpm_fwd_abi_version" in output) == (2, True), output


def run_alone(program: str, folder: Path, *patterns: str) -> subprocess.CompletedProcess[str]:
    """Compile a program in a folder, and run it without a HIP runtime."""
    toolchain = detect("embedded", cache=cache_folder())
    built = build_program(PROGRAMS / program, folder / "program.so", toolchain)
    command = [sys.executable, "-c", ALONE, str(built), *patterns]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_program_without_hip_runtime_names_it(folder: Path, tmp_path: Path) -> None:
    done = run_alone("other_abi.cpp", tmp_path, str(folder))
    assert (done.returncode, "Load a libamdhip64.so with RTLD_GLOBAL first" in done.stdout) == (2, True), done


def test_patterns_are_those_of_the_commands(tmp_path: Path) -> None:
    """Compare with the parser of ``ckpm jit --declared``: what it refuses is an error of C++, too."""
    patterns = {
        "": "fits", "dtype=bf16": "fits", "dtype=fp16,bf16 mask=*": "fits", "dtype=*,fp16": "fits",
        "dtype=fp16": "differs", "dtype=bf16 mask=mask": "differs", "lse=*": "differs",
        "dtype=bf16 dtype=fp16": "'dtype=fp16' in the pattern 'dtype=bf16 dtype=fp16' names its field again",
        "mask=no,,": "'mask=no,,' in the pattern 'mask=no,,' has an empty value", "dtype=,": "has an empty value",
        "mask=,no": "has an empty value", "dtype=bf16=fp16": "is not FIELD=VALUE", "dtype": "is not FIELD=VALUE",
        "=bf16": "is not FIELD=VALUE", "dtype=": "is not FIELD=VALUE",
    }  # fmt: skip
    done = run_alone("patterns.cpp", tmp_path, *patterns)
    lines = done.stdout.splitlines()
    assert len(lines) == len(patterns), done
    for (pattern, expected), line in zip(patterns.items(), lines, strict=True):
        refused = expected not in ("fits", "differs")
        assert (expected in line, line.startswith("error: ")) == (True, refused), (pattern, line)
        with pytest.raises(ValueError, match="'") if refused else contextlib.nullcontext():
            Pattern.parse(pattern)


def test_broken_program_ends_with_compiler_message(tmp_path: Path, folder: Path) -> None:
    source = tmp_path / "broken.cpp"
    source.write_text("int main() { return nothing; }")
    code, output = run(str(source), folder)
    assert (code, "nothing" in output, "Traceback" in output) == (3, True, False), output
