"""A kernel's name is read back to the same key, and a name that no dialect writes is refused where it goes wrong."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpm.base.errors import NameSyntaxError
from ckpm.matrix.dialects import FAMILIES, dialect, dialect_names
from ckpm.matrix.explain import find, outside
from ckpm.matrix.families import Family
from ckpm.matrix.keys import Key
from ckpm.matrix.names import make_key, parse
from tests.unit.enumerated import keys_of

# One name of each dialect, written by upstream's own codegen, with its fields.
MID_2025 = (
    "fmha_batch_prefill_d128_fp16_batch_b64x128x64x128x64x128_r4x1x1_r4x1x1_w16x16x16_w16x16x16"
    "_qr_async_vc_psddv_nlogits_alibi_mask_lse_ndropout_nsquant"
)
NEWEST = (
    "fmha_batch_prefill_d256_fp8bf16_group_ps1024_bload_b128x128x32x256x32x256_r4x1x1_r4x1x1_w32x32x32_w32x32x32"
    "_qr_async_vr_psskddv_logits_nbias_mc_nlse_ndropout_kv_blockscale_sink_vectorized_vllm"
)


def family(name: str) -> Family:
    return dialect(name).families["batch_prefill"]


def keys(name: str, mask_impl: str) -> list[Key]:
    return keys_of(name, "batch_prefill", mask_impl=mask_impl)


def test_name_of_mid_2025() -> None:
    values = parse(family("ck-2025-06"), MID_2025)
    tile = values.pop("tile")
    assert values == {
        "arch_trait": "gfx9",
        "dtype": "fp16", "hdim_q": 128, "hdim_v": 128, "mode": "batch", "pipeline": "qr_async", "vlayout": "col",
        "pad": "psddv",
        "logits": False, "bias": "alibi", "mask": "mask", "mask_impl": "simplified", "lse": True, "dropout": False,
        "qscale": "no",
    }  # fmt: skip
    assert (tile.bm0, tile.bk1, tile.rm0, tile.wk1, tile.occupancy, tile.when) == (64, 64, 4, 16, -1, "few_blocks")


def test_name_of_newest_state() -> None:
    values = parse(family("rocm-libraries-2026"), NEWEST)
    assert values["mask_impl"] == "generic"  # mc is a generic mask, for either mask set
    assert {name: values[name] for name in ("page_size", "load", "sink", "kv_layout", "kv_table", "qscale")} == {
        "page_size": 1024, "load": "bload", "sink": True, "kv_layout": "vectorized", "kv_table": "vllm",
        "qscale": "kv_blockscale",
    }  # fmt: skip


@pytest.mark.parametrize("mask_impl", ["simplified", "generic"])
@pytest.mark.parametrize("name", dialect_names())
def test_all_keys_are_read_back(name: str, mask_impl: str) -> None:
    all_keys = keys(name, mask_impl)
    for key in all_keys[:: 1 if len(all_keys) < 1000 else 7]:
        assert make_key(family(name), parse(family(name), key.name, mask_impl), key.name) == key


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("name", "arch"),
    [
        *((name, "gfx950") for name in dialect_names()),
        *(("ck-2025-06", "gfx942"), ("ck-2025-11", "gfx1201"), ("rocm-libraries-2026", "gfx1100")),
    ],
)
@settings(max_examples=15)
@given(masks=st.sampled_from(["simplified", "generic"]), index=st.integers(min_value=0))
def test_any_key_of_any_family_is_read_back(name: str, arch: str, family: str, masks: str, index: int) -> None:
    family_keys = keys_of(name, family, arch, 1, masks) if family in dialect(name).families else []
    for key in family_keys[index % len(family_keys) :][:1] if family_keys else ():
        own, values = find(dialect(name), key.name, masks)
        assert make_key(own, values, key.name) == key
        assert outside(dialect(name), own, values) == []


@settings(max_examples=40)
@given(name=st.sampled_from([MID_2025, NEWEST]), position=st.integers(0, 300), text=st.text(max_size=3))
def test_damaged_name_is_refused_or_spells_another_kernel(name: str, position: int, text: str) -> None:
    damaged = name[:position] + text + name[position + 1 :]
    grammar = family("ck-2025-06" if name == MID_2025 else "rocm-libraries-2026")
    try:
        values = parse(grammar, damaged)
    except NameSyntaxError:
        return
    # e.g. another head dim: but no key has two spellings
    assert (damaged == name) == (make_key(grammar, values, "") == make_key(grammar, parse(grammar, name), ""))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "at its start, expected 'fmha_batch_prefill_d', found 'the end'."),
        ("fmha_batch_prefill_", "at its start, expected 'fmha_batch_prefill_d', found 'fmha_batch_prefill_'."),
        (MID_2025 + "_x", f"after '{MID_2025}', expected the end, found '_x'."),
        (
            MID_2025.replace("fp16", "fp61"),
            "after 'fmha_batch_prefill_d128_', expected dtype (bf16, fp16), found 'fp61_",
        ),
        (MID_2025.replace("d128", "d0128"), "after 'fmha_batch_prefill_d0', expected '_', found '128_fp16"),
        (MID_2025.replace("b64", "b٦٤"), "after 'fmha_batch_prefill_d128_fp16_batch_', expected a tile "),
        (MID_2025.replace("b64", "b" + "9" * 5000), "expected a tile (b..x.._r.._r.._w.._w..), found 'b999"),
        (MID_2025 + "\n", "expected the end, found '\n'."),
    ],
)
def test_refused_names_say_where(name: str, message: str) -> None:
    with pytest.raises(NameSyntaxError) as caught:
        parse(family("ck-2025-06"), name)
    assert message in str(caught.value)
