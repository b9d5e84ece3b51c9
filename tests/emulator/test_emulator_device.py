"""The device in Python and the making of its core: options are checked, a process has one arch, builds are shared."""

from __future__ import annotations

import ctypes
import dataclasses
import importlib.util
import multiprocessing
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from ckpm_emulator import toolchain
from ckpm_emulator.device import EmulatedGpu, Options
from ckpm_emulator.errors import (
    CodeObjectError,
    CompilerMissingError,
    CoreBuildError,
    DeviceError,
    OneDeviceError,
    OutputError,
)
from ckpm_emulator.toolchain import Compiler
from tests.emulator.emulator_child import on_device, stub_core
from tests.emulator.emulator_small import fat_binary, small_library

_GOOD = (
    '#include <bit>\nextern "C" __attribute__((visibility("default"))) int emu_answer() { return std::popcount(7u); }\n'
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "answer.cpp"
    path.write_text(_GOOD)
    return path


@pytest.fixture(scope="module")
def small() -> Path:
    return small_library()


# ---- the device


@on_device("gfx950")
def test_one_arch_a_process(device: EmulatedGpu) -> None:
    with pytest.raises(OneDeviceError, match=r"an emulated gfx950: a device of arch gfx942 needs a process of its own"):
        EmulatedGpu("gfx942")
    with pytest.raises(OneDeviceError, match="can't be changed"):
        device.configure(arch="gfx942")
    again = EmulatedGpu("gfx950", cu_count=8)
    buffer = again.malloc(16)
    assert buffer.address in [row.base for row in device.allocations()]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"arch": "gfx1100"}, "no emulated device has the arch 'gfx1100'. Known: gfx90a, gfx942, gfx950."),
        ({"late_load": True}, "no such option: late_load"),
        ({"granularity": 64}, "granularity is 1 or 4096: granularity = 64"),
        ({"cu_count": 0}, "out of range: cu_count = 0"),
        ({"threads": -1}, "out of range: threads = -1"),
        ({"wave_order": -1}, "out of range"),
    ],
)
@on_device("gfx950")
def test_wrong_options(device: EmulatedGpu, options: dict[str, object], message: str) -> None:
    with pytest.raises(DeviceError, match=message.replace("(", r"\(")):
        EmulatedGpu(**options)  # type: ignore[arg-type]


@on_device("gfx950")
def test_options_reach_the_core(device: EmulatedGpu) -> None:
    device.configure(late_loads=True, wave_order=5, granularity=4096, max_instructions=9)
    value = ctypes.c_int64()
    for name, expected in (
        *(("arch", 950), ("late_loads", 1), ("wave_order", 5), ("granularity", 4096), ("srd_range_rule", -1)),
        *(("max_instructions", 9), ("threads", 1)),
    ):
        assert device._hip_runtime.c.emu_get_option(name.encode(), ctypes.byref(value)) == 0
        assert value.value == expected, name
    assert device._hip_runtime.c.emu_set_option(b"nothing", 1) == 1
    assert device.last_error() == "no such option: nothing = 1"


def test_all_checks() -> None:
    checked = Options(arch="gfx942", wave_order=1).all_checks()
    assert [name for name, value in dataclasses.asdict(checked).items() if value is True] == [
        *("poison", "poison_memory", "late_loads", "lds_races", "uninitialised"),
    ]
    assert (checked.arch, checked.wave_order) == ("gfx942", 1)


@pytest.mark.parametrize("dtype", ["u1", "<i4", "<f2", "<f8"])
@on_device("gfx950")
def test_arrays_there_and_back(device: EmulatedGpu, dtype: str) -> None:
    array = np.arange(60).reshape(3, 4, 5).astype(dtype)
    buffer = device.upload(array[:, ::2], "strided")
    assert (device.read(buffer, dtype, (3, 2, 5)) == array[:, ::2]).all()
    view = device.view(buffer, dtype)
    view[3] = 99
    assert device.read(buffer, dtype)[3] == 99
    with pytest.raises(DeviceError, match=r"hipErrorInvalidValue \(1\): hipMemcpy: the destination .* ends"):
        device.write(buffer, array)
    with pytest.raises(DeviceError, match="the source"):
        device.read(buffer, dtype, 31)


