"""Compile a C++ program with the toolchain of builds, and run its main in this process on a device.

On a GPU a program can be linked and run as usual. Here it becomes a shared object, so that it finds the emulator, which
lives in this Python process, as its libamdhip64.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ckpm.attention.launch.device import Device
from ckpm.base.errors import InputError
from ckpm.base.files import name_write_errors
from ckpm.base.paths import data
from ckpm.base.processes import tool_environment
from ckpm.kernels.code.toolchains import Toolchain
from ckpm.kernels.families.family import INCLUDE, INCLUDE_FWD

HEADERS = data("kernels", "include_dispatcher")


def build_program(source: Path, output: Path, toolchain: Toolchain) -> Path:
    """Compile a program to a shared object that has its ``main``.

    HIP's headers come from ROCm's compiler; the embedded compiler has none for plain C++.
    """
    folders = (HEADERS, INCLUDE, INCLUDE_FWD)
    command = [
        *(*toolchain.linker, *toolchain.link_flags, "-std=c++17", "-fPIC", "-D__HIP_PLATFORM_AMD__=1"),
        *(word for folder in folders for word in ("-isystem", str(folder))),
        *("-x", "c++", str(source), "-o", str(output)),
    ]
    with name_write_errors(output):
        output.parent.mkdir(parents=True, exist_ok=True)
    environment = tool_environment(toolchain.environment)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        raise InputError(
            f"{source}: it could not be compiled:\n{done.stderr.strip() or done.stdout.strip()}", kind="program"
        )
    return output


def run_program(program: Path, device: Device, arguments: Sequence[str]) -> int:
    """Call the ``main`` of a program, and return its result. HIP's names lead to ``device``, which must exist."""
    assert device.hip  # its runtime is loaded for all that comes after it
    try:
        main = ctypes.CDLL(str(program.absolute()), mode=os.RTLD_NOW | os.RTLD_LOCAL).main
    except (OSError, AttributeError) as error:
        raise InputError(f"{program}: its main can't be called: {error}", kind="program") from error
    argv = (ctypes.c_char_p * (len(arguments) + 2))(
        str(program).encode(), *(os.fsencode(word) for word in arguments), None
    )
    main.argtypes, main.restype = [ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)], ctypes.c_int
    code: int = main(len(arguments) + 1, argv)
    return code
