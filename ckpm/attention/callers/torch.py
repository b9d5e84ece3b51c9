"""Operators of PyTorch over this project's calls: schemas, traced shapes, gradients, errors as PyTorch raises them.

``torch.compile`` and ``torch.export`` trace them as one node. Tensors of the CPU are copied to the dispatcher's device
and back. Tensors of ROCm are used where they lie, on PyTorch's current stream. No GPU has run that yet.

The first call with tensors in place makes a plan. Later calls with the same shapes fill in addresses and launch. They
allocate by PyTorch alone, and do not read the device's memory.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ckpm.attention.arrays.options import Options, Posable, Posing
from ckpm.attention.arrays.outputs import forms
from ckpm.attention.arrays.posing import pose
from ckpm.attention.arrays.pytorch import current_stream
from ckpm.attention.arrays.tables import Pages
from ckpm.attention.backward.call import fmha_backward, of_forward
from ckpm.attention.call import default, fmha, pad_list
from ckpm.attention.callers.tensors import add_page_axis, demand_scale, mask_options
from ckpm.attention.dispatcher import Dispatcher
from ckpm.attention.plan_cache import PlannedCall, read_addresses, stand_ins

try:
    import torch
    from torch import Tensor
except ImportError as error:
    raise ImportError(
        "ckpm.torch needs PyTorch 2.6 or newer: pip install torch (for ROCm from PyTorch's own index)."
    ) from error
from ckpm.attention.callers.operators import autocast, differentiate, register

_FP8 = (torch.float8_e4m3fn, torch.float8_e4m3fnuz)
_READ = (torch.float16, torch.bfloat16, torch.float32, *_FP8)  # Q, K and V

Pair = tuple[Tensor, Tensor]
Triple = tuple[Tensor, Tensor, Tensor]

_CHOSEN: list[Dispatcher] = []


def dispatch_to(dispatcher: Dispatcher | None) -> None:
    """Set the dispatcher of all operators. With None they use the libraries below build/<arch>, as ``fmha``."""
    _CHOSEN[:] = [] if dispatcher is None else [dispatcher]


def _dispatcher(q: Tensor) -> Dispatcher:
    return _CHOSEN[0] if _CHOSEN else default(_arch(q.device), beside=q)


@functools.cache
def _arch(device: torch.device) -> str:
    """The arch of the tensor's GPU; '' for the CPU."""
    if device.type == "cpu":
        return ""
    return str(torch.cuda.get_device_properties(device).gcnArchName).partition(":")[0]


def _is_in_place(q: Tensor, dispatcher: Dispatcher) -> bool:
    """True if kernels read the tensors where they lie; ``fmha`` copies others, or refuses them."""
    return q.is_cuda and dispatcher.device.kind == "hip"


def _pose_paged(tensors: Sequence[Any], numbers: Sequence[Any]) -> Posable:
    q, k, v, cu_seqlens_q, table, indptr, last_page_lens, seqlens_k, sinks, *descales = tensors
    longest_q, longest_k, causal, left, right, scale, soft_cap = numbers
    pages = Pages(
        indices=table, indptr=indptr, last_page_lens=last_page_lens, seqlens_k=seqlens_k, longest=longest_k,
        kv_layout="vectorized" if len(k.shape) == 5 else "linear",
    )  # fmt: skip
    options = {
        "cu_seqlens_q": cu_seqlens_q, "max_seqlen_q": longest_q, "pages": pages, "sink_logits": sinks,
        "descales": tuple(descales) if descales[1] is not None else None, "scale": demand_scale(scale),
        "soft_cap": soft_cap, **mask_options(causal, left, right),
    }  # fmt: skip
    return (q, add_page_axis(k), add_page_axis(v)), options


def _pose_varlen(tensors: Sequence[Any], numbers: Sequence[Any]) -> Posable:
    q, k, v, cu_seqlens_q, cu_seqlens_k = tensors
    longest_q, longest_k, causal, left, right, scale = numbers
    options = {
        "cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k, "max_seqlen_q": longest_q,
        "max_seqlen_k": longest_k, "scale": demand_scale(scale), **mask_options(causal, left, right),
    }  # fmt: skip
    return (q, k, v), options


def _pose_backward(tensors: Sequence[Any], numbers: Sequence[Any]) -> Posable:
    arrays, options = _pose_varlen(tensors, numbers)
    return arrays, {**options, "family": "bwd_dq_dk_dv"}


