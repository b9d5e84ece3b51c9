"""Coverage of an arch's instruction set, by encoding.

An arch has the instructions that LLVM's assembler accepts: those of tinygrad's tables, made from AMD's ISA XML, with
the differences in lowering/isa.yaml (``python emulator/tests/isa_facts.py``). Encodings and numbers are the tables'. An
instruction is executed if its plain form doesn't become a trap.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tinygrad.runtime.autogen.amd.cdna import ins

from ckpm_emulator.lowering.arch_table import differences
from ckpm_emulator.lowering.decode import decode
from ckpm_emulator.lowering.lower import lower_one

_SCALAR = ("SOP1", "SOP2", "SOPC", "SOPK", "SOPP", "SMEM")
_MEMORY = ("DS", "FLAT", "GLOBAL", "SCRATCH", "MUBUF", "MTBUF")
_ANY = ""
# encoding: the form that LLVM has for it, if an instruction has several
_ENCODINGS: Mapping[str, str] = {
    **dict.fromkeys((*_SCALAR, *_MEMORY), _ANY),
    **dict.fromkeys(("VOP1", "VOP2", "VOPC"), "e32"),
    **dict.fromkeys(("VOP1_SDWA", "VOP2_SDWA", "VOPC_SDWA_SDST"), "sdwa"),
    **dict.fromkeys(("VOP1_DPP16", "VOP2_DPP16"), "dpp"),
    **dict.fromkeys(("VOP3", "VOP3SD"), "e64"),
    **dict.fromkeys(("VOP3P", "VOP3P_MFMA", "VOP3PX2"), _ANY),
}
_MATRIX = ("v_mfma", "v_smfmac", "v_accvgpr")
# Names that the assembler has for what AMD's tables call otherwise; older spellings of matrix instructions, too.
_OTHER_NAMES = {
    "v_accvgpr_read_b32": "v_accvgpr_read",
    "v_accvgpr_write_b32": "v_accvgpr_write",
    "v_fma_mix_f32": "v_mad_mix_f32",
    "v_fma_mixlo_f16": "v_mad_mixlo_f16",
    "v_fma_mixhi_f16": "v_mad_mixhi_f16",
    "v_mul_lo_i32": "v_mul_lo_u32",
}
_ONLY_LONG = ("v_readlane_b32", "v_writelane_b32")  # LLVM counts them among those with a short form
_OLD_MATRIX = re.compile(r"v_mfma_[a-z0-9]+_\d+x\d+x\d+(xf32|bf16|f16|f32|f64|i8)(_1k)?$")
_SOURCES, _FIRST_VECTOR = ("src0", "src1", "src2"), 256
_MARKERS = {"SDWA": 249, "DPP16": 250}  # in src0
_LOAD_SCALE = 0xD3AC  # the upper half of the first dword of v_mfma_scale_*
_LITERAL = bytes(4)  # after instructions that take one
_WHOLE, _BROADCAST = 6, 0x150  # SDWA's selection of a dword; row_newbcast, which all widths have


@dataclass(frozen=True, slots=True)
class Row:
    """The instructions of one encoding: the names of executed instructions, and of refused ones."""

    encoding: str
    executed: tuple[str, ...]
    refused: tuple[str, ...]


def forms_of_tables() -> dict[str, frozenset[str]]:
    """The forms of each instruction in tinygrad's tables; instructions with one encoding have no form."""
    forms: dict[str, set[str]] = {}
    for encoding, form in _ENCODINGS.items():
        for name, _ in _opcodes(encoding):
            forms.setdefault(name, set()).update({form} - {_ANY})
    return {name: frozenset(some) for name, some in forms.items()}


def table_name(name: str) -> str | None:
    """The name in tinygrad's tables of an instruction that LLVM has; None for an older spelling."""
    return None if _OLD_MATRIX.match(name) else _OTHER_NAMES.get(name, name)


@functools.cache
def instructions(arch: str) -> Mapping[str, frozenset[str]]:
    """The instructions of an arch, by tinygrad's names, with the forms that LLVM has of each."""
    forms = forms_of_tables()
    for group in differences():
        for name in group["names"].split() if arch in group["archs"] else ():
            forms[name] = frozenset(group["forms"] or ())
            if group["forms"] is None:
                del forms[name]
    return forms


