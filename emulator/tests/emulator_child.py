"""Tests of the emulator's runtime in a process of their own: it is process-wide, and a crash must be a test's failure.

``@on_device("gfx950")`` gives a test function an EmulatedGpu and runs it in a child process.
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
from typing import Any

from ckpm_emulator import toolchain
from ckpm_emulator.device import EmulatedGpu, Options

SECONDS = 900.0  # the longest call: a first link with zig builds zig's C++ library, minutes on a busy machine
_children: dict[str, ProcessPoolExecutor] = {}
_device: EmulatedGpu | None = None


def run_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run code in a new process, which finds the modules that this one finds."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def on_device(arch: str = "gfx950") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run the test in the arch's child; other arguments (parameters, fixtures) are passed on."""

    def wrap(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def run(**arguments: Any) -> None:
            if arch not in _children:
                toolchain.library()  # a build takes longer than a test may
                _children[arch] = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _start, (arch,))
            try:
                _children[arch].submit(_call, function.__module__, function.__name__, arguments).result(SECONDS)
            except Exception:
                _children.pop(arch).shutdown(wait=False)  # the next test gets a fresh one
                raise

        parameters = list(inspect.signature(function).parameters.values())[1:]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return run

    return wrap


def _start(arch: str) -> None:
    global _device
    _device = EmulatedGpu(arch)


def _call(module: str, name: str, arguments: dict[str, Any]) -> None:
    assert _device
    _device.clear_fault()
    _device.reset()
    _device._hip_runtime.c.hipGetLastError()  # what an earlier test left
    _device.configure(**vars(Options(arch=_device.options.arch, threads=1)))
    function = getattr(importlib.import_module(module), name)
    inspect.unwrap(function)(_device, **arguments)
