"""Planted defects: the changes of an instruction, the draw by a seed, the floor, and the list of survivors."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from ckpm.base.errors import CheckFailedError, TableError
from ckpm_emulator.inspection.hazards import missing_states
from ckpm_emulator.lowering.decode import Instruction, decode
from ckpm_emulator.lowering.lower import lower
from tests.mutants import excused
from tests.mutants.__main__ import _excuse, check_floor, show_void
from tests.mutants.drawing import KINDS, Kernel, Mutant, draw
from tests.mutants.planting import candidates, make_change
from tests.mutants.programs import _replace
from tests.mutants.trial import Trial

END = 0xBF810000  # s_endpgm
WAIT = 0xBF8C0070  # s_waitcnt vmcnt(0) lgkmcnt(0)
BARRIER = 0xBF8A0000
NOP_1, NOP_5 = 0xBF800000, 0xBF800004
MAX = 0x16000501  # v_max_f32 v0, v1, v2
MAX_OF_ITSELF = 0x16000301  # v_max_f32 v0, v1, v1
LITERAL = (0x0A0004FF, 0x3F800000)  # v_mul_f32 v0, 1.0 as a literal, v2
LESS = 0x7D820501  # v_cmp_lt_i32 vcc, v1, v2
LESS_PAIR = (0xD0C10002, 0x00020501)  # v_cmp_lt_i32 s[2:3], v1, v2
LANE_32, LANE_33 = (0xD28A0005, 0x00014002), (0xD28A0005, 0x00014203)  # v_writelane_b32 v5, s2, 32; v5, s3, 33
OTHER_LANE = (0xD28A0006, 0x00014203)  # v_writelane_b32 v6, s3, 33
NOP_2, WAIT_MEMORY, WAIT_MORE = 0xBF800001, 0xBF8C0F74, 0xBF8C0F70  # s_waitcnt vmcnt(4), vmcnt(0)
READ = (0xD8EC0010, 0x00000001)  # ds_read_b64 v[0:1], v1 offset:16


def code(*dwords: int) -> list[Instruction]:
    return list(decode(struct.pack(f"<{len(dwords)}I", *dwords)))


def kernel(*dwords: int) -> Kernel:
    """A kernel with 16 vector registers, 32 scalar registers, 1,024 bytes of LDS and arguments."""
    rsrc1, rsrc2, rsrc3, properties = 1 | 2 << 6, 2 << 1 | 1 << 7, 3, 8
    descriptor = struct.pack("<3I4xq20x3I2H4x", 1024, 0, 16, 0, rsrc3, rsrc1, rsrc2, properties, 0)
    return Kernel(instructions=code(*dwords), descriptor=descriptor)


def mutate(*dwords: int) -> set[tuple[str, str]]:
    instructions = code(*dwords, END)
    changes = (make_change(kind, at, instructions[at], raw) for kind, at, raw in candidates(instructions))
    return {(change.kind, change.after.text) for change in changes if change}


def test_candidates_without_effect_are_left_out() -> None:
    assert mutate(NOP_1) == set()
    assert {kind for kind, _ in mutate(MAX_OF_ITSELF)} == {"operand"}
    assert list(candidates(code(END, BARRIER, END))) == []  # code after the end is unreachable
    assert make_change("wait", 0, code(WAIT)[0], WAIT) is None
    assert make_change("wait", 0, code(WAIT)[0], 0xFFFFFFFF) is None


@pytest.mark.parametrize(
    ("dwords", "planted"),
    [
        ((*LESS_PAIR, NOP_2, *LANE_32, NOP_2, *LANE_33), 1),  # the compiler's spill of s[2:3]: the first one is needed
        ((*LESS_PAIR, NOP_2, *LANE_33), 1),
        ((*LANE_32, NOP_2, *OTHER_LANE), 1),  # of another register, which may need states of its own
        ((0xBF820002, *LANE_32, NOP_2, *LANE_33), 1),  # a branch to the s_nop passes by the first lane
        ((WAIT_MEMORY, WAIT_MORE), 1),
        ((WAIT_MORE, WAIT_MEMORY), 2),
        ((WAIT_MEMORY, BARRIER, WAIT_MORE), 2),
    ],
)
def test_candidates_leave_out_waits_that_others_repeat(dwords: Sequence[int], planted: int) -> None:
    assert sum(kind in ("nop", "wait") for kind, _, _ in candidates(code(*dwords, END))) == planted


def test_wait_states_that_are_left_out_are_not_missing_elsewhere() -> None:
    """The table of hazards, which has its own sources, asks for the first s_nop of a spill and not for the second."""
    first, second = ((0xBF800000, NOP_2), (NOP_2, 0xBF800000))
    for states, count in ((first, 1), (second, 0)):
        spill = code(*LESS_PAIR, states[0], *LANE_32, states[1], *LANE_33, END)
        assert len(missing_states(spill, "gfx950")) == count


def test_draw_is_repeatable_and_without_duplicates() -> None:
    some = {"a": kernel(BARRIER, NOP_5, *LITERAL, LESS, *READ, WAIT, MAX, END), "b": kernel(WAIT, END)}
    first = draw(some, 7, 12)
    assert first == draw(some, 7, 12)
    assert first != draw(some, 8, 12)
    assert len({(mutant.kernel, mutant.at, mutant.raw) for mutant in first}) == len(first) == 12
    assert {mutant.kind for mutant in first} == {
        *("wait", "barrier", "nop", "compare", "opcode", "offset", "constant", "operand", "descriptor")
    }
    every = draw(some, 1, 1000)
    assert len(every) < 1000
    assert {mutant.kernel for mutant in every} == {"a", "b"}
    assert {mutant.kind for mutant in every} <= set(KINDS)
    texts = [each.text for each in every if each.kernel == "b" and each.kind == "descriptor"]
    assert "eights of vector registers 1 -> 0" in texts
    assert {"LDS bytes 1024 -> 0", "arguments 1 -> 0", "user SGPRs 2 -> 3", "workgroup's x 1 -> 0"} <= {*texts}


def test_check_floor_with_too_few_detected_raises() -> None:
    check_floor(65, 100, "")
    with pytest.raises(CheckFailedError, match=r"64 of 100 .* 65 % are required.*: --seed 7"):
        check_floor(64, 100, "--seed 7")


CHANGE = f"""excused:
  - kernel: k
    code: "{"0" * 16}"
    change: 0x0  s_barrier  ->  s_nop 0
    why: one wave
    read_on: 2026-11-23
