"""The sanitizer's checks on hand-written kernels.

Correct kernels pass. A kernel without a wait or a barrier, or with a register that was never written, faults at the
instruction where it matters.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ckpm_emulator.device import EmulatedGpu
from ckpm_emulator.faults import FaultReport
from emulator_assembly import assemble, check_fault, launch, launch_fault
from emulator_child import on_device

WAIT_VECTOR, WAIT_OTHERS, BARRIER = "s_waitcnt vmcnt(0)", "s_waitcnt lgkmcnt(0)", "s_barrier"

ARGUMENTS = f"""
s_load_dwordx4 s[4:7], s[0:1], 0x0
{WAIT_OTHERS}
v_lshlrev_b32 v1, 2, v0
"""
# of the input's 256 bytes
RESOURCE = "s_mov_b32 s8, s4\ns_mov_b32 s9, s5\ns_movk_i32 s10, 0x100\ns_mov_b32 s11, 0x27000\n"
# out[i] = in[i]
COPY = f"""{ARGUMENTS}
global_load_dword v2, v1, s[4:5]
{WAIT_VECTOR}
global_store_dword v1, v2, s[6:7]
s_endpgm
"""
# out[i] = in[i ^ 64] through LDS, for two waves
EXCHANGE = f"""{ARGUMENTS}
global_load_dword v2, v1, s[4:5]
{WAIT_VECTOR}
ds_write_b32 v1, v2
{WAIT_OTHERS} ; of the write
{BARRIER}
v_xor_b32 v3, 0x100, v1
ds_read_b32 v4, v3
{WAIT_OTHERS} ; of the read
global_store_dword v1, v4, s[6:7]
s_endpgm
"""
# out[i] = in[i] through LDS and back, without a wait for what the wave itself wrote
OWN = f"""{ARGUMENTS}
global_load_dword v2, v1, s[4:5]
{WAIT_VECTOR}
v_mov_b32 v3, 0
ds_write_b32 v1, v3
ds_write_b16 v1, v2
ds_write_b16_d16_hi v1, v2 offset:2
ds_add_u32 v1, v3
ds_write2_b32 v1, v2, v3 offset0:64 offset1:128
ds_read_b32 v4, v1
ds_read_b32 v5, v1 offset:256
ds_read_u16 v6, v1 offset:512
{WAIT_OTHERS}
v_max_u32 v4, v4, v5
v_add_u32 v4, v4, v6
global_store_dword v1, v4, s[6:7]
s_endpgm
"""
# out[i] = in[i], by LDS-DMA
DMA = f"""{ARGUMENTS}
s_mov_b32 m0, 0
s_mov_b32 s6, s6
{RESOURCE}buffer_load_dword v1, s[8:11], 0 offen lds
{WAIT_VECTOR}
ds_read_b32 v4, v1
{WAIT_OTHERS} ; of the read
global_store_dword v1, v4, s[6:7]
s_endpgm
"""


def run_checked(device: EmulatedGpu, body: str, *, threads: int = 64, wave_order: int = 0) -> FaultReport | None:
    """Run a kernel out[i] = f(in[i]) with all checks; None if its output is right, else the fault."""
    device.configure(**dict.fromkeys(_CHECKS, True), wave_order=wave_order)
    values = np.arange(1000, 1000 + threads, dtype=np.uint32)
    source, out = device.upload(values), device.upload(np.zeros(threads, np.uint32))
    code = assemble(body, device.options.arch, lds_bytes=1024)
    if fault := launch_fault(device, code, source, out, threads=threads):
        return fault
    result = device.read(out, np.uint32)
    expected = values[np.arange(threads) ^ 64] if threads == 128 else values
    np.testing.assert_array_equal(result, expected)
    return None


_CHECKS = ("poison", "poison_memory", "late_loads", "lds_races", "uninitialised")


@pytest.mark.parametrize(
    ("body", "threads"), [(COPY, 64), (EXCHANGE, 128), (OWN, 64), (DMA, 64)], ids=["copy", "exchange", "own", "dma"]
)
@pytest.mark.parametrize("wave_order", [0, 1, 2])
@on_device("gfx942")
def test_right_kernels_pass(device: EmulatedGpu, body: str, threads: int, wave_order: int) -> None:
    assert run_checked(device, body, threads=threads, wave_order=wave_order) is None


@pytest.mark.parametrize(
    ("body", "wait", "threads", "use"),
    [
        (COPY, WAIT_VECTOR, 64, "global_store_dword"),
        (COPY, WAIT_OTHERS, 64, "global_load_dword"),
        (EXCHANGE, f"{WAIT_OTHERS} ; of the read", 128, "global_store_dword"),
        (DMA, WAIT_VECTOR, 64, "global_store_dword"),
    ],
    ids=["vmcnt", "lgkmcnt-scalar", "lgkmcnt-lds", "vmcnt-lds-dma"],
)
@on_device("gfx942")
def test_wait_that_is_missing_is_found_where_value_is_used(
    device: EmulatedGpu, body: str, wait: str, threads: int, use: str
) -> None:
    fault = run_checked(device, body.replace(f"{wait}\n", "s_nop 0\n", 1), threads=threads)
    check_fault(fault, "uninitialised", use)


@pytest.mark.parametrize("wave_order", [0, 1, 2])
@on_device("gfx942")
def test_unwaited_lds_write_is_found_after_barrier(device: EmulatedGpu, wave_order: int) -> None:
    body = EXCHANGE.replace(f"{WAIT_OTHERS} ; of the write\n", "s_nop 0\n")
    fault = run_checked(device, body, threads=128, wave_order=wave_order)
    check_fault(fault, "race", "ds_read_b32", "did not wait (s_waitcnt lgkmcnt) for its write before the barrier")


@on_device("gfx942")
def test_unwaited_lds_write_without_race_check_is_missing(device: EmulatedGpu) -> None:
    device.configure(late_loads=True)
    values = np.arange(1000, 1128, dtype=np.uint32)
    source, out = device.upload(values), device.upload(np.zeros(128, np.uint32))
    code = assemble(EXCHANGE.replace(f"{WAIT_OTHERS} ; of the write\n", "s_nop 0\n"), lds_bytes=1024)
    launch(device, code, source, out, threads=128)
    result = device.read(out, np.uint32)
    assert (result != values[np.arange(128) ^ 64]).any()


# (body, the wait, what takes its place, the load that writes a register again)
OVERWRITTEN = {
    "vector": (COPY, WAIT_VECTOR, f"v_mov_b32 v2, 5\n{WAIT_VECTOR}", "global_load_dword"),
    "scalar": (COPY, WAIT_OTHERS, f"s_mov_b32 s7, 5\n{WAIT_OTHERS}", "s_load_dwordx4"),
    "lds": (EXCHANGE, f"{WAIT_OTHERS} ; of the read", f"v_mov_b32 v4, 5\n{WAIT_OTHERS}", "ds_read_b32"),
    "lane": (COPY, WAIT_VECTOR, f"v_writelane_b32 v2, s4, 7\n{WAIT_VECTOR}", "global_load_dword"),
    "other-queue": (
        *(COPY, WAIT_VECTOR),
        f"ds_write_b32 v1, v1\nds_read_b32 v2, v1\n{WAIT_VECTOR}\n{WAIT_OTHERS}",
        "ds_read_b32",
    ),
}


@pytest.mark.parametrize("name", OVERWRITTEN)
@on_device("gfx942")
def test_destination_overwritten_before_wait_is_hazard(device: EmulatedGpu, name: str) -> None:
    body, wait, writes, load = OVERWRITTEN[name]
    fault = run_checked(device, body.replace(wait, writes, 1), threads=128 if body == EXCHANGE else 64)
    check_fault(fault, "hazard", "s_waitcnt", "was overwritten before this wait for a load that writes it again")
    assert load in fault.detail  # type: ignore[union-attr]


# Loads of one queue land in order, and halves and lanes of a register are apart.
@pytest.mark.parametrize(
    "loads",
    [
        "global_load_dword v2, v1, s[6:7]\nglobal_load_dword v2, v1, s[4:5]",
        "global_load_dword v2, v1, s[6:7]\nglobal_load_dword v2, v1, s[4:5]\ns_waitcnt vmcnt(1)",
        "global_load_short_d16 v2, v1, s[4:5]\nglobal_load_short_d16_hi v2, v1, s[4:5] offset:2",
        "s_mov_b64 exec, 0xff\nglobal_load_dword v2, v1, s[4:5]\ns_not_b64 exec, exec\nv_mov_b32 v2, 5\n"
        "global_load_dword v2, v1, s[4:5]\ns_mov_b64 exec, -1",
    ],
    ids=["twice", "twice-waited", "halves", "lanes"],
)
@on_device("gfx942")
def test_loads_to_one_register_pass(device: EmulatedGpu, loads: str) -> None:
    assert run_checked(device, COPY.replace("global_load_dword v2, v1, s[4:5]", loads)) is None


# (what is wrong, the message). v9 and s20 are never written.
USES = {
    "data": ("global_store_dword v1, v9, s[6:7]", "what is stored (v9) depends on"),
    "computed": ("v_add_u32 v8, v9, v1\nglobal_store_dword v1, v8, s[6:7]", "what is stored (v8) depends on"),
    "half": ("global_store_short v1, v9, s[6:7]", "what is stored (v9) depends on"),
    "accumulator": ("v_accvgpr_read_b32 v8, a3\nglobal_store_dword v1, v8, s[6:7]", "what is stored (v8) depends on"),
    "address": ("global_load_dword v8, v9, s[4:5]", "the address (v9) depends on"),
    "base": ("global_load_dword v8, v1, s[20:21]", "the address (s20) depends on"),
    "scalar-base": ("s_load_dword s22, s[20:21], 0x0", "the address (s20) depends on"),
    "lds-address": ("ds_write_b32 v9, v1", "the LDS address (v9) depends on"),
    "resource": ("buffer_load_dword v8, v1, s[20:23], 0 offen", "the buffer resource (s20) depends on"),
    "offset": (f"{RESOURCE}buffer_load_dword v8, v9, s[8:11], 0 offen", "the buffer offset (v9) depends on"),
    "branch": ("s_cmp_gt_i32 s20, 0\ns_cbranch_scc1 1\ns_nop 0", "where this jumps depends on"),
    "exec": ("v_cmp_lt_i32 vcc, v9, v1\ns_and_saveexec_b64 s[24:25], vcc", "EXEC, which this writes, depends on"),
    "mode": ("s_setreg_b32 hwreg(HW_REG_MODE, 0, 8), s20", "MODE, which this writes, depends on"),
    "scratch": (
        "scratch_load_dword v8, off, off offset:8\ns_waitcnt vmcnt(0)\nglobal_store_dword v1, v8, s[6:7]",
        "what is stored (v8) depends on",
    ),
    "spilt": (
        "scratch_store_dword off, v9, off offset:8\ns_waitcnt vmcnt(0)\nscratch_load_dword v8, off, off offset:8\n"
        "s_waitcnt vmcnt(0)\nglobal_store_dword v1, v8, s[6:7]",
        "what is stored (v8) depends on",
    ),
    "through-lds": (
        "ds_write_b32 v1, v9\ns_waitcnt lgkmcnt(0)\nds_read_b32 v8, v1\ns_waitcnt lgkmcnt(0)\n"
        "global_store_dword v1, v8, s[6:7]",
        "what is stored (v8) depends on",
    ),
    "atomic": ("global_atomic_add v1, v9, s[6:7]", "the atomic's operand (v9) depends on"),
    # 5 is neither what the wave nor what its twin holds
    "selection": (
        "v_cmp_eq_u32 vcc, 5, v9\nv_cndmask_b32_e64 v8, 1, 2, vcc\nglobal_store_dword v1, v8, s[6:7]",
        "what is stored (v8) depends on",
    ),
    "least": ("v_min_u32 v8, 5, v9\nglobal_store_dword v1, v8, s[6:7]", "what is stored (v8) depends on"),
    "scalar-least": (
        "s_min_u32 s24, s20, 5\ns_cmp_eq_u32 s24, 5\ns_cbranch_scc1 1\ns_nop 0",
        "where this jumps depends on",
    ),
    "vote": ("v_cmp_eq_u32 vcc, 5, v9\ns_cbranch_vccz 1\ns_nop 0", "where this jumps depends on"),
    "mask": (
        "v_cmp_eq_u32 s[24:25], 5, v9\ns_and_b64 s[24:25], exec, s[24:25]\ns_cbranch_scc1 1\ns_nop 0",
        "where this jumps depends on",
    ),
    "equal": ("s_cmp_eq_u32 s20, 5\ns_cbranch_scc1 1\ns_nop 0", "where this jumps depends on"),
    "replaced-exec": ("v_cmpx_eq_u32 vcc, 5, v9", "EXEC, which this writes, depends on"),
    "lane-off": (
        "v_lshlrev_b32 v8, 2, v0\nv_xor_b32 v8, 0x80, v8\ns_mov_b64 exec, 0xffff\nds_bpermute_b32 v8, v8, v0\n"
        "s_waitcnt lgkmcnt(0)\nglobal_store_dword v1, v8, s[6:7]",
        "what is stored (v8) depends on",
    ),
}


@pytest.mark.parametrize("name", USES)
@on_device("gfx942")
def test_use_of_what_no_one_wrote_is_found(device: EmulatedGpu, name: str) -> None:
    body, detail = USES[name]
    device.configure(uninitialised=True)
    source, out = device.malloc(256), device.malloc(256)
    code = assemble(f"{ARGUMENTS}{body}\ns_endpgm", "gfx942", lds_bytes=1024)
    check_fault(launch_fault(device, code, source, out), "uninitialised", detail=detail)
    device.configure(uninitialised=False)
    if name not in ("address", "base", "scalar-base", "resource"):  # zeros are not an address
        launch(device, code, source, out)


# Compilers do all of this.
HARMLESS = {
    "copies": "v_mov_b32 v8, v9\nv_readlane_b32 s24, v9, 3\nv_writelane_b32 v10, s20, 4\ns_mov_b64 s[26:27], s[20:21]",
    "selection": "v_cmp_eq_u32 vcc, v1, v1\nv_cndmask_b32 v2, v9, v2, vcc",
    "masked": "v_and_b32 v8, 0xffff0000, v9\nv_lshlrev_b32 v8, 16, v9\nv_and_b32 v8, 0xffff, v8\nv_or_b32 v2, v8, v2",
    "comparison": "v_cmp_lt_i32 s[24:25], v9, v1\ns_and_b64 s[24:25], s[24:25], 0\n"
    "s_or_saveexec_b64 s[26:27], s[24:25]",
    "spilt": "scratch_store_dword off, v9, off offset:8\nds_write_b32 v1, v9\n",
    "known-byte": "v_lshlrev_b32 v8, 16, v9\nv_cmp_eq_u32 vcc, 5, v8\nv_cndmask_b32 v2, v2, v9, vcc",
    "known-least": "v_min_u32 v8, 0, v9\nv_add_u32 v2, v2, v8",
    "known-vote": "v_cmp_eq_u32 vcc, 5, v9\ns_mov_b32 vcc_lo, 1\ns_cbranch_vccnz 1\ns_endpgm",
    "lane-off": "v_lshlrev_b32 v8, 2, v0\nv_xor_b32 v8, 0x80, v8\ns_mov_b64 s[24:25], exec\ns_mov_b64 exec, 0xffff\n"
    "ds_bpermute_b32 v8, v8, v0\ns_waitcnt lgkmcnt(0)\nv_and_b32 v8, 0, v8\n"
    "v_add_u32 v2, v2, v8\ns_mov_b64 exec, s[24:25]",
    "inactive": "s_mov_b64 s[24:25], exec\ns_mov_b64 exec, 0\nglobal_store_dword v9, v9, s[6:7]\n"
    "s_mov_b64 exec, s[24:25]",
}


@pytest.mark.parametrize("name", HARMLESS)
@on_device("gfx942")
def test_what_decides_nothing_is_not_fault(device: EmulatedGpu, name: str) -> None:
    loaded = f"global_load_dword v2, v1, s[4:5]\n{WAIT_VECTOR}\n"
    stored = "s_waitcnt vmcnt(0) lgkmcnt(0)\nglobal_store_dword v1, v2, s[6:7]\ns_endpgm"
    assert run_checked(device, f"{ARGUMENTS}{loaded}{HARMLESS[name]}\n{stored}") is None


# Atomics happen once, and their result is the same for the wave and its twin.
COUNT = f"""{ARGUMENTS}
v_mov_b32 v2, 1
v_mov_b32 v3, 0
v_mov_b32 v8, s4
v_mov_b32 v9, s5
%s sc0
s_waitcnt vmcnt(0) lgkmcnt(0)
global_store_dword v1, v4, s[6:7]
s_endpgm
"""


@pytest.mark.parametrize("atomic", ["global_atomic_add v4, v3, v2, s[4:5]", "flat_atomic_add v4, v[8:9], v2"])
@pytest.mark.parametrize("late", [False, True], ids=["at-once", "late"])
@on_device("gfx942")
def test_atomics_happen_once(device: EmulatedGpu, late: bool, atomic: str) -> None:
    device.configure(uninitialised=True, late_loads=late)
    total, out = device.upload(np.zeros(1, np.uint32)), device.malloc(256)
    launch(device, assemble(COUNT % atomic), total, out)
    assert device.read(total, np.uint32)[0] == 64
    np.testing.assert_array_equal(np.sort(device.read(out, np.uint32)), np.arange(64))


@pytest.mark.parametrize(
    ("body", "kind", "fields", "message"),
    [
        ("ds_write_b64 v1, v[2:3] offset:776", "lds", {"lane": 61, "address": 1020, "bytes": 8},
         ("bytes 1020 to 1027 of the 1024 bytes of LDS that the workgroup has",
          "ds_write_b64 v[1], v[2:3] offset0:8 offset1:3")),
        ("scratch_load_dword v8, off, off offset:62", "scratch", {},
         ("bytes 62 to 65 of the 64 bytes of scratch that a lane has",)),
    ],
)  # fmt: skip
@on_device("gfx942")
def test_fault_reports_which_bytes_of_how_many(
    device: EmulatedGpu, body: str, kind: str, fields: dict[str, Any], message: tuple[str, ...]
) -> None:
    device.configure(uninitialised=False)
    code = assemble(f"{ARGUMENTS}{body}\ns_endpgm", "gfx942", lds_bytes=1024)
    fault = launch_fault(device, code, device.malloc(256), device.malloc(256))
    check_fault(fault, kind, **fields)
    assert [part for part in message if not fault or part not in fault.message] == []


# ---- device memory that neither the host nor a kernel has written: found where a value of it is used

# v2 = in[i], or a part of it
LOADS = {
    "global": f"global_load_dword v2, v1, s[4:5]\n{WAIT_VECTOR}",
    "byte": f"global_load_ubyte v2, v1, s[4:5]\n{WAIT_VECTOR}",
    "buffer": f"{RESOURCE}buffer_load_dword v2, v1, s[8:11], 0 offen\n{WAIT_VECTOR}",
    "short": f"{RESOURCE}buffer_load_ushort v2, v1, s[8:11], 0 offen\n{WAIT_VECTOR}",
    "lds-dma": f"{RESOURCE}s_mov_b32 m0, 0\nbuffer_load_dword v1, s[8:11], 0 offen lds\n{WAIT_VECTOR}\n"
    f"ds_read_b32 v2, v1\n{WAIT_OTHERS}",
    "scalar": f"s_load_dword s12, s[4:5], 0xfc\n{WAIT_OTHERS}\nv_mov_b32 v2, s12",
}
STORE_LOADED = "global_store_dword v1, v2, s[6:7]"
DROP = "v_and_b32 v2, 0, v2\nglobal_store_dword v1, v2, s[6:7]"


def fault_of_unwritten(device: EmulatedGpu, body: str, written: int, *, late: bool = False) -> FaultReport | None:
    """The fault of a kernel that reads 64 dwords, of which the host has written the first ones."""
    device.configure(uninitialised_memory=True, poison_memory=True, late_loads=late)
    source, out = device.malloc(256), device.malloc(256)
    device.write(source, np.arange(written, dtype=np.uint32))
    return launch_fault(device, assemble(f"{ARGUMENTS}{body}\ns_endpgm", "gfx942", lds_bytes=1024), source, out)


@pytest.mark.parametrize("late", [False, True], ids=["at-once", "late"])
@pytest.mark.parametrize("name", LOADS)
@on_device("gfx942")
def test_use_of_unwritten_memory_is_found(device: EmulatedGpu, name: str, late: bool) -> None:
    body = f"{LOADS[name]}\n{STORE_LOADED}"
    assert fault_of_unwritten(device, body, 64, late=late) is None
    detail = "depends on a register, LDS, scratch or memory that was never written"
    fault = fault_of_unwritten(device, body, 63, late=late)
    check_fault(fault, "uninitialised", "global_store_dword ", detail, lane=0 if name == "scalar" else 63)


@pytest.mark.parametrize("name", LOADS)
@on_device("gfx942")
def test_unwritten_memory_that_decides_nothing_passes(device: EmulatedGpu, name: str) -> None:
    assert fault_of_unwritten(device, f"{LOADS[name]}\n{DROP}", 1) is None


@on_device("gfx942")
def test_memory_that_kernel_or_memset_wrote_passes(device: EmulatedGpu) -> None:
    device.configure(uninitialised_memory=True)
    copy = assemble(f"{ARGUMENTS}{LOADS['global']}\n{STORE_LOADED}\ns_endpgm", "gfx942")
    first, second, third = device.malloc(256), device.malloc(256), device.malloc(256)
    device.fill(first, 0)
    launch(device, copy, first, second)
    launch(device, copy, second, third)
    assert not device.read(third, np.uint32).any()
