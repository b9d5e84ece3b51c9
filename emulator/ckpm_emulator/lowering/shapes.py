"""Shapes: classes of instructions that differ only in register numbers, offsets and literals.

tinygrad's tables take a tenth of a millisecond to recognise an instruction and as long to list its operands. A library
of 384 kernels has hundreds of thousands of encodings, but some thousand shapes. The tables are used once for each
shape. Other instructions are recognised by the bits that decide.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from tinygrad.renderer.amd.dsl import AlignedSGPRField, BitField, Inst, SrcField, VGPRField

from ckpm_emulator.lowering.operands import Form, forms

_NUMBERS = ("offset", "offset0", "offset1", "simm16", "literal")  # no other field's meaning depends on these
_HEAD = 25  # the bits from here to 31 tell most formats apart
_PLAIN_SCALARS, FIRST_VECTOR = 102, 256  # encodings of sources: s0 to s101, and v0; between them special ones


_KEPT = ("operands", "op_regs")


def _keep_operands() -> None:
    """Make tinygrad's records look their operands up once, instead of at every access to a register."""
    for name in _KEPT:
        kept = functools.cached_property(getattr(Inst, name).fget)
        kept.__set_name__(Inst, name)
        setattr(Inst, name, kept)


_keep_operands()


class Shape:
    """A class of instructions. ``sample`` is tinygrad's record of one instruction; the records of all have its class.

    ``name`` is tinygrad's in lower case without the encoding's suffix: v_add_f32; ``format`` is VOP3 or VOP2_SDWA.
    ``forms`` has the operands by field name.
    """

    def __init__(self, sample: Any) -> None:
        self.sample = sample
        self.forms: Mapping[str, Form] = forms(sample)
        self._kept = {name: getattr(sample, name) for name in ("op_bits", *_KEPT)}
        self.size: int = sample.size()
        self.format = type(sample).__name__
        self.name = str(sample.op.name).lower().removesuffix("_e32").removesuffix("_e64")

    def record(self, raw: int) -> Any:
        """tinygrad's record of the instruction of this shape with these bits."""
        record: Any = object.__new__(type(self.sample))
        vars(record).update(self._kept, _raw=raw)
        return record


class _Layout:
    """One class of records under one head, with its shapes by the bits that are the same in all of a shape."""

    def __init__(self, kind: type[Inst]) -> None:
        self.size: int = kind._size()
        fields = dict(kind._fields)
        scalars_too = ("vsrc0", "vsrc1") if "s0" in fields else ()  # SDWA: what they hold is said elsewhere
        free = [
            field
            for name, field in fields.items()
            if name in _NUMBERS or (isinstance(field, SrcField | AlignedSGPRField) and name not in scalars_too)
        ]
        self._same = ~_bits(free)  # fixed bits and opcode, by which tinygrad distinguishes classes
        self._sources = [
            (field.lo, field.mask) for field in free if isinstance(field, SrcField) and not isinstance(field, VGPRField)
        ]
        self.shapes: dict[tuple[int, ...], Shape] = {}

    def key(self, raw: int) -> tuple[int, ...]:
        """The bits that all instructions of a shape share, and for each source its kind: SGPR, VGPR, or its code."""
        kinds = []
        for low, mask in self._sources:
            value = raw >> low & mask
            kinds.append(0 if value < _PLAIN_SCALARS else min(value, FIRST_VECTOR))
        return (raw & self._same, *kinds)


_layouts: dict[int, dict[type[Inst], _Layout]] = {}  # by head


def learned_shape(code: bytes) -> Shape | None:
    """The shape of the instruction at the start of ``code``, if one of its shape was learned."""
    for layout in _layouts.get(code[3] >> _HEAD - 24, {}).values():
        if len(code) >= layout.size:
            shape = layout.shapes.get(layout.key(int.from_bytes(code[: layout.size], "little")))
            if shape is not None:
                return shape
    return None


def learn(record: Any) -> Shape:
    """The shape of an instruction. tinygrad's record of it is the sample of a new shape."""
    raw = int.from_bytes(record.to_bytes(), "little")
    head = raw >> _HEAD & 0x7F
    kind = type(record)
    layout = _layouts.setdefault(head, {}).setdefault(kind, _Layout(kind))
    return layout.shapes.setdefault(layout.key(raw), Shape(record))


def _bits(fields: list[BitField]) -> int:
    bits = 0
    for field in fields:
        bits |= field.mask << field.lo
    return bits
