"""Setters of a problem, and one clear error for each contradiction."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpm.attention.problems.builder import ProblemBuilder
from ckpm.attention.problems.validation import broken_rules, find_overlap, validate
from ckpm.base.errors import ProblemError
from ckpm.matrix.configurations.validation import RULES
from ckpm.matrix.problems.problem import Problem, Strides, launch_seqlen_k
from ckpm.matrix.problems.testing import ListedShape, from_shape, shapes, to_shape
from tests.unit.attention.fakes import PREFILL, make_dispatcher, prefill

_PAGED = {"family": "batch_prefill", "page_size": 16, "pool_pages": 2**20}
_PAGES_OF_1 = {field.name: getattr(PREFILL, field.name) for field in dataclasses.fields(PREFILL)}
_SPLIT = {
    **{"family": "batch_prefill", "dtype": "bf16", "mode": "group", "page_size": 1, "pool_pages": 2**20},
    **{"nhead_q": 128, "nhead_k": 8, "hdim_q": 128, "hdim_v": 128, "seqlen_k": 2**18, "split_keys": 2**17},
}


def test_every_setter_sets_its_own_fields() -> None:
    build = ProblemBuilder()
    setters: dict[str, tuple[ProblemBuilder, dict[str, Any]]] = {
        "family": (build.family("fwd_splitkv"), {"family": "fwd_splitkv"}),
        "arch": (build.arch("gfx942"), {"arch": "gfx942"}),
        "dtype": (build.dtype("fp16"), {"dtype": "fp16"}),
        "batch": (build.batch(3), {"batch": 3, "mode": "batch"}),
        "group": (build.group(3, 300, 200), {"batch": 3, "mode": "group", "total_q": 300, "total_k": 200}),
        "lengths": (build.lengths(5, 9, ragged=True), {"seqlen_q": 5, "seqlen_k": 9, "ragged": True}),
        "one length": (build.lengths(5), {"seqlen_q": 5, "seqlen_k": 5}),
        "heads": (build.heads(8, 2), {"nhead_q": 8, "nhead_k": 2}),
        "hdims": (build.hdims(192, 128), {"hdim_q": 192, "hdim_v": 128}),
        "layout": (build.layout("BHSD"), {"layout": "BHSD"}),
        "vlayout": (build.vlayout("col"), {"vlayout": "col"}),
        "strides": (build.strides("q", 1, 2, 3), {"strides": (("q", Strides(1, 2, 3)),)}),
        "mask": (build.mask("window", 4, 5), {"mask": "window", "window_left": 4, "window_right": 5}),
        "sink": (build.sink(4, logits=True), {"sink_size": 4, "sink_logits": True}),
        "bias": (build.bias("alibi", per_batch=True), {"bias": "alibi", "alibi_per_batch": True}),
        "dropout": (
            build.dropout(0.5, 7, 8, store=True),
            {"p_drop": 0.5, "dropout_seed": 7, "dropout_offset": 8, "store_randval": True},
        ),
        "split_keys": (build.split_keys(256), {"split_keys": 256}),
        "lse": (build.lse(), {"lse": True}),
        "soft_cap": (build.soft_cap(30.0), {"logits_soft_cap": 30.0}),
        "scale": (build.scale(0.5), {"scale": 0.5}),
        "scales": (build.scales("pertensor", (1.0, 2.0, 3.0)), {"qscale": "pertensor", "descales": (1.0, 2.0, 3.0)}),
        "pages": (
            build.pages(16, 99, layout="vectorized"),
            {"page_size": 16, "pool_pages": 99, "kv_layout": "vectorized"},
        ),
        "page_table": (build.page_table("vllm", 12), {"kv_table": "vllm", "table_width": 12}),
        "cu_seqlens": (build.cu_seqlens(), {"cu_seqlens": True}),
        "dbias": (build.dbias(), {"dbias": True}),
        "deterministic": (build.deterministic(), {"deterministic": True}),
        "splits": (build.splits(4), {"splits": 4}),
        "batch_invariant": (build.batch_invariant(), {"batch_invariant": True}),
        "min_seqlen_q": (build.min_seqlen_q(3), {"min_seqlen_q": 3}),
        "tile": (build.tile(64), {"tile_rows": 64}),
        "v3": (build.v3("off"), {"v3": "off"}),
        "new_keys": (build.new_keys(9, "half", 64), {"seqlen_knew": 9, "rope": "half", "rotary_dim": 64}),
    }
    plain = dataclasses.asdict(Problem())
    covered: set[str] = set()
    for name, (builder, wanted) in setters.items():
        got = {field: getattr(builder._problem, field) for field in plain}
        assert {f: v for f, v in got.items() if v != getattr(Problem(), f)} == {
            f: v for f, v in wanted.items() if v != getattr(Problem(), f)
        }, name
        covered |= set(wanted)
    assert covered == set(plain), "a field without a setter"


def test_builder_builds_valid_problem_only() -> None:
    problem = ProblemBuilder().heads(8, 2).lengths(512, 700).mask("top_left", right=0).dtype("fp16").lse().build()
    assert problem == Problem(
        nhead_q=8, nhead_k=2, seqlen_q=512, seqlen_k=700, mask="top_left", window_right=0, dtype="fp16", lse=True
    )
    with pytest.raises(ProblemError, match="8 is not a multiple of nhead_k 3"):
        ProblemBuilder().heads(8, 3).build()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch": -1}, "batch is -1: it must be a whole number from 1 to 2147483647"),
        ({"nhead_q": 0}, "nhead_q is 0"),
        ({"seqlen_k": 2**31}, "seqlen_k is 2147483648"),
        ({"batch": 2**20, "seqlen_q": 2**20}, "batch * seqlen_q is 1099511627776"),
        ({"hdim_q": 1.5}, "hdim_q is 1.5"),
        ({"seqlen_q": True}, "seqlen_q is True"),
        ({"strides": (("q", Strides(0, 0, -128)),)}, "row stride of q is -128"),
        ({"hdim_q": 2**31 - 8, "nhead_q": 2}, "stride of q"),
        ({"arch": "gfx1"}, "arch 'gfx1' is none of gfx90a, gfx942"),
        ({"dtype": "fp64", "kv_layout": "vectorized"}, "dtype 'fp64' is none of"),
        ({"window_left": 3}, "a window or sink tokens need a mask"),
        ({"p_drop": 1.0}, "p_drop 1.0 is not in [0, 1)"),
        ({"p_drop": float("nan")}, "p_drop nan is not in [0, 1)"),
        ({"logits_soft_cap": float("inf")}, "logits_soft_cap inf is not from 1.18e-38 to 65536"),
        ({"scale": -1.0}, "1.18e-38 to 65536, or 0 for the usual one; for a negative scale negate Q"),
        ({"scale": float("nan")}, "scale nan is not from"),
        (
            {"dtype": "fp8bf16", "qscale": "pertensor", "descales": (1.0, -0.5, 1.0)},
            "with the descales (1.0, -0.5) of Q and K is not from",
        ),
        (
            {"dtype": "fp8bf16", "qscale": "pertensor", "descales": (1.0, 1.0, float("nan"))},
            "the descale nan of V is not finite",
        ),
        ({"store_randval": True}, "store_randval needs dropout"),
        ({"qscale": "pertensor"}, "fp8 needs a qscale, other dtypes have none"),
        ({"splits": 2}, "takes 1 to 128 splits, not 2"),
        ({"deterministic": True}, "deterministic and dbias belong to the backward"),
        ({"family": "bwd_dq_dk_dv", "dbias": True}, "dbias needs an elementwise bias"),
        ({"family": "bwd_dq_dk_dv", "seqlen_k": 0}, "needs queries and keys, not 128 and 0"),
        ({"family": "bwd_dq_dk_dv", "logits_soft_cap": 5.0}, "has no soft cap, sinks"),
        (
            {"family": "bwd_dq_dk_dv", "deterministic": True, "seqlen_q": 2**20, "nhead_q": 32},
            "a split's dQ, in elements, of the whole batch, is 4294967296",
        ),
        ({"seqlen_knew": 3}, "belong to fwd_appendkv"),
        ({"total_q": 3}, "belong to group mode"),
        ({"page_size": 16, "pool_pages": 3}, "fwd reads no pages: page_size must be 0"),
        ({"family": "batch_prefill"}, "reads K and V from pages: page_size must be positive"),
        ({"hdim_q": 12}, "hdim_q 12; head dims are positive multiples of 8"),
        ({"logits_soft_cap": 1.0, "bias": "bias"}, "logits with bias bias"),
        ({"strides": (("q", Strides(0, 1, 2)), ("q", Strides(0, 1, 2)))}, "given once each"),
        ({"strides": (("lse", Strides(0, 1, 2)),)}, "not for ['lse']"),
        ({"nhead_q": 2, "strides": (("q", Strides(2**15, 64, 256)),)}, "a step of 64 leads into the 128"),
        ({**_PAGED, "strides": (("v", Strides(128, 0, 2**27)),)}, "span 4026532096 bytes"),
        ({**_PAGED, "strides": (("q", Strides(0, 128, 8_454_660)),)}, "row stride of q is 8454660"),
        ({**_PAGED, "seqlen_k": 2**29, "seqlen_q": 1}, "seqlen_q + seqlen_k is 536870913"),
        ({**_PAGED, "p_drop": 1 - 1e-9}, "is 1 in float32"),
        ({**_PAGED, "scale": 4.0, "logits_soft_cap": 2.0**-100}, "over 2^100 times the soft cap"),
        (
            {**_PAGED, "p_drop": 0.5, "store_randval": True, "seqlen_q": 2**16, "seqlen_k": 2**15},
            "random bytes of 65536 queries and 32768 keys are over 2 GB",
        ),
        (
            {**_PAGED, "dtype": "fp8bf16", "qscale": "pertensor", "hdim_q": 120, "hdim_v": 128},
            "head dims 120 and 128: they must be multiples of 16 for fp8bf16",
        ),
        ({**_PAGES_OF_1, "pool_pages": 0}, "pool_pages must say how many pages"),
        ({**_PAGES_OF_1, "kv_table": "vllm", "table_width": 3}, "a table row of 3 pages of 1 doesn't hold seqlen_k 70"),
        ({**_PAGES_OF_1, "page_size": 4, "kv_layout": "vectorized"}, "pages of a multiple of 8 tokens for bf16"),
        ({**_PAGES_OF_1, "family": "fwd_pagedkv"}, "fwd_pagedkv reads linear pages by a vllm table"),
        ({**_SPLIT, "seqlen_q": 131_073}, "Q of 16 heads spans 4294971392 bytes"),
        ({**_SPLIT, "nhead_q": 16, "nhead_k": 1, "seqlen_q": 2**18}, "O in float32 of 16 heads spans"),
    ],
)
def test_contradicting_problem_is_one_error(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ProblemError) as raised:
        validate(dataclasses.replace(Problem(), **changes))
    assert message in str(raised.value)


def test_broken_rules_have_text_of_matrix() -> None:
    """The rules are `ckpm validate`'s. The registry keeps rules that CK's own kernels contradict."""
    (line,) = broken_rules(Problem(hdim_q=12))
    text = RULES["head_dims_are_multiples_of_8"].excludes(12, 128)
    assert line.startswith(f"{text} (head_dims_are_multiples_of_8: ")
    assert RULES["family_has_its_mode"].contradiction
    assert broken_rules(dataclasses.replace(PREFILL, mode="batch", total_q=0)) == []


@given(st.lists(st.tuples(st.integers(1, 24), st.integers(1, 4)), max_size=3), st.integers(1, 4))
def test_overlap_is_seen_where_two_elements_have_one_place(steps: list[tuple[int, int]], together: int) -> None:
    """Whatever shares a place is refused; of what doesn't, only axes that interleave may be."""
    places = [0]
    for step, count in steps:
        places = [address + step * index for address in places for index in range(count)]
    elements = [address + index for address in places for index in range(together)]
    shared = len(set(elements)) < len(elements)
    if shared:
        assert find_overlap(steps, together)
    reached, nested = together, True
    for step, count in sorted(steps):
        nested &= count == 1 or step >= reached
        reached += (count - 1) * step
    assert bool(find_overlap(steps, together)) is not nested


