"""The records that Python writes are those that the core reads, and what is unknown becomes a trap with its reason."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys

import pytest

from ckpm_emulator import program_cache, toolchain
from ckpm_emulator.image import HIDDEN_KINDS
from ckpm_emulator.inspection import inspect
from ckpm_emulator.lowering import blob, opcodes
from ckpm_emulator.lowering import microop as m
from ckpm_emulator.lowering.decode import Instruction, decode
from ckpm_emulator.lowering.lower import lower, lower_one, missing_instructions
from emulator_assembly import instructions_of


def instructions(*dwords: int) -> list[Instruction]:
    return list(decode(b"".join(word.to_bytes(4, "little") for word in dwords)))


@pytest.fixture(scope="module")
def core() -> ctypes.CDLL:
    library = ctypes.CDLL(str(toolchain.library()), mode=ctypes.RTLD_LOCAL)
    library.emu_opcode_name.restype = ctypes.c_char_p
    library.emu_opcode_count.restype = library.emu_micro_op_bytes.restype = ctypes.c_size_t
    return library


def test_opcodes_are_those_of_core(core: ctypes.CDLL) -> None:
    names = [core.emu_opcode_name(i).decode() for i in range(core.emu_opcode_count())]
    assert len(names) == len(set(names)) == len({m.name_hash(name) for name in names})
    assert set(names) == opcodes.SUPPORTED


def test_micro_op_has_layout_of_core(core: ctypes.CDLL) -> None:
    assert m.MICRO_OP.itemsize == core.emu_micro_op_bytes()
    text = (toolchain.CORE / "isa" / "microop.h").read_text()
    for field, offset in re.findall(r"offsetof\(MicroOp, (\w+)\) == (\d+)", text):
        assert m.MICRO_OP.fields is not None
        assert m.MICRO_OP.fields[field][1] == int(offset)


def test_constants_are_those_of_core() -> None:
    text = (toolchain.CORE / "isa" / "microop.h").read_text()
    flags = {name: int(value) for name, value in re.findall(r"^    ([A-Z_]+) += (\d+),", text, re.MULTILINE)}
    assert len(flags) >= 17
    assert {name: getattr(m, name) for name in flags} == flags
    kinds = re.search(r"enum class Kind : uint8_t\n\{\s+(.*?),\s+Count\s+\}", text, re.DOTALL)
    assert kinds is not None
    assert tuple(re.split(r",\s+", kinds[1].lower())) == m.KINDS


def test_hidden_arguments_have_core_s_order() -> None:
    text = (toolchain.CORE / "run" / "program.h").read_text()
    kinds = re.search(r"enum class HiddenKind : uint32_t\n\{\s+(.*?),\s+Zero,\s+Count,\s+\}", text, re.DOTALL)
    assert kinds is not None
    names = [re.sub("(?<!^)([A-Z])", r"_\1", kind).lower() for kind in re.split(r",\s+", kinds[1])]
    assert [*names, "none"] == [kind.removesuffix("_arg") for kind in HIDDEN_KINDS]


def test_blob_has_layout_of_core() -> None:
    text = (toolchain.CORE / "run" / "blob.h").read_text()
    for name in ("Kernel", "Segment", "Variable", "Format"):
        dtype = getattr(blob, name.upper())
        body = re.search(rf"struct Blob{name}\n\{{(.*?)\}};", text, re.DOTALL)
        assert body is not None
        declared = [
            word.strip()
            for _, members in re.findall(r"(uint\d+_t|BlobText) ([^;]*);", body[1])
            for word in members.split(",")
        ]
        assert declared == list(dtype.names or ())


def test_branch_is_counted_in_micro_ops() -> None:
    # s_branch over a 8-byte instruction; v_add3_u32 v0, v1, v2, v3; s_endpgm
    lowered = lower(instructions(0xBF820002, 0xD1FF0000, 0x040E0501, 0xBF810000))
    assert lowered.ops["offset"][0] == 2
    assert list(lowered.ops["pc"]) == [0, 4, 12]


def test_branch_into_instruction_traps() -> None:
    lowered = lower(instructions(0xBF820001, 0xD1FF0000, 0x040E0501))
    assert lowered.ops["handler"][0] == m.name_hash("trap")
    assert lowered.texts[lowered.ops["literal"][0]] == "a branch to 0x8, where no instruction starts"


def test_unknown_bits_trap() -> None:
    (only,) = instructions(0xFFFFFFFF)
    assert lower_one(only)[1] == "the emulator lacks bits of no instruction in its tables: .long 0xffffffff"
    assert missing_instructions([only, only]) == {"the emulator lacks bits of no instruction in its tables": 2}


@pytest.mark.parametrize("name", ["buffer_wbinvl1", "buffer_wbinvl1_vol"])
def test_cache_invalidations_of_gfx90a_have_their_own_name(name: str) -> None:
    first, last = instructions_of({name: f"{name}\n"}, "gfx90a")[name]
    assert (first.name, first.size, last.name) == ("buffer_inv", 8, "s_endpgm")
    assert not missing_instructions([first, last])


ONLY_950 = {
    "v_permlane32_swap_b32 v1, v2": "v_permlane32_swap_b32",
    "v_bitop3_b32 v1, v2, v3, v4 bitop3:0x55": "v_bitop3_b32",
    "v_cvt_scalef32_pk_fp8_f32 v1, v2, v3, v4": "v_cvt_scalef32_pk_fp8_f32",
    "ds_read_b64_tr_b16 v[2:3], v1": "ds_read_b64_tr_b16",
    "global_load_lds_dwordx4 v1, s[4:5]": "global_load_lds_dwordx4",
    "buffer_load_dwordx4 v1, s[4:7], 0 offen lds": "buffer_load_dwordx4 to LDS",
}


@pytest.mark.parametrize("code", ONLY_950)
def test_instruction_of_later_arch_traps(code: str) -> None:
    """LLVM's assembler takes them for gfx950 alone."""
    only, _ = instructions_of({code: f"{code}\ns_endpgm\n"}, "gfx950")[code]
    assert lower_one(only, "gfx950")[1] == ""
    assert lower_one(only, "gfx942")[1] == f"gfx942 has no {ONLY_950[code]}, gfx950 has: {only.text}"
    assert lower_one(only, "gfx90a")[1] == f"gfx90a has no {ONLY_950[code]}, gfx950 has: {only.text}"


