"""The testing matrix's shapes, and which kernels serve which of them by the conditions of upstream's dispatch."""

from __future__ import annotations

import csv
import functools
import hashlib
import io
import json
from dataclasses import replace
from typing import Any

import pytest

from ckpm.base.errors import UsageError
from ckpm.matrix.dialects import FAMILIES
from ckpm.matrix.keys import Key
from ckpm.matrix.problems.matching import Matcher, count_shapes, is_tried
from ckpm.matrix.problems.serving import needed_values, not_for_its_lengths, padding, serving_kernels
from ckpm.matrix.problems.testing import ListedShape, from_shape, parse_shape, shapes
from ckpm.matrix.selection import Selection
from tests.unit.enumerated import select_keys
from tests.unit.shared import Run

NEWEST = ("--dialect", "rocm-libraries-2026")


@functools.cache
def keys(family: str, name: str = "rocm-libraries-2026") -> tuple[Key, ...]:
    return tuple(select_keys(name, Selection(archs=("gfx950",), families=(family,))))


@functools.cache
def matcher(family: str, name: str = "rocm-libraries-2026") -> Matcher:
    return Matcher(keys(family, name))


def kernels_for(family: str, shape: ListedShape) -> tuple[Key, ...]:
    return matcher(family)(family, shape).kernels


def against_lengths(key: Key, shape: ListedShape) -> str | None:
    return not_for_its_lengths(key, from_shape(shape, key.family))


def reason(family: str, shape: ListedShape) -> str:
    return matcher(family)(family, shape).reason


# ---- the testing matrix


@pytest.mark.parametrize(
    ("tier", "direction", "count", "impossible"),
    # upstream's products: 758 and 35,866 forward (100 smoke shapes twice), 28 and 180 backward
    [("smoke", "fwd", 658, 40), ("smoke", "bwd", 28, 0), ("full", "fwd", 35866, 11844), ("full", "bwd", 180, 0)],
)
def test_tiers_are_upstreams_products(tier: str, direction: str, count: int, impossible: int) -> None:
    tier_shapes = [shape for shape in shapes("full") if (shape.tier, shape.direction) == (tier, direction)]
    assert len(tier_shapes) == count
    assert sum(bool(shape.impossible) for shape in tier_shapes) == impossible


def test_tier_contains_ones_before_it_and_names_differ() -> None:
    smoke, full, nightly = shapes("smoke"), shapes("full"), shapes("nightly")
    assert set(smoke) < set(full) == set(nightly)
    assert len({shape.name for shape in full}) == len(full)


def test_shapes_are_upstreams_in_its_words_and_order() -> None:
    """The digest is of the product of upstream's file, made by a script that does not read this table."""
    terms = {"no": "no_mask", "bias": "elementwise"}
    lines = [
        f"{'forward' if s.direction == 'fwd' else 'backward'}_tests {s.tier} {s.name.split('/')[1].split('.')[0]} "
        f"{s.batch} {s.seqlen_q} {s.seqlen_k} {s.nhead_q} {s.nhead_k} {s.hdim_q} {s.hdim_v} {s.dtype} {s.layout} "
        f"{terms.get(s.mask, s.mask)} {terms.get(s.bias, s.bias).replace('no_mask', 'none')} {s.dropout} {s.lse} "
        f"{s.dbias} {s.deterministic}"
        for s in shapes("nightly")
    ]
    assert (
        hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()
        == "b0ecd7720d5c09bdd449bb82869fd666f54d45f8d08c768786206a659f184afd"
    )


