"""The float64 reference against an independent one, and tolerances against models of the kernel's rounding."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ckpm.attention.launch.buffers import LaunchInputs, prepare
from ckpm.attention.launch.encodings import decode, encode
from ckpm.attention.reference import Floats, alibi, exact, keep_threshold, visible
from ckpm.attention.tolerances import (
    ArrayComparison,
    all_zero_rows,
    compare,
    compare_lse,
    compare_o,
    lse_tolerance,
    mean_shift,
    o_tolerance,
)
from ckpm.matrix.problems.case import SuiteCase
from tests.unit.attention import independent
from tests.unit.attention.fakes import make_case


@given(
    mask=st.sampled_from(["no", "top_left", "bottom_right", "window"]),
    window=st.tuples(st.integers(-1, 4), st.integers(-1, 4)),
    lengths=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=3),
    heads=st.sampled_from([(1, 1), (4, 2), (3, 1)]),
    feature=st.sampled_from(["none", "cap", "bias", "sink", "drop", "inf", "alibi", "tokens"]),
    dtype=st.sampled_from(["bf16", "fp16"]),
)
@example(mask="bottom_right", window=(1, 0), lengths=[(6, 9)], heads=(1, 1), feature="tokens", dtype="bf16")
@settings(max_examples=90)
def test_reference_agrees_with_independent_one(
    mask: str, window: tuple[int, int], lengths: list[tuple[int, int]], heads: tuple[int, int], feature: str, dtype: str
) -> None:
    extras: dict[str, dict[str, Any]] = {
        "none": {}, "cap": {"logits_soft_cap": 2.0, "scale": 0.3}, "alibi": {"bias": "alibi"},
        "tokens": {"sink_size": 0 if mask == "no" else 2}, "bias": {"bias": "bias"}, "sink": {"sink_logits": True},
        "drop": {"p_drop": 0.3}, "inf": {"bias": "bias", "bias_values": "minus_inf_rows"},
    }  # fmt: skip
    problem = make_case(
        mask=mask, window_left=window[0] if mask != "no" else -1, window_right=window[1] if mask != "no" else -1,
        seqlens_q=tuple(q for q, _ in lengths), seqlens_k=tuple(k for _, k in lengths), nhead_q=heads[0],
        nhead_k=heads[1], hdim_q=16, hdim_v=8, dtype=dtype, seed=7, **extras[feature],
    )  # fmt: skip
    inputs = prepare(problem).inputs
    random = [
        np.random.default_rng(1).integers(0, 256, (heads[0], q, k)).astype(np.uint8) for q, k in lengths
    ] if feature == "drop" else None  # fmt: skip
    got = exact(inputs, random)
    o, lse = independent.attention(
        problem, inputs.q, inputs.k, inputs.v, bias=inputs.bias, slopes=inputs.slopes, sink_logits=inputs.sink_logits,
        random_values=random,
    )  # fmt: skip
    np.testing.assert_allclose(got.o, o, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(got.lse, lse, rtol=1e-12, atol=1e-12)
    assert np.isfinite(got.o).all()


def draw_mask(problem: SuiteCase, sq: int, sk: int) -> list[str]:
    return ["".join("1" if cell else "." for cell in row) for row in visible(problem, sq, sk)]


def test_masks_by_drawing() -> None:
    causal = {"window_left": -1, "window_right": 0}
    assert draw_mask(make_case(mask="top_left", **causal), 3, 5) == ["1....", "11...", "111.."]
    assert draw_mask(make_case(mask="bottom_right", **causal), 3, 5) == ["111..", "1111.", "11111"]
    assert draw_mask(make_case(mask="bottom_right", **causal), 4, 2) == ["..", "..", "1.", "11"]
    assert draw_mask(make_case(mask="window", window_left=1, window_right=1), 3, 5) == [".111.", "..111", "...11"]
    assert draw_mask(make_case(mask="top_left", window_left=0, window_right=1), 3, 3) == ["11.", ".11", "..1"]
    assert draw_mask(make_case(mask="window", window_left=-1, window_right=-1), 2, 2) == ["11", "11"]
    assert draw_mask(make_case(), 2, 0) == ["", ""]


def test_sink_tokens_are_seen_up_to_right_bound() -> None:
    """Two sinks before a window of the key itself and one before."""
    sinks = make_case(mask="bottom_right", window_left=1, window_right=0, sink_size=2)
    assert draw_mask(sinks, 5, 5) == ["1....", "11...", "111..", "1111.", "11.11"]
    assert draw_mask(sinks, 2, 5) == ["11" + "11.", "11.11"]


@given(
    mask=st.sampled_from(["top_left", "bottom_right", "window"]),
    left=st.integers(-1, 9), right=st.integers(-1, 9), sq=st.integers(0, 9), sk=st.integers(0, 9),
)  # fmt: skip
def test_masks_are_what_words_say(mask: str, left: int, right: int, sq: int, sk: int) -> None:
    problem = make_case(mask=mask, window_left=left, window_right=right)
    assert visible(problem, sq, sk).tolist() == independent.visible(problem, sq, sk).tolist()


def test_alibi_by_hand() -> None:
    assert alibi(make_case(), 0.5, 2, 4).tolist() == [[-1, -0.5, 0, -0.5], [-1.5, -1, -0.5, 0]]
    assert alibi(make_case(mask="top_left", window_left=3), 0.5, 2, 3).tolist() == [[0, -0.5, -1], [-0.5, 0, -0.5]]
    causal = make_case(mask="bottom_right", window_left=-1, window_right=0, bias="alibi")
    assert alibi(causal, 0.5, 2, 3).tolist() == [[0, 0.5, 1.0]] * 2


def test_one_row_by_hand() -> None:
    """Scores ln 1, ln 3 and a hidden one: weights 1/4 and 3/4."""
    problem = make_case(seqlens_q=(1,), seqlens_k=(3,), hdim_q=1, hdim_v=1, mask="top_left", window_right=1)
    unit = np.ones((1, 1, 1))
    k = np.log(np.array([1.0, 3.0, 1e6])).reshape(3, 1, 1)
    v = np.array([8.0, 4.0, 1e9]).reshape(3, 1, 1)
    got = exact(LaunchInputs(problem=problem, q=(unit,), k=(k,), v=(v,)))
    assert got.o[0, 0, 0] == pytest.approx(5.0)
    assert got.lse[0, 0] == pytest.approx(math.log(4.0))
    assert got.magnitude[0, 0, 0] == pytest.approx(5.0)
    assert got.energy[0, 0, 0] == pytest.approx(math.sqrt(2.0**2 + 3.0**2))
    assert got.keys[0, 0] == 2


def test_dropout_needs_random_values_and_keeps_what_ck_keeps() -> None:
    with pytest.raises(ValueError, match="random values"):
        exact(prepare(make_case(p_drop=0.2)).inputs)
    assert [keep_threshold(p) for p in (0.0, 0.2, 0.5, 0.1)] == [255, 204, 127, 229]


def test_random_byte_equal_to_threshold_is_kept() -> None:
    """p_drop 0.2: bytes up to 204 stay and weigh 1.25. Two keys of equal weight, V 4 and 8; the second is dropped."""
    problem = make_case(seqlens_q=(1,), seqlens_k=(2,), hdim_q=1, hdim_v=1, p_drop=0.2)
    q, k, v = np.zeros((1, 1, 1)), np.zeros((2, 1, 1)), np.array([4.0, 8.0]).reshape(2, 1, 1)
    got = exact(LaunchInputs(problem=problem, q=(q,), k=(k,), v=(v,)), [np.array([[[204, 205]]], np.uint8)])
    assert got.o[0, 0, 0] == pytest.approx(0.5 * 1.25 * 4.0)
    assert got.lse[0, 0] == pytest.approx(math.log(2.0))


def test_worst_truncation_is_within_tolerance() -> None:
    """200 weights just below 0.5 + 2^-8 lose all of it, and O loses its own step: no random row comes so far."""
    weight = 0.5 + 2.0**-8 - 2.0**-20
    problem = make_case(seqlens_q=(1,), seqlens_k=(201,), hdim_q=1, hdim_v=1)
    k = np.full((201, 1, 1), math.log(weight))
    k[0] = 0.0
    lost = (1 + 200 * 0.5) / (1 + 200 * weight)
    value = (1 + 2.0**-7) / lost - 2.0**-20  # so that O comes out just below 1 + 2^-7 and is stored as 1
    inputs = LaunchInputs(problem=problem, q=(np.ones((1, 1, 1)),), k=(k,), v=(np.full((201, 1, 1), value),))
    assert truncate(np.array([weight, value * lost])).tolist() == [0.5, 1.0]
    assert 0.9 < compare_o(problem, np.ones((1, 1, 1)), exact(inputs)).worst <= 1


def test_weight_flushed_to_zero_is_within_tolerance() -> None:
    """exp(-88) is below float32's smallest normal number, 2^-126; exp(-80) is above it and may not be lost."""
    problem = make_case(seqlens_q=(1,), seqlens_k=(1,), hdim_q=1, hdim_v=1, sink_logits=True)
    zero, unit = np.zeros((1, 1, 1)), np.ones((1, 1, 1))
    for logit, passed in ((88.0, True), (80.0, False)):
        inputs = LaunchInputs(problem=problem, q=(zero,), k=(zero,), v=(unit,), sink_logits=np.array([logit]))
        assert compare_o(problem, zero, exact(inputs)).passed == passed