@pytest.mark.parametrize(
    ("code", "later"),
    [
        ("v_mac_f32 v1, v2, v3", "v_dot2c_f32_bf16, gfx950 has:"),
        ("v_madak_f32 v1, v2, v3, 0x40000000", "v_fmaak_f32, gfx942 and gfx950 have:"),
    ],
)
def test_opcode_that_gfx90a_has_for_another_instruction_traps(code: str, later: str) -> None:
    """LLVM's assembler: later archs have v_dot2c_f32_bf16 and the fused v_fmaak_f32 in their place."""
    first, *_ = instructions_of({code: f"{code}\ns_endpgm\n"}, "gfx90a")[code]
    assert lower_one(first, "gfx90a")[1].startswith(f"gfx90a has no {later}")


def test_unknown_modifier_traps() -> None:
    # v_add3_u32 with clamp
    (only,) = instructions(0xD1FF8000, 0x040E0501)
    text = "v_add3_u32_e64 v[0], v[1], v[2], v[3] clmp:1"
    assert lower_one(only)[1] == f"the emulator lacks clamp of v_add3_u32: {text}"


@pytest.mark.parametrize(("offset", "lacks"), [(0xC020, True), (0xE000, True), (0x80E4, False), (0x041F, False)])
def test_modes_of_swizzle_that_core_lacks_trap(offset: int, lacks: bool) -> None:
    """ISA, DS_SWIZZLE_B32: from 0xe000 on FFT, from 0xc000 on rotation, from 0x8000 on quads."""
    (only,) = instructions(0xD87A0000 | offset, 0x01000002)
    assert only.name == "ds_swizzle_b32"
    assert ("rotation and FFT" in lower_one(only)[1]) is lacks


@pytest.mark.parametrize(
    ("dwords", "name", "codes", "literal"),
    [
        ((0x02020501,), "v_add_f32", (1, 2, m.NONE), 0),
        ((0x020204FF, 0x40490FDB), "v_add_f32", (m.LITERAL, 2, m.NONE), 0x40490FDB),
        ((0xBE8000FF, 0x12345678), "s_mov_b32", (m.LITERAL, m.NONE, m.NONE), 0x12345678),
        ((0xB000FFFF,), "s_mov_b32", (m.LITERAL, m.NONE, m.NONE), 0xFFFFFFFF),
        ((0xBE8001C1,), "s_mov_b64", (m.SCALAR + 193, m.NONE, m.NONE), 0),
    ],
    ids=["vgprs", "literal", "scalar literal", "s_movk", "inline constant"],
)
def test_operands(dwords: tuple[int, ...], name: str, codes: tuple[int, ...], literal: int) -> None:
    op, reason = lower_one(instructions(*dwords)[0])
    assert reason == ""
    assert (op.name, op.literal) == (name, literal)
    assert tuple(source.code for source in op.src) == codes


def test_waits_keep_their_counts() -> None:
    lowered = lower(instructions(0xBF8C0F70))
    assert lowered.ops["control"][0] == 0x0F70
    assert m.KINDS[lowered.ops["kind"][0]] == "wait"


@pytest.mark.parametrize(
    ("imports", "makers"),
    [
        ("lowering import translate", {*program_cache._MAKERS, "errors"}),
        ("inspection import hazards, lds_waits, waits", {*inspect._MAKERS} - {"inspection/inspect"}),
    ],
)
def test_every_maker_counts_for_cache(imports: str, makers: set[str]) -> None:
    text, package = f"import sys\nfrom ckpm_emulator.{imports}\nprint(*sys.modules)", "ckpm_emulator."
    run = subprocess.run(
        [sys.executable, "-c", text], cwd=toolchain.PROJECT, capture_output=True, text=True, check=True
    )
    names = {name.removeprefix(package) for name in run.stdout.split() if name.startswith(package)}
    assert {name.replace(".", "/") for name in names} - {"inspection", "lowering"} == makers


def test_matrix_work() -> None:
    code = "v_mfma_f32_32x32x16_bf16 v[0:15], v[16:19], v[20:23], 0\n"
    code += "v_smfmac_f32_16x16x32_f16 v[0:3], v[4:5], v[8:11], v12\n"
    dense, sparse, _ = lower(instructions_of({"": code}, "gfx950")[""], arch="gfx950").ops
    assert (dense["literal"], dense["literal_high"]) == (2 * 32 * 32 * 16, 32)
    assert (sparse["literal"], sparse["literal_high"]) == (2 * 16 * 16 * 16, 16)