def test_testing_lists_counts_and_tells_impossible(run: Run) -> None:
    code, out, _ = run("problems", "--shapes", "--test", "*Extreme_GQA*h5x*", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert (code, {row["impossible"] for row in rows}) == (
        0,
        {"", "nhead_q 5 is not a multiple of nhead_k 4", "nhead_q 5 is not a multiple of nhead_k 8"},
    )
    _, out, _ = run("problems", "--shapes", "--count", "--format", "json")
    assert json.loads(out) == [
        {"direction": "fwd", "tier": "smoke", "shapes": 658, "impossible": 40},
        {"direction": "bwd", "tier": "smoke", "shapes": 28, "impossible": 0},
    ]
    _, out, _ = run("problems", "--shapes", "--tier", "smoke")
    assert out.splitlines() == [shape.name for shape in shapes("smoke")]


# ---- what a shape needs


@pytest.mark.parametrize(
    ("dims", "bucket"),
    # fmha_fwd.py: the first head dims of its table that both fit
    [
        ((88, 88), (96, 128)),
        ((72, 72), (80, 96)),
        ((16, 128), (96, 128)),
        ((128, 192), (192, 192)),
        ((32, 32), (32, 32)),
    ],
)
def test_head_dims_take_first_kernel_that_both_fit(dims: tuple[int, int], bucket: tuple[int, int]) -> None:
    kernels = kernels_for("fwd", ListedShape(hdim_q=dims[0], hdim_v=dims[1]))
    assert {(key.hdim_q, key.hdim_v) for key in kernels} == {bucket}


def test_backward_head_dims_stand_in_order_of_tiles() -> None:
    """The API file that the codegen of autumn 2025 writes for gfx950 asks for 64, 128, 32, 96, 256: 32 finds 64."""
    for hdim, bucket in ((32, 64), (64, 64), (96, 128), (128, 128), (256, 256)):
        kernels = kernels_for("bwd_dq_dk_dv", ListedShape(hdim_q=hdim, hdim_v=hdim))
        assert {key.hdim_q for key in kernels} == {bucket}


@pytest.mark.parametrize("family", FAMILIES)
def test_serving_kernels_have_exactly_requested_features(family: str) -> None:
    shape = ListedShape(mask="top_left", bias="alibi", lse=True, mode="group", dtype="bf16")
    kernels = kernels_for(family, shape if family != "fwd_pagedkv" else replace(shape, lse=False))
    assert kernels
    for key in kernels:
        assert key.dtype == "bf16"
        assert not any((key.dropout, key.logits, key.sink, key.skip))
        assert (key.mask or "mask", key.bias or "alibi") == ("mask", "alibi")


@pytest.mark.parametrize(
    ("family", "shape", "message"),
    [
        ("fwd", ListedShape(dtype="fp8"), "no kernel with dtype fp8"),
        ("fwd", ListedShape(hdim_v=576), "no head dims from 128x576 on"),
        ("fwd", ListedShape(nhead_q=16, nhead_k=3), "nhead_q 16 is not a multiple of nhead_k 3"),
        ("fwd_pagedkv", ListedShape(lse=True), "no kernel with lse True among "),
        (
            "fwd_pagedkv",
            ListedShape(hdim_q=64, hdim_v=64),
            "hdim_q 64 is not a multiple of 128, and ps does not pad it",
        ),
        ("batch_prefill", ListedShape(mode="batch"), "no kernel with mode batch among "),
        ("batch_prefill", ListedShape(page_size=64), "no kernel with page_size 64 among "),
        ("bwd_dq_dk_dv", ListedShape(bias="alibi", dbias=True), "no kernel with dbias True among "),
    ],
)
def test_unserved_shape_has_reason(family: str, shape: ListedShape, message: str) -> None:
    assert kernels_for(family, shape) == ()
    assert any(text.startswith(message) for text in reason(family, shape).split("; "))


def test_unpadded_kernels_need_whole_tiles() -> None:
    whole = kernels_for("fwd", ListedShape(hdim_q=256, hdim_v=256, mode="batch"))
    ragged = kernels_for("fwd", ListedShape(hdim_q=256, hdim_v=256, mode="batch", seqlen_q=1000, seqlen_k=1000))
    assert {key.pad for key in whole if key.pipeline == "qr"} == {"npad", "pssk", "psskddv"}
    assert {key.pad for key in ragged if key.pipeline == "qr"} == {"pssk", "psskddv"}
    assert set(ragged) < set(whole)
    small = kernels_for("fwd", ListedShape(hdim_q=248, hdim_v=248, mode="batch"))
    assert {key.pad for key in small} == {"psskddv", "pddv"}


def test_async_takes_any_seqlen_q_and_dims_of_16_bytes() -> None:
    async_key = next(key for key in keys("fwd") if key.pipeline == "qr_async" and key.pad == "psddv")
    assert against_lengths(async_key, ListedShape(seqlen_q=1, seqlen_k=128, hdim_q=8, hdim_v=8)) is None
    assert against_lengths(async_key, ListedShape(seqlen_k=100)) == (
        f"seqlen_k 100 is not a multiple of {async_key.tile.bn0}, and psddv does not pad it"
    )
    assert against_lengths(async_key, ListedShape(hdim_q=12)) is not None


@pytest.mark.parametrize("tensor", ["q", "k"])
def test_backward_tiles_for_short_tensor_serve_no_longer_one(tensor: str) -> None:
    """fmha_bwd.py, extra_cond: tiles of 128 keys with transposed loads are for seqlen_k up to 256."""
    backward = keys("bwd_dq_dk_dv")
    short = {key: key.tile.max_seq_q for key in backward if key.tile.max_seq_q}
    if tensor == "k":
        short = {key: 256 for key in backward if key.trload and key.tile.bn0 == 128 and not key.tile.max_seq_q}
    assert short
    for key, most in list(short.items())[:20]:
        lengths: list[dict[str, Any]] = [{f"seqlen_{tensor}": length} for length in (most, most + 1)]
        reasons = [
            against_lengths(key, ListedShape(hdim_q=key.hdim_q, hdim_v=key.hdim_v, **fields)) for fields in lengths
        ]
        assert reasons == [None, f"seqlen_{tensor} {most + 1} is over {most}"]


def test_backward_kernels_of_one_dim_have_64_rows() -> None:
    for family in ("bwd_dot_do_o", "bwd_convert_dq"):
        whole, ragged = (kernels_for(family, ListedShape(seqlen_q=length, mode="batch")) for length in (128, 129))
        assert {"s" in padding(key.pad) for key in whole} == {True, False}
        assert {"s" in padding(key.pad) for key in ragged} == {True}


def test_dropout_keeps_its_random_values_only_on_request() -> None:
    plain, stored = ListedShape(dropout=0.2), ListedShape(dropout=0.2, store_randval=True)
    assert {key.dropout_impl for key in kernels_for("bwd_dq_dk_dv", plain)} == {"wg16"}
    assert {key.dropout_impl for key in kernels_for("bwd_dq_dk_dv", stored)} == {"wg16_storerandval"}


def test_plain_kernels_need_whole_tiles_of_queries() -> None:
    whole, ragged = (
        kernels_for("fwd", ListedShape(seqlen_q=length, mode="batch", bias="bias")) for length in (128, 100)
    )
    assert {"s" in padding(key.pad) for key in whole} == {True, False}
    assert {(key.pipeline, "s" in padding(key.pad)) for key in ragged} == {("qr", True)}


def test_unpadded_head_dims_are_those_of_wider_step() -> None:
    """CK's K0_MAX_SUBMAX_MAP: K of 80 is loaded as 96, of 96 as 128, so that 80 itself must be padded."""
    for dims in ((80, 96), (96, 128)):
        unpadded = [key for key in keys("fwd") if (key.hdim_q, key.hdim_v) == dims and key.pad == "npad"]
        assert unpadded
        shape = ListedShape(hdim_q=dims[0], hdim_v=dims[1])
        assert all(f"hdim_q {dims[0]} is no" in str(against_lengths(key, shape)) for key in unpadded)


@pytest.mark.parametrize("family", ["fwd", "fwd_pagedkv"])
def test_causal_kernel_of_generic_masks_serves_no_left_window(family: str) -> None:
    """CK's CausalMask is GenericAttentionMask<true, false>, which has no bound to the left."""
    generic = select_keys("ck-2025-06", Selection(archs=("gfx950",), families=(family,), mask_impl="generic"))
    causal = from_shape(ListedShape(mask="bottom_right", dtype="bf16", mode="group"), family)
    assert {key.mask for key in serving_kernels(generic, causal)} == {"causal"}
    assert serving_kernels(generic, replace(causal, window_left=40)) == ()


def test_min_seqlen_q_takes_kernels_that_skip_short_sequences() -> None:
    problem = from_shape(ListedShape(dtype="bf16", mode="group"), "fwd")
    assert {key.skip for key in serving_kernels(keys("fwd"), problem)} == {False}
    assert {key.skip for key in serving_kernels(keys("fwd"), replace(problem, min_seqlen_q=1))} == {True}


def test_v3_has_dispatch_of_its_own() -> None:
    """Its head dims are not hidden by smaller ones of V2."""
    v3 = next(key for key in keys("fwd") if key.pipeline == "qr_async_trload_v3" and key.mode == "group")
    v2 = next(key for key in keys("fwd") if (key.hdim_q, key.mode, key.dtype) == (64, "group", v3.dtype))
    shape = ListedShape(
        hdim_q=64, hdim_v=64, dtype=v3.dtype, **{n: getattr(v2, n) for n in ("logits", "sink", "skip", "lse")}
    )
    both = [replace(v2, dropout=False), replace(v3, pad="psskddv", **{n: getattr(v2, n) for n in ("logits", "lse")})]
    alike = [replace(key, sink=v2.sink, skip=v2.skip, bias="no", mask="no") for key in both]
    assert Matcher(alike)("fwd", shape).kernels == tuple(alike)


def test_append_kv_needs_whole_tiles_of_new_rows_or_pads_them() -> None:
    assert {key.pad for key in kernels_for("fwd_appendkv", ListedShape(seqlen_q=64))} == {"psk", "psskddv"}
    assert {key.pad for key in kernels_for("fwd_appendkv", ListedShape(seqlen_q=1))} == {"psskddv"}
    assert {key.pad for key in kernels_for("fwd_appendkv", ListedShape(seqlen_q=64, hdim_q=96, hdim_v=96))} == {
        "psskddv"
    }


def test_combine_stage_needs_its_whole_head_dim_or_pads_it() -> None:
    assert {"dv" in padding(key.pad) for key in kernels_for("fwd_splitkv_combine", ListedShape())} == {True, False}
    assert {"dv" in padding(key.pad) for key in kernels_for("fwd_splitkv_combine", ListedShape(hdim_v=120))} == {True}


def test_backward_pad_of_mid_2025_decides_lengths() -> None:
    old = matcher("bwd_dq_dk_dv", "ck-2025-06")
    shape = ListedShape(mode="batch", seqlen_q=100, seqlen_k=100, hdim_q=120, hdim_v=120)
    assert {key.pad for key in old("bwd_dq_dk_dv", shape).kernels} == {"psskddv"}
    assert len({key.pad for key in old("bwd_dq_dk_dv", ListedShape(mode="batch")).kernels}) == 16


def test_backward_pads_head_dims_by_one_or_eight() -> None:
    for dim, dpads in ((128, {0, 1, 8}), (120, {1, 8}), (121, {1})):
        kernels = kernels_for("bwd_dq_dk_dv", ListedShape(hdim_q=dim, hdim_v=dim))
        assert {key.dpad for key in kernels} == dpads


def test_paging_is_either_way_unless_asked_for() -> None:
    either = kernels_for("fwd_splitkv", ListedShape())
    assert {key.paged_kv for key in either} == {True, False}
    assert {key.paged_kv for key in kernels_for("fwd_splitkv", ListedShape(page_size=16))} == {True}
    assert {key.page_size for key in kernels_for("batch_prefill", ListedShape(page_size=16))} == {16}
    of_any_age = from_shape(ListedShape(page_size=1), "batch_prefill")
    assert needed_values(of_any_age)["page_size"] == {1, None}  # CK of 2025 has no page sizes


@pytest.mark.parametrize(
    ("pad", "lengths"),
    [
        ("npad", ""), ("ps", "s"), ("psk", "sk"), ("pssk", "s sk"), ("pskd", "sk d"), ("psddv", "s d dv"),
        ("psskddv", "s sk d dv"), ("pdv", "dv"), ("pd", "d"), ("psdv", "s dv"), ("pddv", "d dv"), ("pd8dv1", ""),
    ],
)  # fmt: skip
def test_padding_of_word_lists_its_lengths(pad: str, lengths: str) -> None:
    assert padding(pad) == set(lengths.split())


def test_shapes_and_kernels_agree_in_both_directions() -> None:
    some = [shape for shape in shapes("smoke") if is_tried("fwd_splitkv", shape)][::7]
    counts = count_shapes(matcher("fwd_splitkv"), some)
    for key in keys("fwd_splitkv")[::97]:
        assert counts[key.name] == sum(key in kernels_for("fwd_splitkv", shape) for shape in some)
    assert counts.total() == sum(len(kernels_for("fwd_splitkv", shape)) for shape in some)


# ---- the command


def test_one_shape_lists_its_kernels_and_one_kernel_its_shapes(run: Run) -> None:
    text = "hdim_q=128,dtype=bf16,mask=top_left,page_size=1024,kv_layout=linear,kv_table=vllm,seqlen_k=4096"
    code, out, err = run("match", *NEWEST, "--shape", text)
    expected = [key.name for key in kernels_for("batch_prefill", parse_shape(text))]
    assert (code, err, out.splitlines()) == (0, "", expected)
    assert len(expected) == 2  # two tiles; pages of 1024 tokens need no 64-bit loads
    code, out, _ = run("match", *NEWEST, "--kernel", expected[0], "--shapes", "smoke")
    assert code == 0
    listed = [shape for shape in shapes() if shape.name in out.splitlines()]
    assert [
        shape for shape in shapes() if expected[0] in {key.name for key in kernels_for("batch_prefill", shape)}
    ] == listed


def test_match_counts_include_unserved_shapes_and_kernels(run: Run) -> None:
    options = ("--family", "fwd,bwd_dq_dk_dv", *NEWEST, "--format", "json")
    rows = {row["family"]: row for row in json.loads(run("match", *options, "--count-only")[1])}
    for family, row in rows.items():
        tried_shapes = [shape for shape in shapes() if is_tried(family, shape)]
        assert row["shapes"] == len(tried_shapes) == row["served"] + row["unserved"] + row["impossible"]
        assert row["kernels"] == len(keys(family)) == row["exercised"] + row["unexercised"]
    unserved = json.loads(run("match", *options, "--uncovered")[1])
    assert len(unserved) == sum(row["unserved"] + row["impossible"] for row in rows.values())
    assert all(row["reason"] and not row["kernels"] for row in unserved)
    unused = json.loads(run("match", *options, "--uncovered", "--by", "kernel")[1])
    assert len(unused) == sum(row["unexercised"] for row in rows.values())
    _, out, err = run("match", *NEWEST, "--shape", "hdim_q=999")
    others = sum(key.dtype == "fp16" for key in keys("batch_prefill"))
    why = f"no kernel with hdim_q 999 among {others} that fit otherwise"
    assert (out, err) == ("", f"hdim_q=999: no batch_prefill kernel: {why}\n")


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (("problems", "--shapes", "--tier", "quick"), 2, "unknown tier 'quick'. Known: smoke, full, nightly."),
        (("problems", "--shapes", "--test", "nothing"), 2, "no shape is named like --test 'nothing'. "),
        (("match", "--shapes", "smok"), 2, "unknown tier 'smok'; did you mean 'smoke'? "),
        (
            ("match", "--shape", "hdim=128"),
            2,
            "--shape 'hdim=128': unknown field 'hdim'; did you mean 'hdim_v' or 'hdim_q'? Known: ",
        ),
        (("match", "--shape", "hdim_q=0"), 2, "--shape 'hdim_q=0': hdim_q must be a positive number, not '0'."),
        (
            ("match", "--shape", "mask=windw"),
            2,
            "--shape 'mask=windw': mask must be one of no, top_left, bottom_right, window, not 'windw'; did you mean '",
        ),
        (("match", "--shape", "lse"), 2, "--shape 'lse': lse must be one of true, false, not ''."),
        (("match", "--kernel", "fmha"), 3, "--kernel fmha: a part of 384 of the 384 selected. See --family, --arch."),
        (("match", "--shape", "", "--uncovered"), 2, "--uncovered lists shapes or kernels: add --by shape or "),
        (("match", "--family", "fwdd"), 2, "unknown family 'fwdd'; did you mean 'fwd'? "),
    ],
)
def test_match_with_bad_option_is_refused(run: Run, argv: tuple[str, ...], code: int, message: str) -> None:
    exit_code, out, err = run(*argv)
    assert (exit_code, out) == (code, "")
    assert err.startswith(f"error: {message}")


def test_defaults_of_shape_are_upstreams() -> None:
    assert parse_shape("") == ListedShape()
    assert parse_shape("dropout=0.2,lse=true,mode=group") == ListedShape(
        name="dropout=0.2,lse=true,mode=group", dropout=0.2, lse=True, mode="group"
    )
    with pytest.raises(UsageError):
        parse_shape("dropout=1.5")
