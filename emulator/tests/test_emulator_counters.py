"""LDS bank conflicts against numbers worked out by hand from the rule in emulator/core/checks/banks.h; and
the ranges of executed code.
"""

from __future__ import annotations

import numpy as np
import pytest

from ckpm_emulator import image
from ckpm_emulator.device import EmulatedGpu
from emulator_assembly import assemble, launch
from emulator_child import on_device

LANE = np.arange(64)
QUAD = LANE // 4

# The instruction is executed twice, on the addresses of two rows of a table.
TWICE = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
v_lshlrev_b32 v1, 2, v0
s_mov_b32 s8, 2
s_waitcnt lgkmcnt(0)
again:
global_load_dword v2, v1, s[4:5]
s_waitcnt vmcnt(0)
{mask}
{instruction}
s_waitcnt lgkmcnt(0)
s_mov_b64 exec, -1
v_add_u32 v1, 0x100, v1
s_sub_u32 s8, s8, 1
s_cmp_lg_u32 s8, 0
s_cbranch_scc1 again
s_endpgm
"""
ALL_LANES = "s_mov_b64 exec, -1"


def conflicts(
    device: EmulatedGpu, instruction: str, first: object, second: object = None, mask: str = ALL_LANES
) -> int:
    """The counts of one instruction on these byte addresses."""
    addresses = np.stack(
        [np.asarray(address, np.uint32) + 0 * LANE.astype(np.uint32) for address in (first, second or 0)]
    )
    table = device.upload(addresses)
    device.reset_counters()
    code = assemble(TWICE.format(mask=mask, instruction=instruction), device.options.arch, lds_bytes=1 << 15)
    launch(device, code, table)
    return int(device.counters()["kernels"]["test_kernel"]["lds_bank_conflicts"])


READ, READ_64, READ_128 = "ds_read_b32 v8, v2", "ds_read_b64 v[8:9], v2", "ds_read_b128 v[8:11], v2"
WRITE, WRITE_64, WRITE_128 = "ds_write_b32 v2, v8", "ds_write_b64 v2, v[8:9]", "ds_write_b128 v2, v[8:11]"
# Lanes 0-15 and 32-47 in the lower half of 32 banks, the others in the upper: no two of a read's phase share a bank,
# while neighbours do.
SWIZZLED = 16 * (LANE % 4) + 128 * QUAD + 64 * (QUAD // 4 % 2)


@pytest.mark.parametrize(
    ("instruction", "addresses", "expected"),
    [
        (READ, 4 * LANE, 0),
        (READ, 0 * LANE, 0),  # one dword for all
        (READ, LANE, 0),  # four lanes a dword
        (READ, 8 * LANE, 2),  # 32 lanes on 16 banks, in 2 phases
        (READ, 128 * LANE, 62),  # 32 lanes on one bank, in 2 phases
        (READ, 132 * LANE, 0),  # a dword of padding
        (READ_64, 8 * LANE, 0),
        (READ_64, 128 * LANE, 60),  # 16 lanes on one pair of banks, in 4 phases
        (READ_128, 16 * LANE, 0),
        (READ_128, 128 * LANE, 56),  # 8 lanes on one quad of banks, in 8 phases
        (READ_128, SWIZZLED, 0),
        (WRITE_128, SWIZZLED, 8),  # 8 lanes on half of the banks, in 8 phases
        (WRITE, 128 * LANE, 62),
        (WRITE_64, 8 * LANE, 0),
        ("ds_read2_b32 v[8:9], v2 offset1:1", 128 * LANE, 124),  # two accesses
        ("ds_add_u32 v2, v8", 128 * LANE, 62),
        ("ds_bpermute_b32 v8, v2, v3", 128 * LANE, 0),  # no access of LDS
    ],
)
@on_device("gfx942")
def test_32_banks(device: EmulatedGpu, instruction: str, addresses: object, expected: int) -> None:
    assert conflicts(device, instruction, addresses) == expected


@pytest.mark.parametrize(
    ("instruction", "addresses", "expected"),
    [
        (READ, 4 * LANE, 0),
        (READ, 128 * LANE, 31),  # 64 lanes on two banks, in one phase
        (READ, 256 * LANE, 63),  # on one bank
        (READ_64, 256 * LANE, 62),  # 32 lanes on one pair of banks, in 2 phases
        (READ_128, 16 * LANE, 0),
        (READ_128, 256 * LANE, 60),  # 16 lanes on one quad of banks, in 4 phases
        (WRITE, 256 * LANE, 62),  # writes as on 32 banks: 2 phases
        (WRITE, 128 * LANE, 30),  # 32 lanes on two banks
        ("ds_read_b64_tr_b16 v[8:9], v2", 8 * LANE, 0),
    ],
)
@on_device("gfx950")
def test_64_banks(device: EmulatedGpu, instruction: str, addresses: object, expected: int) -> None:
    assert conflicts(device, instruction, addresses) == expected


@on_device("gfx942")
def test_inactive_lanes_ask_for_nothing(device: EmulatedGpu) -> None:
    lanes_0_and_32 = "s_mov_b32 exec_lo, 1\ns_mov_b32 exec_hi, 1"
    lanes_0_and_1 = "s_mov_b32 exec_lo, 3\ns_mov_b32 exec_hi, 0"
    assert conflicts(device, READ, 128 * LANE, mask=lanes_0_and_32) == 0
    assert conflicts(device, READ, 128 * LANE, mask=lanes_0_and_1) == 1
    assert conflicts(device, READ, 128 * LANE, mask="s_mov_b64 exec, 0") == 0


@pytest.mark.parametrize(
    ("second", "expected"), [(128 * LANE + 36, 62), (4 * LANE, 0), (8 * LANE, 2)], ids=["moved", "without", "fewer"]
)
@on_device("gfx942")
def test_instruction_is_counted_each_time_it_is_executed(device: EmulatedGpu, second: object, expected: int) -> None:
    assert conflicts(device, READ, 128 * LANE, np.asarray(second).tolist()) == 62 + expected


# Bytes of each instruction: 4, 4, 8 (a literal), 4, 4.
JUMPS = """
s_cmp_eq_u32 s2, {workgroup}
s_cbranch_scc1 over
v_mov_b32 v1, 0x12345678
over:
s_nop 0
s_endpgm
"""


@pytest.mark.parametrize(("workgroup", "ranges"), [(0, [(0, 8), (16, 24)]), (7, [(0, 24)])])
@on_device("gfx942")
def test_executed_leaves_out_code_that_is_jumped_over(
    device: EmulatedGpu, workgroup: int, ranges: list[tuple[int, int]]
) -> None:
    code = assemble(JUMPS.format(workgroup=workgroup))
    start = image.read(code).functions[0].address
    launch(device, assemble(JUMPS.format(workgroup=1 - min(workgroup, 1))), device.malloc(4))
    device.reset_executed()
    launch(device, code, device.malloc(4))
    assert device.executed_ranges() == {"test_kernel": [(start + first, start + end) for first, end in ranges]}
    launch(device, code, device.malloc(4), groups=2)  # of two workgroups, one jumps
    assert device.executed_ranges() == {"test_kernel": [(start, start + 24)]}
    device.reset_executed()
    assert device.executed_ranges() == {}
