"""PyTorch's operators on the emulated gfx950: float64 attention, opcheck, torch.compile and torch.export judge them."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
import torch

import ckpm
from ckpm import torch as operators
from ckpm.attention import reference
from ckpm.attention.callers import torch as implementation
from ckpm.attention.dispatcher import Dispatcher
from ckpm.matrix.problems.problem import Problem
from tests.attention.calls import Call, contiguous, paged_call

INT, BF16 = torch.int32, torch.bfloat16
LENGTHS = ((45, 71), (25, 30))
PAGED: dict[str, dict[str, Any]] = {
    "list": {"table": "sglang"},
    "block table, causal": {"table": "vllm", "causal": True},
    "list, window, capped": {"table": "sglang", "window_left": 20, "window_right": 0, "soft_cap": 5.0},
    "block table, sinks": {"table": "vllm", "causal": True, "sinks": torch.tensor([0.5, -1.0])},
}


def tensor(array: Any, dtype: Any = BF16) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).to(dtype)


def paged_arguments(name: str) -> tuple[Call, dict[str, Any]]:
    """A call whose unused slots hold NaN, and the operator's arguments."""
    options = dict(PAGED[name])
    call = paged_call(3, LENGTHS, 16, options.pop("table"))
    q, k, v = (tensor(array) for array in call.arrays)
    pages = call.options["pages"]
    tables = {"page_table": pages.indices, "cu_seqlens_q": call.options["cu_seqlens_q"]}
    tables |= {"indptr": pages.indptr, "last_page_lens": pages.last_page_lens, "seqlens_k": pages.seqlens_k}
    tensors = {key: tensor(table, INT) for key, table in tables.items() if table is not None}
    return call, {
        "q": q,
        "k": k,
        "v": v,
        "max_seqlen_q": 45,
        "max_seqlen_k": 71,
        "return_lse": True,
        **tensors,
        **options,
    }


def attention_in_float64(call: Call, arguments: dict[str, Any], **fields: Any) -> tuple[Any, Any]:
    """O and LSE in float64 of the mask, cap and sinks that the operator was given."""
    causal, left, right = (
        arguments.get(n, d) for n, d in (("causal", False), ("window_left", -1), ("window_right", -1))
    )
    masked = causal or (left, right) != (-1, -1)
    problem = Problem(
        family="fwd", mode="group", batch=2, seqlen_q=45, total_q=70, seqlen_k=71, total_k=101, nhead_q=2, nhead_k=1,
        mask="bottom_right" if masked else "no", window_left=left, window_right=0 if causal else right, lse=True,
        logits_soft_cap=arguments.get("soft_cap", 0.0), sink_logits="sinks" in arguments, **fields,
    )  # fmt: skip
    more = {"sink_logits": arguments["sinks"].numpy()} if "sinks" in arguments else {}
    return reference.attention(problem, call.q, call.k, call.v, **more)


def agree(got: torch.Tensor, want: Any, kind: str) -> None:
    verdict = reference.agreement(got.detach().double().numpy(), want, kind)
    assert verdict.passed, str(verdict)


@pytest.mark.parametrize("name", PAGED)
def test_paged_prefill_agrees_with_float64(name: str) -> None:
    call, arguments = paged_arguments(name)
    o, lse = operators.paged_prefill(**arguments)
    want, want_lse = attention_in_float64(call, arguments)
    agree(o, want, "bf16")
    agree(lse, want_lse, "lse")


def test_aiter_s_varlen_call_of_pages_agrees_with_float64(dispatcher: Dispatcher) -> None:
    call, arguments = paged_arguments("block table, causal")
    sums = torch.nn.functional.pad(arguments["seqlens_k"].cumsum(0), (1, 0)).to(INT)
    o, lse = ckpm.aiter.flash_attn_varlen_func(
        arguments["q"], arguments["k"], arguments["v"], arguments["cu_seqlens_q"], sums, 45, 71,
        causal=True, return_lse=True, block_table=arguments["page_table"], dispatcher=dispatcher,
    )  # fmt: skip
    want, want_lse = attention_in_float64(call, arguments)
    agree(o, want, "bf16")
    agree(lse, want_lse, "lse")


def test_aiter_s_varlen_call_agrees_with_float64(dispatcher: Dispatcher) -> None:
    call, leaves, options = varlen()
    q, k, v = (leaf.detach() for leaf in leaves)
    o, _ = ckpm.aiter.flash_attn_varlen_func(q, k, v, return_lse=True, dispatcher=dispatcher, **options)
    agree(o, in_float64(call, [leaf.double() for leaf in (q, k, v)]).numpy(), "bf16")


def test_paged_prefill_passes_opcheck() -> None:
    torch.library.opcheck(operators.paged_prefill, (), paged_arguments("block table, causal")[1])


def test_paged_prefill_is_one_node_of_traced_programs() -> None:
    _, arguments = paged_arguments("block table, causal")
    names = [name for name, value in arguments.items() if isinstance(value, torch.Tensor)]
    rest = {name: value for name, value in arguments.items() if name not in names}

    class Attention(torch.nn.Module):  # type: ignore[misc]  # without PyTorch it is Any
        def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
            return operators.paged_prefill(**dict(zip(names, tensors, strict=True)), **rest)[0] * 2

    tensors = tuple(arguments[name] for name in names)
    plain = Attention()(*tensors)
    compiled = torch.compile(Attention(), fullgraph=True, backend="aot_eager")
    exported = torch.export.export(Attention(), tensors)
    assert [str(node.target) for node in exported.graph.nodes].count("ckpm.paged_prefill.default") == 1
    for program in (compiled, exported.module()):
        assert torch.equal(program(*tensors), plain)