def _check(tensors: Sequence[Any]) -> None:
    """Check devices, dtypes and shapes, with the RuntimeErrors of PyTorch's own attention.

    After Q, K and V come tables, then sinks and scales.
    """
    q, k, v = tensors[:3]
    there = [tensor for tensor in tensors if tensor is not None]
    scales = [scale is not None for scale in tensors[9:]]
    mixed = bool(scales) and q.dtype in _READ[:2] and k.dtype == v.dtype and k.dtype in _FP8
    dims, devices = (q.dim(), k.dim(), v.dim()), {str(tensor.device) for tensor in there}
    checks: list[tuple[bool, Callable[[], str]]] = [
        (len(devices) == 1, lambda: f"Expected all tensors to be on the same device, but found {sorted(devices)}"),
        (
            mixed or (q.dtype == k.dtype == v.dtype and q.dtype in _READ),
            lambda: f"Expected q, k and v of one dtype of {_READ}, but got {q.dtype}, {k.dtype} and {v.dtype}",
        ),
        (
            all(tensor.dtype in (torch.int32, torch.float32) for tensor in there[3:]),
            lambda: f"Expected tables of torch.int32, scales of torch.float32, but got {[t.dtype for t in there[3:]]}",
        ),
        (all(map(_is_packed, there[3:])), lambda: "Expected tables and scales to be contiguous"),
        (
            scales == [False, True, True] if mixed else sum(scales) in ((3,) if scales and q.dtype in _FP8 else (0, 3)),
            lambda: (
                "Expected q_descale, k_descale and v_descale with fp8 q, or the latter two with fp8 k beside another q"
            ),
        ),
        (
            dims in ((3, 3, 3), (3, 4, 4), (3, 5, 5)),
            lambda: f"Expected q of 3 dimensions, k and v of 3, 4 or 5, but got {dims}",
        ),
        (
            all(tensor.stride(-1) == 1 for tensor in (q, k, v)),
            lambda: "Expected q, k and v to have a contiguous last dimension",
        ),
    ]
    for holds, message in checks:
        torch._check(holds, message)
    heads, hdim = (k.shape[1], k.shape[2] * k.shape[4]) if k.dim() == 5 else (k.shape[-2], k.shape[-1])
    torch._check(
        heads > 0 and q.shape[1] % heads == 0, lambda: f"Expected a multiple of {heads} heads of k in q: {q.shape[1]}"
    )
    torch._check(q.shape[2] == hdim, lambda: f"Expected q of head dim {hdim} as k, but got {q.shape[2]}")


def _o_of(q: Tensor, v: Tensor) -> tuple[tuple[int, ...], torch.dtype]:
    """Shape [token, head, dim] and dtype of O."""
    shape = (*q.shape[:2], v.shape[min(v.dim(), 4) - 1])
    return shape, torch.bfloat16 if q.dtype in _FP8 else q.dtype


def _new(q: Tensor, shape: tuple[int, ...] | None = None, dtype: torch.dtype | None = None) -> Tensor:
    """Memory for an output on Q's device. Without a shape it is like Q, which takes less time."""
    return torch.empty_like(q) if shape is None else q.new_empty(shape, dtype=dtype)


def _new_lse(q: Tensor, lse: bool) -> Tensor:
    """Memory for LSE [head, token]; without elements if LSE is not wanted."""
    return _new(q, (q.shape[1], q.shape[0]) if lse else (0,), torch.float32)


@functools.cache
def _no_lse(device: torch.device) -> Tensor:
    """LSE without elements, of which each call returns a view."""
    with torch.inference_mode(False):
        return torch.empty(0, dtype=torch.float32, device=device)


def _is_packed(tensor: Tensor) -> bool:
    """True if a tensor is contiguous, or a block table with a row stride."""
    return bool(tensor.is_contiguous() or (tensor.dim() == 2 and tensor.dtype == torch.int32 and tensor.stride(1) == 1))


def _lay_apart(tensors: Sequence[Any]) -> Sequence[Any]:
    """The tensors, with a copy of a Q, K or V that PyTorch expanded: elements of kernels' arrays have own addresses."""
    return (*(tensor.contiguous() if _repeats(tensor) else tensor for tensor in tensors[:3]), *tensors[3:])


def _repeats(tensor: Tensor) -> bool:
    return any(step == 0 and length > 1 for step, length in zip(tensor.stride(), tensor.shape, strict=True))


def _trace(pose_call: Posing, tensors: Sequence[Any], numbers: tuple[Any, ...], lse: bool) -> Pair:
    """Check the shapes of traced tensors; return outputs that have a shape and a dtype."""
    tensors = _lay_apart(tensors)
    _check(tensors)
    q, v = tensors[0], tensors[2]
    return _new(q, *_o_of(q, v)), _new_lse(q, lse)


