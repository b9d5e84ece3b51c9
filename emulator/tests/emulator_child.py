"""Tests of the emulator's runtime in a process of their own: it is process-wide, and a crash must be a test's failure.

``@on_device("gfx950")`` gives a test function an EmulatedGpu and runs it in a child process. The device's core is
data/stub_core.cpp: the real memory, faults and HIP ABI, and launches named by effect.
With ``whole=True`` it is the emulator as users have it.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from ckpm_emulator import toolchain
from ckpm_emulator.device import EmulatedGpu, Options

STUB = Path(__file__).parent / "data"
PROGRAM = "\n".join(
    (
        *("kernel touch 0 256 8 8", "kernel srd 0 256 8 8", "kernel trap 0 256", "kernel broken 0 256"),
        *("kernel refused 0 256", "kernel big 65536 256", "variable table 256"),
    )
)

_children: dict[tuple[str, bool], ProcessPoolExecutor] = {}
_device: EmulatedGpu | None = None


def run_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run code in a new process, which finds the modules that this one finds."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def stub_core() -> Path:
    """The shared library with the stub core."""
    return toolchain.library(tests=STUB)


def on_device(arch: str = "gfx950", *, whole: bool = False) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run the test in the arch's child; other arguments (parameters, fixtures) are passed on."""

    def wrap(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def run(**arguments: Any) -> None:
            key = (arch, whole)
            if key not in _children:
                core = toolchain.library() if whole else stub_core()
                context = multiprocessing.get_context("spawn")
                _children[key] = ProcessPoolExecutor(1, context, _start, (arch, core, whole))
            try:
                _children[key].submit(_call, function.__module__, function.__name__, arguments).result(timeout=120)
            except Exception:
                _children.pop(key).shutdown(wait=False)  # the next test gets a fresh one
                raise

        parameters = list(inspect.signature(function).parameters.values())[1:]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return run

    return wrap


def _program(code: bytes) -> bytes:
    """The stub core's program of a code object: the same kernels, and those with mangled names in the ELF."""
    names = {word.decode() for word in code.split(b"\0") if word.startswith(b"_Z") and word.isascii()}
    kernels = [f"kernel {name} 0 256 8{' 8' * ('touch' in name)}" for name in sorted(names) if not name.endswith(".kd")]
    return "\n".join((PROGRAM, *kernels)).encode()


def _start(arch: str, core: Path, whole: bool) -> None:
    global _device
    _device = EmulatedGpu(arch, core=core, program_builder=None if whole else _program)


def _call(module: str, name: str, arguments: dict[str, Any]) -> None:
    assert _device
    _device.clear_fault()
    _device.reset()
    _device._hip_runtime.c.hipGetLastError()  # what an earlier test left
    _device.configure(**vars(Options(arch=_device.options.arch, threads=1)))
    function = getattr(importlib.import_module(module), name)
    inspect.unwrap(function)(_device, **arguments)