def test_contiguous_strides_are_those_of_array() -> None:
    import numpy as np

    p = Problem(batch=2, seqlen_q=5, seqlen_k=7, nhead_q=4, nhead_k=2, hdim_q=16, hdim_v=24)
    for layout, axes in (("BSHD", (0, 2, 1)), ("BHSD", (0, 1, 2))):
        posed = dataclasses.replace(p, layout=layout)
        for tensor, heads, length, hdim in (("q", 4, 5, 16), ("k", 2, 7, 16), ("v", 2, 7, 24), ("o", 4, 5, 24)):
            shape = (2, heads, length, hdim) if layout == "BHSD" else (2, length, heads, hdim)
            own = [step // 2 for step in np.empty(shape, np.float16).strides]
            assert dataclasses.astuple(posed.stride(tensor)) == tuple(own[axis] for axis in axes), (layout, tensor)


def test_shapes_of_testing_matrix_become_problems_and_back() -> None:
    """Each field that a shape decides survives; what it leaves open is filled by the family."""
    kept = [field.name for field in dataclasses.fields(ListedShape) if field.name not in ("name", "tier", "direction")]
    opened = {"mode", "qscale", "page_size", "paged_kv", "kv_layout", "kv_table", "dbias"}
    tried = [shape for shape in shapes("smoke") if shape.direction == "fwd"]
    assert len(tried) > 20
    for shape in tried:
        if shape.impossible:
            continue
        back = to_shape(from_shape(shape, "fwd"))
        assert {name: getattr(back, name) for name in kept if name not in opened} == {
            name: getattr(shape, name) for name in kept if name not in opened
        }


@pytest.mark.parametrize("family", ["fwd", "fwd_splitkv", "fwd_pagedkv", "batch_prefill"])
def test_shape_s_problem_can_be_posed(family: str) -> None:
    problem = from_shape(ListedShape(seqlen_q=100, seqlen_k=300, mask="top_left", dtype="bf16"), family)
    assert validate(problem) is problem
    assert (problem.mask, problem.window_left, problem.window_right) == ("top_left", -1, 0)


def test_ragged_batch_promises_no_whole_tiles() -> None:
    p = dataclasses.replace(PREFILL, mode="batch", total_q=0, seqlen_k=256, ragged=True)
    assert launch_seqlen_k(p) == 257
    assert launch_seqlen_k(dataclasses.replace(p, ragged=False)) == 256


WRONG_TYPES: tuple[Any, ...] = (None, b"x", [1], {1: 2}, object())


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Problem)])
def test_field_of_wrong_type_is_refused_by_name(field: str) -> None:
    """Refusals come from every call that takes a problem, for values without a hash too."""
    dispatcher, _ = make_dispatcher(prefill())
    for value in WRONG_TYPES:
        wrong = dataclasses.replace(PREFILL, **{field: value})
        for ask in (validate, dispatcher.plan, dispatcher.why):
            with pytest.raises(ProblemError, match=field):
                ask(wrong)


