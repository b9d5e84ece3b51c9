"""Basic blocks: where they begin and end, which a run left out, and the table of those that no case can execute."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest

from ckpm.suites.coverage import Covered, format_figure, missed_blocks, reasons
from ckpm_emulator.inspection.inspect import Block, _look_at_block
from ckpm_emulator.lowering.decode import Instruction, decode
from ckpm_emulator.lowering.flow import basic_blocks

END, NOP = 0xBF810000, 0xBF800000
BRANCH, SCC0, SCC1, VCCNZ, EXECNZ = 0xBF820000, 0xBF840000, 0xBF850000, 0xBF870000, 0xBF890000  # and words to jump over
BACK_2 = BRANCH | 0xFFFE
MOVE, LOAD = 0x7E047008, (0xDC540000, 0x02000002)  # v_mov_b64 v[2:3], s[8:9]; flat_load_dwordx2 v[2:3], v[2:3]


def code(*dwords: int) -> list[Instruction]:
    return list(decode(struct.pack(f"<{len(dwords)}I", *dwords)))


@pytest.mark.parametrize(
    ("dwords", "blocks"),
    [
        ((NOP, END), [(0, 2)]),
        ((NOP, SCC0 | 1, NOP, END), [(0, 2), (2, 3), (3, 4)]),  # over one instruction
        ((NOP, SCC0 | 0xFFFE, END), [(0, 2), (2, 3)]),  # a loop of both
        ((NOP, NOP, SCC0 | 0xFFFE, END), [(0, 1), (1, 3), (3, 4)]),
        ((BRANCH | 1, NOP, END), [(0, 1), (2, 3)]),  # unreachable: the NOP
        ((NOP, BACK_2, END), [(0, 2)]),
        ((NOP, END, NOP, END), [(0, 2)]),
    ],
)
def test_basic_blocks_begin_at_targets_and_after_jumps(
    dwords: Sequence[int], blocks: Sequence[tuple[int, int]]
) -> None:
    assert [(block.start, block.stop) for block in basic_blocks(code(*dwords))] == blocks


def test_basic_blocks_of_no_code_are_none() -> None:
    assert basic_blocks([]) == []


BLOCKS = tuple(Block(first, first + 16, "") for first in (64, 80, 96, 200))


@pytest.mark.parametrize(
    ("executed", "missed"),
    [
        ((), (64, 80, 96, 200)),
        (((64, 112), (200, 216)), ()),
        (((64, 80), (96, 112)), (80, 200)),
        (((64, 84),), (96, 200)),  # the second was left before its end
        (((68, 80),), (64, 80, 96, 200)),
        (((0, 300), (64, 65)), ()),  # of two cases
        (((60, 64), (90, 96)), (64, 80, 96, 200)),
    ],
)
def test_missed_blocks_are_those_not_entered(executed: Sequence[tuple[int, int]], missed: Sequence[int]) -> None:
    assert tuple(block.first for block in missed_blocks(BLOCKS, executed)) == missed


SHAPES = {
    "s_cbranch_execnz: s_branch": (EXECNZ | 1, BRANCH, END),
    "s_cbranch_vccnz: v_mov_b64 flat_load_dwordx2": (VCCNZ | 3, MOVE, *LOAD, END),
    "s_cbranch_scc1: v_mov_b64 flat_load_dwordx2": (SCC1 | 3, MOVE, *LOAD, END),
}
OTHERS = (
    (SCC0 | 1, BRANCH, END),
    (EXECNZ | 2, NOP, BRANCH, END),
    (VCCNZ | 1, MOVE, END),
    (SCC0 | 3, MOVE, *LOAD, END),
    (EXECNZ | 5, NOP, NOP, NOP, NOP, NOP, END),
)


def second_block(dwords: Sequence[int]) -> Block:
    instructions = code(*dwords)
    return Block(*_look_at_block(instructions, basic_blocks(instructions)[1]))


@pytest.mark.parametrize("shape", sorted(reasons()))
def test_reason_is_for_its_block_alone(shape: str) -> None:
    """Each row of the table has its block here."""
    block = second_block(SHAPES[shape])
    assert Covered("k", 3, (block,)).without_reason() == []
    assert shape not in [second_block(other).shape for other in OTHERS]


def test_figure_counts_blocks_and_those_with_reason() -> None:
    explained = Block(0, 4, "s_cbranch_execnz: s_branch")
    some = (Covered("a", 15, (explained, BLOCKS[0])), Covered("b", 5, ()))
    assert format_figure(some) == "18 of 20 (90.0 %), 1 cannot be, 1 without a reason"
    assert format_figure(some[1:]) == "5 of 5 (100.0 %)"
    assert some[0].without_reason() == [BLOCKS[0]]
