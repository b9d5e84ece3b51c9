"""Sweep configurations keep the kernels that upstream's allow-lists mean; a mistake names its place and the next word.

Expectations are told by kernel names, which the sweep does not look at.
"""

from __future__ import annotations

import csv
import functools
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from ckpm.matrix.configurations.sweeps import read_sweep, vocabulary
from ckpm.matrix.dialects import dialect
from ckpm.matrix.selection import Selection
from tests.unit.enumerated import select_keys
from tests.unit.shared import Run

APRIL = ("--dialect", "rocm-libraries-2026-04", "--mask", "generic")


def config(tmp_path: Path, variant: str, **traits: list[Any]) -> str:
    file = tmp_path / "sweep.json"
    lists = {name: {"values": values} for name, values in traits.items()}
    file.write_text(json.dumps({"variant": variant, "trait_config": lists}, indent="\t"))
    return str(file)


@functools.cache
def all_names(family: str) -> list[str]:
    chosen = Selection(archs=("gfx950",), families=(family,), mask_impl="generic")
    return [key.name for key in select_keys("rocm-libraries-2026-04", chosen)]


def names(family: str, pattern: str) -> list[str]:
    """The April 2026 dialect's names of a family that have a pattern."""
    return [name for name in all_names(family) if re.search(pattern, name)]


def test_readmes_count_of_forward_sweep(run: Run, tmp_path: Path) -> None:
    """CK's tile engine states 11,980 for fwd on gfx950, of a configuration that restricts data types alone."""
    file = config(tmp_path, "fwd", data_type=["fp16", "bf16", "fp8bf16", "fp8fp32"])
    code, out, err = run("count", "--sweep", file, *APRIL)
    assert (code, err) == (0, "")
    assert out.splitlines()[1].split() == ["fwd", "11980", "11980"]


@pytest.mark.parametrize(
    ("variant", "traits", "patterns"),
    [
        (
            "fwd",
            {"data_type": ["fp16"], "pipeline": ["qr_async"], "mask": ["no"], "bias": ["no"]},
            {"fwd": "_fp16_.*_qr_async_vr_.*_nbias_nmask_"},
        ),
        (
            "splitkv",
            {"data_type": ["fp16", "bf16"], "pipeline": ["qr", "qr_async"], "mask": ["no", "top_left"], "lse": [True]},
            {"fwd_splitkv_combine": "_(fp16|bf16)_", "fwd_splitkv": "_(fp16|bf16)_.*_(nmask|mc)_"},
        ),
        ("pagedkv", {"pipeline": ["qr_async"], "bias": ["alibi"]}, {"fwd_pagedkv": "_alibi_"}),
        (
            "bwd",
            {"mask": ["no", "top_left"], "bias": ["no", "alibi"], "mode": ["group"], "dropout": [False], "lse": [True]},
            {
                "bwd_dot_do_o": "_group_",
                "bwd_dq_dk_dv": "_group_.*_(nbias|alibi)_.*_(nmask|mc)_",
                "bwd_convert_dq": "_group_",
            },
        ),
    ],
)
def test_traits_keep_kernels_of_their_words(
    run: Run, tmp_path: Path, variant: str, traits: dict[str, list[Any]], patterns: dict[str, str]
) -> None:
    code, out, _ = run("list", "--sweep", config(tmp_path, variant, **traits), *APRIL)
    expected = [name for family, pattern in patterns.items() for name in names(family, pattern)]
    assert (code, out.splitlines()) == (0, expected)
    assert expected


def test_simplified_mask_stands_for_both_of_its_words(run: Run, tmp_path: Path) -> None:
    for word in ("top_left", "generic"):
        _, out, _ = run("list", "--sweep", config(tmp_path, "batch_prefill", mask=[word]))
        assert len(out.splitlines()) == 192
        assert all("_mask_" in name for name in out.splitlines())


def test_sweep_of_unread_field_prints_note(run: Run, tmp_path: Path) -> None:
    file = config(tmp_path, "pagedkv", pipeline=["qr_async"])
    plain = config(tmp_path, "pagedkv")
    _, expected, _ = run("list", "--sweep", plain)
    config(tmp_path, "pagedkv", pipeline=["qr_async"])
    code, out, err = run("list", "--sweep", file)
    assert (code, out) == (0, expected)
    assert err == (
        f"{file}: trait_config.pipeline: upstream's builder doesn't read it for pagedkv: it leaves no kernel out\n"
    )


def test_sweep_of_own_format_names_families_and_fields(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(
        "families: [fwd, bwd_dot_do_o]\n"
        "keep: {dtype: [fp16], mask: [no], hdim_q: [128], sink: [false], mode: [group]}\n"
    )
    code, out, err = run("list", "--sweep", str(file), *APRIL)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        *names("fwd", "_d128_fp16_group_.*_nmask_.*_nsink_"),
        *names("bwd_dot_do_o", "_d128_fp16_.*_group_"),
    ]


