"""Races in device memory: planted between waves and workgroups, and the same programs in order."""

from __future__ import annotations

import numpy as np
import pytest

from ckpm_emulator.device import EmulatedGpu
from ckpm_emulator.faults import FaultReport
from emulator_assembly import assemble, check_fault, launch_fault
from emulator_child import on_device
from test_emulator_checks import ARGUMENTS, BARRIER, WAIT_VECTOR

# Workgroup g stores VALUE at in[0].
STORES = f"""{ARGUMENTS}
v_mov_b32 v2, 0
v_mov_b32 v3, VALUE
v_add_u32 v3, 5, v3
global_store_dword v2, v3, s[4:5]
{WAIT_VECTOR}
s_endpgm"""
# The first workgroup stores 7 at in[0] and releases; the other one acquires and loads it.
HANDED_ON = f"""{ARGUMENTS}
v_mov_b32 v2, 0
v_mov_b32 v3, 7
s_cmp_eq_u32 s2, 0
s_cbranch_scc0 1f
global_store_dword v2, v3, s[4:5]
{WAIT_VECTOR}
RELEASE
s_endpgm
1: ACQUIRE
{WAIT_VECTOR}
global_load_dword v4, v2, s[4:5]
{WAIT_VECTOR}
s_endpgm
"""
FENCE = f"buffer_wbl2 sc1\n{WAIT_VECTOR}"
ORDERS = {
    "atomics": ("global_atomic_add v2, v3, s[6:7]", "global_atomic_add v4, v2, v3, s[6:7] sc0"),
    "flag": (f"{FENCE}\nglobal_store_dword v2, v3, s[6:7] sc1", "global_load_dword v4, v2, s[6:7] sc1"),
}
# in[i] = i, and then each wave loads what the other one stored.
WAVES = f"""{ARGUMENTS}
v_add_u32 v2, 1, v0
global_store_dword v1, v2, s[4:5]
{WAIT_VECTOR}
{BARRIER}
v_xor_b32 v3, 0x100, v1
global_load_dword v4, v3, s[4:5]
{WAIT_VECTOR}
s_endpgm
"""


def fault_of(device: EmulatedGpu, body: str, *, threads: int = 64, groups: int = 2) -> FaultReport | None:
    """The fault of a kernel with the check on; None if it ends."""
    device.configure(global_races=True)
    source, out = device.upload(np.zeros(256, np.uint32)), device.upload(np.zeros(256, np.uint32))
    return launch_fault(device, assemble(body, "gfx942"), source, out, threads=threads, groups=groups)


@on_device("gfx942")
def test_different_stores_of_two_workgroups_are_race(device: EmulatedGpu) -> None:
    fault, earlier = fault_of(device, STORES.replace("VALUE", "s2")), "the store by workgroup (0, 0, 0) wave 0 at pc"
    check_fault(fault, "race", "global_store_dword", earlier, access="store", workgroup=(1, 0, 0))


@on_device("gfx942")
def test_equal_stores_of_two_workgroups_pass(device: EmulatedGpu) -> None:
    assert fault_of(device, STORES.replace("VALUE", "1")) is None


@pytest.mark.parametrize("name", ORDERS)
@on_device("gfx942")
def test_load_of_unordered_store_is_race(device: EmulatedGpu, name: str) -> None:
    release, acquire = ORDERS[name]
    ordered = HANDED_ON.replace("RELEASE", release).replace("ACQUIRE", acquire)
    assert fault_of(device, ordered) is None
    for broken in (ordered.replace(release, "s_nop 0"), ordered.replace(acquire, "s_nop 0")):
        access = "load" if "s_cbranch_scc0" in broken else "store"
        check_fault(fault_of(device, broken), "race", detail="no atomic lies between", access=access)


@on_device("gfx942")
def test_flag_without_fence_orders_nothing(device: EmulatedGpu) -> None:
    release, acquire = ORDERS["flag"]
    body = HANDED_ON.replace("RELEASE", release).replace("ACQUIRE", acquire).replace(FENCE, "s_nop 0")
    check_fault(fault_of(device, body), "race", "global_load_dword", "no atomic lies between", access="load")


# Workgroup 0 does the first access of in[0], the other one the second.
TWO = f"""{ARGUMENTS}
v_mov_b32 v2, 0
v_mov_b32 v3, 7
s_cmp_eq_u32 s2, 0
s_cbranch_scc0 1f
FIRST
{WAIT_VECTOR}
s_endpgm
1: SECOND
{WAIT_VECTOR}
s_endpgm
"""
ATOMIC, STORE = "global_atomic_add v2, v3, s[4:5]", "global_store_dword v2, v3, s[4:5]"


@pytest.mark.parametrize(
    ("first", "second"), [(ATOMIC, STORE), (STORE, ATOMIC), (ATOMIC, "global_load_dword v4, v2, s[4:5]")]
)
@on_device("gfx942")
def test_atomic_beside_ordinary_access_is_race(device: EmulatedGpu, first: str, second: str) -> None:
    fault = fault_of(device, TWO.replace("FIRST", first).replace("SECOND", second))
    check_fault(fault, "race", second.partition(" ")[0], "no atomic lies between", workgroup=(1, 0, 0))
    coherent = f"{STORE} sc1" if second == ATOMIC else f"{second} sc1"
    order = (coherent, second) if second == ATOMIC else (first, coherent)
    assert fault_of(device, TWO.replace("FIRST", order[0]).replace("SECOND", order[1])) is None


@pytest.mark.parametrize("store", ["global_store_dword v2, v3, s[4:5]", "global_store_short v2, v3, s[4:5]"])
@on_device("gfx942")
def test_different_values_of_one_store_are_race(device: EmulatedGpu, store: str) -> None:
    body = f"{ARGUMENTS}v_mov_b32 v2, 0\nv_mov_b32 v3, v0\n{store}\ns_endpgm"
    check_fault(fault_of(device, body, groups=1), "race", store.partition(" ")[0], "lane 0 stores another value at")
    for right in (body.replace("v3, v0", "v3, 7"), body.replace(store, f"{store} sc1")):  # of atomic stores one stays
        assert fault_of(device, right, groups=1) is None


@pytest.mark.parametrize("wave_order", [0, 1, 2])
@on_device("gfx942")
def test_missing_barrier_of_waves_is_race(device: EmulatedGpu, wave_order: int) -> None:
    device.configure(wave_order=wave_order)
    assert fault_of(device, WAVES, threads=128, groups=1) is None
    fault = fault_of(device, WAVES.replace(BARRIER, "s_nop 0"), threads=128, groups=1)
    check_fault(fault, "race", detail="no barrier or atomic lies between")
