"""ckpm.install: replaced functions of an aiter, calls that fall through to it, and their log lines."""

from __future__ import annotations

import functools
import inspect
import logging
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ckpm.attention.callers import aiter as served
from ckpm.attention.callers.aiter_latent import LSE
from ckpm.attention.callers.installing import SERVED, install
from ckpm.attention.kernel_sets import kernel_set
from ckpm.attention.registry import Registry
from ckpm.base.errors import CompileError, LaunchError, ProblemError, ServiceError, SetupError
from tests.unit.attention.fakes import built, make_dispatcher, prefill

SUMS, INDPTR = np.array([0, 40, 60], np.int32), np.array([0, 70, 95], np.int32)
CALL: dict[str, Any] = {
    "q": np.zeros((60, 4, 128), np.float16), "k": np.zeros((100, 2, 128), np.float16),
    "v": np.zeros((100, 2, 128), np.float16), "cu_seqlens_q": SUMS, "kv_indptr": INDPTR,
    "kv_page_indices": np.arange(95, dtype=np.int32), "max_seqlen_q": 40, "max_seqlen_k": 70,
}  # fmt: skip


@pytest.fixture
def aiter_module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """An aiter whose own functions return their name."""
    aiter_module, caller = ModuleType("aiter"), ModuleType("a_caller")
    for name in SERVED:
        setattr(aiter_module, name, lambda *_, name=name, **__: f"aiter's {name}")
    caller.mha_batch_prefill_func = aiter_module.mha_batch_prefill_func  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "aiter", aiter_module)
    monkeypatch.setitem(sys.modules, "a_caller", caller)
    return aiter_module


def test_installed_functions_launch_kernels(aiter_module: ModuleType) -> None:
    dispatcher, device = make_dispatcher(prefill(dtype="fp16"))
    assert install(dispatcher) == SERVED
    assert aiter_module.mha_batch_prefill_func(**CALL).shape == (60, 4, 128)
    assert len(device.launched) == 1