def _launch(pose_call: Posing, tensors: Sequence[Any], numbers: tuple[Any, ...], lse: bool) -> Pair:
    q = tensors[0]
    dispatcher = _dispatcher(q)
    if not _is_in_place(q, dispatcher):
        tensors = _lay_apart(tensors)
        _check(tensors)
        arrays, options = pose_call(tensors, numbers)
        done = fmha(*arrays, dispatcher=dispatcher, lse=lse, **options)
        return done.o, done.lse if lse else _new_lse(q, lse)
    if pose_call is _pose_paged and (padded := pad_list(dispatcher, tensors[4])) is not tensors[4]:
        tensors = (*tensors[:4], padded, *tensors[5:])
    key = pose_call, numbers, lse
    call = dispatcher.cache.find_call(key, tensors) or _keep_call(dispatcher, key, tensors, lse=lse)
    if call is None:
        return _launch(pose_call, _lay_apart(tensors), numbers, lse)
    _, shape, dtype, like_q = call.outputs[0]
    o = _new(q) if like_q else _new(q, shape, dtype)
    sums = _new_lse(q, lse) if lse else _no_lse(q.device).detach()
    _run(call, tensors, (o, sums) if lse else (o,))
    return o, sums


def _keep_call(
    dispatcher: Dispatcher,
    key: tuple[Posing, tuple[Any, ...], bool],
    tensors: Sequence[Any],
    of_forward_pass: bool = False,
    **fields: Any,
) -> PlannedCall | None:
    """The call of a posing, numbers and a flag, with tensors on the device like these; None if Q, K or V is expanded.

    ``fields`` are fields of the problem that fmha's options lack. With ``of_forward_pass`` the last three tensors are
    O's gradient, O and LSE.
    """
    q = tensors[0]
    pose_call, numbers, _ = key

    def make() -> PlannedCall | None:
        if any(map(_repeats, tensors[:3])):
            return None
        there = stand_ins(tensors)
        if of_forward_pass:
            *there, do, o, lse = there
        _check(tensors[: len(there)])
        arrays, options = pose_call(there, numbers)
        posed = pose(dispatcher.device, *arrays, Options(**options))
        posed = dataclasses.replace(posed, problem=dataclasses.replace(posed.problem, **fields))
        if of_forward_pass:
            inputs = {**posed.inputs, **of_forward(dispatcher.device, posed, do, o, lse)}
            posed = dataclasses.replace(posed, inputs=inputs)
        plan = dispatcher.plan(posed.problem)
        plan.warn(on_device=True)
        return PlannedCall(plan, posed.problem, forms(posed, ("o",), q), read_addresses(posed, plan))

    return dispatcher.cache.keep_call(key, tensors, make)


def _run(call: PlannedCall, tensors: Sequence[Any], outputs: Iterable[Tensor]) -> None:
    """Queue a call on PyTorch's current stream."""
    q = tensors[0]
    if q.numel():
        call.plan.queue([*call.addresses(tensors), *map(Tensor.data_ptr, outputs)], current_stream(q))


