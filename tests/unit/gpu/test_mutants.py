"""Planted defects: which changes an instruction allows, which are left out, and that a seed draws the same again."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import pytest

from emulator.lowering.decode import Instruction, decode
from emulator.lowering.lower import lower
from matrix.dialects import dialect
from matrix.problems.problem import SUITES, wave_instructions
from matrix.selection import Selection, select
from tests.gpu.suites import cases
from tests.mutants.planting import KINDS, changed, changes, changes_nothing
from tests.mutants.programs import _with
from tests.mutants.trial import by_kernel, draw

END = 0xBF810000  # s_endpgm
WAIT = 0xBF8C0070  # s_waitcnt vmcnt(0) lgkmcnt(0)
BARRIER = 0xBF8A0000
NOP_1, NOP_5 = 0xBF800000, 0xBF800004
MAX = 0x16000501  # v_max_f32 v0, v1, v2
MAX_OF_ITSELF = 0x16000301  # v_max_f32 v0, v1, v1
LITERAL = (0x0A0004FF, 0x3F800000)  # v_mul_f32 v0, 1.0 as a literal, v2
LESS = 0x7D820501  # v_cmp_lt_i32 vcc, v1, v2
READ = (0xD8EC0010, 0x00000001)  # ds_read_b64 v[0:1], v1 offset:16


def code(*words: int) -> list[Instruction]:
    return list(decode(struct.pack(f"<{len(words)}I", *words)))


def planted(*words: int) -> set[tuple[str, str]]:
    instructions = code(*words, END)
    made = (changed(kind, at, instructions[at], raw) for kind, at, raw in changes(instructions))
    return {(one.kind, one.after.text) for one in made if one}


@pytest.mark.parametrize(
    ("words", "kind", "text"),
    [
        ((WAIT,), "wait", "s_waitcnt vmcnt(63) lgkmcnt(0)"),
        ((WAIT,), "wait", "s_waitcnt vmcnt(0) lgkmcnt(15)"),
        ((BARRIER,), "barrier", "s_nop 0"),
        ((NOP_5,), "nop", "s_nop 0"),
        ((MAX,), "opcode", "v_min_f32_e32 v[0], v[1], v[2]"),
        ((MAX,), "operand", "v_max_f32_e32 v[0], v[0], v[2]"),
        ((LITERAL), "constant", "v_mul_f32_e32 v[0], 0xbf800000, v[2]"),
        ((LESS,), "compare", "v_cmp_le_i32_e32 v[1], v[2]"),
        ((READ), "offset", "ds_read_b64 v[0:1], v[1] offset0:24"),
    ],
)
def test_a_change_of_each_kind(words: Sequence[int], kind: str, text: str) -> None:
    assert (kind, text) in planted(*words)


def test_what_changes_nothing_is_not_planted() -> None:
    assert planted(NOP_1) == set()
    assert {kind for kind, _ in planted(MAX_OF_ITSELF)} == {"operand"}
    assert list(changes(code(END, BARRIER, END))) == []  # nothing reaches what stands behind the end
    assert changed("wait", 0, code(WAIT)[0], WAIT) is None
    assert changed("wait", 0, code(WAIT)[0], 0xFFFFFFFF) is None


SET_1, SET_2, READ_IT = 0xBE800081, 0xBE800082, 0x7E000200  # s_mov_b32 s0, 1; s_mov_b32 s0, 2; v_mov_b32 v0, s0
SKIP = 0xBF840001  # s_cbranch_scc0 over one instruction


@pytest.mark.parametrize(
    ("words", "unread"),
    [
        ((SET_1, END), True),
        ((SET_1, SET_2, READ_IT, END), True),
        ((SET_1, READ_IT, END), False),
        ((SET_1, SKIP, SET_2, READ_IT, END), False),  # one of two ways keeps it
    ],
)
def test_a_scalar_that_nothing_reads_is_left_out(words: Sequence[int], unread: bool) -> None:
    instructions = code(*words)
    change = changed("constant", 0, instructions[0], SET_1 + 1)
    assert change is not None
    assert changes_nothing(instructions, change) == unread
    assert (0 in {one.at for one in draw({"k": instructions}, 1, 50)}) == (not unread)


COPY_1_TO_3 = 0x7E060301  # v_mov_b32 v3, v1
OTHER_INTO_1 = 0x7E020305  # v_mov_b32 v1, v5
SELECT = 0x00040701  # v_cndmask_b32 v2, v1, v3, vcc


@pytest.mark.parametrize(
    ("words", "equal"),
    [((COPY_1_TO_3,), True), ((COPY_1_TO_3, OTHER_INTO_1), False), ((OTHER_INTO_1,), False), ((MAX,), False)],
)
def test_a_register_and_its_copy_may_be_exchanged(words: Sequence[int], equal: bool) -> None:
    instructions = code(*words, SELECT, END)
    at = len(words)
    selects = [raw for kind, place, raw in changes(instructions) if kind == "select" and place == at]
    (change,) = (changed("select", at, instructions[at], raw) for raw in selects)
    assert change is not None
    assert changes_nothing(instructions, change) == equal


def test_a_flag_of_2_counts_as_one_of_1_where_1_is_the_least() -> None:
    flag = (0xD1000007, 0x00210280)  # v_cndmask_b32_e64 v7, 0, 1, s[8:9]
    mask = (0xD0DB007E, 0x00020E81)  # v_cmpx_le_u32_e64 exec, 1, v7
    instructions = code(*flag, *mask, END)
    change = changed("constant", 0, instructions[0], (0x00210480 << 32 | 0xD1000007) & (1 << 64) - 1)
    assert change is not None
    assert changes_nothing(instructions, change)
    assert not changes_nothing(code(*flag, END), change)


def test_a_seed_draws_the_same_and_no_place_twice() -> None:
    some = {"a": code(WAIT, BARRIER, NOP_5, MAX, *LITERAL, LESS, *READ, END), "b": code(WAIT, END)}
    first = draw(some, 7, 12)
    assert first == draw(some, 7, 12)
    assert first != draw(some, 8, 12)
    assert len({(one.kernel, one.at, one.raw) for one in first}) == len(first) == 12
    kinds = [one.kind for one in first]
    assert set(kinds[:8]) == {"wait", "barrier", "nop", "compare", "opcode", "offset", "constant", "operand"}
    assert set(kinds) <= set(KINDS)
    every = draw(some, 1, 1000)
    assert len(every) < 1000
    assert {one.kernel for one in every} == {"a", "b"}


def test_a_program_with_one_instruction_changed_is_that_of_the_changed_code() -> None:
    before, after = code(MAX, WAIT, END), code(MAX, BARRIER, END)
    made, wanted = _with(lower(before), 1, after[1]), lower(after)
    assert [made.texts[i] for i in made.ops["text"]] == [wanted.texts[i] for i in wanted.ops["text"]]
    fields = [name for name in wanted.ops.dtype.names or () if name != "text"]
    assert all(np.array_equal(made.ops[name], wanted.ops[name]) for name in fields if name != "pc")
    assert made.ops["pc"].tolist() == [0, 4, 8]


def test_a_kernel_s_cases_come_by_their_cost() -> None:
    keys = select(dialect("ck-2025-11"), Selection(archs=("gfx950",), tier="smoke"))
    every = [case for suite in SUITES for case in cases(suite, "smoke", "emulator")]
    found = by_kernel(every, keys)
    assert set(found) == {key.name for key in keys}
    for some in found.values():
        costs = [wave_instructions(case.problem) * len(case.variants) for case in some]
        assert costs == sorted(costs)
        assert {case.problem.group for case in some} >= {"negative_scores", "head_ratios"}
