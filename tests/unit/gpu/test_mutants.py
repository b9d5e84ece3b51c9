"""Planted defects: which changes an instruction allows, which are left out, and that a seed draws the same again."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from emulator.code_object import Function
from emulator.image import KernelInfo
from emulator.lowering.decode import Instruction, decode
from emulator.lowering.lower import lower
from matrix.base.errors import TableError, UsageError
from matrix.dialects import dialect
from matrix.problems.case import SUITES, wave_instructions
from matrix.selection import Selection, select
from tests.gpu.checks import Result
from tests.gpu.suites import cases
from tests.mutants.__main__ import main
from tests.mutants.drawing import KINDS, Kernel, Mutant, draw
from tests.mutants.equivalents import Equivalents
from tests.mutants.floors import Floors, missed, read_floors
from tests.mutants.planting import Change, changed, changes
from tests.mutants.probing import Fate, Observed, cause, options, results
from tests.mutants.programs import _with
from tests.mutants.trial import Tried, by_kernel

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


def kernel(*words: int) -> Kernel:
    """Its descriptor grants 16 vector and 32 scalar registers, and asks for 1,024 bytes of LDS and the arguments."""
    rsrc1, rsrc2, rsrc3, properties = 1 | 2 << 6, 2 << 1 | 1 << 7, 3, 8
    descriptor = struct.pack("<3I4xq20x3I2H4x", 1024, 0, 16, 0, rsrc3, rsrc1, rsrc2, properties, 0)
    info = KernelInfo(
        name="k",
        function=Function(name="k", address=0, code=struct.pack(f"<{len(words)}I", *words)),
        descriptor_address=0,
        lds_bytes=1024,
        scratch_bytes=0,
        kernarg_bytes=16,
        rsrc1=rsrc1,
        rsrc2=rsrc2,
        rsrc3=rsrc3,
        properties=properties,
        preload=0,
        max_workgroup=256,
        arguments=(),
        hidden=(),
    )
    return Kernel(instructions=code(*words), arch="gfx950", info=info, descriptor=descriptor)


def changes_nothing(instructions: Sequence[Instruction], change: Change) -> bool:
    return bool(Equivalents(instructions, 4, "gfx950").rule(change))


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


SETREG = (0xBA000901, 3)  # s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 3


def test_a_literal_s_bits_that_no_field_takes_are_not_planted() -> None:
    assert {text.partition(", ")[2] for kind, text in planted(*SETREG) if kind == "constant"} == {"0x2", "0x1"}


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
    drawn = draw({"k": kernel(*words)}, 1, 50)
    assert (0 in {one.at for one in drawn.mutants if one.kind == "constant"}) == (not unread)
    assert bool(drawn.left_out.get("a scalar that nothing reads")) == unread


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
    some = {"a": kernel(BARRIER, NOP_5, *LITERAL, LESS, *READ, WAIT, MAX, END), "b": kernel(WAIT, END)}
    first = draw(some, 7, 12).mutants
    assert first == draw(some, 7, 12).mutants
    assert first != draw(some, 8, 12).mutants
    assert len({(one.kernel, one.at, one.raw) for one in first}) == len(first) == 12
    assert {one.kind for one in first} == {
        *("wait", "compare", "opcode", "offset", "constant", "operand", "descriptor"),
    }
    every = draw(some, 1, 1000)
    assert len(every.mutants) < 1000
    assert {one.kernel for one in every.mutants} == {"a", "b"}
    assert {one.kind for one in every.mutants} <= set(KINDS)
    assert every.left_out == {
        "no two waves share LDS here": 1,
        "no rule asks for the wait states": 1,
        "what it waits for is there, or waited for before its use": 3,  # no vmcnt of a, and nothing of b
        "registers that no code uses": 6,  # of each kernel 8 vector registers, and 4 and 8 before the others
    }


def test_a_descriptor_that_grants_less_than_the_code_uses_is_planted() -> None:
    """v2 is the last register of MAX: half of 16 is enough; LDS, ids and arguments are not judged by the code."""
    drawn = draw({"k": kernel(MAX, END)}, 1, 1000)
    texts = [one.text for one in drawn.mutants if one.kind == "descriptor"]
    assert sorted(texts) == [
        *("LDS bytes 1024 -> 0", "LDS bytes 1024 -> 512", "arguments 1 -> 0", "user SGPRs 2 -> 1"),
        *("user SGPRs 2 -> 3", "workgroup's x 1 -> 0"),
    ]
    used = draw({"k": kernel(0x160013FF & ~0x1FF | 0x101, 0x7E120300, END)}, 1, 1000)  # v_max_f32 v0, v1, v9; v9 = v0
    texts = [one.text for one in used.mutants if one.kind == "descriptor"]
    assert "eights of vector registers 1 -> 0" in texts


def tried(kind: str, *seen: bool) -> list[Tried]:
    mutant = Mutant(kernel="k", kind=kind, at=0, raw=0, text="")
    return [Tried(mutant=mutant, killed_by="sanitize" if one else "") for one in seen]


def test_a_run_below_a_floor_is_named() -> None:
    floors = Floors(all=75, kinds={"wait": 100})
    assert missed([*tried("wait", True), *tried("operand", True, True, False)], floors) == []
    assert missed(tried("operand", True, True, False), floors) == ["2 of 3 of all kinds, where 75 % are asked for"]
    below = missed([*tried("wait", False), *tried("operand", *[True] * 9)], floors)
    assert below == ["0 of 1 of wait, where 100 % are asked for"]


BUILT = Result(outcome="passed", lines=("O: largest error 0.5",), tolerance_used=0.5, counters={"instructions": 9})


def fate(what: str, count: int = 3, pc: int = 0x40) -> Fate:
    return Fate(pc=pc, text="s_and_b32 s[1], s[2], s[3]", fate=what, count=count)


@pytest.mark.parametrize(
    ("observed", "said"),
    [
        (Observed(executions=0, different=0), "no case runs it"),
        (
            Observed(executions=9, different=0, sources=((0, 128), None, None)),
            "the same result in all 9 executions of 2 cases, with v1 from 0 to 128",
        ),
        (
            Observed(executions=9, different=3, fates=(fate("carried", 7), fate("masked"), fate("masked", 5, 0x80))),
            "another result in 3 of 9 executions of 2 cases: 0x80 s_and_b32 s[1], s[2], s[3] (5 times), 0x40 s_and_b32 "
            "s[1], s[2], s[3] (3 times) gives the same with it",
        ),
        (
            Observed(executions=9, different=3, fates=(fate("landed"),)),
            "another result in 3 of 9 executions of 2 cases: 0x40 s_and_b32 s[1], s[2], s[3] (3 times) waits for it "
            "again",
        ),
        (
            Observed(executions=9, different=3, fates=(fate("masked", 7), fate("jump"))),
            "another result in 3 of 9 executions of 2 cases: execution goes another way at 0x40 s_and_b32 s[1], s[2], "
            "s[3] (3 times); the same numbers and counts",
        ),
    ],
)
def test_a_survivor_s_cause_is_what_became_of_its_differences(observed: Observed, said: str) -> None:
    change = changed("compare", 0, code(LESS)[0], LESS + 0x40000)
    assert change is not None
    assert cause(change, observed, [(BUILT, BUILT)] * 2) == said


def test_results_that_differ_are_named_by_how() -> None:
    other = dataclasses.replace(BUILT, lines=("O: largest error 0.6",), tolerance_used=0.6)
    longer = dataclasses.replace(BUILT, counters={"instructions": 10})
    assert results([(BUILT, BUILT), (BUILT, other), (BUILT, longer)]).startswith(
        "other numbers within the tolerance, in 1"
    )
    assert results([(BUILT, BUILT), (BUILT, longer)]).startswith("the same numbers by another way: 1 cases")
    assert results([(BUILT, BUILT)]) == "the same numbers and counts"


PROBED = (("wait", WAIT, WAIT | 0xC00F), ("compare", LESS, LESS + 0x40000))


def test_results_come_late_where_a_wait_is_probed() -> None:
    wait, other = (changed(kind, 0, code(word)[0], raw) for kind, word, raw in PROBED)
    assert wait is not None
    assert other is not None
    assert options(wait) == {"probe": True, "late_loads": True}
    assert options(other) == {"probe": True}


@pytest.mark.parametrize(
    ("text", "said"),
    [("all: 101\nkinds: {}\n", "from 0 to 100 percent"), ("all: 90\nkinds: {waits: 100}\n", "waits")],
)
def test_a_table_of_floors_with_a_mistake_is_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "floors.yaml"
    file.write_text(text)
    with pytest.raises(TableError, match=said):
        read_floors(file)
    assert read_floors().all > 0


@pytest.mark.parametrize("words", [("--seed", "-1"), ("--seed", "x"), ("--count", "0"), ("--jobs", "0")])
def test_an_option_that_means_nothing_is_refused(words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words]) == UsageError.exit_code
    assert "Traceback" not in capsys.readouterr().err


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