def test_mean_shift_tells_truncation_from_rounding_to_nearest() -> None:
    """Both are within the tolerance of each element. One key, so that O is V: numbers from 1 to 2, of either sign."""
    problem = make_case(seqlens_q=(1,), seqlens_k=(1,), hdim_q=8, hdim_v=4096)
    random = np.random.default_rng(5)
    v = random.uniform(1, 2, (1, 1, 4096)) * random.choice([-1, 1], 4096)
    expected = exact(LaunchInputs(problem=problem, q=(np.ones((1, 1, 8)),), k=(np.ones((1, 1, 8)),), v=(v,)))
    shifts = {}
    for name, rounded in {"truncated": truncate(v), "nearest": np.round(v * 128) / 128}.items():
        assert compare_o(problem, rounded, expected).passed
        shift = mean_shift(problem, rounded, expected)
        assert shift is not None
        shifts[name] = round(shift, 1)
    assert shifts == {"truncated": -0.5, "nearest": 0.0}
    assert mean_shift(problem, np.full_like(v, np.nan), expected) is None


def test_no_keys_give_zeros_and_minus_infinity() -> None:
    got = exact(prepare(make_case(seqlens_q=(3, 2), seqlens_k=(0, 4))).inputs)
    assert not got.o[:3].any()
    assert np.isneginf(got.lse[:, :3]).all()
    assert np.isfinite(got.lse[:, 3:]).all()
    assert (o_tolerance(make_case(), got)[:3] == 0).all()


