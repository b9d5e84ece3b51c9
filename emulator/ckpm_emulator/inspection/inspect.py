"""Static properties of a kernel's machine code: the mix of its hot loop, missing waits and missing wait states.

Inspecting a kernel takes a tenth of a second. The result for each kernel's code is cached, and the decoder's tables are
imported only for new code: if one of 6,000 kernels changed, only that one is inspected.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import multiprocessing
import signal
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckpm_emulator import code_object, image
from ckpm_emulator.cache import Store, cache_folder
from ckpm_emulator.errors import CodeObjectError
from ckpm_emulator.options import processors
from ckpm_emulator.program_cache import text_version

if TYPE_CHECKING:
    from ckpm_emulator.lowering.decode import Instruction

_MAKERS = (
    *("lowering/flow", "inspection/hazard_effects", "inspection/hazard_rules", "inspection/hazards"),
    *("inspection/inspect", "inspection/lds_waits", "inspection/waits", "lowering/registers"),
    *("lowering/decode", "lowering/matrix_table", "lowering/microop", "lowering/operands", "lowering/shapes"),
)
_FEW = 4  # instructions of a block whose names are kept
_WORTH_PROCESSES = 32  # kernels; a process of its own takes half a second to start


@dataclass(frozen=True, slots=True)
class Block:
    """A basic block: the virtual addresses of its first byte and of its end.

    ``shape`` is the name of the instruction before it, a colon, and the names of its own instructions if they are few.
    """

    first: int
    end: int
    shape: str

    def __str__(self) -> str:
        return f"{self.first:#x} {self.shape}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspected:
    """One kernel. ``loop`` counts the instructions of its hot loop by flow.CLASSES; all 0 if it has no loop with MFMA.

    ``lane_moves`` are v_readlane and v_writelane, by which scalar registers are spilled into vector ones. ``hazards``
    are waits.Hazard and lds_waits.UnfinishedWrite as text, ``missing_states`` are hazards.MissingStates. ``blocks``
    are the basic blocks that its entry reaches.
    """

    symbol: str
    instructions: int
    unknown: int
    loop: dict[str, int]
    hazards: tuple[str, ...]
    missing_states: tuple[str, ...]
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class _Code:
    """A kernel's bytes, at ``pc`` of the text of a code object for ``target``; ``text`` is the text's address."""

    symbol: str
    target: str
    text: int
    pc: int
    code: bytes

    def key(self) -> str:
        """The cache key of the code."""
        return hashlib.sha256(f"{text_version(_MAKERS)} {self.target} {self.pc} ".encode() + self.code).hexdigest()


def inspect(path: Path, arch: str, *, cache: Path | None = None) -> list[Inspected]:
    """The kernels for ``arch`` of a library, object, bundle or code object. Raises CodeObjectError."""
    inspections = Store((cache if cache is not None else cache_folder()) / "inspections")
    codes = list(_codes(path, arch))
    facts_by_code: dict[_Code, dict[str, Any]] = {
        code: json.loads(text) for code in codes if (text := inspections.get(code.key()))
    }
    new = [code for code in codes if code not in facts_by_code]
    for code, facts in zip(new, _look_at_all(new), strict=True):
        inspections.put(code.key(), json.dumps(facts).encode())
        facts_by_code[code] = facts
    return [_as_record(code, facts_by_code[code]) for code in codes]


def as_json(inspected: Sequence[Inspected]) -> str:
    """JSON of the kernels by symbol: ``instructions``, ``unknown``, ``loop`` by class, ``hazards`` and
    ``missing_states`` as text, ``blocks``.
    """
    rows = [dataclasses.asdict(kernel) for kernel in inspected]
    return json.dumps({row.pop("symbol"): row for row in rows}, indent=1)


def _as_record(code: _Code, facts: Mapping[str, Any]) -> Inspected:
    lists = {name: tuple(facts[name]) for name in ("hazards", "missing_states")}
    blocks = tuple(Block(code.text + first, code.text + end, shape) for first, end, shape in facts["blocks"])
    return Inspected(symbol=code.symbol, **{**facts, **lists, "blocks": blocks})


def _codes(path: Path, arch: str) -> Iterable[_Code]:
    objects = code_object.code_objects(path)
    archs = dict.fromkeys(target.partition(":")[0] for target, _ in objects)
    if arch not in archs:
        raise CodeObjectError(f"{path}: has code for {', '.join(archs)}, and none for {arch}")
    for target, elf in objects:
        if target.partition(":")[0] == arch:
            read = image.read(elf)
            for kernel in read.kernels:
                start = kernel.function.address - read.text_address
                yield _Code(
                    kernel.name, target, read.text_address, start, read.text[start : start + kernel.function.size]
                )


def _look_at_all(codes: Sequence[_Code]) -> list[dict[str, Any]]:
    """Inspect kernels in the order given; many of them on all processors."""
    if len(codes) < _WORTH_PROCESSES:
        return [_look(code) for code in codes]
    # not forked: the caller may have started an emulated device, whose threads a fork would lose
    context = multiprocessing.get_context("forkserver")
    # a terminal's interrupt is for the caller alone, which ends its pool
    with ProcessPoolExecutor(processors(), context, _ignore_interrupts) as pool:
        return list(pool.map(_look, codes, chunksize=8))


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _look(code: _Code) -> dict[str, Any]:
    """The fields of Inspected without the symbol."""
    from ckpm_emulator.inspection.hazards import missing_states
    from ckpm_emulator.inspection.lds_waits import unfinished_writes
    from ckpm_emulator.inspection.waits import hazards

    # only here: its tables take longer to import than a kernel's result to read
    from ckpm_emulator.lowering.decode import decode
    from ckpm_emulator.lowering.flow import basic_blocks, loop_mix

    instructions = list(decode(code.code, code.pc))
    missing = missing_states(instructions, code.target.partition(":")[0], xnack=":xnack-" not in code.target)
    return {
        "instructions": len(instructions),
        "unknown": sum(instruction.record is None for instruction in instructions),
        "loop": loop_mix(instructions),
        "hazards": [str(hazard) for hazard in (*hazards(instructions), *unfinished_writes(instructions))],
        "missing_states": [str(states) for states in missing],
        "blocks": [_look_at_block(instructions, block) for block in basic_blocks(instructions)],
    }


def _look_at_block(instructions: Sequence[Instruction], block: range) -> tuple[int, int, str]:
    """The fields of Block, with offsets in the text."""
    last = instructions[block[-1]]
    before = instructions[block[0] - 1].name if block[0] else ""
    own = " ".join(instructions[at].name for at in block) if len(block) <= _FEW else ""
    return instructions[block[0]].pc, last.pc + last.size, f"{before}: {own}"
