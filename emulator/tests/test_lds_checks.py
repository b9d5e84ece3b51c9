"""Checks of LDS: reads under way whose bytes are written, races before any write, reads outside of the allocation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ckpm_emulator.device import EmulatedGpu
from emulator_assembly import assemble, check_fault, launch, launch_fault
from emulator_child import on_device
from test_access_checks import fault_of
from test_emulator_checks import ARGUMENTS, BARRIER, DMA, EXCHANGE, RESOURCE, WAIT_OTHERS, WAIT_VECTOR, run_checked
from test_host_calls import capture_output

# out[i] = in[i ^ 64], and then each wave writes over what the other one reads.
REUSE = f"""{ARGUMENTS}
global_load_dword v2, v1, s[4:5]
v_mov_b32 v5, 0
{WAIT_VECTOR}
ds_write_b32 v1, v2
{WAIT_OTHERS}
{BARRIER}
v_xor_b32 v3, 0x100, v1
READ
{WAIT_OTHERS} ; of the read
{BARRIER}
ds_write_b32 v1, v5
{WAIT_OTHERS}
global_store_dword v1, v4, s[6:7]
s_endpgm
"""
READS = {
    "b32": "ds_read_b32 v4, v3",
    "two": "ds_read2_b32 v[4:5], v3 offset0:0 offset1:0",
    "half": "ds_read_u16 v4, v3",
}
# out[i] = in[i], and an LDS-DMA writes in[0] over it.
DMA_OVER = f"""{ARGUMENTS}
s_mov_b32 m0, 0
{RESOURCE}global_load_dword v2, v1, s[4:5]
v_mov_b32 v5, 0
{WAIT_VECTOR}
ds_write_b32 v1, v2
{WAIT_OTHERS}
ds_read_b32 v4, v1
{WAIT_OTHERS} ; of the read
buffer_load_dword v5, s[8:11], 0 offen lds
s_waitcnt vmcnt(0) lgkmcnt(0)
global_store_dword v1, v4, s[6:7]
s_endpgm
"""
# out[i] = in[i ^ 64] for two waves; LDS-DMA brings it.
DMA_EXCHANGE = f"""{ARGUMENTS}
s_mov_b32 s8, s4
s_mov_b32 s9, s5
s_movk_i32 s10, 0x200
s_mov_b32 s11, 0x27000
v_readfirstlane_b32 s12, v1
s_mov_b32 m0, s12
s_nop 0
buffer_load_dword v1, s[8:11], 0 offen lds
{WAIT_VECTOR}
{BARRIER}
v_xor_b32 v3, 0x100, v1
ds_read_b32 v4, v3
{WAIT_OTHERS}
global_store_dword v1, v4, s[6:7]
s_endpgm
"""
WITHOUT_WAIT = (f"{WAIT_OTHERS} ; of the read\n", "s_nop 0\n")


@pytest.mark.parametrize(
    ("body", "threads"),
    [*((REUSE.replace("READ", read), 128) for read in READS.values()), (DMA_OVER, 64), (DMA_EXCHANGE, 128)],
    ids=[*READS, "dma-over", "dma-exchange"],
)
@on_device("gfx942")
def test_reads_that_were_waited_for_pass(device: EmulatedGpu, body: str, threads: int) -> None:
    device.configure(late_lds_reads=True)
    assert run_checked(device, body, threads=threads) is None


@pytest.mark.parametrize("wave_order", [0, 1, 2])
@pytest.mark.parametrize("read", READS)
@on_device("gfx942")
def test_unwaited_lds_read_before_barrier_is_race(device: EmulatedGpu, read: str, wave_order: int) -> None:
    body = REUSE.replace("READ", READS[read]).replace(*WITHOUT_WAIT)
    assert run_checked(device, body, threads=128, wave_order=wave_order) is None
    device.configure(late_lds_reads=True)
    fault = run_checked(device, body, threads=128, wave_order=wave_order)
    detail = "did not wait (s_waitcnt lgkmcnt) for its read of these bytes of LDS before the barrier"
    check_fault(fault, "race", "ds_write_b32", detail, access="store")


@on_device("gfx942")
def test_unwaited_lds_read_without_races_gives_poison(device: EmulatedGpu) -> None:
    device.configure(late_loads=True, late_lds_reads=True)
    values = np.arange(1000, 1128, dtype=np.uint32)
    for body, right in ((REUSE, True), (REUSE.replace(*WITHOUT_WAIT), False)):
        source, out = device.upload(values), device.upload(np.zeros(128, np.uint32))
        launch(device, assemble(body.replace("READ", READS["b32"]), lds_bytes=1024), source, out, threads=128)
        assert (device.read(out, np.uint32) == values[np.arange(128) ^ 64]).all() == right


@on_device("gfx942")
def test_lds_dma_over_unwaited_read_is_race(device: EmulatedGpu) -> None:
    """Without the option nothing: CK's kernels have such reads."""
    body = DMA_OVER.replace(*WITHOUT_WAIT)
    assert run_checked(device, body) is None
    device.configure(late_lds_reads=True)
    detail = "for its read of these bytes of LDS before the LDS-DMA"
    check_fault(run_checked(device, body), "race", "buffer_load_dword", detail)


