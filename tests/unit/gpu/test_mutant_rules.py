"""The rules that call a planted defect equivalent (tests/mutants/equivalents.py): each holds where it should, and not
where one instruction makes the change count.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from emulator.lowering.decode import Instruction
from matrix.problems.case import SUITES
from matrix.problems.tables import problems
from tests.emulator.emulator_assembly import instructions_of
from tests.mutants.arguments import PROMISED, Arguments
from tests.mutants.bits import LANES
from tests.mutants.equivalents import Equivalents
from tests.mutants.planting import changed, changes
from tests.mutants.values import Values

ARCH, WAVES, IDS = "gfx950", 4, (2,)
ARGUMENTS = Arguments(scalar=0, known=PROMISED["aiter"])
WAVE = "v_readfirstlane_b32 s0, v0\ns_lshr_b32 s0, s0, 2\n"  # 16 times the number of the wave
STORE = "global_store_dword v20, v2, s[20:21]\n"
BIG = "v_bfrev_b32_e32 v3, 1\nv_cndmask_b32_e64 v4, 0, v3, s[4:5]\n"
ROWS = "v_lshlrev_b32_e32 v1, 2, v0\n"  # four bytes of LDS for each workitem
PASSED = "v_xor_b32_e32 v2, 0x100, v1\n"  # those of another wave
WRITTEN = "ds_write_b32 v1, v9\ns_waitcnt lgkmcnt(0)\ns_barrier\n"
FLAG = "v_cndmask_b32_e64 v3, 0, 1, s[4:5]\n"
DIVIDED = """v_cvt_f32_u32_e32 v1, s14
s_sub_i32 s16, 0, s14
v_rcp_iflag_f32_e32 v1, v1
v_mul_f32_e32 v1, 0x4f7ffffe, v1
v_cvt_u32_f32_e32 v1, v1
v_readfirstlane_b32 s17, v1
s_mul_i32 s16, s16, s17
s_mul_hi_u32 s16, s17, s16
s_add_i32 s17, s17, s16
s_mul_hi_u32 s16, s13, s17
s_mul_i32 s17, s16, s14
s_sub_i32 s13, s13, s17
s_add_i32 s17, s16, 1
s_sub_i32 s18, s13, s14
"""
CORRECTED = "s_cselect_b32 s16, s17, s16\ns_cselect_b32 s13, s18, s13\ns_add_i32 s17, s16, 1\n"
QUOTIENT = "s_cselect_b32 s13, s17, s16\nv_mov_b32 v2, s13\n"
KEPT = "v_readlane_b32 s3, v9, 7\n"

HEAD_DIM = "s_load_dword s8, s[0:1], 0x2c\ns_waitcnt lgkmcnt(0)\n"  # of V
COLUMN = "v_or_b32_e32 v2, 32, v1\n"
INSIDE = "v_cmp_gt_i32_e32 vcc, s8, v2\n"  # the column, of the head dim
CHOSEN = "v_mov_b32_e32 v2, 0\nv_cndmask_b32_e32 v2, v8, v9, vcc\n" + STORE
BELOW = "a bit below those of a multiple"

SPARE = "what it waits for is there, or waited for before its use"
LOADS = "global_load_dword v4, v20, s[20:21]\nglobal_load_dword v5, v20, s[20:21] offset:4\n"
TO_LDS = "s_mov_b32 m0, 0\nbuffer_load_dword v1, s[8:11], 0 offen lds\n"

# name: (before the instruction, the instruction, after it, kind, what it becomes, the rule; '' if it counts)
CASES = {
    "a bit that the mask keeps of nothing": (
        WAVE, "s_and_b32 s0, s0, 0x3ffffff0\n", "v_mov_b32 v2, s0\n" + STORE,
        "constant", "0x3ffffff1", "the same value"),
    "a bit that the wave's number has": (
        WAVE, "s_and_b32 s0, s0, 0x3ffffff0\n", "v_mov_b32 v2, s0\n" + STORE, "constant", "0x3fffffe0", ""),
    "a mask of what isn't known": (
        "", "s_and_b32 s0, s8, 0x3ffffff0\n", "v_mov_b32 v2, s0\n" + STORE, "constant", "0x3ffffff1", ""),
    "the wave's number, where EXEC may lack the first lane": (
        "s_and_saveexec_b64 s[6:7], s[4:5]\n" + WAVE, "s_and_b32 s0, s0, 0x3ffffff0\n",
        "v_mov_b32 v2, s0\n" + STORE, "constant", "0x3ffffff1", ""),
    "and where EXEC has it again": (
        "s_and_saveexec_b64 s[6:7], s[4:5]\nv_mov_b32 v7, 0\ns_or_b64 exec, exec, s[6:7]\n" + WAVE,
        "s_and_b32 s0, s0, 0x3ffffff0\n", "v_mov_b32 v2, s0\n" + STORE, "constant", "0x3ffffff1", "the same value"),
    "2^31 added or taken away": (
        BIG, "v_add_u32_e32 v2, v5, v4\n", STORE, "opcode", "v_sub_u32_e32 v[2]", "the same value"),
    "something added or taken away": (
        "v_cndmask_b32_e64 v4, 0, v3, s[4:5]\n", "v_add_u32_e32 v2, v5, v4\n", STORE, "opcode",
        "v_sub_u32_e32 v[2]", ""),
    "what is never equal": (
        "v_or_b32_e32 v4, 1, v5\nv_and_b32_e32 v6, -2, v7\n", "v_cmp_lt_i32_e32 vcc, v4, v6\n",
        "v_cndmask_b32_e32 v2, v8, v9, vcc\n" + STORE, "compare", "v_cmp_le_i32", "the same value"),
    "what may be equal": (
        "v_or_b32_e32 v4, 1, v5\n", "v_cmp_lt_i32_e32 vcc, v4, v7\n",
        "v_cndmask_b32_e32 v2, v8, v9, vcc\n" + STORE, "compare", "v_cmp_le_i32", ""),
    "the second correction of a division": (
        "s_abs_i32 s13, s2\n" + DIVIDED + "s_cmp_ge_u32 s13, s14\n" + CORRECTED, "s_cmp_ge_u32 s13, s14\n",
        QUOTIENT + STORE, "compare", "s_cmp_gt_u32", "a quotient that is one too small at most"),
    "that of a large number": (
        "s_abs_i32 s13, s3\n" + DIVIDED + "s_cmp_ge_u32 s13, s14\n" + CORRECTED, "s_cmp_ge_u32 s13, s14\n",
        QUOTIENT + STORE, "compare", "s_cmp_gt_u32", ""),
    "the first correction": (
        "s_abs_i32 s13, s2\n" + DIVIDED, "s_cmp_ge_u32 s13, s14\n",
        CORRECTED + "s_cmp_ge_u32 s13, s14\n" + QUOTIENT + STORE, "compare", "s_cmp_gt_u32",
        "a quotient that is one too small at most"),
    "the only correction": (
        "s_abs_i32 s13, s2\n" + DIVIDED, "s_cmp_ge_u32 s13, s14\n", CORRECTED + QUOTIENT + STORE,
        "compare", "s_cmp_gt_u32", ""),
    "a wait for what an earlier one has waited for": (
        LOADS + "s_waitcnt vmcnt(0)\nv_mov_b32 v2, v4\n", "s_waitcnt vmcnt(1)\n", "v_mov_b32 v2, v5\n" + STORE,
        "wait", "vmcnt(63)", SPARE),
    "a wait before the only use": (
        LOADS, "s_waitcnt vmcnt(0)\n", "v_mov_b32 v2, v5\n" + STORE, "wait", "vmcnt(63)", ""),
    "a wait for LDS before a later one": (
        TO_LDS, "s_waitcnt vmcnt(0)\n", "v_mov_b32 v2, 0\ns_waitcnt vmcnt(0)\ns_barrier\nds_read_b32 v2, v1\n" + STORE,
        "wait", "vmcnt(63)", SPARE),
    "the only wait for LDS before a barrier": (
        TO_LDS, "s_waitcnt vmcnt(0)\n", "s_barrier\nds_read_b32 v2, v1\n" + STORE, "wait", "vmcnt(63)", ""),
    "the only wait for LDS on one of two ways": (
        TO_LDS, "s_waitcnt vmcnt(0)\n",
        "s_cbranch_scc1 1f\ns_waitcnt vmcnt(0)\n1:\ns_barrier\nds_read_b32 v2, v1\n" + STORE,
        "wait", "vmcnt(63)", ""),
    "a wait state too many": (
        "v_cmp_eq_u32 s[4:5], v0, v1\nv_mov_b32 v7, 0\nv_mov_b32 v8, 0\n", "s_nop 1\n",
        "v_cndmask_b32 v2, v3, v4, s[4:5]\n" + STORE, "nop", "s_nop 0", "no rule asks for the wait states"),
    "a wait state that is needed": (
        "v_cmp_eq_u32 s[4:5], v0, v1\n", "s_nop 1\n", "v_cndmask_b32 v2, v3, v4, s[4:5]\n" + STORE,
        "nop", "s_nop 0", ""),
    "a barrier between a wave and itself": (
        ROWS + "ds_write_b32 v1, v9\ns_waitcnt lgkmcnt(0)\n", "s_barrier\n", "ds_read_b32 v2, v1\n" + STORE,
        "barrier", "s_nop 0", "no two waves share LDS here"),
    "a barrier between two waves": (
        ROWS + PASSED + "ds_write_b32 v1, v9\ns_waitcnt lgkmcnt(0)\n", "s_barrier\n", "ds_read_b32 v2, v2\n" + STORE,
        "barrier", "s_nop 0", ""),
    "a barrier before the next round of a loop": (
        ROWS + PASSED + "1:\n" + WRITTEN + "ds_read_b32 v3, v2\n", "s_barrier\n", "s_cbranch_scc1 1b\n" + STORE,
        "barrier", "s_nop 0", ""),
    "a barrier where an address is not known": (
        "v_lshlrev_b32_e32 v1, 2, v8\nds_write_b32 v1, v9\n", "s_barrier\n", "ds_read_b32 v2, v1\n" + STORE,
        "barrier", "s_nop 0", ""),
    "a flag of 2": (
        "", FLAG, "v_mov_b64 v[4:5], v[6:7]\nv_cmpx_le_u32_e64 exec, 1, v3\n" + STORE,
        "constant", "0, 2, s[4:5]", "a flag counts from 1"),
    "a number of 2": ("", FLAG, "v_mov_b32 v2, v3\n" + STORE, "constant", "0, 2, s[4:5]", ""),
    "a register and its copy": (
        "v_mov_b64 v[6:7], v[8:9]\ns_and_b64 s[4:5], s[4:5], vcc\n", "v_cndmask_b32_e64 v2, v7, v9, s[4:5]\n", STORE,
        "select", "v[9], v[7]", "a register and its copy"),
    "a register and what was its copy": (
        "v_mov_b64 v[6:7], v[8:9]\nv_mov_b32 v9, 0\n", "v_cndmask_b32_e64 v2, v7, v9, s[4:5]\n", STORE,
        "select", "v[9], v[7]", ""),
    "a scalar kept once more, in a lane that nothing reads": (
        KEPT, "v_writelane_b32 v9, s3, 7\n", "v_readlane_b32 s8, v9, 7\nv_mov_b32 v2, s8\n" + STORE,
        "lane", "s[3], 6", "a spilled scalar that nothing reads"),
    "a scalar kept over another": (
        KEPT, "v_writelane_b32 v9, s3, 7\n", "v_readlane_b32 s8, v9, 6\nv_mov_b32 v2, s8\n" + STORE,
        "lane", "s[3], 6", ""),
    "a scalar kept over another that is read in vain": (
        KEPT, "v_writelane_b32 v9, s3, 7\n", "v_readlane_b32 s8, v9, 6\ns_mov_b32 s8, 1\nv_mov_b32 v2, s8\n" + STORE,
        "lane", "s[3], 6", "a spilled scalar that nothing reads"),
    "a new scalar kept in a wrong lane": (
        "s_mov_b32 s3, s8\n", "v_writelane_b32 v9, s3, 7\n", "v_readlane_b32 s8, v9, 7\nv_mov_b32 v2, s8\n" + STORE,
        "lane", "s[3], 6", ""),
    "a column in the head dim's last vector": (HEAD_DIM, COLUMN, INSIDE + CHOSEN, "constant", "33, v[1]", BELOW),
    "one beside a load from a copy of the arguments' address": (
        "s_mov_b64 s[6:7], s[0:1]\ns_load_dword s8, s[6:7], 0x2c\ns_waitcnt lgkmcnt(0)\n", COLUMN, INSIDE + CHOSEN,
        "constant", "33, v[1]", BELOW),
    "a column of a length, which is no multiple": (
        "s_load_dword s8, s[0:1], 0x24\ns_waitcnt lgkmcnt(0)\n", COLUMN, INSIDE + CHOSEN, "constant", "33, v[1]", ""),
    "a number that isn't loaded from the arguments": (
        "s_mov_b32 s1, 0\n" + HEAD_DIM, COLUMN, INSIDE + CHOSEN, "constant", "33, v[1]", ""),
    "a column that may be the head dim itself": (
        HEAD_DIM, COLUMN, "v_cmp_ge_i32_e32 vcc, s8, v2\n" + CHOSEN, "constant", "33, v[1]", ""),
    "a column that is also an address": (
        HEAD_DIM, COLUMN, INSIDE + "global_load_dword v9, v2, s[20:21]\ns_waitcnt vmcnt(0)\n" + CHOSEN,
        "constant", "33, v[1]", ""),
    "a column that other lanes keep": (
        HEAD_DIM, COLUMN, INSIDE + "s_and_saveexec_b64 s[6:7], s[4:5]\nv_mov_b32_e32 v2, 0\n"
        "s_or_b64 exec, exec, s[6:7]\n" + STORE, "constant", "33, v[1]", ""),
}  # fmt: skip


@functools.cache
def assembled() -> dict[str, list[Instruction]]:
    codes = {f"{name}, before": words[0] for name, words in CASES.items()}
    whole = {name: "".join(words[:3]) for name, words in CASES.items()}
    return instructions_of({**whole, **codes}, ARCH)


def planted(name: str) -> tuple[Sequence[Instruction], int]:
    """The code, and where the instruction is."""
    codes = assembled()
    return codes[name], len(codes[f"{name}, before"]) - 1  # its end is no part


@pytest.mark.parametrize("name", CASES)
def test_a_rule_holds_where_nothing_changes_and_nowhere_else(name: str) -> None:
    *_, kind, becomes, rule = CASES[name]
    code, at = planted(name)
    if becomes == "0x3fffffe0":  # not one of those that are drawn: the lowest bit that counts
        raw = code[at].encoding.raw ^ 1 << 36
        made = [changed(kind, at, code[at], raw)]
    else:
        made = [changed(kind, at, code[at], raw) for own, place, raw in changes(code) if (own, place) == (kind, at)]
    fitting = [one for one in made if one is not None and becomes in one.after.text]
    assert len(fitting) == 1, [str(one) for one in made]
    assert Equivalents(code, WAVES, ARCH, IDS, ARGUMENTS).rule(fitting[0]) == rule


def test_values_are_followed_through_loops_and_spills() -> None:
    """The workitem's number is exact, a count of a loop keeps the bits that no round changes, a spill comes back."""
    body = (
        "v_and_b32_e32 v1, 63, v0\ns_mov_b32 s8, 64\nv_writelane_b32 v9, s8, 3\n1:\ns_add_i32 s8, s8, 64\n"
        "s_cmp_lt_i32 s8, s9\ns_cbranch_scc1 1b\nv_readlane_b32 s10, v9, 3\nv_lshl_or_b32 v2, v1, 4, s10\n"
    )
    code = instructions_of({"loop": body}, ARCH)["loop"]
    state = Values(code, WAVES, ARCH).before(len(code) - 1)
    lanes = state[256 + 2]
    assert lanes.is_constant()
    assert lanes.ones[3].tolist() == [lane << 4 | 64 for lane in range(LANES)]
    count = state[8]
    assert int(count.zeros[0, 0]) & 63 == 63
    assert not count.ones.any()
    assert 9 not in state