def test_unified_attention_is_replaced_in_its_module(aiter_module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("aiter.ops.triton.attention.unified_attention")
    module.unified_attention = aiter_module.unified_attention  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.delattr(aiter_module, "unified_attention")
    assert install(make_dispatcher(prefill(dtype="fp16"))[0]) == SERVED
    assert module.unified_attention.replaced_by_ckpm() == "aiter's unified_attention"


def test_operators_that_callers_call_are_replaced(aiter_module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM calls torch.ops.aiter.paged_attention_v1. aiter's mla_reduce_v1 calls its own operator, which stays."""
    operators = SimpleNamespace(paged_attention_v1=object(), mla_reduce_v1=lambda *_: "aiter's operator")
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(ops=SimpleNamespace(aiter=operators), Tensor=int))
    aiter_module.mla_reduce_v1 = lambda *args: operators.mla_reduce_v1(*args)  # type: ignore[attr-defined]
    install(make_dispatcher(prefill(dtype="fp16"))[0])
    assert operators.paged_attention_v1 is aiter_module.paged_attention_v1
    sys.modules["torch"].is_grad_enabled = lambda: False  # type: ignore[attr-defined]
    assert aiter_module.mla_reduce_v1(*[None] * 8) == "aiter's operator"


def test_reduction_that_aiter_would_make_of_nothing_is_an_error(aiter_module: ModuleType) -> None:
    """O is whole after a served prefill, and aiter's own reduction would overwrite it."""
    install(make_dispatcher(prefill(dtype="fp16"))[0])
    parts = SimpleNamespace(**{LSE: np.zeros((4, 60), np.float32)})
    with pytest.raises(ProblemError, match="aiter's parameter new_one is not known here"):
        aiter_module.mla_reduce_v1(None, parts, None, None, None, 256, 0, None, None, new_one=1)


def test_served_call_has_two_debug_lines(aiter_module: ModuleType, caplog: pytest.LogCaptureFixture) -> None:
    dispatcher, device = make_dispatcher(prefill(dtype="fp16"))
    device.chosen = ("a kernel",)
    install(dispatcher)
    with caplog.at_level(logging.DEBUG, "ckpm.attention"):
        caplog.clear()
        aiter_module.mha_batch_prefill_func(**CALL)
    assert caplog.messages == ["a kernel ran", "aiter.mha_batch_prefill_func: this call was served"]


def test_function_that_a_caller_imported_is_replaced(aiter_module: ModuleType) -> None:
    install(make_dispatcher(prefill(dtype="fp16"))[0])
    assert sys.modules["a_caller"].mha_batch_prefill_func is aiter_module.mha_batch_prefill_func


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
    aiter_module: ModuleType, more: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    dispatcher, device = make_dispatcher(prefill(dtype="fp16", logits=False))
    install(dispatcher)
    with caplog.at_level(logging.WARNING):
        caplog.clear()
        assert aiter_module.mha_batch_prefill_func(**{**CALL, **more}) == "aiter's mha_batch_prefill_func"
    assert not device.launched
    (line,) = caplog.messages
    assert line.startswith("aiter.mha_batch_prefill_func: this call goes to aiter: ")
    assert reason in line


@pytest.mark.parametrize("error", [SetupError, CompileError, ServiceError])
def test_call_whose_kernel_cannot_be_compiled_reaches_aiter(
    aiter_module: ModuleType, error: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    def compile_kernels(kernels: Any) -> Any:
        raise error("no compiler here")

    declared = kernel_set("batch_prefill", dtype="fp16", hdim_q=128, mode="group")
    install(make_dispatcher(Registry(declared), compile=compile_kernels)[0])
    assert aiter_module.mha_batch_prefill_func(**CALL) == "aiter's mha_batch_prefill_func"
    assert "this call goes to aiter: no compiler here" in caplog.text


def test_call_that_needs_gradients_reaches_aiter(aiter_module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    dispatcher, _ = make_dispatcher(prefill(dtype="fp16"))
    install(dispatcher)
    torch = SimpleNamespace(is_grad_enabled=lambda: True, Tensor=SimpleNamespace)
    monkeypatch.setitem(sys.modules, "torch", torch)
    wanting = SimpleNamespace(requires_grad=True)
    assert aiter_module.mha_batch_prefill_func(**{**CALL, "q": wanting}) == "aiter's mha_batch_prefill_func"


def test_failed_launch_does_not_reach_aiter(aiter_module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    @functools.wraps(served.mha_batch_prefill_func)
    def fail(*_: Any, **__: Any) -> None:
        raise LaunchError("a page fault")

    monkeypatch.setattr(served, "mha_batch_prefill_func", fail)
    install(make_dispatcher(prefill(dtype="fp16"))[0])
    with pytest.raises(LaunchError):
        aiter_module.mha_batch_prefill_func(**CALL)


def test_second_install_changes_the_dispatcher_only(aiter_module: ModuleType) -> None:
    (first, first_device), (second, second_device) = (make_dispatcher(prefill(dtype="fp16")) for _ in range(2))
    install(first)
    install(second)
    aiter_module.mha_batch_prefill_func(**CALL)
    assert (len(first_device.launched), len(second_device.launched)) == (0, 1)
    assert aiter_module.mha_batch_prefill_func(**CALL, page_sum=1) == "aiter's mha_batch_prefill_func"


# fmt: off
def decode_of_2025(
    q: Any, kv_buffer: Any, o: Any, qo_indptr: Any, kv_indptr: Any, kv_indices: Any, kv_last_page_lens: Any,
    max_seqlen_q: int, sm_scale: Any = None, logit_cap: float = 0.0, num_kv_splits: Any = None,
) -> str:
    return "aiter's mla_decode_fwd"


def fp8_prefill_of_2025(
    q: Any, k: Any, v: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: int, max_seqlen_k: int,
    min_seqlen_q: int = 0, logits_soft_cap: float = 0.0, causal: bool = False, window_size: Any = (-1, -1),
    softmax_scale: Any = None,
) -> str:
    return "aiter's fp8 prefill"


def reduction_of_2025(
    partial_output: Any, partial_lse: Any, reduce_indptr: Any, reduce_final_map: Any, reduce_partial_map: Any,
    final_output: Any, final_lse: Any = None,
) -> str:
    return "aiter's mla_reduce_v1"
# fmt: on


def test_positional_call_has_the_order_of_the_installed_aiter(aiter_module: ModuleType) -> None:
    """mla_decode_fwd of aiter 0.1.7 has no page size: its ninth argument is the scale."""
    dispatcher, device = make_dispatcher(Registry(built("batch_prefill", "ckpm-extended", dtype="bf16", hdim_q=576)))
    aiter_module.mla_decode_fwd = decode_of_2025  # type: ignore[attr-defined]
    install(dispatcher)
    q, o, cache = (np.zeros(shape, ml_dtypes.bfloat16) for shape in ((2, 4, 576), (2, 4, 512), (100, 1, 1, 576)))
    aiter_module.mla_decode_fwd(
        q, cache, o, np.array([0, 1, 2], np.int32), INDPTR, CALL["kv_page_indices"], np.ones(2, np.int32), 1,
        0.125, 0.0, 4,
    )  # fmt: skip
    launch = device.launched[0]
    assert (launch.scale_s, launch.logits_soft_cap, launch.seqlen_k) == (0.125, 0.0, 70)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (7, "without q_descale, k_descale, v_descale, which is needed here"),
        (13, "more arguments than aiter's function has"),
    ],
)
def test_call_that_lacks_arguments_needed_here_reaches_aiter(
    aiter_module: ModuleType, arguments: int, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    aiter_module.flash_attn_varlen_fp8_pertensor_func = lambda *args: f"aiter's, of {len(args)}"  # type: ignore[attr-defined]
    aiter_module.flash_attn_varlen_fp8_pertensor_func.__signature__ = inspect.signature(fp8_prefill_of_2025)
    install(make_dispatcher(prefill(dtype="fp16"))[0])
    with caplog.at_level(logging.WARNING):
        caplog.clear()
        called = aiter_module.flash_attn_varlen_fp8_pertensor_func(*[np.zeros(2)] * arguments)
    assert called == f"aiter's, of {arguments}"
    assert reason in caplog.text


@pytest.mark.parametrize("named", [True, False])
def test_reduction_of_an_older_aiter_writes_the_lse(aiter_module: ModuleType, named: bool) -> None:
    aiter_module.mla_reduce_v1 = reduction_of_2025  # type: ignore[attr-defined]
    install(make_dispatcher(prefill(dtype="fp16"))[0])
    parts, lse = SimpleNamespace(**{LSE: np.ones((4, 60), np.float32)}), np.zeros((60, 4), np.float32)
    o = np.zeros((60, 4, 128))
    reduce = functools.partial(aiter_module.mla_reduce_v1, None, parts, None, None, None)
    reduce(final_output=o, final_lse=lse) if named else reduce(o, lse)
    assert (lse == 1).all()
