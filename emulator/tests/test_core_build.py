"""The core's library is built once for each state of its sources, and never from damaged files."""

from __future__ import annotations

import ctypes
import importlib.util
import multiprocessing
import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from ckpm_emulator import runtime, toolchain
from ckpm_emulator.errors import CompileError, SetupError, UsageError
from programs import clang

ANSWER = (
    '#include <bit>\nextern "C" __attribute__((visibility("default"))) int emu_answer() { return std::popcount(7u); }\n'
)
# A warning of a newer compiler must not stop a user. How vectors are passed depends on the instruction set (psabi),
# which doesn't matter within a file.
WARNINGS = ("-std=c++20", "-Wall", "-Wextra", "-Werror", "-Wno-psabi")


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one source of a core that CMake builds in a second."""
    return use_small_core(tmp_path / "project with spaces", monkeypatch)


def use_small_core(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the core have one source; return it."""
    (project / "core/isa/ops").mkdir(parents=True)
    shutil.copy(toolchain.PROJECT / "CMakeLists.txt", project)
    for name, text in (("exports.map", "{ global: emu_*; local: *; };\n"), ("precompiled.h", "#include <bit>\n")):
        (project / "core" / name).write_text(text)
    monkeypatch.setattr(toolchain, "PROJECT", project)
    monkeypatch.setattr(toolchain, "CORE", project / "core")
    path = project / "core/isa/ops/answer.cpp"
    path.write_text(ANSWER)
    return path


def build(cache: Path) -> Path:
    return toolchain.library(isa="portable", cache=cache)


