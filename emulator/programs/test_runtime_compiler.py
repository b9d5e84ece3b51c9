"""hipRTC's functions of the emulator's library call those of libhiprtc, where it is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ckpm_emulator import toolchain

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
