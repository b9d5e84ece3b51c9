"""The table of instructions that need wait states between them, because the hardware doesn't wait.

A rule has an effect of a first instruction (``first``) and an effect of a later one (``then``) on registers that they
share; hazard_effects.py computes these registers. ``states`` are the wait states needed in between.

Sources: LLVM's GCNHazardRecognizer, by the name of its check, and the ISA documents of CDNA2, CDNA3 and CDNA4,
"Manually Inserted Wait States (NOPs)". LLVM is of August 2026, which has more rules than its releases
(llvm-project#197267, #203770, #218363, #222040). Passes of the matrix instructions are those of hazard_effects.py.

Left out on gfx90a: a VALU, a double-precision MFMA and a memory read in a row, and 64-bit shifts by a kernel's last
register, which LLVM avoids by a copy. Left out everywhere: code that no compiler writes (s_rfe, setvskip, trap
handlers).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache


class Relation(Enum):
    """A condition of a rule besides the shared register."""

    OVERLAP = "nothing"
    PARTIAL = "not the same tuple, or another opcode"
    SAME = "the same tuple and opcode"
    OTHER_OPCODE = "another opcode"
    SAME_OPCODE = "the same opcode"


@dataclass(frozen=True, slots=True)
class Rule:
    """``states`` by arch; an arch that is not there has no such hazard."""

    name: str
    source: str
    first: str
    then: str
    states: Mapping[str, int]
    relation: Relation = Relation.OVERLAP


_ALL = ("gfx90a", "gfx942", "gfx950")
_NEW = ("gfx942", "gfx950")
_950 = ("gfx950",)


def _on(archs: tuple[str, ...], states: int) -> Mapping[str, int]:
    return dict.fromkeys(archs, states)


# LLVM's check, what the first does, what the later one does, wait states, what is wrong
_SCALAR_AND_LANE = (
    ("checkVMEMHazards", "valu scalars", "vmem scalars", _on(_ALL, 5), "VMEM reads a scalar register that VALU wrote"),
    ("checkVALUHazards", "valu scalars", "valu reads scalars", _on(_NEW, 2), "VALU reads a scalar that VALU wrote"),
    ("checkDivFMasHazards", "valu scalars", "div_fmas vcc", _on(_ALL, 4), "v_div_fmas reads VCC that VALU wrote"),
    ("checkRWLaneHazards", "valu scalars", "lane select", _on(_ALL, 4), "a lane is selected by what VALU wrote"),
    ("checkVALUHazards", "valu scalars", "lane exec", _on(_NEW, 4), "a lane is moved under EXEC that VALU wrote"),
    ("checkVALUHazards", "valu vectors", "lane source", _on(_NEW, 1), "a lane is read from what VALU wrote"),
    ("checkDPPHazards", "vectors", "dpp vectors", _on(_ALL, 2), "DPP reads a register that was written"),
    ("checkDPPHazards", "valu scalars", "dpp exec", _on(_ALL, 5), "DPP under EXEC that VALU wrote"),
    ("checkPermlaneHazards", "valu vectors", "permlane vectors", _on(_950, 2), "v_permlane reads what VALU wrote"),
    ("checkPermlaneHazards", "valu scalars", "permlane exec", _on(_950, 4), "v_permlane under EXEC that VALU wrote"),
    ("checkMAIHazards90A", "valu scalars", "mfma exec", _on(_ALL, 4), "MFMA under EXEC that VALU wrote"),
    ("checkReadM0Hazards", "salu m0", "m0", _on(_ALL, 1), "M0 is used that SALU wrote"),
    ("checkGetRegHazards", "setreg", "getreg", _on(_ALL, 2), "s_getreg of what s_setreg wrote"),
    ("checkSetRegHazards", "setreg", "setreg again", _on(_ALL, 2), "s_setreg of what s_setreg wrote"),
)
_WIDE_STORE = {"gfx90a": 1, "gfx942": 2, "gfx950": 2}
_VECTOR = (
    ("checkVALUHazards", "wide store", "valu writes", _WIDE_STORE, "VALU overwrites what a wide store reads"),
    ("checkVALUHazards, llvm-project#197267", "wide store by scalar offset", "valu writes", _on(_NEW, 1),
     "VALU overwrites what a wide store with a scalar offset reads"),
    ("checkVALUHazards", "trans result", "valu reads not trans", _on(_NEW, 1),
     "VALU reads the result of a transcendental operation"),
    ("checkVALUHazards", "part of a register", "valu uses", _on(_NEW, 1),
     "VALU uses a register of which a part was written"),
    ("checkMAIVALUHazards", "dgemm", "fma f64", _on(_ALL, 2), "v_fma_f64 after a double-precision MFMA"),
    ("checkMAIHazards90A", "legacy vectors", "mfma reads", _on(_ALL, 2), "MFMA reads a register that VALU wrote"),
)  # fmt: skip
_DOT = (
    ("checkMAIVALUHazards", "dot result", "uses", Relation.OTHER_OPCODE, "the result of a dot product is used"),
    ("checkMAIVALUHazards", "dot result", "dot factors", Relation.SAME_OPCODE, "a dot product multiplies its result"),
)
# By unit and passes of the MFMA: wait states until its result is read by VALU or memory, is a factor of another MFMA,
# is part of the addend of an XDL one, of another one, is overwritten, and until VALU may overwrite its own addend.
_MFMA: Mapping[str, Mapping[tuple[str, int], tuple[int, int, int, int, int, int]]] = {
    "gfx90a": {
        ("xdl", 2): (5, 5, 2, 3, 5, 1),
        ("xdl", 8): (11, 11, 8, 9, 11, 7),
        ("xdl", 16): (19, 19, 16, 17, 19, 15),
        ("dgemm", 4): (6, 6, 0, 4, 6, 0),
        ("dgemm", 8): (11, 11, 0, 9, 11, 0),
    },
    "gfx942": {
        ("xdl", 2): (5, 5, 3, 3, 5, 1),
        ("xdl", 4): (7, 7, 5, 5, 7, 3),
        ("xdl", 8): (11, 11, 9, 9, 11, 7),
        ("xdl", 16): (19, 19, 17, 17, 19, 15),
        ("sgemm", 2): (4, 4, 0, 2, 4, 0),
        ("sgemm", 8): (10, 10, 0, 8, 10, 0),
        ("sgemm", 16): (18, 18, 0, 16, 18, 0),
        ("dgemm", 4): (6, 6, 0, 4, 6, 0),
        ("dgemm", 8): (11, 11, 0, 9, 11, 0),
    },
    "gfx950": {
        ("xdl", 2): (5, 5, 4, 3, 5, 1),
        ("xdl", 4): (8, 8, 6, 6, 8, 3),
        ("xdl", 8): (12, 12, 10, 10, 12, 7),
        ("xdl", 16): (20, 20, 18, 18, 20, 15),
        ("sgemm", 2): (4, 4, 0, 2, 4, 0),
        ("sgemm", 8): (10, 10, 0, 8, 10, 0),
        ("sgemm", 16): (18, 18, 0, 16, 18, 0),
        ("dgemm", 4): (6, 6, 0, 4, 6, 0),
        ("dgemm", 16): (19, 19, 0, 17, 11, 0),
    },
}
# Memory reads the result of a double-precision MFMA: by passes.
_DGEMM_TO_MEMORY = {4: 9, 8: 18, 16: 18}
_MFMA_COLUMNS = (
    ("the result of an MFMA is read", "checkMAIVALUHazards", "result", "reads", Relation.OVERLAP),
    ("the result of an MFMA is a factor of an MFMA", "checkMAIHazards90A", "result", "mfma factors", Relation.OVERLAP),
    ("the result of an MFMA is part of the addend of an MFMA", "checkMAIHazards90A, llvm-project#218363", "result",
     "xdl addend", Relation.PARTIAL),
    ("the result of an MFMA is part of the addend of an MFMA", "checkMAIHazards90A, llvm-project#218363", "result",
     "other addend", Relation.PARTIAL),
    ("the result of an MFMA is overwritten", "checkMAIVALUHazards", "result", "writes", Relation.OVERLAP),
    ("the addend of an MFMA is overwritten", "checkMAIVALUHazards", "addend", "writes", Relation.OVERLAP),
)  # fmt: skip


# Not about two instructions alone: hazards.py looks for it.
CLAUSE = Rule(
    "memory operations in a row, of which one writes what one reads: with XNACK they may be repeated",
    "checkSoftClauseHazards",
    "",
    "",
    _on(_ALL, 1),
)


@cache
def rules(arch: str) -> Mapping[str, tuple[Rule, ...]]:
    """The rules of an arch by what the first instruction does."""
    by_first: dict[str, list[Rule]] = {}
    for rule in (*_plain(), *_of_mfma(arch)):
        if rule.states.get(arch):
            by_first.setdefault(rule.first, []).append(rule)
    return {first: tuple(some) for first, some in by_first.items()}


def _plain() -> Iterator[Rule]:
    for source, first, then, states, name in (*_SCALAR_AND_LANE, *_VECTOR):
        yield Rule(name, source, first, then, states)
    for source, first, then, relation, name in _DOT:
        yield Rule(name, source, first, then, _on(_ALL, 3), relation)


def _of_mfma(arch: str) -> Iterator[Rule]:
    for (unit, passes), numbers in _MFMA[arch].items():
        for (name, source, part, listed, relation), states in zip(_MFMA_COLUMNS, numbers, strict=True):
            then = "valu reads" if (unit, listed) == ("dgemm", "reads") else listed  # memory has a rule of its own
            yield Rule(name, source, f"{unit}{passes} {part}", then, {arch: states}, relation)
        result = f"{unit}{passes} result"
        if unit == "dgemm":
            states = _DGEMM_TO_MEMORY[passes]
            yield Rule(
                "memory gets the result of an MFMA", "checkMAIVALUHazards", result, "memory reads", {arch: states}
            )
        # Results go straight on to the next MFMA only where that takes longer than its unit needs.
        waits = 4 if (unit, passes) == ("dgemm", 4) else 2 if passes == 2 and arch != "gfx90a" else 0
        for then in ("xdl addend", "other addend"):
            yield Rule(
                "MFMA adds to the result of an MFMA", "checkMAIHazards90A", result, then, {arch: waits}, Relation.SAME
            )
