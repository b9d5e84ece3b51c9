"""Commands take the names that tables print, and parts that one kernel's name has."""

from __future__ import annotations

import pytest

from ckpm.commands import main, parse
from ckpm.matrix.names import short_name
from ckpm.matrix.options import selection_from
from tests.unit.matrix.matrix_samples import GROUP, NEWEST
from tests.unit.shared import Run

SHORT = "d128_bf16_group_b64x128_qr_async_vr_psskddv_nlogits_nbias_mask_nlse_ndropout_nsquant"  # of no smoke kernel
PART = (
    "bf16_group_b64x128x64x128x64x128_r4x1x1_r4x1x1_w16x16x16_w16x16x16_qr_async_vr_psskddv_logits_nbias_mask_nlse_nd"
)


def kernels(run: Run, *options: str) -> list[str]:
    code, out, err = run("list", *options)
    assert (code, err) == (0, "")
    return out.splitlines()


def test_short_name_is_that_of_build_table() -> None:
    assert short_name(GROUP) in GROUP.replace("_b64x128x64x128x64x128_r4x1x1_r4x1x1_w16x16x16_w16x16x16", "_b64x128")
    assert short_name("fmha_fwd_d64_bf16_x") == "fmha_fwd_d64_bf16_x"  # other families' names say which family


@pytest.mark.parametrize("text", [GROUP, short_name(GROUP)])
def test_why_and_show_take_short_name(run: Run, text: str) -> None:
    assert run("why", text)[1].splitlines()[0] == GROUP
    assert GROUP in run("show", text)[1].splitlines()[0]
    assert run("validate", "--kernel", text)[1].startswith(f"{GROUP}: ")


def test_unique_part_names_kernel_and_other_parts_are_refused(run: Run) -> None:
    (name,) = [name for name in kernels(run) if PART in name]
    assert run("why", PART)[1].splitlines()[0] == name
    assert kernels(run, "--filter", PART) == [name]
    code, _, err = run("why", "_fp16_group_")
    assert (code, "'_fp16_group_' is a part of 64 names of batch_prefill, e.g. fmha_batch_" in err) == (3, True)
    code, _, err = run("list", "--filter", "_fp16_group_")
    assert (code, "Write '*PART*' for all names with a part." in err) == (2, True)


def test_why_and_list_agree_on_filter_by_short_name(run: Run) -> None:
    for options in (("--filter", short_name(GROUP)), ("--filter", SHORT)):
        selected = kernels(run, *options)
        assert len(selected) == 1
        code, out, _ = run("why", GROUP, *options)
        assert code == 0
        assert ("\nis in " in out) == (selected == [GROUP])


def test_part_of_two_load_modes_is_one_kernel(run: Run) -> None:
    """A library with the 32-bit loads alone would not serve large pools."""
    options = ("--dialect", "rocm-libraries-2026")
    assert kernels(run, *options, "--filter", NEWEST) == kernels(run, *options, "--filter", short_name(NEWEST))
    twin = NEWEST.replace("_bload_", "_gload_")
    assert {*kernels(run, *options, "--filter", short_name(NEWEST))} == {NEWEST, twin}
    assert kernels(run, *options, "--filter", short_name(twin)) == [twin]


def test_filter_of_one_kernel_implies_its_tier() -> None:
    tiers = [
        selection_from(parse(["build", *options]))[1].tier
        for options in (["--filter", SHORT], ["--filter", "*_nlse_*"], ["--filter", SHORT, "--tier", "smoke"])
    ]
    assert tiers == ["full", "smoke", "smoke"]


def test_error_names_family_that_was_asked(run: Run) -> None:
    code, _, err = run("why", "--family", "fwd_splitkv", "--dialect", "ck-2025-11", "no_kernel")
    assert (code, "'no_kernel' is not a fwd_splitkv name of this dialect" in err) == (3, True)


def test_match_takes_short_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["match", "--kernel", short_name(GROUP), "--shapes", "smoke"]) == 0
    assert main(["match", "--kernel", "_fp16_group_", "--shapes", "smoke"]) == 3
    assert "--kernel _fp16_group_: a part of 64 of the 384 selected" in capsys.readouterr().err