"""


def test_excuse_of_survivor_needs_same_kernel_code_and_change(tmp_path: Path) -> None:
    file = tmp_path / "excused.yaml"
    file.write_text(CHANGE)
    excuses = excused.read(file)
    mutant = Mutant(kernel="k", kind="barrier", at=0, raw=0, text="0x0  s_barrier  ->  s_nop 0")
    survivor = Trial(mutant=mutant, killed_by="", how="no race")
    excused_trial = _excuse(survivor, excuses, "0" * 16)
    assert (excused_trial.excused, excused_trial.how) == (True, "one wave")
    assert _excuse(survivor, excuses, "1" * 16) == survivor
    moved = "0x8  s_barrier  ->  s_nop 0"
    for other in (dataclasses.replace(mutant, kernel="l"), dataclasses.replace(mutant, text=moved)):
        another = dataclasses.replace(survivor, mutant=other)
        assert _excuse(another, excuses, "0" * 16) == another
    with pytest.raises(CheckFailedError, match=r"k 0x0  s_barrier .* is excused, but sanitize detects it"):
        _excuse(dataclasses.replace(survivor, killed_by="sanitize"), excuses, "0" * 16)


def test_excuse_of_other_code_is_shown_as_void(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "excused.yaml"
    file.write_text(CHANGE)
    for codes in ({"k": "0" * 16}, {"another": "1" * 16}):
        show_void(excused.read(file), codes)
    assert not capsys.readouterr().out
    show_void(excused.read(file), {"k": "1" * 16})
    assert "is void: the code is now 1111" in capsys.readouterr().out


def test_excused_table_with_wrong_entry_raises(tmp_path: Path) -> None:
    file = tmp_path / "excused.yaml"
    for text, complaint in (
        (CHANGE + CHANGE.partition("\n")[2], "excused twice"),
        (CHANGE.replace("    why: one wave\n", ""), "why"),
        (CHANGE.replace("2026-11-23", "lately"), "must be a date"),
    ):
        file.write_text(text)
        with pytest.raises(TableError, match=complaint):
            excused.read(file)


def test_excused_table_of_tests_is_well_formed() -> None:
    assert all(excuse.why for excuse in excused.read().values())


def test_code_digest_follows_code_and_descriptor() -> None:
    some = kernel(WAIT, END)
    others = (kernel(BARRIER, END), dataclasses.replace(some, descriptor=bytes(64)))
    assert len({excused.code_digest(variant) for variant in (some, *others)}) == 3
    assert excused.code_digest(some) == excused.code_digest(kernel(WAIT, END))


def test_replace_equals_lowering_of_changed_code() -> None:
    before, after = code(MAX, WAIT, END), code(MAX, BARRIER, END)
    replaced, wanted = _replace(lower(before), 1, after[1]), lower(after)
    assert [replaced.texts[i] for i in replaced.ops["text"]] == [wanted.texts[i] for i in wanted.ops["text"]]
    fields = [name for name in wanted.ops.dtype.names or () if name != "text"]
    assert all(np.array_equal(replaced.ops[name], wanted.ops[name]) for name in fields if name != "pc")
    assert replaced.ops["pc"].tolist() == [0, 4, 8]
