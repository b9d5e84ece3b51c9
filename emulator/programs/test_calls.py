"""Recursion, and calls of functions by their addresses, also of other code objects."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ckpm_emulator import code_object
from programs.program_builder import ARCHS, sample
from programs.test_programs import ROOT, output, run

VALUES = (1, 2, 3, 4, 5, 6, 7)
FAULT = "hipErrorLaunchFailure"


def _sum(depth: int) -> int:
    return sum(n + VALUES[n % 7] for n in range(1, depth + 1))


@pytest.mark.parametrize("arch", ARCHS)
def test_recursion_fits_into_limit_of_stack(arch: str) -> None:
    """A frame holds at least the return address and two values: 100 of them are more than the descriptor's bytes."""
    tokens = output(sample("calls"), "recursion", "100", options=("--arch", arch)).decode().split()
    assert tokens == ["16384", "hipSuccess", str(_sum(100)), str(_sum(100))]


def test_recursion_beyond_limit_is_fault_until_raised() -> None:
    low = run(sample("calls"), "recursion", "400", "1000")
    assert low.stdout.decode().split() == ["hipSuccess", "1008", FAULT]  # in units of 16 bytes
    assert "of the 1008 bytes" in low.stderr.decode()
    assert "hipDeviceSetLimit(hipLimitStackSize, ..) gives a stack more" in low.stderr.decode()
    high = run(sample("calls"), "recursion", "400", "65536")
    assert high.stdout.decode().split() == ["hipSuccess", "65536", "hipSuccess", *[str(_sum(400))] * 2]
    refused = run(sample("calls"), "recursion", "3", "1000000")
    assert refused.stdout.decode().split() == ["hipErrorInvalidValue", "16384", "hipSuccess", *[str(_sum(3))] * 2]


@pytest.mark.parametrize("options", [(), ("--checks", "all", "--threads", "3")])
@pytest.mark.parametrize("arch", ARCHS)
def test_call_of_function_of_other_module(arch: str, options: tuple[str, ...], tmp_path: Path) -> None:
    module = tmp_path / "module"
    module.write_bytes(dict(code_object.code_objects(sample("calls")))[arch])
    done = run(sample("calls"), "pointer", module, options=("--arch", arch, *options))
    assert done.stdout.decode().splitlines() == [
        *("hipSuccess", f"1000 {1000 + 3 * 63}", "hipSuccess", f"1007 {1000 + 63 + 7}"),
        FAULT,
    ]
    assert "which was in a code object that is unloaded" in done.stderr.decode()


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("null", "a jump to address 0: the pointer to the function was never set"),
        ("host", "take the address of a device function on the device"),
        ("data", "which is data in allocation"),
    ],
)
def test_jump_to_no_function_says_what_is_there(how: str, message: str) -> None:
    done = run(sample("calls"), how)
    assert done.stdout.decode().split() == [FAULT]
    assert message in done.stderr.decode()
    assert "s_swappc_b64" in done.stderr.decode()


BY_FUNCTION = """
import ctypes, sys
from ckpm_emulator import code_object
from ckpm_emulator.device import EmulatedGpu
from ckpm_emulator.lowering import translate

def program(code, function=None):
    asked.append(names.get(function, "image"))
    return translate.translate(code, None, function)

translate.LARGE = 0
code, asked = sys.stdin.buffer.read(), []
names = {one.address: name for name, one in code_object.read(code).functions.items()}
device = EmulatedGpu("gfx950", program_builder=program)
module, out, address = device.load_module(code), device.malloc(256), device.malloc(16)
module.launch("address_of_function", (1,), (64,), [ctypes.c_uint64(address.address)])
print(*asked)
for function in (0, 8, 0):
    place = ctypes.c_uint64(address.address + function)
    module.launch("call", (1,), (64,), [ctypes.c_uint64(out.address), place])
    print(*asked, device.read(out, "i4")[5])
(counted,) = [one for name, one in device.counters()["kernels"].items() if name == "call"]
print(counted["launches"], counted["workgroups"])
"""


def test_large_code_object_is_decoded_by_function() -> None:
    """A function that a kernel reaches comes with the kernel; another one when a wave jumps to its address."""
    code = dict(code_object.code_objects(sample("calls")))["gfx950"]
    done = subprocess.run([sys.executable, "-c", BY_FUNCTION], input=code, capture_output=True, cwd=ROOT, check=False)
    assert done.stderr == b""
    *lines, last = done.stdout.decode().splitlines()
    kernel, called = "image address_of_function", "image address_of_function call _Z11times_threei"
    assert [" ".join(line.split()) for line in lines] == [kernel, f"{called} 1015", f"{called} 1012", f"{called} 1015"]
    assert last == "3 3"