# The annotations of the inner functions are the operators' schemas.
def _paged_prefill(act: Callable[..., Pair]) -> Callable[..., Pair]:
    def paged_prefill(
        q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, page_table: Tensor, max_seqlen_q: int, max_seqlen_k: int,
        indptr: Tensor | None = None, last_page_lens: Tensor | None = None, seqlens_k: Tensor | None = None,
        sinks: Tensor | None = None, q_descale: Tensor | None = None, k_descale: Tensor | None = None,
        v_descale: Tensor | None = None, causal: bool = False, window_left: int = -1, window_right: int = -1,
        softmax_scale: float | None = None, soft_cap: float = 0.0, return_lse: bool = False,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        tables = cu_seqlens_q, page_table, indptr, last_page_lens, seqlens_k
        tensors = q, k, v, *tables, sinks, q_descale, k_descale, v_descale
        numbers = max_seqlen_q, max_seqlen_k, causal, window_left, window_right, softmax_scale, soft_cap
        return act(_pose_paged, tensors, numbers, return_lse)

    return paged_prefill


def _varlen_attention(act: Callable[..., Pair]) -> Callable[..., Pair]:
    def varlen_attention(
        q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: int,
        max_seqlen_k: int, causal: bool = False, window_left: int = -1, window_right: int = -1,
        softmax_scale: float | None = None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        numbers = max_seqlen_q, max_seqlen_k, causal, window_left, window_right, softmax_scale
        return act(_pose_varlen, (q, k, v, cu_seqlens_q, cu_seqlens_k), numbers, True)

    return varlen_attention


def _varlen_backward(act: Callable[..., Triple]) -> Callable[..., Triple]:
    def varlen_attention_backward(
        do: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor,
        max_seqlen_q: int, max_seqlen_k: int, causal: bool, window_left: int, window_right: int,
        softmax_scale: float | None, deterministic: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        numbers = max_seqlen_q, max_seqlen_k, causal, window_left, window_right, softmax_scale
        return act((q, k, v, cu_seqlens_q, cu_seqlens_k), (do, o, lse), numbers, deterministic)

    return varlen_attention_backward


def _trace_backward(
    tensors: Sequence[Tensor], forward: Triple, numbers: tuple[Any, ...], deterministic: bool
) -> Triple:
    q, k, v = tensors[:3]
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _launch_backward(
    tensors: Sequence[Tensor], forward: Triple, numbers: tuple[Any, ...], deterministic: bool
) -> Triple:
    tensors = q, k, v, *_ = _lay_apart(tensors)
    do, o, lse = forward
    if not (q.shape[0] and k.shape[0]):
        return q.new_zeros(q.shape), k.new_zeros(k.shape), v.new_zeros(v.shape)
    dispatcher = _dispatcher(q)
    if not _is_in_place(q, dispatcher):
        arrays, options = _pose_varlen(tensors, numbers)
        done = fmha_backward(do, *arrays, o, lse, dispatcher=dispatcher, deterministic=deterministic, **options)
        dq, dk, dv = (torch.from_numpy(gradient).view(q.dtype) for gradient in (done.dq, done.dk, done.dv))
        return dq, dk, dv
    key = _pose_backward, numbers, deterministic
    tensors = *tensors, *forward
    call = dispatcher.cache.find_call(key, tensors)
    if call is None:
        call = _keep_call(dispatcher, key, tensors, of_forward_pass=True, deterministic=deterministic)
    assert call is not None, "no tensor is expanded"
    shapes = {"dq": q.shape, "dk": (k.shape[0], *q.shape[1:]), "dv": (v.shape[0], q.shape[1], v.shape[2])}
    # kernels leave out a sequence without queries or without keys (see fmha_backward)
    gradients = {name: _new(q, tuple(shape), q.dtype).zero_() for name, shape in shapes.items()}
    _run(call, tensors, gradients.values())
    dk, dv = (_add_heads(gradients[name], k.shape[1]) for name in ("dk", "dv"))
    return gradients["dq"], dk, dv


def _add_heads(gradient: Tensor, heads: int) -> Tensor:
    """The sum of a gradient over neighbouring heads of Q that share a head of K and V."""
    if gradient.shape[1] == heads:
        return gradient
    return gradient.unflatten(1, (heads, -1)).sum(2, dtype=torch.float32).to(gradient.dtype)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Pair) -> None:
    *tensors, ctx.numbers = (*inputs[:5], inputs[5:])
    ctx.save_for_backward(*tensors, *output)
    ctx.mark_non_differentiable(output[1])


def _gradients(ctx: Any, do: Tensor, dlse: Any) -> tuple[Any, ...]:
    q, k, v, cu_seqlens_q, cu_seqlens_k, o, lse = ctx.saved_tensors
    deterministic = torch.are_deterministic_algorithms_enabled()
    arguments = (do.contiguous(), q, k, v, o, lse, cu_seqlens_q, cu_seqlens_k, *ctx.numbers, deterministic)
    return (*torch.ops.ckpm.varlen_attention_backward(*arguments), *[None] * (2 + len(ctx.numbers)))


def _paged_backward(act: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    def paged_prefill_backward(do: Tensor, of: Tensor) -> Tensor:
        return act(of)

    return paged_prefill_backward


def _refuse_gradients(of: Tensor) -> Tensor:
    raise RuntimeError("ckpm::paged_prefill has no gradient: call varlen_attention for one.")


def _refuse_second(ctx: Any, *gradients: Any) -> Any:
    raise RuntimeError("ckpm::varlen_attention has no second derivative.")


def _save_paged(ctx: Any, inputs: tuple[Any, ...], output: Pair) -> None:
    ctx.save_for_backward(*(value if isinstance(value, Tensor) else None for value in inputs))
    ctx.mark_non_differentiable(output[1])


def _paged_gradients(ctx: Any, do: Tensor, dlse: Any) -> tuple[Any, ...]:
    """Call an operator that refuses when it runs: torch.compile traces a backward pass even where none runs."""
    refuse, inputs = torch.ops.ckpm.paged_prefill_backward, zip(ctx.saved_tensors, ctx.needs_input_grad, strict=False)
    return tuple(refuse(do, tensor) if need else None for tensor, need in inputs)


paged_prefill = register(_paged_prefill, _launch, _trace)
varlen_attention = register(_varlen_attention, _launch, _trace)
varlen_attention_backward = register(_varlen_backward, _launch_backward, _trace_backward)
register(_paged_backward, _refuse_gradients, torch.empty_like)
differentiate(varlen_attention_backward, _refuse_second)
differentiate(paged_prefill, _paged_gradients, _save_paged)
differentiate(varlen_attention, _gradients, _save)
autocast(paged_prefill)
autocast(varlen_attention)
