"""Wait states that the hardware needs between two instructions: one too few is found, enough are not blamed.

Expected numbers are those of the ISA documents ("Manually Inserted Wait States") and of the LLVM changes named.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

from ckpm_emulator.inspection.hazards import missing_states
from ckpm_emulator.lowering.decode import Instruction
from emulator_assembly import assemble, instructions_of
from emulator_child import run_python

# MI200's assembler has other names for the same instructions.
OLDER = {"16x16x16_f16": "16x16x16f16", "32x32x8_f16": "32x32x8f16", "16x16x4_f64": "16x16x4f64"}
F16 = "v_mfma_f32_16x16x16_f16"
XDL4 = f"{F16} v[0:3], v[8:9], v[10:11], v[0:3]\n"
XDL8 = "v_mfma_f32_32x32x8_f16 v[0:15], v[16:17], v[18:19], v[0:15]\n"
SGEMM8 = "v_mfma_f32_16x16x4_f32 v[0:3], v8, v9, v[0:3]\n"
DGEMM = "v_mfma_f64_16x16x4_f64 v[0:7], v[8:9], v[10:11], v[0:7]\n"
WIDE_STORE = "global_store_dwordx4 v20, v[0:3], s[4:5]\n"

# name: (arch, the first instruction, the later one, wait states needed in between, words of the rule)
NEEDED = {
    "SGPR to VMEM": ("gfx90a", "v_readfirstlane_b32 s4, v0\n", "buffer_load_dword v1, v2, s[4:7], 0 offen\n",
        5, "VMEM reads"),
    "SGPR offset": ("gfx942", "v_readlane_b32 s9, v0, 1\n", "buffer_load_dword v1, v2, s[4:7], s9 offen\n",
        5, "VMEM reads"),
    "descriptor of an LDS-DMA": ("gfx950", "v_readlane_b32 s7, v0, 48\n",
        "buffer_load_dword v2, s[4:7], 0 offen lds\n", 5, "VMEM reads"),
    "SGPR to VALU": ("gfx942", "v_cmp_eq_u32 s[4:5], v0, v1\n", "v_cndmask_b32 v2, v3, v4, s[4:5]\n",
        2, "VALU reads a scalar"),
    "VCC to VALU": ("gfx942", "v_cmp_eq_u32 vcc, v0, v1\n", "v_cndmask_b32 v2, v3, v4, vcc\n",
        2, "VALU reads a scalar"),
    "VCC to div_fmas": ("gfx90a", "v_cmp_eq_u32 vcc, v0, v1\n", "v_div_fmas_f32 v2, v3, v4, v5\n",
        4, "v_div_fmas reads VCC"),
    "lane select": ("gfx90a", "v_readfirstlane_b32 s4, v0\n", "v_readlane_b32 s5, v1, s4\n", 4, "a lane is selected"),
    "lane under EXEC": ("gfx942", "v_cmpx_eq_u32 v0, v1\n", "v_writelane_b32 v2, s5, 3\n",
        4, "a lane is moved under EXEC"),
    "lane source": ("gfx942", "v_mov_b32 v0, 1\n", "v_readlane_b32 s5, v0, 3\n", 1, "a lane is read"),
    "DPP": ("gfx90a", "v_mov_b32 v0, 1\n", "v_mov_b32_dpp v1, v0 row_shl:1\n", 2, "DPP reads"),
    "DPP under EXEC": ("gfx90a", "v_cmpx_eq_u32 v0, v1\n", "v_mov_b32_dpp v3, v2 row_shl:1\n", 5, "DPP under EXEC"),
    "permlane": ("gfx950", "v_mov_b32 v0, 1\n", "v_permlane32_swap_b32 v1, v0\n", 2, "v_permlane reads"),
    "permlane under EXEC": ("gfx950", "v_cmpx_eq_u32 v2, v3\n", "v_permlane32_swap_b32 v1, v0\n",
        4, "v_permlane under EXEC"),
    "MFMA under EXEC": ("gfx90a", "v_cmpx_eq_u32 v20, v21\n", XDL4, 4, "MFMA under EXEC"),
    "M0 to LDS-DMA by SALU": ("gfx942", "s_mov_b32 m0, s4\n", "buffer_load_dword v2, s[4:7], 0 offen lds\n",
        1, "M0 is used"),
    "M0 to a message": ("gfx90a", "s_mov_b32 m0, s4\n", "s_sendmsg sendmsg(MSG_INTERRUPT)\n", 1, "M0 is used"),
    "M0 as an index of SGPRs": ("gfx942", "s_mov_b32 m0, s4\n", "s_movrels_b32 s5, s6\n", 1, "M0 is used"),
    "M0 to LDS by threads": ("gfx950", "s_add_u32 m0, s4, 8\n", "ds_read_addtid_b32 v1\n", 1, "M0 is used"),
    "a typed store": ("gfx942", "tbuffer_store_format_xyzw v[0:3], v4, s[4:7], 0 "
        "format:[BUF_DATA_FORMAT_32_32_32_32,BUF_NUM_FORMAT_FLOAT] offen\n", "v_mov_b32 v3, 0\n",
        2, "what a wide store reads"),
    "a typed store by a scalar offset": ("gfx950", "tbuffer_store_format_xyzw v[0:3], v4, s[4:7], s9 "
        "format:[BUF_DATA_FORMAT_32_32_32_32,BUF_NUM_FORMAT_FLOAT] offen\n", "v_mov_b32 v3, 0\n",
        1, "with a scalar offset"),
    "stochastic rounding to the upper half": ("gfx950", "v_cvt_sr_bf16_f32 v0, v1, v2 op_sel:[0,0,1]\n",
        "v_mov_b32 v3, v0\n", 1, "a part was written"),
    # by the s_nop that clang 22 puts there
    "fp8 by stochastic rounding and scale to the second byte": ("gfx950",
        "v_cvt_scalef32_sr_fp8_f32 v0, v1, v2, v3 op_sel:[0,0,1,0]\n", "v_mov_b32 v4, v0\n", 1, "a part was written"),
    "fp4 to the second byte": ("gfx950", "v_cvt_scalef32_pk_fp4_f32 v0, v1, v2, v3 op_sel:[0,0,1,0]\n",
        "v_mov_b32 v4, v0\n", 1, "a part was written"),
    "fp4 by stochastic rounding": ("gfx950", "v_cvt_scalef32_sr_pk_fp4_f32 v0, v[2:3], v1, v4\n",
        "v_mov_b32 v5, v0\n", 1, "a part was written"),
    "DPP of 64 bits": ("gfx942", "v_mov_b32 v3, 1\n", "v_mov_b64_dpp v[0:1], v[2:3] row_newbcast:1\n",
        2, "DPP reads"),
    "setreg, getreg": ("gfx90a", "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 8), 3\n",
        "s_getreg_b32 s4, hwreg(HW_REG_MODE)\n", 2, "s_getreg"),
    "setreg twice": ("gfx950", "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 8), 3\n",
        "s_setreg_b32 hwreg(HW_REG_MODE, 0, 4), s4\n", 2, "s_setreg of"),
    "wide store": ("gfx942", WIDE_STORE, "v_mov_b32 v3, 0\n", 2, "what a wide store reads"),
    "wide store of MI200": ("gfx90a", WIDE_STORE, "v_mov_b32 v3, 0\n", 1, "what a wide store reads"),
    "llvm#197267: a scalar offset": ("gfx950", "buffer_store_dwordx4 v[0:3], v4, s[4:7], s9 offen\n",
        "v_mov_b32 v1, 0\n", 1, "with a scalar offset"),
    "trans": ("gfx942", "v_exp_f32 v0, v1\n", "v_add_f32 v2, v0, v0\n", 1, "transcendental"),
    "trans to MFMA": ("gfx942", "v_exp_f32 v8, v1\n", XDL4, 2, "MFMA reads a register"),
    "SDWA": ("gfx942", "v_add_f32_sdwa v0, v1, v2 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE\n",
        "v_mov_b32 v3, v0\n", 1, "a part was written"),
    "upper half": ("gfx950", "v_fma_f16 v0, v1, v2, v3 op_sel:[0,0,0,1]\n", "v_fma_f16 v0, v1, v2, v3\n",
        1, "a part was written"),
    "f64": ("gfx90a", DGEMM, "v_fma_f64 v[20:21], v[22:23], v[24:25], v[26:27]\n", 2, "v_fma_f64 after"),
    "dot": ("gfx942", "v_dot2_f32_f16 v0, v1, v2, v3\n", "v_mov_b32 v4, v0\n", 3, "dot product is used"),
    "dot, its factor": ("gfx90a", "v_dot2_f32_f16 v0, v1, v2, v3\n", "v_dot2_f32_f16 v4, v0, v2, v3\n",
        3, "multiplies its result"),
    "VALU to MFMA": ("gfx90a", "v_mov_b32 v8, 1\n", XDL4, 2, "MFMA reads a register"),
    "4 passes to VALU": ("gfx942", XDL4, "v_mov_b32 v20, v0\n", 7, "the result of an MFMA is read"),
    "llvm#126132: 4 passes to VALU": ("gfx950", XDL4, "v_mov_b32 v20, v0\n", 8, "the result of an MFMA is read"),
    "8 passes to LDS": ("gfx942", XDL8, "ds_write_b32 v30, v15\n", 11, "the result of an MFMA is read"),
    "8 passes to memory": ("gfx950", XDL8, "global_store_dword v30, v15, s[4:5]\n",
        12, "the result of an MFMA is read"),
    "16 passes of MI200": ("gfx90a", XDL8, "v_mov_b32 v30, v15\n", 19, "the result of an MFMA is read"),
    "llvm#222040: 20 states": ("gfx950", "v_mfma_f32_32x32x4_2b_f16 v[0:31], v[32:33], v[34:35], v[0:31]\n",
        "v_mov_b32 v40, v31\n", 20, "the result of an MFMA is read"),
    "overwritten": ("gfx950", XDL4, "v_mov_b32 v3, 0\n", 8, "the result of an MFMA is overwritten"),
    "loaded over": ("gfx942", XDL4, "ds_read_b32 v3, v20\n", 7, "the result of an MFMA is overwritten"),
    "addend overwritten": ("gfx942", f"{F16} v[0:3], v[8:9], v[10:11], v[4:7]\n", "v_mov_b32 v5, 0\n",
        3, "the addend of an MFMA"),
    "factor": ("gfx942", XDL4, f"{F16} v[20:23], v[2:3], v[10:11], v[20:23]\n", 7, "a factor of an MFMA"),
    "part of the addend": ("gfx942", XDL8, f"{F16} v[4:7], v[20:21], v[22:23], v[4:7]\n", 9, "part of the addend"),
    "llvm#218363: another MFMA": ("gfx942", XDL4,
        "v_mfma_f32_16x16x16_bf16 v[0:3], v[8:9], v[10:11], v[0:3]\n", 5, "part of the addend"),
    "4x4 to its own addend": ("gfx942",
        "v_mfma_f32_4x4x4_16b_f16 v[0:3], v[8:9], v[10:11], v[0:3]\n" * 2, "", 2, "adds to the result"),
    "single precision": ("gfx942", SGEMM8, "v_mov_b32 v20, v0\n", 10, "the result of an MFMA is read"),
    "f64 to memory": ("gfx942", DGEMM, "global_store_dword v30, v7, s[4:5]\n", 18, "memory gets the result"),
    "f64 to memory, before VALU may read it": ("gfx950", DGEMM, "global_store_dword v30, v7, s[4:5]\n",
        18, "memory gets the result"),
    "f64 to VALU": ("gfx950", DGEMM, "v_mov_b32 v30, v7\n", 19, "the result of an MFMA is read"),
    "scalar loads in a row": ("gfx942", "s_load_dwordx2 s[4:5], s[0:1], 0\n",
        "s_load_dwordx2 s[0:1], s[2:3], 0\n", 1, "memory operations in a row"),
    "loads in a row": ("gfx90a", "global_load_dword v1, v2, s[4:5]\n", "global_load_dword v2, v3, s[4:5]\n",
        1, "memory operations in a row"),
}  # fmt: skip
SOUND = {
    "an accumulator": ("gfx950", XDL4 * 4),
    "an accumulator of 8 passes": ("gfx942", XDL8 * 2),
    "trans to trans": ("gfx942", "v_exp_f32 v0, v1\nv_log_f32 v2, v0\n"),
    "SALU to VMEM": ("gfx942", "s_mov_b32 s4, 0\nbuffer_load_dword v1, v2, s[4:7], 0 offen\n"),
    "SALU wrote it anew": ("gfx942",
        "v_readfirstlane_b32 s4, v0\ns_mov_b32 s4, 0\nbuffer_load_dword v1, v2, s[4:7], 0 offen\n"),
    "EXEC to VMEM": ("gfx942", "v_cmpx_eq_u32 v0, v1\nglobal_load_dword v1, v2, s[4:5]\n"),
    "a narrow store": ("gfx942", "global_store_dwordx2 v20, v[0:1], s[4:5]\nv_mov_b32 v1, 0\n"),
    "MI200 has no such hazard": ("gfx90a",
        "v_cmp_eq_u32 s[4:5], v0, v1\nv_cndmask_b32 v2, v3, v4, s[4:5]\nv_exp_f32 v0, v1\nv_add_f32 v2, v0, v0\n"),
    "single precision reads its addend early": ("gfx942",
        "v_mfma_f32_16x16x4_f32 v[0:3], v8, v9, v[4:7]\nv_mov_b32 v5, 0\n"),
    "fp4 and fp8 to the first byte": ("gfx950", "v_cvt_scalef32_pk_fp4_f32 v0, v1, v2, v3\nv_mov_b32 v4, v0\n"
        "v_cvt_scalef32_sr_fp8_f32 v0, v1, v2, v3\nv_mov_b32 v4, v0\n"),
    "loads into other registers": ("gfx942", "global_load_dword v1, v2, s[4:5]\nglobal_load_dword v3, v2, s[4:5]\n"),
}  # fmt: skip
# The later instruction comes on one of two ways, or in a loop's next round: (code, states needed).
WAYS = {
    "llvm#203770: a branch": (f"{WIDE_STORE}s_cbranch_scc0 1f\ns_nop 7\n1:\nv_mov_b32 v3, 0\n", 1),
    "around a loop": ("1:\nv_mov_b32 v20, v0\ns_nop 0\n" + XDL4 + "s_cbranch_scc1 1b\n", 6),
}


@functools.cache
def programs(arch: str) -> dict[str, list[Instruction]]:
    """The instructions of every case for an arch: one run of the assembler is enough for all of them."""
    codes = {name: first + then for name, (of, first, then, _, _) in NEEDED.items() if of == arch}
    for name, (of, first, then, states, _) in NEEDED.items():
        if of == arch:
            codes |= {f"{name}, enough": pad(first, then, states), f"{name}, one less": pad(first, then, states - 1)}
    codes |= {name: code for name, (of, code) in SOUND.items() if of == arch}
    codes |= {name: code for name, (code, _) in WAYS.items()} if arch == "gfx942" else {}
    for name, older in OLDER.items() if arch == "gfx90a" else ():
        codes = {label: code.replace(name, older) for label, code in codes.items()}
    return instructions_of(codes, arch)


def pad(first: str, then: str, states: int) -> str:
    """Code with so many wait states before the last instruction."""
    *before, last = (first + then).splitlines(keepends=True)
    nops = [f"s_nop {min(8, states - done) - 1}\n" for done in range(0, states, 8)]
    return "".join((*before, *nops, last))


@pytest.mark.parametrize("name", NEEDED)
def test_missing_wait_states_are_counted(name: str) -> None:
    arch, _, _, states, rule = NEEDED[name]
    (missing,) = missing_states(programs(arch)[name], arch)
    assert rule in missing.rule.name
    assert missing.missing == states
    assert re.search(rf"{states} wait states? missing after pc 0x", str(missing))


@pytest.mark.parametrize("name", NEEDED)
def test_only_too_few_wait_states_are_reported(name: str) -> None:
    arch = NEEDED[name][0]
    assert missing_states(programs(arch)[f"{name}, enough"], arch) == []
    assert [states.missing for states in missing_states(programs(arch)[f"{name}, one less"], arch)] == [1]


@pytest.mark.parametrize("name", SOUND)
def test_what_hardware_looks_at_itself_is_not_blamed(name: str) -> None:
    arch, _ = SOUND[name]
    assert len(programs(arch)[name]) > 2
    assert missing_states(programs(arch)[name], arch) == []


@pytest.mark.parametrize("name", WAYS)
def test_every_way_through_code_counts(name: str) -> None:
    (missing,) = missing_states(programs("gfx942")[name], "gfx942")
    assert missing.missing == WAYS[name][1]


def test_without_xnack_memory_operations_may_follow_each_other() -> None:
    rows = programs("gfx942")["scalar loads in a row"]
    assert missing_states(rows, "gfx942", xnack=False) == []


# a scalar that lanes wrote selects one too early, unless the branch, taken where no argument is given, leaves it out
EARLY = """s_load_dword s6, s[0:1], 0x0
s_waitcnt lgkmcnt(0)
s_cmp_eq_u32 s6, 0
s_cbranch_scc1 1f
v_readfirstlane_b32 s4, v0
v_readlane_b32 s5, v0, s4
1:
s_endpgm
"""
RUNS = """
import sys
from pathlib import Path
from ckpm_emulator.device import EmulatedGpu
from ckpm_emulator.errors import DeviceError
from ckpm_emulator.faults import DeviceFaultError
from emulator_assembly import launch
device, code = EmulatedGpu("gfx942", threads=1, hazards=sys.argv[2] == "on"), Path(sys.argv[1]).read_bytes()
launch(device, code)
try:
    device.configure(hazards=sys.argv[2] != "on")
except DeviceError as error:
    print("can't be changed" in str(error))
try:
    launch(device, code, device.malloc(4))
    print("passed")
except DeviceFaultError as error:
    print(error.fault.kind, hex(error.fault.pc), error.fault.detail)
"""


@pytest.mark.parametrize("option", ["on", "off"])
def test_instruction_without_wait_states_faults_where_it_runs(option: str, tmp_path: Path) -> None:
    (code := tmp_path / "code.hsaco").write_bytes(assemble(EARLY, "gfx942"))
    fixed, ended = run_python(RUNS, str(code), option).stdout.splitlines()
    assert fixed == "True"
    if option == "off":
        assert ended == "passed"
    else:
        assert ended.startswith("hazard 0x")
        assert "a lane is selected" in ended
        assert "4 wait states missing" in ended
