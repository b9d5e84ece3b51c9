"""The symbols of the emulator's library have the names and versions of ROCm's runtime."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from elftools.elf.elffile import ELFFile

from ckpm_emulator import toolchain
from programs.program_builder import symbol_versions

BASE = "VER_NDX_GLOBAL"  # pyelftools' name of the missing version


def versions(file: Path) -> dict[str, str]:
    """The version of each function that a library exports."""
    with file.open("rb") as stream:
        elf = ELFFile(stream)
        definitions = elf.get_section_by_name(".gnu.version_d")
        names = {version["vd_ndx"]: next(names).name for version, names in definitions.iter_versions()}
        of_symbol = elf.get_section_by_name(".gnu.version")
        by_symbol = {}
        for at, symbol in enumerate(elf.get_section_by_name(".dynsym").iter_symbols()):
            index = of_symbol.get_symbol(at)["ndx"]
            if symbol["st_info"]["type"] == "STT_FUNC" and symbol["st_shndx"] != "SHN_UNDEF":
                by_symbol[symbol.name] = BASE if index == BASE else names[index]  # a hidden version is a KeyError
        return by_symbol


def test_functions_have_versions_of_rocms_runtime() -> None:
    exported = versions(toolchain.library())
    plain = {name for name, version in exported.items() if version == BASE}
    assert sorted(name for name in plain if not name.startswith("emu_")) == []  # emu_: for Python
    assert {name: version for name, version in exported.items() if name not in plain} == symbol_versions()


def test_function_with_other_version_is_found(tmp_path: Path) -> None:
    library, script = tmp_path / "lib.so", tmp_path / "lib.map"
    script.write_text("hip_4.2 { global: hipInit; };\nhip_4.3 { global: hipMalloc; };\n")
    source = "void hipInit(void) {} void hipMalloc(void) {} void emu_version(void) {}"
    command = [sys.executable, "-m", "ziglang", "cc", "-shared", f"-Wl,--version-script={script}", "-x", "c", "-"]
    subprocess.run([*command, "-o", str(library)], input=source, text=True, check=True)
    assert versions(library) == {"hipInit": "hip_4.2", "hipMalloc": "hip_4.3", "emu_version": BASE}
    assert symbol_versions()["hipMalloc"] == "hip_4.2"


FIND = """
import ctypes, sys
library, libc = ctypes.CDLL(sys.argv[1]), ctypes.CDLL(None)
libc.dlvsym.restype, libc.dlvsym.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)
for version in (b"hip_5.1", b"hip_4.2"):
    print(libc.dlvsym(library._handle, b"hipMallocAsync", version) is not None)
"""


def test_loader_finds_function_only_by_its_version() -> None:
    assert in_python(FIND).split() == [b"True", b"False"]


HALVES = """
import ctypes, sys
import numpy as np
library = ctypes.CDLL(sys.argv[1])
widen, narrow = library.__gnu_h2f_ieee, library.__gnu_f2h_ieee
widen.restype, widen.argtypes = ctypes.c_float, (ctypes.c_uint16,)
narrow.restype, narrow.argtypes = ctypes.c_uint16, (ctypes.c_float,)
given = np.frombuffer(sys.stdin.buffer.read(), np.float32)
sys.stdout.buffer.write(np.array([widen(bits) for bits in range(1 << 16)], np.float32).tobytes())
sys.stdout.buffer.write(np.array([narrow(value) for value in given.tolist()], np.uint16).tobytes())
"""


def test_half_precision_of_host_code() -> None:
    """Convert all halves to f32, and f32 of all sizes to halves, as NumPy does: to nearest, ties to even."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    random = np.random.default_rng(16).normal(size=5000) * 2.0 ** np.random.default_rng(6).integers(-28, 18, 5000)
    finite = np.sort(halves[np.isfinite(halves)].astype(np.float32))
    ties = (finite[:-1] + finite[1:]) / 2  # exact in f32
    singles = np.concatenate([random.astype(np.float32), ties, np.array([np.inf, -np.inf, np.nan], np.float32)])
    answered = in_python(HALVES, singles.tobytes())
    widened, narrowed = np.frombuffer(answered[: 4 << 16], np.float32), np.frombuffer(answered[4 << 16 :], np.float16)
    np.testing.assert_array_equal(widened, halves.astype(np.float32))
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(narrowed, singles.astype(np.float16))


def in_python(code: str, stdin: bytes = b"") -> bytes:
    """The output of a process that loads the library itself."""
    command = [sys.executable, "-c", code, str(toolchain.library())]
    return subprocess.run(command, input=stdin, capture_output=True, check=True).stdout


# ---- hipRTC: its functions call those of libhiprtc, where it is installed

CALLS = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
major, minor = ctypes.c_int(), ctypes.c_int()
print(library.hiprtcVersion(ctypes.byref(major), ctypes.byref(minor)), major.value, minor.value)
library.hiprtcLinkAddData.argtypes = [ctypes.c_void_p] * 8
print(library.hiprtcLinkAddData(*range(1, 9)))
library.hiprtcGetErrorString.restype = ctypes.c_char_p
print(library.hiprtcGetErrorString(6).decode())
"""
COMPILER = """
int hiprtcVersion(int* major, int* minor) { *major = 9; *minor = 5; return 0; }
int hiprtcLinkAddData(long a, long b, long c, long d, long e, long f, long g, long h)
{
    return a + 10 * (b + 10 * (c + 10 * (d + 10 * (e + 10 * (f + 10 * (g + 10 * h))))));
}
const char* hiprtcGetErrorString(int error) { return error == 6 ? "COMPILATION" : "other"; }
"""


def _answers(folder: Path) -> list[str]:
    command = [sys.executable, "-c", CALLS, str(toolchain.library())]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()


def test_calls_go_to_installed_library(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ziglang", "cc", "-shared", "-x", "c", "-", "-o", str(tmp_path / "libhiprtc.so.7")]
    subprocess.run(command, input=COMPILER, text=True, check=True)
    assert _answers(tmp_path) == ["0 9 5", "87654321", "COMPILATION"]


def test_calls_without_library_are_internal_errors(tmp_path: Path) -> None:
    """HIPRTC_ERROR_INTERNAL_ERROR is 11."""
    assert _answers(tmp_path) == ["11 0 0", "11", "libhiprtc, which compiles, is missing"]
