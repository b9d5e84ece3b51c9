"""The device in Python: options are checked, a process has one arch."""

from __future__ import annotations

import ctypes
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

from ckpm_emulator import toolchain
from ckpm_emulator.device import EmulatedGpu
from ckpm_emulator.errors import CodeObjectError, DeviceError
from emulator_child import on_device, run_python
from emulator_small import fat_binary, open_small
from emulator_small import small as small

# ---- the device


@on_device("gfx950")
def test_one_arch_process(device: EmulatedGpu) -> None:
    with pytest.raises(DeviceError, match=r"an emulated gfx950: a device of arch gfx942 needs a process of its own"):
        EmulatedGpu("gfx942")
    with pytest.raises(DeviceError, match="can't be changed"):
        device.configure(arch="gfx942")
    again = EmulatedGpu("gfx950", cu_count=8)
    buffer = again.malloc(16)
    assert buffer.address in [row.base for row in device.allocations()]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"arch": "gfx1100"}, "no emulated device has the arch 'gfx1100'. Known: gfx90a, gfx942, gfx950."),
        ({"late_load": True}, "no such option: late_load; did you mean 'late_loads'?"),
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
def test_options_reach_core(device: EmulatedGpu) -> None:
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
def test_decoder_failures_are_reported(device: EmulatedGpu, small: Path) -> None:
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
        with pytest.raises(DeviceError, match="program blob: shorter than its header"):
            device.load_module(fat_binary(small))
    finally:
        run._builder = builder


@on_device("gfx950")
def test_launches_from_several_threads(device: EmulatedGpu, small: Path) -> None:
    library = open_small(device, small)
    failed: list[int] = []

    def work(number: int) -> None:
        for turn in range(50):
            out = device.malloc(512)
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
    shutil.copy(toolchain.library(), other)
    text = (
        f"import ctypes; ctypes.CDLL({str(other)!r})\n"
        "from ckpm_emulator.device import EmulatedGpu\n"
        "from ckpm_emulator.errors import DeviceError\n"
        "try: EmulatedGpu('gfx950')\n"
        "except DeviceError as error: print(error)\n"
    )
    run = run_python(text)
    assert run.stdout == f"this process has a HIP runtime already: {other}\n", run.stderr


def test_reset_at_exit_is_quiet(small: Path, tmp_path: Path) -> None:
    """Libraries unregister when the interpreter is gone already."""
    text = (
        "from ckpm_emulator.device import EmulatedGpu\n"
        f"library = EmulatedGpu().load_library({str(small)!r})\n"
        "assert library.small_table(1) == 0\n"
    )
    run = run_python(text)
    assert (run.returncode, run.stderr) == (0, "")
