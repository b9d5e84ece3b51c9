"""The instructions of each arch: tinygrad's tables, which hold those of all, with LLVM's differences in isa.yaml."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import yaml

from ckpm_emulator.lowering import matrix_table
from ckpm_emulator.lowering.decode import Instruction

FACTS = Path(__file__).with_name("isa.yaml")


@functools.cache
def differences() -> tuple[dict[str, Any], ...]:
    """Groups of ``names`` with the ``forms`` that LLVM has of them on ``archs``; None: the instruction is not there."""
    return tuple(yaml.safe_load(FACTS.read_text()))


@functools.cache
def _archs_without(name: str) -> frozenset[str]:
    absent = (group for group in differences() if group["forms"] is None and name in group["names"].split())
    return frozenset(arch for group in absent for arch in group["archs"])


def refusal(instruction: Instruction, arch: str) -> str:
    """The reason why an arch lacks an instruction of the decoder's; '' if it has the instruction."""
    name = instruction.name
    if arch == "gfx90a" and name in matrix_table.NAMES:
        return matrix_table.refusal_of_gfx90a(name)
    if arch == "gfx90a" and name == "buffer_inv":  # what decode.py reads buffer_wbinvl1 and buffer_invl2 as
        return ""
    to_lds = getattr(instruction.record, "lds", 0) and name.endswith(("x3", "x4"))
    lacking = _archs_without(name.replace("buffer_load", "global_load_lds") if to_lds else name)
    if arch not in lacking:
        return ""
    others = sorted({"gfx942", "gfx950"} - lacking)
    verb = "has" if len(others) == 1 else "have"
    return f"{arch} has no {name}{' to LDS' if to_lds else ''}, {' and '.join(others)} {verb}"