@functools.cache
def rows(arch: str) -> tuple[Row, ...]:
    """All encodings of an arch. Instructions without an encoding in tinygrad's tables are a row of their own."""
    wanted, table = instructions(arch), []
    placed: set[str] = set()
    for encoding, form in _ENCODINGS.items():
        names = {
            name: op
            for name, op in _opcodes(encoding)
            if name in wanted and (form == _ANY or form in wanted[name] or name in _ONLY_LONG)
        }
        placed |= names.keys()
        executed = tuple(name for name, op in names.items() if _is_executed(encoding, op))
        refused = tuple(name for name in names if name not in executed)
        if names:
            table.append(Row(encoding, executed, refused))
    return (*table, Row("no encoding known", (), tuple(sorted(wanted.keys() - placed))))


def report(arch: str) -> str:
    """The table, then a line with the sums."""
    table = rows(arch)
    lines = [f"{'encoding':17} {'opcodes':>7} {'executed':>8} {'refused':>7}"]
    for row in table:
        executed, refused = len(row.executed), len(row.refused)
        lines.append(
            f"{row.encoding:17} {executed + refused:7} {executed:8} {refused:7}  {' '.join(row.refused)}".rstrip()
        )
    return "\n".join((*lines, f"{arch}: {summary(arch)}"))


def summary(arch: str) -> str:
    """Executed and all instructions by name, and the same of pairs of a name and an encoding."""
    table = rows(arch)
    executed, refused = sum(len(row.executed) for row in table), sum(len(row.refused) for row in table)
    lacking = {name for row in table for name in row.refused}
    names = {name for row in table for name in row.executed} | lacking
    return (
        f"{len(names) - len(lacking)} of {len(names)} instructions are executed, "
        f"in {executed} of {executed + refused} encodings"
    )


def _opcodes(encoding: str) -> Iterator[tuple[str, Any]]:
    """The opcodes of an encoding by name. Three encodings share VOP3P's numbers; MFMA belongs to VOP3P_MFMA alone."""
    for op in dict(getattr(ins, encoding)._fields)["op"]._enum:
        name = str(op.name).lower().removesuffix("_e32").removesuffix("_e64")
        matrix = name.startswith(_MATRIX)
        if not encoding.startswith("VOP3P") or encoding == "VOP3PX2" or matrix == (encoding == "VOP3P_MFMA"):
            yield name, op


def _is_executed(encoding: str, op: Any) -> bool:
    """True if the plain form isn't a trap: all operands are registers, modifiers are off."""
    kind = getattr(ins, encoding)
    values = {"op": op.value, "opsel_hi": 3, "opsel_hi2": 1, "src0_sel": _WHOLE, "src1_sel": _WHOLE, "dst_sel": _WHOLE}
    values |= dict.fromkeys(_SOURCES, _FIRST_VECTOR)
    values |= {"dpp": _BROADCAST, "row_mask": 15, "bank_mask": 15, "imm": 1, "dfmt": 4, "nfmt": 7, "sbase": 2}
    for word, marker in _MARKERS.items():
        if f"_{word}" in encoding:
            values["src0"] = marker
    if encoding in ("VOP3P_MFMA", "VOP3PX2"):  # other fields are in the place of op_sel_hi
        values |= {"opsel_hi": 0, "opsel_hi2": 0, "x2encoding": _LOAD_SCALE}
    if encoding == "VOP3PX2":
        values["abid"] = 1  # with scales
    if encoding == "VOP3" and op.name.startswith("V_CMP"):
        values["vdst"] = 0
    raw = 0
    for name, field in kind._fields:
        raw |= (
            field.default if type(field).__name__ == "FixedBitField" else values.get(name, 0) & field.mask
        ) << field.lo
    first = next(decode(raw.to_bytes(kind._size(), "little") + _LITERAL))
    return first.record is not None and first.record.op == op and lower_one(first)[0].name != "trap"
