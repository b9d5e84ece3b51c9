"""The mutants that a seed draws: each kind in turn, a kernel and an instruction by chance."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ckpm_emulator.lowering.decode import Instruction
from ckpm_emulator.lowering.descriptor import accumulates
from tests.mutants import descriptors, planting

KINDS = (*planting.KINDS, descriptors.KIND)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """The code of a built kernel and the 64 bytes of its descriptor."""

    instructions: Sequence[Instruction]
    descriptor: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A kernel with other bits. Messages show ``text``.

    ``raw`` replaces instruction ``at``, or ``size`` bytes at byte ``at`` of the descriptor.
    """

    kernel: str
    kind: str
    at: int
    raw: int
    text: str
    size: int = 0


def draw(kernels: Mapping[str, Kernel], seed: int, count: int) -> tuple[Mutant, ...]:
    """Draw ``count`` mutants, none twice, or all if there are fewer."""
    chance = random.Random(seed)
    left: dict[str, dict[str, list[Mutant]]] = {kind: {} for kind in KINDS}
    for name, kernel in sorted(kernels.items()):
        for mutant in _candidates(name, kernel):
            left[mutant.kind].setdefault(name, []).append(mutant)
    mutants: list[Mutant] = []
    while len(mutants) < count and (kinds := [kind for kind in KINDS if left[kind]]):
        for kind in kinds[: count - len(mutants)]:
            mutant = _take(left[kind], chance)
            if kind == descriptors.KIND:
                mutants.append(mutant)
                continue
            before = kernels[mutant.kernel].instructions[mutant.at]
            if change := planting.make_change(kind, mutant.at, before, mutant.raw):
                mutants.append(dataclasses.replace(mutant, text=str(change)))
    return tuple(mutants)


def _candidates(name: str, kernel: Kernel) -> Iterator[Mutant]:
    for kind, at, raw in planting.candidates(kernel.instructions):
        yield Mutant(kernel=name, kind=kind, at=at, raw=raw, text="")
    for word in descriptors.changes(kernel.descriptor, accumulates=any(map(accumulates, kernel.instructions))):
        yield Mutant(kernel=name, kind=descriptors.KIND, at=word.offset, raw=word.value, text=word.text, size=word.size)


def _take(left: dict[str, list[Mutant]], chance: random.Random) -> Mutant:
    """Remove one mutant from the candidates of a kind, listed by kernel."""
    name = chance.choice(list(left))
    mutant = left[name].pop(chance.randrange(len(left[name])))
    if not left[name]:
        del left[name]
    return mutant