def test_sweep_narrows_and_is_narrowed_as_any_selection(run: Run, tmp_path: Path) -> None:
    file = config(tmp_path, "bwd", data_type=["bf16"])
    options = (*APRIL, "--family", "bwd_convert_dq", "--where", "key.hdim_q == 64", "--filter", "*_group_*")
    expected = names("bwd_convert_dq", "_d64_bf16_.*_group_")
    _, out, _ = run("list", "--sweep", file, *options, "--format", "csv")
    assert [row["name"] for row in csv.DictReader(io.StringIO(out))] == expected
    parts = [run("list", "--sweep", file, *options, "--shard", f"{index}/2")[1].splitlines() for index in (1, 2)]
    assert sorted(parts[0] + parts[1]) == sorted(expected)
    code, _, err = run("list", "--sweep", file, "--family", "fwd")
    assert (code, err) == (
        2,
        f"error: --family names none of the families of {file}: bwd_dot_do_o, bwd_dq_dk_dv, bwd_convert_dq\n",
    )


def test_sweep_of_value_in_no_dialect_is_refused(run: Run, tmp_path: Path) -> None:
    code, out, err = run("list", "--sweep", config(tmp_path, "batch_prefill", qscale=["per_token_head"]))
    assert (code, out) == (2, "")
    assert "trait_config.qscale: no dialect known here has such a kernel" in err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '{"variant": "forward"}',
            "1: variant: unknown variant 'forward'; did you mean 'fwd'? Known: fwd, splitkv, appendkv, ",
        ),
        (
            '{"variant": "fwd",\n"trait_config": {"pipelines": {"values": ["qr"]}}}',
            "2: trait_config.pipelines: unknown trait 'pipelines'; did you mean 'pipeline'? Known: data_type, mode, ",
        ),
        (
            '{"variant": "fwd",\n"trait_config": {\n"mask": {"values": ["no", "top-left"]}}}',
            "3: trait_config.mask.values[1]: unknown value of mask 'top-left'; did you mean 'top_left'? Known: no, ",
        ),
        (
            '{"variant": "fwd", "trait_config": {"lse": {"values": ["true"]}}}',
            "1: trait_config.lse.values[0]: must be true or false, not 'true'",
        ),
        (
            '{"variant": "fwd", "trait_config": {"mask": {"values": []}}}',
            "1: trait_config.mask.values: an empty list allows nothing. Name values or omit it.",
        ),
        (
            '{"variant": "fwd", "trait_config": {"mask": {"values": [["no"]]}}}',
            "1: trait_config.mask.values[0]: must be a word, a number, true or false",
        ),
        ("families: [fwd_split]", "1: families[0]: unknown family 'fwd_split'; did you mean 'fwd_splitkv'? Known: "),
        (
            "families: [fwd]\nkeep: {datatype: [fp16]}",
            "2: keep.datatype: unknown field 'datatype'; did you mean 'dtype'? Known: dtype, hdim_q, ",
        ),
        (
            "families: [fwd]\nkeep: {hdim_q: [127]}",
            "2: keep.hdim_q[0]: unknown value of hdim_q '127'; did you mean '128'?",
        ),
        ("families: [fwd]\nkeep: {rope: [no]}", "2: keep.rope: none of fwd has the field 'rope'. Leave it out."),
        ("families: [fwd]\nkeep: {tile.bm0: [big]}", "2: keep.tile.bm0[0]: must be a whole number, not 'big'"),
    ],
)
def test_mistake_names_its_place_and_nearest_word(run: Run, tmp_path: Path, text: str | None, message: str) -> None:
    file = tmp_path / "sweep.json"
    if text is not None:
        file.write_text(text)
    code, out, err = run("list", "--sweep", str(file))
    assert (code, out) == (3, "")
    assert err.startswith(f"error: {file}:{message}")


def test_vocabulary_is_of_fields_that_keys_have() -> None:
    sweep_vocabulary = vocabulary()
    for name, families in sweep_vocabulary.variants.items():
        for family, traits in families.items():
            assert set(traits) <= set(sweep_vocabulary.traits), (name, family)
            family_table = dialect("rocm-libraries-2026").families[family]
            for trait in traits:
                field = sweep_vocabulary.traits[trait].field
                assert field.startswith("tile.") or family_table.values(field), (family, field)


def test_json_and_yaml_say_same(tmp_path: Path) -> None:
    yaml = tmp_path / "sweep.yaml"
    yaml.write_text("variant: fwd\ntrait_config:\n  mask: {values: [no]}\n  logits: {values: [true]}\n")
    assert read_sweep(yaml) == read_sweep(Path(config(tmp_path, "fwd", mask=["no"], logits=[True])))
