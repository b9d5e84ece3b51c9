"""`ckpm why`: the axes that bring a kernel in, or whatever keeps it out, and the rules of ckpm-extended one by one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.matrix.matrix_samples import ABSENT, GROUP, NEWEST, TILE
from tests.unit.shared import Run

ROOT = Path(__file__).parents[3]


def test_why_kernel_is_in_names_axes_and_their_lines(run: Run) -> None:
    code, out, err = run("why", GROUP)
    assert (code, err) == (0, "")
    lines = [line.split("  ") for line in out.splitlines()]
    assert out.startswith(
        f"{GROUP}\nis in ck-2025-11 (archs gfx950, family batch_prefill, receipt 0, masks simplified, "
    )
    assert out.endswith("receipts that hold it: 0, 1, 2, 3, 4, 200, 300, 400, 600, 700, 888\n")
    axes = {line[0]: [cell.strip() for cell in line if cell.strip()][1:] for line in lines[2:-1]}
    assert axes["bias"][:2] == ["no", "bias, alibi"]
    assert axes["hdim_q"][:2] == ["128", "-"]
    for axis, (_, _, location) in ((name, cells) for name, cells in axes.items() if name != "axis"):
        file, line = location.split(":")
        written = (ROOT / file).read_text().splitlines()[int(line) - 1].strip(" -")
        shared = {
            "mask": "simplified:",
            "tile": "{tile: b64x128x",
            "hdim_q": "hdim_q hdim_v:",
            "hdim_v": "hdim_q hdim_v:",
        }
        assert written.startswith(shared.get(axis, f"{axis}:"))
    assert axes["vlayout"][2].startswith("matrix/dialects/ck-2025-11/batch_prefill.yaml:")


N = ("--dialect", "rocm-libraries-2026")


@pytest.mark.parametrize(
    ("name", "options", "reasons"),
    [
        (
            NEWEST.replace("nsink", "sink").replace("_mask_", "_nmask_"),
            N,
            ["rule sink_needs_mask: a sink without a mask can't be dispatched"],
        ),
        (
            NEWEST.replace("ps16_bload", "ps1024_gload").replace("nlogits_nbias", "logits_alibi"),
            N,
            [
                "rule logits_soft_cap_without_bias: a logits soft cap is only built without bias",
                "rule gload_only_for_small_pages: 64-bit loads are not needed when page_size >= kN0: the SRD is "
                "rebased for every page",
            ],
        ),
        (GROUP.replace("d128", "d64"), (), ["axis: hdim_q '64' is not in the table, which has 128", "tile: "]),
        (GROUP.replace("_vr_", "_vc_"), (), ["axis: vlayout 'col' is not in the table, which has row"]),
        (
            GROUP.replace("b64x", "b96x"),
            (),
            [f"tile: tile {TILE.replace('b64x', 'b96x')} is not in the table for bf16 d128, which has {TILE}, b128x"],
        ),
        (GROUP.replace("_mask_", "_mc_"), (), ["masks: mask 'causal' is of the generic masks: use --mask generic"]),
        (GROUP, ("--mask", "generic"), ["masks: mask 'mask' is of the simplified masks: use --mask simplified"]),
        (GROUP, ("--receipt", "100"), ["receipt: receipt 100 (aiter mha_fwd (batch mode)) only has mode batch"]),
        (GROUP, ("--tier", "smoke"), ["condition: Tier smoke doesn't keep it"]),
        (GROUP, ("--where", "not key.lse"), ["condition: --where 'not key.lse' doesn't keep it"]),
        (GROUP, ("--arch", "gfx1100"), [f"arch: {ABSENT.rstrip()}"]),
    ],
)
def test_why_kernel_is_out(run: Run, name: str, options: tuple[str, ...], reasons: list[str]) -> None:
    code, out, err = run("why", name, *options)
    assert (code, err) == (0, "")
    head, second, *lines = out.splitlines()
    assert head == name
    assert second.startswith("is not in ")
    printed_reasons = [line.strip() for line in lines if not line.startswith("    source: ")]
    assert len(printed_reasons) == len(reasons)
    assert all(line.startswith(reason) for line, reason in zip(printed_reasons, reasons, strict=True))
    if reasons[0].startswith("rule"):
        assert "    source: codegen/ops/fmha_batch_prefill.py" in out


@pytest.mark.parametrize(
    ("family", "where"),
    [
        ("fwd", "key.hdim_q == 128"),
        ("bwd_dot_do_o", "True"),  # its names begin as those of bwd_dq_dk_dv, too
        ("fwd_v3", "True"),
    ],
)
def test_name_of_other_family_implies_it(run: Run, family: str, where: str) -> None:
    name = run("list", "--family", family, "--where", where)[1].splitlines()[0]
    assert run("why", name)[1].startswith(f"{name}\nis in ck-2025-11 (archs gfx950, family {family}, ")
    assert run("list", "--filter", name, "--filter", name) == (0, f"{name}\n", "")
    out = run("why", name, "--family", "batch_prefill")[1]
    assert f"  family: family batch_prefill leaves it out: use --family {family}\n" in out


def test_why_names_shard(run: Run) -> None:
    outs = [run("why", GROUP, "--shard", f"{index}/3")[1] for index in (1, 2, 3)]
    inside = [index for index, out in enumerate(outs, 1) if "\nis in ck-2025-11 " in out]
    assert len(inside) == 1
    others = [out for index, out in enumerate(outs, 1) if index not in inside]
    assert all(f"  shard: it is in shard {inside[0]}/3, not " in out for out in others)


def test_why_as_data(run: Run) -> None:
    explanation = json.loads(run("why", GROUP, "--format", "json")[1])
    assert (explanation["selected"], explanation["reasons"], explanation["axes"][0]["value"]) == (True, [], "bf16")
    explanation = json.loads(run("why", GROUP, "--tier", "smoke", "--format", "json")[1])
    assert (explanation["selected"], explanation["reasons"][0]["kind"]) == (False, "condition")
    assert run("why", GROUP, "--format", "csv")[1].startswith(
        "name,value,alternatives,location\ndtype,bf16,fp16,matrix/"
    )
    assert run("why", GROUP, "--tier", "smoke", "--format", "csv")[1].startswith("kind,name,text,source\ncondition,")


def test_why_and_list_agree_on_every_kernel_of_smoke_tier(run: Run) -> None:
    listed = set(run("list", "--tier", "smoke")[1].splitlines())
    everything = run("list", "--where", "key.hdim_q == 128 and key.bias == 'no' and key.tile.bm0 == 64")[1].splitlines()
    for name in everything[::4]:
        assert ("\nis in " in run("why", name, "--tier", "smoke")[1]) == (name in listed)
