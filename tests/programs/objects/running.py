"""Outcomes of AITER's code objects on the emulated device, by family."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import yaml

from ckpm_emulator.errors import DeviceError
from conformance.stored import PASSED, UNSUPPORTED, WRONG
from tests.programs.objects import attention, backward, experts, latent, paged, products
from tests.programs.objects.launching import Machine
from tests.programs.objects.package import CodeObject, code_objects

FAMILIES: Mapping[str, Callable[[Machine, CodeObject], None]] = {
    "fmha_v3_fwd": attention.check,
    "fmha_v3_bwd": backward.check,
    "pa": paged.check,
    "mla": latent.check,
    "fmoe": experts.check,
    "bf16gemm": products.bf16,
    "f4gemm": products.fp4,
}
UNLAUNCHED = Path(__file__).with_name("unlaunched.yaml")
AT_ONCE = "passes with loads that arrive at once, else: "
_LACKS = re.compile(r"the emulator lacks ([^:]+)")


def outcomes(family: str, arch: str, only: str = "") -> Iterator[tuple[str, tuple[str, str]]]:
    """Name and outcome of each code object of a family whose name contains ``only``."""
    machine = Machine(arch)
    codes = code_objects(arch, family)
    unlaunched = yaml.safe_load(UNLAUNCHED.read_text()).get(family)
    for code in experts.sample(codes) if family == "fmoe" else codes:
        if only not in code.name:
            continue
        if unlaunched and re.search(unlaunched, code.name):
            yield code.name, (UNSUPPORTED, "no host code launches it")
        else:
            yield code.name, outcome(machine, code, FAMILIES[family])


def outcome(machine: Machine, code: CodeObject, check: Callable[[Machine, CodeObject], None]) -> tuple[str, str]:
    """Outcome and detail of a code object. The detail begins with AT_ONCE if it passes with loads that do."""
    attempt = _attempt(machine, code, check)
    if attempt[0] != WRONG:
        return attempt
    with machine.loads_at_once():
        again, _ = _attempt(machine, code, check)
    return (WRONG, f"{AT_ONCE if again == PASSED else ''}{attempt[1]}")


def _attempt(machine: Machine, code: CodeObject, check: Callable[[Machine, CodeObject], None]) -> tuple[str, str]:
    try:
        check(machine, code)
    except (AssertionError, DeviceError) as error:
        text = " ".join(str(error).split())
        lacking = _LACKS.search(text)
        return (UNSUPPORTED, lacking[1]) if lacking else (WRONG, text)
    return PASSED, ""