def test_core_is_built_once_for_each_state(source: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache with spaces" / "emulator"
    library = build(cache)
    assert library.name == "libamdhip64.so.7"
    assert ctypes.CDLL(str(library)).emu_answer() == 3
    before = library.stat().st_mtime_ns
    assert build(cache).stat().st_mtime_ns == before
    source.write_text(ANSWER.replace("7u", "15u"))
    changed = build(cache)
    assert changed != library
    assert ctypes.CDLL(str(changed)).emu_answer() == 4
    source.with_name("second.cpp").write_text('extern "C" int emu_second() { return 2; }\n')
    assert build(cache) not in (library, changed)
    assert list((cache / "build").glob("*/CMakeCache.txt"))  # kept, so that a change compiles what depends on it


def test_variables_of_other_builds_have_no_effect(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steering = {"CXXFLAGS": "-nope", "CMAKE_TOOLCHAIN_FILE": "/nope", "CMAKE_CXX_COMPILER_LAUNCHER": "/nope"}
    for name, text in {**steering, "CMAKE_BUILD_TYPE": "Debug", "CPATH": str(tmp_path), "DESTDIR": "/nope"}.items():
        monkeypatch.setenv(name, text)
    (tmp_path / "bit").write_text("#error a header of the user's\n")
    assert ctypes.CDLL(str(build(tmp_path / "emulator"))).emu_answer() == 3


def test_variables_of_clang_change_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are kept by their sources and options."""
    source = tmp_path / "value.c"
    source.write_text('#if __has_include("trap.h")\n#define VALUE 3\n#endif\nint value(void) { return VALUE; }\n')
    plain = clang.compile_source(source, "gfx950", "-O1", "-DVALUE=2")
    (tmp_path / "trap").mkdir()
    (tmp_path / "trap/trap.h").touch()
    monkeypatch.setenv("C_INCLUDE_PATH", str(tmp_path / "trap"))
    monkeypatch.setenv("CCC_OVERRIDE_OPTIONS", "# O0")
    assert clang.compile_source(source, "gfx950", "-O1", "-DVALUE=2") == plain


def test_core_in_cache_without_programs_names_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    core = tmp_path / "libamdhip64.so"
    core.write_text("can't be mapped")
    monkeypatch.setattr("os.statvfs", lambda _: SimpleNamespace(f_flag=os.ST_NOEXEC))
    monkeypatch.setattr(runtime, "_refuse_other_runtime", lambda: None)  # cores of other tests
    with pytest.raises(CompileError, match=r"mounted with noexec: set CKPM_CACHE to another folder"):
        runtime.Runtime(core, lambda *_: b"")


def test_core_of_another_clone_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_core(tmp_path / "first", monkeypatch)
    library = build(tmp_path)
    second = use_small_core(tmp_path / "second", monkeypatch)
    monkeypatch.setattr(toolchain, "_cmake", lambda: pytest.fail("compiled again"))
    assert build(tmp_path) == library
    second.rename(second.with_name("moved.cpp"))
    with pytest.raises(pytest.fail.Exception, match="compiled again"):
        build(tmp_path)


def test_damaged_object_is_compiled_again(source: Path, tmp_path: Path) -> None:
    library = build(tmp_path)
    (made_object,) = (tmp_path / "build").rglob("answer.cpp.o")
    whole = made_object.read_bytes()
    made_object.write_bytes(whole.replace(b"emu_answer", b"emu_anSwer"))
    library.write_bytes(b"\x7fELF")  # so that it is linked again
    library = build(tmp_path)
    assert made_object.read_bytes() == whole
    assert b"emu_answer" in library.read_bytes()


def test_two_processes_build_once(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, wrapper = tmp_path / "log", tmp_path / "c++"
    real = shutil.which("g++") or "c++"
    wrapper.write_text(f'#!/bin/sh\ncase "$*" in *" -shared "*) echo link >> {log};; esac\nexec {real} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("CXX", str(wrapper))
    context = multiprocessing.get_context("fork")
    both = [context.Process(target=build, args=(tmp_path / "emulator",)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join()
    assert [process.exitcode for process in both] == [0, 0]
    assert log.read_text() == "link\n"


def test_build_says_once_that_it_takes_minutes(source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    for _ in range(2):
        build(tmp_path)
    assert [line for line in caplog.messages if "minutes" in line] == caplog.messages
    assert len(caplog.messages) == 1


def test_compile_errors_are_shown(source: Path, tmp_path: Path) -> None:
    source.write_text("int x = nothing;\n")
    with pytest.raises(CompileError, match=r"(?s)doesn't build:\n  .*answer\.cpp:1:9: error: .*nothing"):
        build(tmp_path)
    source.write_text(ANSWER)
    assert ctypes.CDLL(str(build(tmp_path))).emu_answer() == 3
    with pytest.raises(CompileError, match="unknown instruction set 'sse'"):
        toolchain.library(isa="sse", cache=tmp_path)


def test_undefined_symbols_are_link_errors(source: Path, tmp_path: Path) -> None:
    source.write_text(ANSWER.replace("std::popcount(7u)", "nowhere()").replace("extern", "int nowhere();\nextern", 1))
    with pytest.raises(CompileError, match=r"(?s)doesn't build:\n.*nowhere"):
        build(tmp_path)


def test_error_lines_of_ld_leave_out_progress_and_context() -> None:
    errors = [
        "second.cpp:(.text+0x0): multiple definition of `answer'; first.o:first.cpp:(.text+0x0): first defined here",
        "second.cpp:(.text+0x9): undefined reference to `nowhere'",
        "collect2: error: ld returned 1 exit status",
    ]
    progress = ["[1/3] Building CXX object core/errors.cpp.o", "[3/3] Linking CXX shared library libamdhip64.so"]
    output = "\n".join([*progress, "/usr/bin/ld: second.o: in function `answer':", *errors])
    assert toolchain.error_lines(output) == errors
    assert toolchain.error_lines("\n".join(progress)) == progress


def test_cache_that_cannot_be_written(source: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CompileError, match=r"can't be built in .*file"):
        build(tmp_path / "file" / "emulator")


def test_missing_tool_names_remedy(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setattr(shutil, "which", lambda name: None if name in ("cmake", "ninja") else f"/usr/bin/{name}")
    with pytest.raises(SetupError, match="pip install cmake ninja"):
        build(tmp_path)
    monkeypatch.setattr(toolchain, "compilers", lambda cache=None: iter(()))
    with pytest.raises(SetupError, match="pip install ziglang"):
        build(tmp_path)


def test_unfit_compilers_are_passed_over(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "old"
    old.write_text("#!/bin/sh\necho 'error: no C++20 here' >&2\nexit 1\n")
    old.chmod(0o755)
    monkeypatch.setenv("CXX", f"{old} -m64")
    assert next(toolchain.compilers()).command == (str(old), "-m64")
    assert ctypes.CDLL(str(build(tmp_path / "emulator"))).emu_answer() == 3
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SetupError, match=r"old -m64' compiles no C\+\+20 \(error: no C\+\+20 here\)"):
        build(tmp_path / "another")


@pytest.mark.parametrize("source_file", ["run/fault.cpp", "standalone/settings.cpp"])
def test_ziglang_is_last_resort(source_file: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """libc++ once took a call in the second file for one of std::apply."""
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    (only,) = toolchain.compilers()
    assert "ziglang" in only.command
    object_file = tmp_path / "made.o"
    options = (*WARNINGS, "-fPIC", "-target", "x86_64-linux-gnu.2.28", "-mcpu=x86_64_v3", "-I", str(toolchain.CORE))
    run = only.run(*options, "-c", str(toolchain.CORE / source_file), "-o", str(object_file))
    assert (run.returncode, run.stderr, object_file.is_file()) == (0, "", True)


def test_core_is_free_of_warnings(tmp_path: Path) -> None:
    sources = [str(path) for path in sorted(toolchain.CORE.rglob("*.cpp"))]
    compiler = next(iter(toolchain.compilers()))  # one of them: this is half a minute of work
    zig = "ziglang" in compiler.command  # it fails without an object
    # by default zig compiles for this host, and without AVX-512 other code
    output = ("-mcpu=x86_64_v3", "-O0", "-c", "-o", str(tmp_path / "core.o")) if zig else ("-fsyntax-only",)
    run = compiler.run(*WARNINGS, *output, "-I", str(toolchain.CORE), *sources)
    assert (run.returncode, run.stderr) == (0, "")


def test_installed_library_is_best_usable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for level in ("avx2", "portable"):
        (tmp_path / level).mkdir()
        (tmp_path / level / toolchain.SONAME).write_text("")
    monkeypatch.setattr(toolchain, "INSTALLED", tmp_path)
    assert toolchain.library(isa="avx512").parent.name == "avx2"
    assert toolchain.library(isa="portable").parent.name == "portable"
    with pytest.raises(CompileError, match="no library without short ways, only: avx2, portable"):
        toolchain.library(plain=True)
    shutil.rmtree(tmp_path / "portable")
    with pytest.raises(CompileError, match="no library for portable processors, only: avx2"):
        toolchain.library(isa="portable")


@pytest.mark.parametrize(
    ("flags", "level"),
    [
        ("fpu sse2", "portable"),
        ("avx2 fma bmi1 bmi2 f16c movbe", "avx2"),
        ("avx2 fma bmi1 bmi2 f16c movbe avx512f avx512bw avx512cd avx512dq avx512vl", "avx512"),
        ("avx2 fma bmi1 bmi2 f16c movbe avx512f", "avx2"),
    ],
)
def test_isa_level(tmp_path: Path, flags: str, level: str) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text(f"model name\t: x\nflags\t\t: {flags}\n\nflags\t\t: other\n")
    assert toolchain.isa_level(info) == level
    assert toolchain.isa_level(tmp_path / "absent") == "portable"


@pytest.mark.usefixtures("source")
@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        *(
            ("CKPM_JOBS", jobs, r"CKPM_JOBS=.*: set it to a number of compilers")
            for jobs in ("abc", "0", "-3", "1e3", "\u0663", "99999")
        ),
        *(("CXX", command, r"CXX.* to a compiler's command, or unset it") for command in ('"unclosed', "\\", " ")),
    ],
)
def test_variable_that_makes_no_sense_is_refused(
    variable: str, value: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(UsageError, match=message):
        build(tmp_path)
