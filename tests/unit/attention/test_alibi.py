"""LSE of ALiBi: softmax's of -slope * distance, whatever kernels add. Q and K are 0, so that LSE is of ALiBi alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ckpm.attention import reference
from ckpm.attention.alibi import lse_shift
from ckpm.attention.arrays.tables import Pages
from ckpm.attention.backward.call import fmha_backward
from ckpm.attention.call import fmha
from ckpm.attention.registry import Registry
from ckpm.base.errors import ProblemError
from ckpm.matrix.problems.problem import Mask, Problem
from tests.unit.attention.fakes import FakeDevice, built, floats_at, make_dispatcher, make_writer

SLOPES = np.array([[0.5, 0.125, 0.03125, 0.25], [0.25, 0.5, 0.125, 0.0625]], np.float32)
LENGTHS = ((40, 70), (20, 25))
SUMS = np.array([0, 40, 60], np.int32)
SEQLENS_K = np.array([70, 25], np.int32)


def softmax(top: bool) -> Callable[[int, int, int, int], tuple[int, int]]:
    """(a score over -slope, the last key that is seen): of the distance."""
    return lambda row, key, sq, sk: (abs(row + (0 if top else sk - sq) - key), row + (0 if top else sk - sq))


def kernel(top: bool) -> Callable[[int, int, int, int], tuple[int, int]]:
    """The same of a kernel, which adds slope * key."""
    return lambda row, key, sq, sk: (-key, row + (0 if top else sk - sq))


def lse_of(form: Any, lengths: tuple[tuple[int, int], ...] = LENGTHS) -> np.ndarray[Any, Any]:
    """LSE as [head, token]."""
    lse = np.zeros((4, sum(sq for sq, _ in lengths)))
    start = 0
    for slopes, (sq, sk) in zip(SLOPES.astype(float), lengths, strict=True):
        for head, slope in enumerate(slopes):
            for row in range(sq):
                scores = [(-slope * form(row, key, sq, sk)[0], form(row, key, sq, sk)[1] >= key) for key in range(sk)]
                lse[head, start + row] = np.log(sum(np.exp(score) for score, seen in scores if seen))
        start += sq
    return lse


def device_with(lse: np.ndarray[Any, Any]) -> FakeDevice:
    return FakeDevice(answer=make_writer(lse=lse.astype(np.float32)))


def page_options(size: int, table: str) -> dict[str, Any]:
    counts = [-(-sk // size) for _, sk in LENGTHS]
    indices = np.arange(sum(counts), dtype=np.int32)
    if table == "vllm":
        rows = np.zeros((2, max(counts)), np.int32)
        return {"pages": Pages(indices=rows, seqlens_k=SEQLENS_K), "shape": (sum(counts), size)}
    last = ((SEQLENS_K - 1) % size + 1).astype(np.int32) if size > 1 else None
    indptr = np.cumsum([0, *counts]).astype(np.int32)
    return {"pages": Pages(indices=indices, indptr=indptr, last_page_lens=last), "shape": (sum(counts), size)}


@pytest.mark.parametrize("mask", ["top_left", "bottom_right"])
@pytest.mark.parametrize("kind", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("keys", [(0, ""), (1, "sglang"), (16, "sglang"), (16, "vllm")])
def test_causal_lse_of_a_call_is_softmax_s(mask: Mask, keys: tuple[int, str], kind: Any) -> None:
    top = mask == "top_left"
    size, table = keys
    options: dict[str, Any] = {"cu_seqlens_k": np.array([0, 70, 95], np.int32), "shape": (95,)}
    kernels = built("fwd", dtype="bf16", hdim_q=128)
    if size:
        options, kernels = page_options(size, table), built("batch_prefill", "ckpm", dtype="bf16", hdim_q=128)
    k = np.zeros((*options.pop("shape"), 2, 128))
    dispatcher, _ = make_dispatcher(Registry(kernels), device_with(lse_of(kernel(top))))
    done = fmha(
        np.zeros((60, 4, 128)), k, k, dispatcher=dispatcher, dtype="bf16", cu_seqlens_q=SUMS, mask=mask, lse=True,
        alibi_slopes=SLOPES.astype(kind), **options,
    )  # fmt: skip
    np.testing.assert_allclose(done.lse, lse_of(softmax(top)), rtol=0, atol=2e-5)


def test_causal_lse_in_batch_mode_is_softmax_s() -> None:
    lengths = ((40, 70),) * 2
    of_kernel, of_softmax = (
        lse_of(form(False), lengths).reshape(4, 2, 40).swapaxes(0, 1) for form in (kernel, softmax)
    )
    dispatcher, _ = make_dispatcher(
        Registry(built("fwd", dtype="bf16", hdim_q=128)), device_with(np.ascontiguousarray(of_kernel))
    )
    k = np.zeros((2, 70, 2, 128))
    done = fmha(
        np.zeros((2, 40, 4, 128)), k, k, dispatcher=dispatcher, dtype="bf16", mask="bottom_right", lse=True,
        alibi_slopes=SLOPES,
    )  # fmt: skip
    np.testing.assert_allclose(done.lse, of_softmax, rtol=0, atol=2e-5)


def test_backward_gives_its_kernel_the_shifted_lse() -> None:
    families = ("bwd_dot_do_o", "bwd_dq_dk_dv", "bwd_convert_dq")
    seen: list[np.ndarray[Any, Any]] = []

    def read_lse(arguments: Any) -> int:
        seen.append(np.reshape(floats_at(arguments.lse, 4 * 60), (4, 60)))
        return 0

    dispatcher, _ = make_dispatcher(
        Registry(kernel for family in families for kernel in built(family, dtype="bf16", hdim_q=64)),
        FakeDevice(answer=read_lse),
    )
    q, k = np.zeros((60, 4, 64)), np.zeros((95, 2, 64))
    fmha_backward(
        q, q, k, k, q, lse_of(softmax(False)).astype(np.float32), dispatcher=dispatcher, dtype="bf16",
        cu_seqlens_q=SUMS, cu_seqlens_k=np.array([0, 70, 95], np.int32), mask="bottom_right", alibi_slopes=SLOPES,
    )  # fmt: skip
    np.testing.assert_allclose(seen[-1], lse_of(kernel(False)), rtol=0, atol=2e-5)


GROUP = Problem(
    family="fwd", mode="group", batch=2, total_q=60, total_k=95, seqlen_q=40, seqlen_k=70, nhead_q=4, nhead_k=2,
    mask="bottom_right", window_right=0, bias="alibi", alibi_per_batch=True, lse=True,
)  # fmt: skip


def test_reference_s_lse_is_softmax_s() -> None:
    q, k = ([np.zeros((pair[at], 4 >> at, 128)) for pair in LENGTHS] for at in (0, 1))
    _, lse = reference.attention(GROUP, q, k, k, slopes=SLOPES.astype(np.float64))
    np.testing.assert_allclose(lse, lse_of(softmax(False)), rtol=0, atol=1e-12)


def test_shift_of_a_kernel_that_adds_distances_is_zero() -> None:
    causal = lse_shift(GROUP, SLOPES, LENGTHS)
    assert causal[:, 0].tolist() == (30 * SLOPES[0]).tolist()  # the first of 40 queries is at key 30 of 70
    assert causal[:, 59].tolist() == (24 * SLOPES[1]).tolist()
    window = Problem(**{**{name: getattr(GROUP, name) for name in GROUP.__slots__}, "window_left": 5})
    assert not lse_shift(window, SLOPES, LENGTHS).any()


def test_sink_logits_with_causal_alibi_are_refused() -> None:
    dispatcher, device = make_dispatcher(
        Registry(built("batch_prefill", "ckpm", dtype="bf16", hdim_q=128, page_size=1))
    )
    k = np.zeros((95, 1, 2, 128))
    with pytest.raises(ProblemError, match="sink logits with ALiBi under a causal mask"):
        fmha(
            np.zeros((60, 4, 128)), k, k, dispatcher=dispatcher, dtype="bf16", cu_seqlens_q=SUMS, mask="bottom_right",
            alibi_slopes=SLOPES, sink_logits=np.zeros(4, np.float32), pages=page_options(1, "sglang")["pages"],
        )  # fmt: skip
    assert not device.launched
