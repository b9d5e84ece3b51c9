"""Machine code judged without running: a use before its load is waited for is found, a sufficient wait not blamed."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest

from ckpm_emulator.cli import main
from ckpm_emulator.errors import CodeObjectError
from ckpm_emulator.inspection import inspect as inspection
from ckpm_emulator.inspection.inspect import inspect
from ckpm_emulator.inspection.lds_waits import unfinished_writes
from ckpm_emulator.inspection.waits import hazards
from ckpm_emulator.lowering.decode import Instruction
from emulator_assembly import assemble, instructions_of

LOAD = "global_load_dword v2, v0, s[4:5]\n"
LOADS = LOAD + "global_load_dword v3, v0, s[4:5]\n"
USE = "v_add_f32 v4, v2, v2\n"


@functools.cache
def programs() -> dict[str, list[Instruction]]:
    """The instructions of every case of LATE and SOUND: one run of the assembler is enough for all of them."""
    codes = {**{name: code for name, (code, _) in LATE.items()}, **SOUND, **UNFINISHED, **FINISHED}
    return instructions_of(codes)


FLATS = "flat_load_dword v2, v[20:21]\nflat_load_dword v3, v[20:21]\n"
# (code, what the complaint names: the register, and the instruction)
LATE = {
    "no wait at all": (LOAD + USE, "v_add_f32_e32 v[4], v[2], v[2]: v2 "),
    "the wait lets one operation be under way": (LOAD + "s_waitcnt vmcnt(1)\n" + USE, "v2 "),
    "the second of two": (LOADS + "s_waitcnt vmcnt(1)\nv_mov_b32 v4, v3\n", "v3 "),
    "the wrong counter": (LOAD + "s_waitcnt lgkmcnt(0)\n" + USE, "v2 "),
    "overwritten, and then overwritten by the load": (LOAD + "v_mov_b32 v2, 0\n", "v_mov_b32_e32 v[2], 0: v2 "),
    "overwritten by a load of another counter": (LOAD + "ds_read_b32 v2, v0\n", "v2 is overwritten"),
    "moved by the register allocator, and its register reused": (
        "buffer_load_dwordx4 v[6:9], v5, s[4:7], 0 offen\nv_mov_b64 v[22:23], v[8:9]\ns_waitcnt vmcnt(0)\n",
        "v_mov_b64_e32 v[22:23], v[8:9]: v8 is read, and may not be loaded yet: no s_waitcnt vmcnt that waits for "
        "buffer_load_dwordx4 v[6:9], v[5], s[4:7]",
    ),
    "spilled": (LOAD + "scratch_store_dword off, v2, s33\ns_waitcnt vmcnt(0)\n", "v2 is read"),
    "stored": (LOAD + "global_store_dword v0, v2, s[4:5]\n", "v2 "),
    "from LDS": ("ds_read_b64 v[2:3], v0\ns_waitcnt vmcnt(0)\nv_mov_b32 v4, v3\n", "v3 "),
    "a scalar load, which needs 0": ("s_load_dword s6, s[0:1], 0\ns_waitcnt lgkmcnt(1)\ns_mov_b32 s7, s6\n", "s6 "),
    "a FLAT load, which needs 0": (FLATS + "s_waitcnt vmcnt(1) lgkmcnt(1)\nv_mov_b32 v4, v2\n", "v2 is read"),
    "a FLAT load, which may be the one that is under way": (
        FLATS + "global_load_dword v9, v0, s[4:5]\ns_waitcnt vmcnt(1) lgkmcnt(0)\nv_mov_b32 v4, v2\n",
        "no s_waitcnt vmcnt that waits for flat_load_dword v[2]",
    ),
    "a load before a FLAT one, which may be back first": (
        LOAD + "flat_load_dword v3, v[20:21]\ns_waitcnt vmcnt(1)\n" + USE,
        "v2 is read",
    ),
    "a load into the register of a FLAT one, which may come from LDS": (
        "flat_load_dword v2, v[20:21]\n" + LOAD,
        "no s_waitcnt lgkmcnt that waits for flat_load_dword v[2]",
    ),
    "two FLAT loads into a register": ("flat_load_dword v2, v[20:21]\n" * 2, "v2 is overwritten"),
    "into an AGPR": ("global_load_dword a2, v0, s[4:5]\nv_accvgpr_read_b32 v4, a2\n", "a2 "),
    "a part of it, by SDWA": (LOAD + "v_and_b32_sdwa v4, v2, s3 src0_sel:BYTE_1\n", "v_and_b32_e32 v[4], v[2], s[3] "),
    "another lane's, by DPP": (LOAD + "v_mov_b32_dpp v4, v2 row_shr:1 row_mask:0xf bank_mask:0xf\n", "v2 "),
    "a comparison by SDWA into a pair that a load brings": (
        "s_load_dword s6, s[0:1], 0\nv_cmp_eq_u32_sdwa s[6:7], v2, v3 src0_sel:BYTE_1 src1_sel:DWORD\n",
        "v_cmp_eq_u32_e32 s[6:7], v[2], v[3] src0_sel:1 src1_sel:6: s6 ",
    ),
    "a matrix operand": (LOADS + "v_mfma_f32_16x16x16_f16 a[0:3], v[2:3], v[4:5], a[0:3]\n", "v2 "),
    "on one of two ways": (
        "s_cbranch_scc0 1f\n" + LOAD + "s_branch 2f\n1:\n" + LOAD + "s_waitcnt vmcnt(0)\n2:\n" + USE,
        "v2 ",
    ),
    "from the loop's end to its start": (
        "1:\n" + USE + "s_waitcnt vmcnt(0)\n" + LOAD + "s_cbranch_scc1 1b\n",
        "v_add_f32_e32 v[4], v[2], v[2]: v2 ",
    ),
    "exec is set again": (
        "s_mov_b64 s[8:9], 1\n" + LOAD + "s_cbranch_execnz 1f\ns_mov_b64 exec, s[8:9]\n" + USE + "1:\n",
        "v2 ",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", LATE)
def test_use_before_load_is_back_is_found(case: str) -> None:
    _, text = LATE[case]
    (hazard,) = hazards(programs()[case])
    assert text in str(hazard)
    assert "no s_waitcnt" in str(hazard)


SOUND = {
    "waited for": LOAD + "s_waitcnt vmcnt(0)\n" + USE,
    "the first of two": LOADS + "s_waitcnt vmcnt(1)\n" + USE,
    "LDS after a scalar load": "ds_read_b32 v2, v0\ns_load_dword s6, s[0:1], 0\nds_read_b32 v3, v0\n"
    "s_waitcnt lgkmcnt(1)\n" + USE,
    "more operations than can be counted": LOAD + "global_store_dword v0, v1, s[4:5]\n" * 64 + USE,
    "a load into the register of a FLAT one, after its LDS part": "flat_load_dword v2, v[20:21]\ns_waitcnt lgkmcnt(0)\n"
    + LOAD
    + "s_waitcnt vmcnt(0)\n"
    + USE,
    "FLAT loads, by both counters": FLATS + "s_waitcnt lgkmcnt(0)\ns_waitcnt vmcnt(0)\n" + USE,
    "a load with another after it, and a FLAT one": LOADS
    + FLATS.replace("v2", "v8").replace("v3", "v9")
    + "s_waitcnt vmcnt(1)\n"
    + USE,
    "another load into it": LOAD + LOAD + "s_waitcnt vmcnt(0)\n" + USE,
    "into LDS": "s_mov_b32 m0, 0\nbuffer_load_dword v2, s[4:7], 0 offen lds\n" + USE,
    "waited for on both ways": "s_cbranch_scc0 1f\n" + LOAD + "s_waitcnt vmcnt(0)\n1:\n" + USE,
    "a scalar source in SDWA's field for a vector register": LOAD + "v_and_b32_sdwa v4, v5, s2\n"
    "v_and_b32_sdwa v4, s2, v5\nv_and_b32_sdwa v4, v5, 2\nv_mov_b32_sdwa v4, s2\nv_cmp_eq_u32_sdwa vcc, s2, v5\n",
    "no lane is there": LOAD + "s_cbranch_execnz 1f\n" + USE + "s_mov_b64 s[8:9], exec\nv_cmpx_lt_u32 exec, v1, v4\n"
    "v_mov_b32 v4, 0\ns_mov_b64 exec, s[8:9]\n" + USE + "1:\n",
}


@pytest.mark.parametrize("case", SOUND)
def test_sufficient_wait_is_not_blamed(case: str) -> None:
    assert len(programs()[case]) > 2
    assert hazards(programs()[case]) == []


WRITE, WAIT, BARRIER, READ = "ds_write_b32 v0, v1\n", "s_waitcnt lgkmcnt(0)\n", "s_barrier\n", "ds_read_b32 v2, v0\n"
UNFINISHED = {
    "no wait for a write": WRITE + BARRIER + READ + WAIT,
    "a wait after the barrier": WRITE + BARRIER + WAIT + READ,
    "the wait lets the write be under way": WRITE + "s_waitcnt lgkmcnt(1)\n" + BARRIER + READ,
    "a wait for vector memory": WRITE + "s_waitcnt vmcnt(0)\n" + BARRIER + READ,
    "another barrier without a wait": WRITE + BARRIER + BARRIER + READ,
    "a write on one of two ways": "s_cbranch_scc0 1f\n" + WRITE + "1:\n" + BARRIER + READ,
    "in the next round of a loop": "1:\n" + BARRIER + READ + WRITE + "s_cbranch_scc0 1b\n",
    "an atomic reads": WRITE + BARRIER + "ds_add_u32 v0, v1\n",
}


@pytest.mark.parametrize("case", UNFINISHED)
def test_read_after_barrier_of_unwaited_write_is_found(case: str) -> None:
    (write,) = unfinished_writes(programs()[case])
    assert write.text.startswith("ds_read_b32" if "atomic" not in case else "ds_add_u32")
    assert "no s_waitcnt lgkmcnt before the barrier" in str(write)
    assert (
        next(instruction.pc for instruction in programs()[case] if instruction.name.startswith("ds_write"))
        == write.written_at
    )


FINISHED = {
    "a wait before the barrier": WRITE + WAIT + BARRIER + READ,
    "a later wait and barrier": WRITE + BARRIER + WAIT + BARRIER + READ,
    "the older of two writes": WRITE + READ + "s_waitcnt lgkmcnt(1)\n" + BARRIER + READ,
    "more writes than can be counted": WRITE + READ * 17 + BARRIER + READ,
    "no read after the barrier": WRITE + BARRIER + WRITE + "ds_bpermute_b32 v3, v0, v2\n",
    "the wave reads before the barrier": WRITE + READ + WAIT + BARRIER + READ,
}


@pytest.mark.parametrize("case", FINISHED)
def test_write_that_is_waited_for_in_time_is_not_blamed(case: str) -> None:
    assert unfinished_writes(programs()[case]) == []


MFMA = "v_mfma_f32_16x16x16_f16 a[0:3], v[2:3], v[4:5], a[0:3]\n"
LOOPS = (
    "1:\nv_add_f32 v9, v9, v9\ns_cbranch_scc1 1b\n"  # hot by name only
    "2:\n" + MFMA + "scratch_load_dword v9, off, off\ns_waitcnt vmcnt(0)\nv_readlane_b32 s9, v9, 3\n"
    "3:\nds_write_b32 v0, v9\ns_barrier\ns_cbranch_scc0 3b\n" + MFMA + "s_addk_i32 s9, 1\ns_cbranch_scc1 2b\n" + MFMA
)  # fmt: skip


def test_hot_loop_is_one_with_matrix_instructions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "kernel.hsaco"
    file.write_bytes(assemble(LOOPS + "s_endpgm\n"))
    assert main(["inspect", str(file), "--arch", "gfx942"]) == 0
    (kernel,) = json.loads(capsys.readouterr().out).values()
    assert {name: count for name, count in kernel["loop"].items() if count} == {
        "mfma": 2, "scratch": 1, "waits": 1, "lane_moves": 1, "lds": 1, "barriers": 1, "branches": 2, "salu": 1,
    }  # fmt: skip
    assert kernel["hazards"] == []
    assert main(["inspect", str(file), "--arch", "gfx950"]) == CodeObjectError.exit_code
    assert "has code for gfx942, and none for gfx950" in capsys.readouterr().err  # nothing was inspected


def test_what_was_found_is_kept_for_each_kernels_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, cache = tmp_path / "kernel.hsaco", tmp_path / "cache"
    file.write_bytes(assemble(LOAD + USE + LOOPS + "s_endpgm\n"))
    monkeypatch.setattr(inspection, "_WORTH_PROCESSES", 1)  # the first is looked at by a process of its own
    (first,) = inspect(file, "gfx942", cache=cache)
    assert (first.loop["mfma"], len(first.hazards)) == (2, 2)
    monkeypatch.setattr(inspection, "_look", None)  # the second is not inspected
    assert inspect(file, "gfx942", cache=cache) == [first]
    monkeypatch.undo()
    (kept,) = (cache / "inspections").glob("*.entry")
    whole = kept.read_text()
    for damaged in (whole[:-9], whole.replace('"mfma": 2', '"mfma": 3')):
        assert damaged != whole
        kept.write_text(damaged)
        assert inspect(file, "gfx942", cache=cache) == [first]
        assert kept.read_text() == whole
    file.write_bytes(assemble(LOAD + "s_waitcnt vmcnt(0)\n" + USE + "s_endpgm\n"))
    (other,) = inspect(file, "gfx942", cache=cache)
    assert (other.loop["mfma"], other.hazards) == (0, ())
