"""What callers promise of a kernel's arguments, as known bits of what the kernel loads from them.

The promise is aiter's: mha_batch_prefill (csrc/py_itfs_ck/mha_batch_prefill_kernels.cu) refuses head dims over 256 and
those that are no multiple of 16 bytes, which are 8 elements of 16 bits. Where they lie is CK's: FmhaFwdCommonKargs
(ops/fmha/kernel/fmha_batch_prefill_kernel.hpp) begins with four pointers and the two lengths.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field

from emulator.lowering.decode import Instruction
from tests.mutants.bits import Bits, constant

_HEAD_DIM = Bits(constant(~0x1F8).ones, constant(0).ones)
_HEAD_DIMS = {40: _HEAD_DIM, 44: _HEAD_DIM}
PROMISED: Mapping[str, Mapping[int, Bits]] = {"aiter": _HEAD_DIMS, "flash-attn": _HEAD_DIMS}  # by upstream and byte
_POINTER = -1  # (scalar, this) is known of a state: it and the next hold the arguments' address
_LOAD = "s_load_dword"

Key = int | tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """``scalar`` and the next hold their address when a kernel starts; ``known`` are dwords of them, by their byte."""

    scalar: int = -1
    known: Mapping[int, Bits] = field(default_factory=dict)

    def at_start(self) -> dict[Key, Bits]:
        return {(self.scalar, _POINTER): constant(1)} if self.known else {}

    def loaded(self, state: Mapping[Key, Bits], one: Instruction) -> Iterator[tuple[Key, Bits]]:
        """What an instruction makes known: a copy of their address, or dwords that it loads."""
        if not self.known or one.record is None:
            return
        if one.name == "s_mov_b64" and (one.record.ssrc0.offset, _POINTER) in state:
            yield (one.record.sdst.offset, _POINTER), constant(1)
        plain = one.name.startswith(_LOAD) and one.record.imm and not one.record.soffset_en
        if plain and (one.record.sbase.offset, _POINTER) in state:
            for number in range(int(one.name.removeprefix(_LOAD).removeprefix("x") or 1)):
                if (byte := one.record.offset + 4 * number) in self.known:
                    yield one.record.sdata.offset + number, self.known[byte]


def forget(state: MutableMapping[Key, Bits], written: Collection[int]) -> None:
    """Addresses one of whose halves is written over."""
    for register in written:
        state.pop((register, _POINTER), None)
        state.pop((register - 1, _POINTER), None)
