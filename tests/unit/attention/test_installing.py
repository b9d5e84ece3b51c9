"""ckpm.install: replaced functions of an aiter, calls that fall through to it, and their log lines."""

from __future__ import annotations

import functools
import logging
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ckpm.attention.familiar import aiter as served
from ckpm.attention.familiar.aiter_latent import LSE
from ckpm.attention.familiar.installing import SERVED, install
from ckpm.base.errors import LaunchError, ProblemError
from tests.unit.attention.fakes import dispatcher, prefill

SUMS, INDPTR = np.array([0, 40, 60], np.int32), np.array([0, 70, 95], np.int32)
CALL: dict[str, Any] = {
    "q": np.zeros((60, 4, 128), np.float16), "k": np.zeros((100, 2, 128), np.float16),
    "v": np.zeros((100, 2, 128), np.float16), "cu_seqlens_q": SUMS, "kv_indptr": INDPTR,
    "kv_page_indices": np.arange(95, dtype=np.int32), "max_seqlen_q": 40, "max_seqlen_k": 70,
}  # fmt: skip


@pytest.fixture
def theirs(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """An aiter whose own functions return their name."""
    made, caller = ModuleType("aiter"), ModuleType("a_caller")
    for name in SERVED:
        setattr(made, name, lambda *_, name=name, **__: f"aiter's {name}")
    caller.mha_batch_prefill_func = made.mha_batch_prefill_func  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "aiter", made)
    monkeypatch.setitem(sys.modules, "a_caller", caller)
    return made


def test_installed_functions_launch_kernels(theirs: ModuleType) -> None:
    over, device = dispatcher(prefill(dtype="fp16"))
    assert install(over) == SERVED
    assert theirs.mha_batch_prefill_func(**CALL).shape == (60, 4, 128)
    assert len(device.launched) == 1


def test_unified_attention_is_replaced_in_its_module(theirs: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    place = ModuleType("aiter.ops.triton.attention.unified_attention")
    place.unified_attention = theirs.unified_attention  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, place.__name__, place)
    monkeypatch.delattr(theirs, "unified_attention")
    assert install(dispatcher(prefill(dtype="fp16"))[0]) == SERVED
    assert place.unified_attention.replaced_by_ckpm() == "aiter's unified_attention"


def test_operators_that_callers_call_are_replaced(theirs: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM calls torch.ops.aiter.paged_attention_v1. aiter's mla_reduce_v1 calls its own operator, which stays."""
    operators = SimpleNamespace(paged_attention_v1=object(), mla_reduce_v1=lambda *_: "aiter's operator")
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(ops=SimpleNamespace(aiter=operators), Tensor=int))
    theirs.mla_reduce_v1 = lambda *args: operators.mla_reduce_v1(*args)  # type: ignore[attr-defined]
    install(dispatcher(prefill(dtype="fp16"))[0])
    assert operators.paged_attention_v1 is theirs.paged_attention_v1
    sys.modules["torch"].is_grad_enabled = lambda: False  # type: ignore[attr-defined]
    assert theirs.mla_reduce_v1(*[None] * 8) == "aiter's operator"


def test_reduction_that_aiter_would_make_of_nothing_is_an_error(theirs: ModuleType) -> None:
    """O is whole after a served prefill, and aiter's own reduction would overwrite it."""
    install(dispatcher(prefill(dtype="fp16"))[0])
    parts = SimpleNamespace(**{LSE: np.zeros((4, 60), np.float32)})
    with pytest.raises(ProblemError, match="aiter's parameter new_one is not known here"):
        theirs.mla_reduce_v1(None, parts, None, None, None, 256, 0, None, None, new_one=1)


def test_served_call_has_two_debug_lines(theirs: ModuleType, caplog: pytest.LogCaptureFixture) -> None:
    over, device = dispatcher(prefill(dtype="fp16"))
    device.chosen = ("a kernel",)
    install(over)
    with caplog.at_level(logging.DEBUG, "ckpm.attention"):
        caplog.clear()
        theirs.mha_batch_prefill_func(**CALL)
    assert caplog.messages == ["a kernel ran", "aiter.mha_batch_prefill_func: this call was served"]


def test_function_that_a_caller_imported_is_replaced(theirs: ModuleType) -> None:
    install(dispatcher(prefill(dtype="fp16"))[0])
    assert sys.modules["a_caller"].mha_batch_prefill_func is theirs.mha_batch_prefill_func


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"q": np.zeros((60, 4, 64), np.float16)}, "not [100, 1, 2, 64]"),
        ({"logits_soft_cap": 3.0}, "no kernel with logits True"),
        ({"q_descale": np.ones(1)}, "come together"),
        ({"page_sum": 1}, "aiter's parameter page_sum is not known here"),
    ],
)
def test_refused_calls_reach_aiter_with_a_log_line(
    theirs: ModuleType, more: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    over, device = dispatcher(prefill(dtype="fp16", logits=False))
    install(over)
    with caplog.at_level(logging.WARNING):
        caplog.clear()
        assert theirs.mha_batch_prefill_func(**{**CALL, **more}) == "aiter's mha_batch_prefill_func"
    assert not device.launched
    (line,) = caplog.messages
    assert line.startswith("aiter.mha_batch_prefill_func: this call goes to aiter: ")
    assert reason in line


def test_call_that_needs_gradients_reaches_aiter(theirs: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    over, _ = dispatcher(prefill(dtype="fp16"))
    install(over)
    torch = SimpleNamespace(is_grad_enabled=lambda: True, Tensor=SimpleNamespace)
    monkeypatch.setitem(sys.modules, "torch", torch)
    wanting = SimpleNamespace(requires_grad=True)
    assert theirs.mha_batch_prefill_func(**{**CALL, "q": wanting}) == "aiter's mha_batch_prefill_func"


def test_failed_launch_does_not_reach_aiter(theirs: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    @functools.wraps(served.mha_batch_prefill_func)
    def fail(*_: Any, **__: Any) -> None:
        raise LaunchError("a page fault")

    monkeypatch.setattr(served, "mha_batch_prefill_func", fail)
    install(dispatcher(prefill(dtype="fp16"))[0])
    with pytest.raises(LaunchError):
        theirs.mha_batch_prefill_func(**CALL)


def test_second_install_changes_the_dispatcher_only(theirs: ModuleType) -> None:
    (first, one), (second, other) = (dispatcher(prefill(dtype="fp16")) for _ in range(2))
    install(first)
    install(second)
    theirs.mha_batch_prefill_func(**CALL)
    assert (len(one.launched), len(other.launched)) == (0, 1)
    assert theirs.mha_batch_prefill_func(**CALL, page_sum=1) == "aiter's mha_batch_prefill_func"