@on_device("gfx950")
def test_decoder_failures_are_told(device: EmulatedGpu, small: Path) -> None:
    def refuse(code: bytes) -> bytes:
        raise CodeObjectError("v_odd_b32 at pc 0x10 of kernel k is unknown")

    def break_down(code: bytes) -> bytes:
        raise ZeroDivisionError("oops")

    run, builder = device._hip_runtime, device._hip_runtime._builder
    try:
        run._builder = refuse
        with pytest.raises(DeviceError, match="v_odd_b32 at pc 0x10 of kernel k is unknown") as caught:
            device.load_module(fat_binary(small))
        assert isinstance(caught.value.__cause__, CodeObjectError)
        run._builder = break_down
        with pytest.raises(DeviceError, match="ZeroDivisionError: oops"):
            device.load_module(fat_binary(small))
        run._builder = lambda code: b"nonsense"
        with pytest.raises(DeviceError, match="no such line: nonsense"):
            device.load_module(fat_binary(small))
    finally:
        run._builder = builder


@on_device("gfx950")
def test_launches_from_several_threads(device: EmulatedGpu, small: Path) -> None:
    library = device.load_library(small)
    library.small_touch.argtypes = (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint, ctypes.c_uint, ctypes.c_size_t)
    failed: list[int] = []

    def work(number: int) -> None:
        for turn in range(50):
            out = device.malloc(64)
            failed.append(library.small_touch(out.address, turn, 1, 64, number))
            failed.append(int(device.read(out, np.uint64)[0]) - turn)
            device.free(out)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not any(failed)


def test_second_runtime_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "libamdhip64.so.6"
    shutil.copy(stub_core(), other)
    text = (
        f"import ctypes; ctypes.CDLL({str(other)!r})\n"
        "from ckpm_emulator.device import EmulatedGpu\n"
        "from ckpm_emulator.errors import OneDeviceError\n"
        "try: EmulatedGpu('gfx950', core='unused')\n"
        "except OneDeviceError as error: print(error)\n"
    )
    run = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert run.stdout == f"this process has a HIP runtime already: {other}\n", run.stderr


def test_reset_at_exit_is_quiet(small: Path, tmp_path: Path) -> None:
    """Libraries unregister when the interpreter is gone already."""
    text = (
        "import sys; sys.path.insert(0, 'tests/emulator')\n"
        "from emulator_child import EmulatedGpu, stub_core, _program\n"
        f"device = EmulatedGpu(core=stub_core(), program_builder=_program)\n"
        f"library = device.load_library({str(small)!r})\n"
        "assert library.small_table(1) == 0\n"
    )
    run = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert (run.returncode, run.stderr) == (0, "")


# ---- the core's build