@pytest.mark.parametrize(
    ("body", "text", "access", "detail"),
    [
        (DMA_EXCHANGE.replace(f"{WAIT_VECTOR}\n", "s_nop 0\n"), "", "load",
         "did not wait (s_waitcnt vmcnt) for its LDS-DMA before the barrier"),
        # the wave that comes first stores what no one has written yet; the other one writes it soon
        (EXCHANGE.replace(BARRIER, "s_nop 0"), "ds_write_b32", "store",
         "no barrier lies between this and the read by another wave"),
    ],
    ids=["unwaited-dma", "no-barrier"],
)  # fmt: skip
@pytest.mark.parametrize("wave_order", [0, 1, 2])
@on_device("gfx942")
def test_exchange_without_wait_or_barrier_is_race(
    device: EmulatedGpu, body: str, text: str, access: str, detail: str, wave_order: int
) -> None:
    fault = run_checked(device, body, threads=128, wave_order=wave_order)
    check_fault(fault, "race", text, detail, access=access)


# Two waves add to one dword of LDS after a barrier; OTHER is what else they do to it.
COUNT = f"""
v_mov_b32 v2, 0
v_mov_b32 v3, 1
v_cmp_eq_u32 vcc, 0, v0
s_and_saveexec_b64 s[20:21], vcc
ds_write_b32 v2, v2
s_mov_b64 exec, s[20:21]
{WAIT_OTHERS}
{BARRIER}
ds_add_u32 v2, v3
OTHER
{WAIT_OTHERS}
{BARRIER}
ds_read_b32 v4, v2
{WAIT_OTHERS}
"""


@pytest.mark.parametrize("other", ["ds_add_u32 v2, v3", "ds_max_rtn_u32 v4, v2, v3", "ds_cmpst_b32 v2, v2, v3"])
@pytest.mark.parametrize("wave_order", [0, 1])
@on_device("gfx942")
def test_atomics_of_two_waves_are_no_race(device: EmulatedGpu, other: str, wave_order: int) -> None:
    device.configure(wave_order=wave_order)
    assert fault_of(device, COUNT.replace("OTHER", other), threads=128, lds_races=True) is None


@pytest.mark.parametrize("other", ["ds_write_b32 v2, v3", "ds_read_b32 v4, v2"])
@pytest.mark.parametrize("wave_order", [0, 1])
@on_device("gfx942")
def test_atomic_beside_plain_access_is_race(device: EmulatedGpu, other: str, wave_order: int) -> None:
    device.configure(wave_order=wave_order)
    fault = fault_of(device, COUNT.replace("OTHER", other), threads=128, lds_races=True)
    check_fault(fault, "race", "ds_", "no barrier lies")


@on_device("gfx942")
def test_race_has_both_accesses_and_its_lanes(device: EmulatedGpu) -> None:
    body = "v_and_b32 v2, 0xff, v1\nds_write_b32 v2, v1 offset:4\ns_waitcnt lgkmcnt(0)"
    fault = fault_of(device, body, threads=128, lds_races=True)
    check_fault(fault, "race", "ds_write_b32", "no barrier lies between this and the write by wave 0,\n  at pc 0x")
    assert fault is not None
    assert f"at pc {fault.pc:#x}  {fault.text}" in fault.detail  # the same instruction of the other wave
    assert fault.detail.endswith("63 more lanes of this instruction in the same race")