def truncate(values: Floats) -> Floats:
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return (bits & 0xFFFF0000).view(np.float32).astype(np.float64)


def toward_zero_half(values: Floats) -> Floats:
    half = values.astype(np.float16)
    rounded_up = np.abs(half.astype(np.float64)) > np.abs(values)
    return np.where(rounded_up, np.nextafter(half, np.float16(0)), half).astype(np.float64)


def kernel_model(
    problem: SuiteCase,
    inputs: LaunchInputs,
    dtype: str,
    positions: NDArray[np.float32] | None = None,
    *,
    sums_stored: bool = False,
) -> tuple[Floats, Floats]:
    """The pipeline's rounding in NumPy: tiles of 128 keys, float32 sums, rounded P and O; no mask.

    With ``positions`` of the keys, ALiBi's product with the slope is added to the scaled scores. The row sum is made
    of the stored P if ``sums_stored``.
    """
    scale = factor = np.float32(problem.softmax_scale * math.log2(math.e))
    if positions is not None:
        factor = np.float32(1)
    q, k, v = (part[0].astype(np.float32) for part in (inputs.q, inputs.k, inputs.v))
    o = np.zeros((q.shape[0], problem.nhead_q, problem.hdim_v))
    lse = np.zeros((problem.nhead_q, q.shape[0]))
    store = {"bf16": truncate, "fp16": toward_zero_half}.get(dtype, truncate)
    for head in range(problem.nhead_q):
        m = np.full(q.shape[0], -np.inf, np.float32)
        total = np.zeros(q.shape[0], np.float32)
        acc = np.zeros((q.shape[0], problem.hdim_v), np.float32)
        for begin in range(0, k.shape[0], 128):
            s = q[:, head] @ k[begin : begin + 128, 0].T
            if positions is not None and inputs.slopes is not None:
                slope = np.float32(inputs.slopes[0, head]) * np.float32(math.log2(math.e))
                s = s * scale + slope * positions[begin : begin + 128]
            new = np.maximum(m, s.max(axis=1))
            p = np.exp2(factor * s - (factor * new)[:, None])
            carry = np.exp2(factor * m - factor * new)
            if dtype == "fp8bf16":
                stored = decode(encode(p.astype(np.float64) * 448, "fp8bf16", "gfx950"), "fp8bf16", "gfx950") / 448
            else:
                stored = store(p.astype(np.float64))
            total = carry * total + (stored.astype(np.float32) if sums_stored else p).sum(axis=1)
            acc = carry[:, None] * acc + stored.astype(np.float32) @ v[begin : begin + 128, 0]
            m = new
        o[:, head] = store((acc / total[:, None]).astype(np.float64))
        lse[head] = m * factor / np.float32(math.log2(math.e)) + np.log(total)
    return o, lse


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp8bf16", "bf16kvfp8", "fp16kvfp8"])
@pytest.mark.parametrize("ranges", [((-2, 2), (-1, 1)), ((-10, 10), (-5, 5)), ((-0.01, 0.01), (0.5, 1.0))])
@pytest.mark.parametrize("keys", [1, 100, 900])
def test_kernel_rounding_is_within_tolerance_and_wrong_page_not(
    dtype: str, ranges: tuple[tuple[float, float], tuple[float, float]], keys: int
) -> None:
    problem = make_case(
        dtype=dtype, qscale="pertensor" if "fp8" in dtype else "no", seqlens_q=(40,), seqlens_k=(keys,), nhead_q=2,
        hdim_q=64, hdim_v=64, q_range=ranges[0], kv_range=ranges[1], seed=11, lse=True,
    )  # fmt: skip
    inputs = prepare(problem).inputs
    expected = exact(inputs)
    o, lse = kernel_model(problem, inputs, problem.q_dtype)
    comparison = compare_o(problem, o, expected)
    assert comparison.passed, str(comparison)
    assert keys == 1 or comparison.worst > 0.05  # the bound is not so wide that everything passes
    assert compare_lse(problem, lse, expected).passed
    if keys == 100 and ranges[1][0] < 0:  # the keys' values off by one; nearly uniform rows would not change
        wrong = exact(LaunchInputs(problem=problem, q=inputs.q, k=inputs.k, v=(np.roll(inputs.v[0], 1, axis=0),)))
        assert compare_o(problem, wrong.o, expected).mismatches > o.size // 4


