"""AITER's code objects: their tables of arguments, a planted defect, and what is stored of them."""

from __future__ import annotations

import struct

import pytest

from conformance.stored import PASSED, WRONG, read
from tests.programs.conformance.tables import OUTCOMES
from tests.programs.objects.backward import Kind
from tests.programs.objects.launching import Machine, layouts
from tests.programs.objects.package import CodeObject, code_objects
from tests.programs.objects.products import bf16
from tests.programs.objects.running import FAMILIES, outcome

TABLES = ("fmha_v3_fwd", "bf16gemm", "f4gemm", "pa", "mla", "fmoe")
_SLOT = 16  # bytes of an argument, padding included


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize("family", [*TABLES, "fmha_v3_bwd"])
def test_arguments_are_those_of_metadata(arch: str, family: str) -> None:
    """Some objects end before the last arguments, which are newer than they are."""
    for code in code_objects(arch, family):
        kernel = code.kernel
        table = family if family in TABLES else _backward_table(code)
        arguments = [argument for argument in layouts()[table] if argument.end <= kernel.kernarg_bytes]
        assert {argument.offset for argument in arguments} <= {offset for offset, _ in kernel.arguments}, code.name
        if family.startswith("fmha"):
            assert len(arguments) == len(layouts()[table]), code.name
            assert kernel.kernarg_bytes - arguments[-1].end < _SLOT, code.name


def _backward_table(code: CodeObject) -> str:
    return "dq_shuffle" if "shuffle" in code.name_parts else Kind.of(code).table


def test_product_with_one_instruction_removed_is_wrong() -> None:
    """An MFMA of the loop becomes two s_nop."""
    (code, *_) = code_objects("gfx950", "bf16gemm")
    machine = Machine("gfx950")
    assert outcome(machine, code, bf16) == (PASSED, "")
    encodings = list(struct.unpack(f"<{len(code.content) // 4}I", code.content[: len(code.content) // 4 * 4]))
    mfma = next(i for i, word in enumerate(encodings) if word >> 16 == 0xD3E0 or word >> 16 == 0xD3E1)
    encodings[mfma : mfma + 2] = [0xBF800000] * 2
    other = CodeObject(code.name, struct.pack(f"<{len(encodings)}I", *encodings) + code.content[len(encodings) * 4 :])
    ended, detail = outcome(machine, other, bf16)
    assert ended == WRONG
    assert "elements differ" in detail


@pytest.mark.parametrize("family", FAMILIES)
def test_stored_accounts_of_wrong_objects_say_whose(family: str) -> None:
    for ran in read(OUTCOMES / f"aiter-{family}.yaml").archs.values():
        assert all(account.startswith(("theirs: ", "open: ")) for account in ran.wrong)
