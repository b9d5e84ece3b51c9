"""The report of `coverage --isa`: facts of LLVM, README's number, and the refused instructions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckpm_emulator.cli import main
from ckpm_emulator.inspection import isa
from ckpm_emulator.lowering import opcodes
from ckpm_emulator.lowering.arch_table import FACTS
from isa_facts import as_yaml, facts, taken

README = Path(__file__).parents[1] / "README.md"
# Instructions that are refused, and why.
REFUSED = {
    **dict.fromkeys(("s_rfe_b64", "s_rfe_restore_b64"), "of trap handlers"),
    **dict.fromkeys(("s_cbranch_g_fork", "s_cbranch_i_fork", "s_cbranch_join"), "no compiler emits them"),
    **dict.fromkeys(("s_setkill", "s_endpgm_ordered_ps_done"), "of graphics"),
    "v_screen_partition_4se_b32": "of graphics; the manual has no listing",
    "v_mfma_ld_scale_b32": "the first half of v_mfma_scale_*, never alone",
    "s_sendmsghalt": "stops the wave until a debugger lets it go on",
    **dict.fromkeys(
        [f"s_scratch_{way}_dword{size}" for way in ("load", "store") for size in ("", "x2", "x4")],
        "no compiler emits them, and how the hardware swizzles them is not documented",
    ),
    **dict.fromkeys(("s_dcache_discard", "s_dcache_discard_x2"), "loses stores at a time that is not documented"),
    **dict.fromkeys(
        [f"ds_gws_{word}" for word in ("init", "barrier", "sema_br", "sema_p", "sema_v", "sema_release_all")],
        "GWS joins workgroups, which run one after another here",
    ),
}


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    isa.rows.cache_clear()
    yield
    isa.rows.cache_clear()


def test_facts_are_those_of_compilers_own_assembler() -> None:
    assert FACTS.read_text() == as_yaml(facts()), "python emulator/tests/isa_facts.py --write, and look at the change"


def test_assembler_tells_archs_and_encodings_apart() -> None:
    names = [
        "v_prng_b32",
        "v_mov_b32",
        "v_mov_b32_sdwa",
        "v_mul_lo_u32_sdwa",
        "s_barrier",
        "v_permlane16_b32",
        "nonsense",
    ]
    assert taken(names, "gfx942") == {"v_mov_b32", "v_mov_b32_sdwa", "s_barrier"}
    assert taken(names, "gfx950") == {"v_prng_b32", "v_mov_b32", "v_mov_b32_sdwa", "s_barrier"}


def test_readme_has_number() -> None:
    text = " ".join(README.read_text().split())
    (numbers,) = re.findall(
        r"implements ([\d,]+) of gfx950's ([\d,]+) instructions\. If .* separately, it .* ([\d,]+) of ([\d,]+)\.", text
    )
    assert [number.replace(",", "") for number in numbers] == re.findall(r"\d+", isa.summary("gfx950"))


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_what_is_refused_is_known(arch: str) -> None:
    refused = {name for row in isa.rows(arch) for name in row.refused}
    assert refused == REFUSED.keys() & isa.instructions(arch).keys()


def test_lost_instruction_changes_number_and_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = isa.summary("gfx942")
    isa.rows.cache_clear()
    monkeypatch.setattr(opcodes, "SUPPORTED", opcodes.SUPPORTED - {"ds_append"})
    assert isa.summary("gfx942") != before
    assert main(["coverage", "--isa", "--arch", "gfx942"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("DS ")]
    assert "ds_append" in line.split()


def test_file_and_isa_at_once_are_refused() -> None:
    with pytest.raises(SystemExit):
        main(["coverage", "--isa", "some.hsaco"])