@pytest.mark.parametrize("ranges", [((-2, 2), (-1, 1)), ((-10, 10), (-5, 5)), ((-0.01, 0.01), (0.5, 1.0))])
@pytest.mark.parametrize("keys", [1, 100, 900])
def test_lse_of_fp8_weights_is_within_tolerance(
    ranges: tuple[tuple[float, float], tuple[float, float]], keys: int
) -> None:
    """V3's LSE is of the sum of stored weights. One of a tile of 64 keys less is not within the tolerance."""
    problem = make_case(
        dtype="fp8bf16", qscale="pertensor", seqlens_q=(40,), seqlens_k=(keys,), nhead_q=2, hdim_q=64, hdim_v=64,
        q_range=ranges[0], kv_range=ranges[1], seed=11, lse=True,
    )  # fmt: skip
    inputs = prepare(problem).inputs
    expected = exact(inputs)
    o, lse = kernel_model(problem, inputs, "fp8bf16", sums_stored=True)
    assert compare_o(problem, o, expected).passed
    assert compare_lse(problem, lse, expected).passed
    if keys > 64:
        fewer = dataclasses.replace(problem, seqlens_k=(keys - 64,))
        short = exact(dataclasses.replace(inputs, problem=fewer, k=(inputs.k[0][64:],), v=(inputs.v[0][64:],)))
        assert not compare_lse(problem, short.lse, expected).passed


