"""Keys in C++ words: paddings, conditions, and the texts rendered from them."""

from __future__ import annotations

import dataclasses
import itertools
import re
from pathlib import Path

import pytest

from ckpm.base.errors import CodeObjectError, UsageError
from ckpm.kernels.abi import LaunchArguments
from ckpm.kernels.families import batch_prefill
from ckpm.kernels.families import spellings as cpp
from ckpm.kernels.families.batch_prefill import harness_text
from ckpm.kernels.families.render import dispatch_text, instance_text, plan_units
from ckpm.kernels.families.spellings import spellings
from ckpm.kernels.families.table import FAMILIES
from ckpm.kernels.library.write_manifest import match_symbols
from ckpm.matrix.dialects import dialect, dialect_names, upstreams
from ckpm.matrix.names import parse
from ckpm.matrix.selection import Selection, select

PAGED = ("rocm-libraries-2026-04", "rocm-libraries-2026")
DIALECTS = ("ck-2025-06", "ck-2025-11", *PAGED)
KEYS = {name: select(dialect(name), Selection(archs=("gfx950",))) for name in DIALECTS}


@pytest.mark.parametrize(
    ("pad", "flags"),
    [
        ("psskddv", (True, True, True, True)),
        ("psddv", (True, False, True, True)),
        ("pssk", (True, True, False, False)),
        ("pdv", (False, False, False, True)),
    ],
)
def test_padding_words(pad: str, flags: tuple[bool, ...]) -> None:
    assert cpp.pad_flags(pad) == flags


def test_padding_word_that_is_none() -> None:
    with pytest.raises(ValueError, match="not a padding: pdvs"):
        cpp.pad_flags("pdvs")


@pytest.mark.parametrize("name", DIALECTS)
def test_dispatch_traits_tell_all_kernels_apart(name: str) -> None:
    """Two kernels of one trait would be one definition twice: the link would fail, or worse, pick one."""
    features = cpp.features(name)
    traits = [batch_prefill.trait(key, features) for key in KEYS[name]]
    assert len(set(traits)) == len(KEYS[name])


@pytest.mark.parametrize("name", DIALECTS)
def test_dispatch_lists_every_kernel_once_in_order(name: str) -> None:
    text = dispatch_text(KEYS[name], cpp.features(name))
    listed = re.findall(r'\{"(fmha_\w+)", &fmha_batch_prefill_<(T\d+)>\}', text)
    assert [kernel for kernel, _ in listed] == [key.name for key in KEYS[name]]
    returned = re.findall(r"return fmha_batch_prefill_<(T\d+)>\(s, a\);", text)
    assert returned == [alias for _, alias in listed]


def test_april_2026_s_cpp_has_no_load_mode() -> None:
    """Its traits end with the page table, and dispatch doesn't ask for the pool's size."""
    features, keys = cpp.features("rocm-libraries-2026-04"), KEYS["rocm-libraries-2026-04"]
    texts = [dispatch_text(keys, features), *(instance_text(key, features) for key in keys[::50])]
    assert not [text for text in texts if "KVCacheLoadMode" in text or "select_kv_load_mode" in text]
    assert {key.load for key in keys} == {"bload"}


def paged_symbol(layout: str, table: str, load: str | None) -> str:
    """A symbol of paged batch prefill as clang mangles one; None: the traits of April 2026, which have no load mode."""
    mode = "" if load is None else f"LNS_33BlockAttentionKVCacheLoadModeEnumE{int(load == 'gload')}E"
    return (
        "_ZN7ck_tile6kentryILi2EN5ShapeINS_8sequenceIJLi64ELi128ELi64ELi128ELi64ELi128EEEENS5_IJLi4ELi1ELi1EEEE"
        "Lb1EEELb1ENS_17ComposedAttentionILj0ELb1EEENS_30SimplifiedGenericAttentionMaskILb1EEELb0ELi16E"
        "NS_26TileFmhaBatchPrefillTraitsILb1ELb1ELb1ELb1ELb0ELNS_22BlockAttentionBiasEnumE0ELb0ELb1ELb0E"
        "LNS_28BlockAttentionQuantScaleEnumE0ELin1ELb0ELb0ELi16E"
        f"LNS_37BlockAttentionKVCacheMemoryLayoutEnumE{int(layout == 'linear')}E"
        f"LNS_36BlockAttentionKVCacheLookupTableEnumE{int(table == 'sglang')}E{mode}EEEEEENS_17Default2DEpilogueIvEE"
        "LNS_21memory_operation_enumE0EEEvEE"
    )


@pytest.mark.parametrize(("name", "loads"), [(PAGED[0], (None,)), (PAGED[1], ("bload", "gload"))])
def test_paged_symbol_is_of_one_kernel(name: str, loads: tuple[str | None, ...]) -> None:
    family = dialect(name).family("batch_prefill")
    kernel = (
        "fmha_batch_prefill_d128_bf16_group_ps16_{}b64x128x64x128x64x128_r4x1x1_r4x1x1_w16x16x16_w16x16x16_qr_async_vr_"
        "psskddv_nlogits_nbias_mask_lse_ndropout_nqscale_nsink_{}_{}"
    )
    of = list(itertools.product(("vectorized", "linear"), ("vllm", "sglang"), loads))
    for layout, table, load in of:
        values = parse(family, kernel.format(f"{load}_" if load else "", layout, table))
        pattern = FAMILIES["batch_prefill"].symbol(values)
        assert [variant for variant in of if pattern.search(paged_symbol(*variant))] == [(layout, table, load)]


