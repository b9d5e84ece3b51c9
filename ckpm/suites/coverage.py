"""Coverage of a library's machine code by the cases of a run: the basic blocks that an emulated device executed.

unexecuted.yaml lists blocks that no case can execute, by their instructions, with the reason.
"""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ckpm.base.paths import data
from ckpm.base.tablefile import Record, Text, read_table
from ckpm.kernels.code import code_object
from ckpm.suites.suites import LocatedLibrary

if TYPE_CHECKING:
    from ckpm.kernels.code.code_object import Block

_FILE = data("matrix", "unexecuted.yaml")


class _ReasonRow(Record, frozen=True):
    shape: Text
    why: Text


class UnexecutedTable(Record, frozen=True):
    """The record of unexecuted.yaml."""

    blocks: tuple[_ReasonRow, ...]


@functools.cache
def reasons() -> Mapping[str, str]:
    """The reasons of unexecuted.yaml, by the shape of a block."""
    return {row.shape: row.why for row in read_table(_FILE, UnexecutedTable).record.blocks}


@dataclass(frozen=True, slots=True)
class Covered:
    """A kernel's number of basic blocks, and the blocks that were not executed."""

    kernel: str
    blocks: int
    missed: tuple[Block, ...]

    def without_reason(self) -> list[Block]:
        return [block for block in self.missed if block.shape not in reasons()]


@dataclass(slots=True)
class Coverage:
    """Ranges of code that launches executed, by the kernel's symbol."""

    executed: dict[str, set[tuple[int, int]]] = field(default_factory=dict)

    def add(self, executed: Mapping[str, Sequence[tuple[int, int]]]) -> None:
        for symbol, ranges in executed.items():
            self.executed.setdefault(symbol, set()).update((first, end) for first, end in ranges)

    def of_library(self, library: LocatedLibrary, arch: str) -> tuple[Covered, ...]:
        """The coverage of each kernel of a library; empty if the device observed nothing."""
        code = code_object.inspect(library.library, arch) if self.executed else {}
        return tuple(
            Covered(name, len(blocks), missed_blocks(blocks, self.executed.get(row.symbol, ())))
            for name, kernel in library.manifest.kernels.items()
            for row in kernel.resources_on(arch)
            if row.symbol in code and (blocks := code[row.symbol].blocks)
        )


def missed_blocks(blocks: Sequence[Block], executed: Collection[tuple[int, int]]) -> tuple[Block, ...]:
    """The blocks whose first instruction is in no range: a fault may leave a block before its end."""
    ranges = sorted(executed)
    furthest: list[int] = []
    for _, end in ranges:
        furthest.append(max(end, furthest[-1] if furthest else end))

    def is_executed(block: Block) -> bool:
        before = bisect_right(ranges, block.first, key=lambda interval: interval[0])
        return before > 0 and furthest[before - 1] > block.first

    return tuple(block for block in blocks if not is_executed(block))


def format_figure(covered: Sequence[Covered]) -> str:
    """The executed basic blocks of all kernels, and how many others no case can execute."""
    blocks, missed = sum(kernel.blocks for kernel in covered), sum(len(kernel.missed) for kernel in covered)
    open_blocks = sum(len(kernel.without_reason()) for kernel in covered)
    counts = {"cannot be": missed - open_blocks, "without a reason": open_blocks}
    return ", ".join([format_share(blocks - missed, blocks), *(f"{n} {what}" for what, n in counts.items() if n)])


def format_share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({100 * part / max(1, whole):.1f} %)"