def test_alibi_that_restarts_at_key_65536_is_wrong() -> None:
    problem = make_case(
        seqlens_q=(2,), seqlens_k=(65537,), hdim_q=16, hdim_v=16, seed=3, lse=True, bias="alibi", mask="bottom_right",
        window_right=0,
    )  # fmt: skip
    inputs = prepare(problem).inputs
    expected = exact(inputs)
    last = (slice(1, 2), slice(None))  # the query that sees every key
    keys = np.arange(65537)
    for positions, right in ((keys, True), (keys & 0xFFFF, False)):
        o, lse = kernel_model(problem, inputs, "bf16", positions.astype(np.float32))
        o_bounds, lse_bounds = o_tolerance(problem, expected), lse_tolerance(problem, expected)
        assert compare("O", o[last], expected.o[last], o_bounds[last]).passed == right
        assert compare("LSE", lse[:, 1:], expected.lse[:, 1:], lse_bounds[:, 1:]).passed == right


def test_tolerances_are_tighter_than_peers() -> None:
    """aiter has atol 1e-2 and rtol 2e-2 for bf16, 1e-3 for fp16 and LSE, 0.055 for fp8. Here 1024 keys."""
    for dtype, atol, rtol, part in (
        ("bf16", 1e-2, 2e-2, 0.12),
        ("fp16", 1e-3, 1e-3, 0.3),
        ("fp8bf16", 0.055, 0.0, 0.25),
    ):
        problem = make_case(
            dtype=dtype, qscale="pertensor" if dtype == "fp8bf16" else "no", seqlens_q=(30,), seqlens_k=(1024,),
            kv_range=(-1, 1), seed=2,
        )  # fmt: skip
        expected = exact(prepare(problem).inputs)
        tolerance, peer_tolerance = o_tolerance(problem, expected), atol + rtol * np.abs(expected.o)
        assert np.median(tolerance / peer_tolerance) < part, dtype
        assert np.median(lse_tolerance(problem, expected)) < (0.02 if dtype == "fp8bf16" else 2e-4)  # V3's fp8 weights


def test_comparison_counts_nan_infinity_and_exact_zeros() -> None:
    want = np.array([1.0, 0.0, -np.inf, 2.0, 3.0])
    tolerance = np.array([0.1, 0.0, 1.0, 0.1, 0.1])
    assert compare("x", want.copy(), want, tolerance).passed
    got = np.array([1.2, 1e-30, 5.0, np.nan, 3.05])
    comparison = compare("x", got, want, tolerance)
    assert (comparison.mismatches, comparison.nans, comparison.elements) == (4, 1, 5)
    assert not comparison.passed
    assert "4 of 5 elements differ, 1 NaN" in str(comparison)
    with pytest.raises(ValueError, match="shapes"):
        compare("x", got, want[:2], tolerance)
    empty = np.zeros((0, 2))
    assert compare("x", empty, empty, empty) == ArrayComparison(
        name="x", elements=0, mismatches=0, nans=0, max_abs=0, max_rel=0, worst=0, where=()
    )


def test_zero_rows_are_counted_where_something_should_be() -> None:
    expected = exact(prepare(make_case(seqlens_q=(3, 2), seqlens_k=(0, 4))).inputs)
    assert all_zero_rows(np.zeros_like(expected.o), expected) == 2
    assert all_zero_rows(expected.o, expected) == 0