@given(st.integers(0, 0xFFFF), st.integers(1, 0xFFFFFFFF), st.sampled_from((-1, 0, 1)))
@example(0xFFFF, 1, -1)
@example(0xFFFE, 0x7FFF, -1)
def test_a_quotient_of_a_small_number_is_corrected_once_at_most(x: int, d: int, ulp: int) -> None:
    """The expansion in 32 bits, with each reciprocal within an ulp; the first correction is needed at times."""
    reciprocal = np.float32(1) / np.float32(d)
    if ulp:
        reciprocal = np.nextafter(reciprocal, np.float32(ulp * np.inf), dtype=np.float32)
    assume(abs(Fraction(float(reciprocal)) - Fraction(1, d)) <= Fraction(float(np.spacing(reciprocal))))
    z = min(int(np.float32(reciprocal * np.float32(4294966784.0))), 0xFFFFFFFF)
    z = (z + (z * ((-d * z) & 0xFFFFFFFF) >> 32)) & 0xFFFFFFFF
    remainder = x - (x * z >> 32) * d
    assert 0 <= remainder < 2 * d
    assert divmod(x, d)[1] == (remainder - d if remainder >= d else remainder)


def test_every_problem_keeps_what_callers_promise() -> None:
    tiers = ("smoke", "full", "nightly")
    every = [one for suite in SUITES for tier in tiers for one in problems(suite, tier) if one.expect == "ok"]
    head_dims = {one.hdim_q for one in every} | {one.hdim_v for one in every}
    assert {64, 128} <= head_dims
    for known in PROMISED["aiter"].values():
        assert not head_dims & {dim for dim in head_dims if dim & int(known.zeros[0, 0])}
