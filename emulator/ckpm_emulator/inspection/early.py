"""Instructions of a code object that come too early: an emulated run with the option hazards stops at them."""

from __future__ import annotations

from collections.abc import Sequence

from ckpm_emulator.image import Image
from ckpm_emulator.inspection.hazards import missing_states
from ckpm_emulator.lowering.decode import Instruction


def too_early(instructions: Sequence[Instruction], read: Image) -> dict[int, str]:
    """The wait states missing before instructions of the image, on some path to them, by pc."""
    missing = missing_states(instructions, read.arch_name, xnack=False)  # as the emulated devices are
    return {states.pc: states.reason(read.text_address) for states in missing}