def test_built_once_and_where(source: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache with spaces" / "emulator"
    made = toolchain.library(isa="portable", sources=[source], cache=cache)
    assert made.name == "libamdhip64.so.7"
    assert ctypes.CDLL(str(made)).emu_answer() == 3
    before = made.stat().st_mtime_ns
    assert toolchain.library(isa="portable", sources=[source], cache=cache).stat().st_mtime_ns == before
    source.write_text(_GOOD.replace("7u", "15u"))
    assert toolchain.library(isa="portable", sources=[source], cache=cache) != made
    assert not [path for path in cache.rglob("*") if "tmp" in path.name]


@pytest.mark.parametrize("gone", ["", "*.sha256"])
def test_a_damaged_object_is_compiled_again_and_never_linked(source: Path, tmp_path: Path, gone: str) -> None:
    made = toolchain.library(isa="portable", sources=[source], cache=tmp_path)
    (made_object,) = (tmp_path / "objects").glob("*.o")
    whole = made_object.read_bytes()
    made_object.write_bytes(whole.replace(b"emu_answer", b"emu_anSwer"))
    for digest in (tmp_path / "objects").glob(gone) if gone else ():
        digest.unlink()
    made.write_bytes(b"\x7fELF")  # so that it is linked once more
    made = toolchain.library(isa="portable", sources=[source], cache=tmp_path)
    assert made_object.read_bytes() == whole
    assert b"emu_answer" in made.read_bytes()


def test_two_processes_build_once(source: Path, tmp_path: Path) -> None:
    log, wrapper = tmp_path / "log", tmp_path / "c++"
    real = shutil.which("g++") or "c++"
    wrapper.write_text(f'#!/bin/sh\ncase "$*" in *" -shared "*) echo link >> {log};; esac\nexec {real} "$@"\n')
    wrapper.chmod(0o755)
    compiler = Compiler(command=(str(wrapper),), identity="test")
    keywords = {"isa": "portable", "sources": [source], "compiler": compiler, "cache": tmp_path / "emulator"}
    context = multiprocessing.get_context("fork")
    both = [context.Process(target=toolchain.library, kwargs=keywords) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join()
    assert [process.exitcode for process in both] == [0, 0]
    assert log.read_text() == "link\n"


def test_compile_errors_are_shown(source: Path, tmp_path: Path) -> None:
    source.write_text("int x = nothing;\n")
    with pytest.raises(CoreBuildError, match=r"doesn't build \(answer\.cpp\):\n  .*answer\.cpp:1:9: error: .*nothing"):
        toolchain.library(isa="portable", sources=[source], cache=tmp_path)
    with pytest.raises(CoreBuildError, match="unknown instruction set 'sse'"):
        toolchain.library(isa="sse", sources=[source], cache=tmp_path)


def test_undefined_symbols_are_link_errors(source: Path, tmp_path: Path) -> None:
    source.write_text('int nowhere();\nextern "C" int emu_answer() { return nowhere(); }\n')
    with pytest.raises(CoreBuildError, match=r"(?s)\(the link\):\n.*nowhere"):
        toolchain.library(isa="portable", sources=[source], cache=tmp_path)


def test_common_headers_are_parsed_once_for_many_files(source: Path, tmp_path: Path) -> None:
    """Four files that leave an include out compile, three do not: then each is compiled as it stands."""
    text = 'extern "C" unsigned long emu_{}() {{ return std::string("{}").size(); }}\n'
    files = [tmp_path / f"needs_string_{i}.cpp" for i in range(4)]
    for i, file in enumerate(files):
        file.write_text(text.format(i, "x" * i))
    with pytest.raises(CoreBuildError, match=r"needs_string_\d"):
        toolchain.library(isa="portable", sources=files[:3], cache=tmp_path / "few")
    made = toolchain.library(isa="portable", sources=[source, *files[:3]], cache=tmp_path / "many")
    assert ctypes.CDLL(str(made)).emu_answer() == 3
    assert not list((tmp_path / "many").rglob("*.gch"))


def test_cache_that_cannot_be_written(source: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CoreBuildError, match=r"can't be built in .*file"):
        toolchain.library(isa="portable", sources=[source], cache=tmp_path / "file" / "emulator")


def test_no_compiler(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "compilers", lambda cache=None: iter(()))
    with pytest.raises(CompilerMissingError, match="pip install ziglang"):
        toolchain.library(sources=[source], cache=tmp_path)


def test_unfit_compilers_are_passed_over(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "old"
    old.write_text("#!/bin/sh\necho 'error: no C++20 here' >&2\nexit 1\n")
    old.chmod(0o755)
    monkeypatch.setenv("CXX", f"{old} -m64")
    found = toolchain.compilers()
    assert next(found).command == (str(old), "-m64")
    assert ctypes.CDLL(str(toolchain.library(sources=[source], cache=tmp_path / "emulator"))).emu_answer() == 3
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CompilerMissingError, match=r"old -m64' compiles no C\+\+20 \(error: no C\+\+20 here\)"):
        toolchain.library(sources=[source], cache=tmp_path / "another")


@pytest.mark.parametrize("source", ["run/fault.cpp", "standalone/settings.cpp"])
def test_ziglang_is_the_last_resort(source: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of the second file libc++ once read a call as one of std::apply."""
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    (only,) = toolchain.compilers()
    assert only.is_zig
    assert "-mcpu=x86_64_v3" in only.target_flags("avx2")
    made = tmp_path / "made.o"
    words = ("-std=c++20", "-fPIC", *toolchain.WARNINGS, *only.target_flags("avx2"))
    run = only.run(*words, "-I", str(toolchain.CORE), "-c", str(toolchain.CORE / source), "-o", str(made))
    assert (run.returncode, run.stderr, made.is_file()) == (0, "", True)


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


def test_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CKPM_CACHE", str(tmp_path))
    assert toolchain.cache_folder() == tmp_path / "emulator"
    monkeypatch.delenv("CKPM_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert toolchain.cache_folder() == tmp_path / "ck-prefill-matrix" / "emulator"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/me")
    assert toolchain.cache_folder() == Path("/home/me/.cache/ck-prefill-matrix/emulator")


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("CKPM_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", nowhere)
    with pytest.raises(OutputError, match="no home folder for the cache: set CKPM_CACHE to a folder"):
        toolchain.cache_folder()


def test_core_is_free_of_warnings() -> None:
    sources = [str(path) for path in sorted(toolchain.CORE.rglob("*.cpp"))]
    compiler = next(iter(toolchain.compilers()))  # one of them: this is half a minute of work
    quiet = ("-fsyntax-only", "-Wno-unused-command-line-argument")  # zig adds a -c that it then finds unused
    run = compiler.run("-std=c++20", *toolchain.WARNINGS, *quiet, "-I", str(toolchain.CORE), *sources)
    assert (run.returncode, run.stderr) == (0, "")
