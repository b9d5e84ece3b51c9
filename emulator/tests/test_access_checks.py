"""Misaligned accesses, and barriers that not all threads of a workgroup reach together."""

from __future__ import annotations

import pytest

from ckpm_emulator.device import EmulatedGpu
from ckpm_emulator.faults import FaultReport
from emulator_assembly import assemble, check_fault, launch_fault
from emulator_child import on_device
from test_emulator_checks import ARGUMENTS, RESOURCE

SHARED = "s_mov_b64 s[12:13], src_shared_base\nv_mov_b32 v2, v9\nv_mov_b32 v3, s13\n"
# v9: the number of bytes beyond an aligned address. (code, what must divide the address)
ACCESSES = {
    "dword": ("global_load_dword v8, v9, s[4:5]", 4),
    "four": ("global_load_dwordx4 v[10:13], v9, s[4:5]", 4),
    "short": ("global_store_short v9, v0, s[4:5]", 2),
    "byte": ("global_load_ubyte v8, v9, s[4:5]", 1),
    "atomic": ("global_atomic_add v9, v0, s[4:5]", 4),
    "atomic-of-two": ("v_mov_b32 v2, 0\nv_mov_b32 v3, 0\nglobal_atomic_add_x2 v9, v[2:3], s[4:5]", 8),
    "buffer": (f"{RESOURCE}buffer_load_dword v8, v9, s[8:11], 0 offen", 4),
    "lds": ("ds_write_b32 v9, v0", 4),
    "lds-of-two": ("v_mov_b32 v2, 0\nv_mov_b32 v3, 0\nds_write_b64 v9, v[2:3]", 8),
    "flat-lds": (f"{SHARED}flat_load_dwordx2 v[10:11], v[2:3]", 4),
    "flat-lds-atomic": (f"{SHARED}flat_atomic_add v[2:3], v0", 4),
    "lds-atomic": ("v_mov_b32 v2, 0\nv_mov_b32 v3, 0\nds_add_u64 v9, v[2:3]", 8),
    "scalar": (
        "v_readfirstlane_b32 s12, v9\ns_add_u32 s12, s4, s12\ns_mov_b32 s13, s5\ns_load_dword s9, s[12:13], 0",
        4,
    ),
}


def fault_of(device: EmulatedGpu, body: str, *, threads: int = 64, **checks: bool) -> FaultReport | None:
    """The fault of a kernel; None if it ends."""
    device.configure(**checks)
    source, out = device.malloc(4096), device.malloc(4096)
    code = assemble(f"{ARGUMENTS}{body}\ns_endpgm", "gfx942", lds_bytes=1024)
    return launch_fault(device, code, source, out, threads=threads)


# What the hardware refuses: atomics, and scalar loads.
REFUSED = ("atomic", "atomic-of-two", "lds-atomic", "flat-lds-atomic", "scalar")


@pytest.mark.parametrize("away", [1, 2, 4, 8])
@pytest.mark.parametrize("name", ACCESSES)
@on_device("gfx942")
def test_misaligned_access_is_fault(device: EmulatedGpu, name: str, away: int) -> None:
    code, step = ACCESSES[name]
    body = f"v_mov_b32 v9, {away}\n{code}\ns_waitcnt vmcnt(0) lgkmcnt(0)"
    assert fault_of(device, body, alignment=False) is None
    fault = fault_of(device, body, alignment=True)
    assert bool(fault) == (away % step != 0 and name in REFUSED)
    fault = fault_of(device, body, unaligned=True)
    assert bool(fault) == (away % step != 0)
    if fault:
        check_fault(fault, "alignment", detail=f"which is not a multiple of {step}")
        assert fault.address % 8 == away


# The lower half of each wave comes to a barrier, or each wave to its own.
IN_BRANCH = "v_cmp_gt_u32 vcc, 32, v0\ns_and_saveexec_b64 s[24:25], vcc\ns_barrier\ns_mov_b64 exec, s[24:25]"
OF_ITS_OWN = """v_readfirstlane_b32 s20, v0
s_cmp_eq_u32 s20, 0
s_cbranch_scc1 1f
s_barrier
s_branch 2f
1: s_barrier
2: s_nop 0"""


@pytest.mark.parametrize(
    ("body", "wave", "detail"),
    [(IN_BRANCH, 0, "divergent control flow"), (OF_ITS_OWN, 1, "wave 0 waits at another barrier")],
)
@on_device("gfx942")
def test_barrier_that_some_threads_do_not_reach_is_fault(
    device: EmulatedGpu, body: str, wave: int, detail: str
) -> None:
    assert fault_of(device, body, threads=128) is None
    check_fault(fault_of(device, body, threads=128, barriers=True), "barrier", "s_barrier", detail, wave=wave)


@pytest.mark.parametrize("threads", [64, 100, 128])
@on_device("gfx942")
def test_barrier_of_all_threads_passes(device: EmulatedGpu, threads: int) -> None:
    """Also where the last wave has fewer threads than lanes."""
    assert fault_of(device, "s_barrier\ns_nop 0\ns_barrier", threads=threads, barriers=True) is None


@pytest.mark.parametrize(
    ("load", "size", "outside"),
    [
        ("s_load_dwordx4 s[8:11], s[4:5], 0x0", 12, False),
        ("s_load_dwordx4 s[8:11], s[4:5], 0x0", 8, True),
        ("s_load_dwordx4 s[8:11], s[4:5], 0x4", 16, True),
        ("s_load_dwordx8 s[8:15], s[4:5], 0x0", 20, False),
        ("s_load_dwordx8 s[8:15], s[4:5], 0x0", 16, True),
        ("s_load_dwordx2 s[8:9], s[4:5], 0x0", 4, True),
    ],
)
@on_device("gfx942")
def test_scalar_load_may_be_widened_to_its_aligned_block(
    device: EmulatedGpu, load: str, size: int, outside: bool
) -> None:
    """LLVM loads three aligned dwords as four, as of a kernel of tinygrad with a buffer of 12 bytes."""
    code = assemble(f"{ARGUMENTS}\n{load}\ns_waitcnt lgkmcnt(0)\ns_endpgm\n", device.options.arch)
    fault = launch_fault(device, code, device.malloc(size), device.malloc(4))
    assert (fault is not None) == outside