@pytest.mark.parametrize("store", ["ds_write_b32 v2, v3", "ds_write_b8 v2, v3", "ds_write2_b32 v2, v3, v3 offset1:1"])
@pytest.mark.parametrize("late", [False, True])
@on_device("gfx942")
def test_different_values_of_one_store_are_race(device: EmulatedGpu, store: str, late: bool) -> None:
    body = f"v_mov_b32 v2, 0\nVALUE\n{store}"
    equal, different = body.replace("VALUE", "v_mov_b32 v3, 7"), body.replace("VALUE", "v_mov_b32 v3, v0")
    assert fault_of(device, equal, lds_races=True, late_loads=late) is None
    assert fault_of(device, different, lds_races=False, late_loads=late) is None
    fault = fault_of(device, different, lds_races=True, late_loads=late)
    check_fault(fault, "race", store.partition(" ")[0], "lane 0 stores another value at 0x0 with the same instruction")


@pytest.mark.parametrize("store", ["ds_write_b32 v2, v3", "ds_write_b8 v2, v3", "ds_write2_b32 v2, v3, v3 offset1:1"])
@pytest.mark.parametrize("late", [False, True])
@on_device("gfx942")
def test_two_waves_that_write_the_same_are_in_no_race(device: EmulatedGpu, store: str, late: bool) -> None:
    """IREE's Winograd transform has eight waves that do the same work."""
    body = f"v_and_b32 v2, 0xff, v1\nVALUE\n{store}\ns_waitcnt lgkmcnt(0)"
    checks: dict[str, Any] = {"threads": 128, "lds_races": True, "late_loads": late}
    assert fault_of(device, body.replace("VALUE", "v_mov_b32 v3, 7"), **checks) is None
    fault = fault_of(device, body.replace("VALUE", "v_lshrrev_b32 v3, 6, v0"), **checks)
    check_fault(fault, "race", store.partition(" ")[0], "no barrier lies between this and the write by wave 0")


@on_device("gfx942")
def test_write_over_unwaited_lds_dma_is_race(device: EmulatedGpu) -> None:
    fault = run_checked(device, DMA.replace(WAIT_VECTOR, f"ds_write_b32 v1, v0\n{WAIT_VECTOR}", 1))
    check_fault(fault, "race", "ds_write_b32", "did not wait (s_waitcnt vmcnt) for its LDS-DMA, which writes this byte")


@on_device("gfx942")
def test_unwritten_lds_is_reported_where_it_is_used(device: EmulatedGpu) -> None:
    """A merge reads an element too many and drops it, as rocPRIM's does."""
    far = "ds_read_b32 v4, v3 offset:512"
    assert run_checked(device, EXCHANGE.replace("ds_read_b32", f"{far}\nds_read_b32"), threads=128) is None
    fault = run_checked(device, EXCHANGE.replace("ds_read_b32 v4, v3", far), threads=128)
    check_fault(fault, "uninitialised", "global_store_dword")


# out[i] = LDS[i + 16] of 64 dwords
PAST_THE_END = f"""{ARGUMENTS}
v_add_u32 v2, 7, v0
ds_write_b32 v1, v2
{WAIT_OTHERS}
ds_read2_b32 v[4:5], v1 offset0:0 offset1:16
{WAIT_OTHERS}
global_store_dword v1, v5, s[6:7]
s_endpgm
"""


@on_device("gfx942")
def test_read_outside_lds_is_zero_and_reported_once(device: EmulatedGpu) -> None:
    """CDNA3 ISA: a read out of range returns zero."""
    device.configure(lds_bounds=False)
    out = device.malloc(256)
    code = assemble(PAST_THE_END, lds_bytes=256)

    def twice() -> None:
        for _ in range(2):
            launch(device, code, out, out)

    report = capture_output(twice)[0].decode()
    assert device.read(out, np.uint32).tolist() == [*range(7 + 16, 7 + 64), *[0] * 16]
    assert report.count("emulator: lds fault: bytes 256 to 259 of the 256 bytes of LDS") == 1
    assert "lane 48" in report
    assert "lds_bounds" in report


@pytest.mark.parametrize(
    ("body", "bounds"), [(PAST_THE_END, True), ("v_mov_b32 v1, 256\nds_write_b32 v1, v1\ns_endpgm", False)]
)
@on_device("gfx942")
def test_access_outside_lds_is_fault(device: EmulatedGpu, body: str, bounds: bool) -> None:
    """Without the option it is one for writes alone."""
    device.configure(lds_bounds=bounds)
    out = device.malloc(256)
    check_fault(launch_fault(device, assemble(body, lds_bytes=256), out, out), "lds")
