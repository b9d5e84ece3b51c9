"""Which mutants a seed draws: kinds in turn, a kernel and a place by chance; none that a rule calls equivalent."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from emulator.image import KernelInfo
from emulator.lowering.decode import Instruction
from emulator.lowering.descriptor import refusal
from tests.mutants import descriptors, planting
from tests.mutants.arguments import Arguments
from tests.mutants.bits import Bits
from tests.mutants.equivalents import Equivalents

KINDS = (*planting.KINDS, descriptors.KIND)
_LANES = 64
_HAS_ARGUMENTS = 8  # of kernel_code_properties
_UNUSED_REGISTERS = "registers that no code uses"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A built kernel: its code, what its descriptor says, the descriptor's 64 bytes, and what callers promise of its
    arguments (arguments.py).
    """

    instructions: Sequence[Instruction]
    arch: str
    info: KernelInfo
    descriptor: bytes
    promised: Mapping[int, Bits] = field(default_factory=dict)

    @property
    def arguments(self) -> Arguments:
        """What is known of them; their address stands behind a resource and two other addresses, if there are such."""
        before = sum(dwords for bit, dwords in enumerate((4, 2, 2)) if self.info.properties >> bit & 1)
        given = bool(self.info.properties & _HAS_ARGUMENTS)
        return Arguments(scalar=before, known=self.promised) if given else Arguments()

    @property
    def waves(self) -> int:
        """Of the largest workgroup, which is the one that the harness launches."""
        return self.info.max_workgroup // _LANES

    @property
    def ids(self) -> tuple[int, ...]:
        """The scalars that hold the workgroup's number at the start, behind the user SGPRs."""
        first = self.info.rsrc2 >> 1 & 0x1F
        return tuple(range(first, first + (self.info.rsrc2 >> 7 & 7).bit_count()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A kernel of the library with ``raw`` as the bits of instruction ``at``, or of the descriptor's word at that byte,
    which has ``size`` bytes. ``text`` is for people.
    """

    kernel: str
    kind: str
    at: int
    raw: int
    text: str
    size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """``left_out``: how many were drawn and left out, by the rule that calls them equivalent."""

    mutants: Sequence[Mutant]
    left_out: Mapping[str, int] = field(default_factory=dict)


def draw(kernels: Mapping[str, Kernel], seed: int, count: int) -> Drawn:
    """``count`` mutants, none twice, or all that there are."""
    chance = random.Random(seed)
    left: dict[str, dict[str, list[Mutant]]] = {kind: {} for kind in KINDS}
    for name, kernel in sorted(kernels.items()):
        for mutant in _all_of(name, kernel):
            left[mutant.kind].setdefault(name, []).append(mutant)
    rules = {
        name: Equivalents(kernel.instructions, kernel.waves, kernel.arch, kernel.ids, kernel.arguments)
        for name, kernel in kernels.items()
    }
    drawn: list[Mutant] = []
    left_out: Counter[str] = Counter()
    while len(drawn) < count and (kinds := [kind for kind in KINDS if left[kind]]):
        for kind in kinds[: count - len(drawn)]:
            chosen = _chosen(left[kind], chance, kernels, rules, left_out)
            drawn += [chosen] if chosen else []
    return Drawn(mutants=tuple(drawn), left_out=left_out)


def _chosen(
    left: dict[str, list[Mutant]],
    chance: random.Random,
    kernels: Mapping[str, Kernel],
    rules: Mapping[str, Equivalents],
    left_out: Counter[str],
) -> Mutant | None:
    """One of a kind that no rule calls equivalent, taken from what is ``left`` by kernel; None if there is none."""
    while left:
        name = chance.choice(list(left))
        mutant = left[name].pop(chance.randrange(len(left[name])))
        if not left[name]:
            del left[name]
        whole, rule = _judged(mutant, kernels[name], rules[name])
        if whole is not None and not rule:
            return whole
        left_out.update([rule] if rule else [])
    return None


def _all_of(name: str, kernel: Kernel) -> Iterator[Mutant]:
    for kind, at, raw in planting.changes(kernel.instructions):
        yield Mutant(kernel=name, kind=kind, at=at, raw=raw, text="")
    for word in descriptors.changes(kernel.descriptor):
        yield Mutant(kernel=name, kind=descriptors.KIND, at=word.offset, raw=word.value, text=word.text, size=word.size)


def _judged(mutant: Mutant, kernel: Kernel, rules: Equivalents) -> tuple[Mutant | None, str]:
    """The mutant with its text, None if it is no other instruction; and the rule that calls it equivalent."""
    if mutant.kind == descriptors.KIND:
        return mutant, _UNUSED_REGISTERS if _grants_enough(mutant, kernel) else ""
    change = planting.changed(mutant.kind, mutant.at, kernel.instructions[mutant.at], mutant.raw)
    if change is None:
        return None, ""
    return dataclasses.replace(mutant, text=str(change)), rules.rule(change)


def _grants_enough(mutant: Mutant, kernel: Kernel) -> bool:
    """Whether the code that the kernel can reach uses none of the registers that are granted no longer."""
    if mutant.at == descriptors.RSRC1:  # of these two words nothing but counts of registers is changed
        info = dataclasses.replace(kernel.info, rsrc1=mutant.raw)
    elif mutant.at == descriptors.RSRC3:
        info = dataclasses.replace(kernel.info, rsrc3=mutant.raw)
    else:
        return False
    span = {info.function.name: (0, len(kernel.instructions))}
    return refusal(info, kernel.instructions, span) is None