@pytest.mark.parametrize(
    ("base", "call"),
    [
        (True, "a.batch_stride_v, kElementBytes, a.k_ptr, a.v_ptr)"),
        (False, "a.num_total_pages, a.batch_stride_k, kElementBytes)"),
    ],
)
def test_load_selector_is_called_as_header_declares_it(base: bool, call: str) -> None:
    features = cpp.features("rocm-libraries-2026", selector_takes_base=base)
    assert any(call in condition for condition in batch_prefill.conditions(KEYS["rocm-libraries-2026"][0], features))


@pytest.mark.parametrize("name", DIALECTS)
def test_harness_refuses_values_unknown_to_its_dialect(name: str) -> None:
    text = harness_text(name, cpp.features(name))
    for field in ("kv_last_page_lens", "batch_stride_block_table", "qscale_type", "page_size"):
        assert (f"p.{field} != " in text) == (name not in PAGED or field == "qscale_type")
    assert ("a.page_block_size" in text) == (name in PAGED)
    # a field is handed on, or refused unless neutral: none is passed over
    assert {field for field in LaunchArguments.kinds() if not re.search(rf"\bp\.{field}\b", text)} == set()
    assert "catch(...)" in text


def symbol(**changed: str) -> str:
    """A symbol as clang mangles one; the numbers stand where CK's template arguments stand."""
    parts = {
        "block": "Li64ELi128ELi64ELi128ELi64ELi128E",
        "row": "1",
        "group": "1",
        "mask": "1",
        "pads": "Lb1ELb1ELb1ELb1E",
        "logits": "0",
        "bias": "0",
        "lse": "1",
        "dropout": "0",
    } | changed
    return (
        "_ZN7ck_tile6kentryILi2EN5ShapeINS_8sequenceIJ{block}EEENS5_IJLi4ELi1ELi1EEEES7_S8_Lb{row}EEELb{group}E"
        "NS_17ComposedAttentionILj0ELb1EEENS_30SimplifiedGenericAttentionMaskILb{mask}EEELb0E"
        "NS_14TileFmhaTraitsI{pads}Lb{logits}ELNS_22BlockAttentionBiasEnumE{bias}ELb0ELb{lse}ELb{dropout}ELb0ELin1EEEE"
    ).format(**parts)


NAME = (
    "fmha_batch_prefill_d128_bf16_group_b64x128x64x128x64x128_r4x1x1_r4x1x1_w16x16x16_w16x16x16_qr_async_vr_psskddv"
    "_nlogits_nbias_mask_lse_ndropout_nsquant"
)


def test_symbol_is_reported_by_its_template_arguments() -> None:
    values = {NAME: parse(dialect("ck-2025-11").family("batch_prefill"), NAME)}
    other = NAME.replace("nbias", "alibi")
    values[other] = parse(dialect("ck-2025-11").family("batch_prefill"), other)
    symbols_ = [symbol(bias="2"), symbol()]
    matched = match_symbols(values, symbols_, Path("here"), "gfx950", "batch_prefill")
    assert matched == {NAME: symbols_[1:], other: symbols_[:1]}


@pytest.mark.parametrize(
    ("built", "complaint"),
    [
        *(
            ([changed], "0 of 1 kernel symbols are fmha_batch_prefill_d128_bf16")
            for changed in (
                {"block": "Li128ELi128ELi32ELi128ELi32ELi128E"}, {"row": "0"}, {"group": "0"}, {"mask": "0"},
                {"pads": "Lb1ELb0ELb1ELb1E"}, {"logits": "1"}, {"bias": "1"}, {"lse": "0"}, {"dropout": "1"},
            )
        ),
        ([{}, {"bias": "2"}], "1 kernels that were not planned"),
    ],
)  # fmt: skip
def test_symbol_that_was_not_planned_is_refused(built: list[dict[str, str]], complaint: str) -> None:
    values = {NAME: parse(dialect("ck-2025-11").family("batch_prefill"), NAME)}
    with pytest.raises(CodeObjectError, match=complaint):
        match_symbols(values, [symbol(**changes) for changes in built], Path("here"), "gfx950", "batch_prefill")


@pytest.mark.parametrize("name", PAGED)
def test_every_2026_kernel_asks_for_another_symbol(name: str) -> None:
    """Patterns must tell apart kernels that share a unit."""
    family = dialect(name).family("batch_prefill")
    for unit in plan_units(KEYS[name])[::20]:
        patterns = {FAMILIES["batch_prefill"].symbol(parse(family, key.name)).pattern for key in unit.keys}
        assert len(patterns) == len(unit.keys)


def test_conditions_without_tile_condition() -> None:
    key = next(key for key in KEYS["ck-2025-11"] if key.tile.when == "few_blocks")
    plain = dataclasses.replace(key, tile=dataclasses.replace(key.tile, when="always"))
    features = cpp.features("ck-2025-11")
    assert set(batch_prefill.conditions(key, features)) - set(batch_prefill.conditions(plain, features)) == {
        "get_num_blocks(128) < num_cus * min_cu_util_rate"
    }


def test_dialect_of_names_only_has_no_cpp(monkeypatch: pytest.MonkeyPatch) -> None:
    of_trees = {name for name in dialect_names() if dialect(name).detection and not dialect(name).features}
    of_our_headers = {package.dialect for package in upstreams().values() if package.headers}
    assert of_trees | of_our_headers == set(spellings()["dialects"])
    monkeypatch.delitem(spellings()["dialects"], "prefill-v3")
    with pytest.raises(UsageError, match=r"prefill-v3 has no C\+\+ to render: only its kernels' names"):
        cpp.features("prefill-v3")
