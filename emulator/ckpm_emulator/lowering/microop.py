"""The micro-op record, field for field struct MicroOp of core/isa/microop.h."""

from __future__ import annotations

import numpy as np

SCALAR = 512
LITERAL = SCALAR + 255
WIDE = SCALAR + 256
NONE = 0xFFFF
ACCUMULATION = 256  # row of a0

# enum Modifier
NEGATE, ABSOLUTE, NEGATE_HIGH, SIGN_EXTEND, HALF, PERMUTED = 1, 2, 4, 8, 16, 32
# enum Select
BYTE_0, BYTE_1, BYTE_2, BYTE_3, WORD_0, WORD_1, DWORD = range(7)
# enum Flag
CLAMP, HIGH_HALF, DPP, SDWA, OFFEN, TO_LDS, RETURN, NO_ADDRESS = (1 << i for i in range(8))
BOUND_CONTROL, IDXEN, LOW_HALF, WRITES, GENERIC, COHERENT = (1 << i for i in range(8, 14))

SOURCE = np.dtype([("code", "<u2"), ("mods", "u1"), ("select", "u1")])
MICRO_OP = np.dtype(
    [
        ("handler", "<u8"),
        ("src", SOURCE, (3,)),
        ("dst", "<u2"),
        ("scalar_dst", "<u2"),
        ("literal", "<u4"),
        ("literal_high", "<u4"),
        ("offset", "<i4"),
        ("flags", "<u2"),
        ("control", "<u2"),
        ("dwords", "u1", (4,)),
        ("destination_select", "u1"),
        ("destination_unused", "u1"),
        ("omod", "u1"),
        ("kind", "u1"),
        ("pc", "<u4"),
        ("text", "<u4"),
        ("reserved", "<u4"),
        ("extra", "<u2", (2,)),
    ]
)

# enum Kind
KINDS = ("salu", "valu", "trans", "mfma", "smem", "vmem", "lds", "branch", "wait", "barrier", "other")


def name_hash(name: str) -> int:
    """The FNV-1a hash of a handler's name, by which a record names it (core/isa/registry.h)."""
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value