def varlen(**more: Any) -> tuple[Call, tuple[Any, ...], dict[str, Any]]:
    """Tensors that require gradients, 4 heads over 2, and the other arguments."""
    call = contiguous(5, LENGTHS, (4, 2), (64, 64), layout="", **more)
    q, k, v = (tensor(array).requires_grad_() for array in call.arrays)
    sums = {name: tensor(call.options[name], INT) for name in ("cu_seqlens_q", "cu_seqlens_k")}
    return call, (q, k, v), {**sums, "max_seqlen_q": 45, "max_seqlen_k": 71, "causal": True}


def in_float64(call: Call, leaves: list[torch.Tensor]) -> torch.Tensor:
    """Causal attention by PyTorch's own operations, whose autograd gives the expected gradients."""
    outputs = []
    q, k, v = leaves
    k, v = (tokens.repeat_interleave(q.shape[1] // tokens.shape[1], dim=1) for tokens in (k, v))
    for (sq, sk), (at_q, at_k) in zip(LENGTHS, ((0, 0), (45, 71)), strict=True):
        scores = torch.einsum("qhd,khd->hqk", q[at_q : at_q + sq], k[at_k : at_k + sk]) * q.shape[2] ** -0.5
        hidden = torch.ones(sq, sk, dtype=torch.bool).triu(sk - sq + 1)
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        outputs.append(torch.einsum("hqk,khd->qhd", weights, v[at_k : at_k + sk]))
    return torch.cat(outputs)


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_varlen_attention_and_its_gradients_agree_with_float64(compiled: bool, deterministic: bool) -> None:
    call, leaves, options = varlen()

    def attend(*tensors: torch.Tensor) -> torch.Tensor:
        return operators.varlen_attention(*tensors, **options)[0]

    program = torch.compile(attend, fullgraph=True, backend="aot_eager") if compiled else attend
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
    want = in_float64(call, exact)
    upstream = torch.randn(want.shape, generator=torch.Generator().manual_seed(0)).to(BF16)
    torch.use_deterministic_algorithms(deterministic)
    try:
        o = program(*leaves)
        gradients = torch.autograd.grad(o, leaves, upstream)
    finally:
        torch.use_deterministic_algorithms(False)
    agree(o, want.detach().numpy(), "bf16")
    for gradient, exact_gradient in zip(gradients, torch.autograd.grad(want, exact, upstream.double()), strict=True):
        assert gradient.dtype == BF16
        agree(gradient, exact_gradient.numpy(), "bf16 gradient")


def test_varlen_attention_passes_opcheck() -> None:
    _, leaves, options = varlen()
    torch.library.opcheck(operators.varlen_attention, leaves, options)


def test_lse_and_paged_prefill_have_no_gradients() -> None:
    _, leaves, arguments = varlen()
    o, lse = operators.varlen_attention(*leaves, **arguments)
    assert (o.requires_grad, lse.requires_grad) == (True, False)
    _, arguments = paged_arguments("list")
    o, _ = operators.paged_prefill(**{**arguments, "q": arguments["q"].requires_grad_()})
    with pytest.raises(RuntimeError, match="ckpm::paged_prefill has no gradient"):
        o.sum().backward()


@pytest.fixture
def in_place(dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts tensors into the emulated device's memory, where the operators then leave them, as on a GPU."""
    hip, held = dispatcher.device.hip, []

    def put(source: torch.Tensor) -> torch.Tensor:
        size = source.numel() * source.element_size() + 1024  # page lists are read ahead
        memory = hip.malloc(size)
        held.append(memory)
        whole = torch.frombuffer((ctypes.c_uint8 * size).from_address(memory.address), dtype=torch.uint8).zero_()
        placed = whole.view(source.dtype)[: source.numel()].view(source.shape)
        return placed.copy_(source.detach())

    new = implementation._new
    monkeypatch.setattr(implementation, "_is_in_place", lambda q, dispatcher: True)
    monkeypatch.setattr(implementation, "_new", lambda *arguments: put(new(*arguments)))
    yield put
    for memory in held:
        hip.free(memory)


def test_tensors_in_device_memory_give_the_bits_of_copied_ones(
    dispatcher: Dispatcher, request: pytest.FixtureRequest
) -> None:
    _, arguments = paged_arguments("list, window, capped")
    _, leaves, more = varlen()
    upstream = torch.ones(70, 4, 64, dtype=BF16)

    def attend(put: Any) -> list[torch.Tensor]:
        placed = {name: put(value) if isinstance(value, torch.Tensor) else value for name, value in arguments.items()}
        tensors = [put(leaf.detach()).requires_grad_() for leaf in leaves]
        tables = {name: put(value) if isinstance(value, torch.Tensor) else value for name, value in more.items()}
        o, lse = operators.varlen_attention(*tensors, **tables)
        gradients = torch.autograd.grad(o, tensors, put(upstream))
        results = [*operators.paged_prefill(**placed), o, lse, *gradients]
        dispatcher.device.hip.synchronize()
        return [result.detach().clone() for result in results]

    copied = attend(lambda value: value)
    lying = attend(request.getfixturevalue("in_place"))
    for uncopied, copy in zip(lying, copied, strict=True):
        assert torch.equal(uncopied, copy)