def test_rows_of_q_within_2_gb_are_accepted() -> None:
    paged = Problem(family="batch_prefill", page_size=16, pool_pages=1, strides=(("q", Strides(0, 128, 8_454_659)),))
    assert validate(paged) is paged


def test_rows_of_bias_of_fp8_span_4_bytes_a_score() -> None:
    """Two bytes a score reach no 4 GB: an int32 of the C ABI has the scores of a head."""
    fp8 = Problem(dtype="fp8bf16", mode="group", bias="bias", seqlen_q=2**12, seqlen_k=2**18)
    assert fp8.span_bytes == 4 * 2**12 * 2**18
    assert dataclasses.replace(fp8, bias="no").span_bytes == 2**18 * 128


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (
            Problem(family="fwd_splitkv", splits=2, batch=2**10, seqlen_q=2**14),
            "a split's O, in elements, of the whole",
        ),
        # dK has a head for each of Q's: 64 * 2^18 rows of 128
        (Problem(family="bwd_dq_dk_dv", nhead_q=64, seqlen_k=2**18), "batch stride of dk is 2147483648"),
        (Problem(family="fwd_appendkv", seqlen_knew=2**24), "a sequence's new keys, in elements, is 2147483648"),
    ],
)
def test_strides_beyond_32_bits_are_refused(problem: Problem, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        validate(problem)
