"""PyTorch's operators in autocast, torch.compile and torch.func, and with expanded tensors, without kernels."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ckpm.attention.registry import Registry
from tests.unit.attention.fakes import FakeDevice, built, make_dispatcher, prefill

torch: Any = pytest.importorskip("torch")
operators: Any = pytest.importorskip("ckpm.attention.callers.torch")

INT, BF16 = torch.int32, torch.bfloat16
SUMS = torch.tensor([0, 40, 60], dtype=INT), torch.tensor([0, 70, 95], dtype=INT)
BACKWARD = ("bwd_dot_do_o", "bwd_dq_dk_dv", "bwd_convert_dq")
Attend = Callable[..., Any]
compile_whole = functools.partial(torch.compile, fullgraph=True, backend="aot_eager")


def attend_paged(q: Any, k: Any, v: Any, **more: Any) -> Any:
    return operators.paged_prefill(q, k, v, SUMS[0], torch.arange(95, dtype=INT), 40, 70, indptr=SUMS[1], **more)[0]


def attend_varlen(q: Any, k: Any, v: Any) -> Any:
    return operators.varlen_attention(q, k, v, *SUMS, 40, 70, True)[0]


def zeros(*shape: int, dtype: Any = BF16) -> Any:
    return torch.zeros(*shape, dtype=dtype)


@pytest.fixture(params=[False, True], ids=["copied", "in place"])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDevice]:
    """Tensors of the CPU are copied to the device, or taken for tensors of it."""
    mixed = built("batch_prefill", "ckpm-extended", dtype="bf16kvfp8", page_size=1)
    kernels = [kernel for family in ("fwd", *BACKWARD) for kernel in built(family, dtype="bf16", mode="group")]
    dispatcher, device = make_dispatcher(Registry((*prefill().instances(), *mixed, *kernels)))
    monkeypatch.setattr(operators, "_is_in_place", lambda q, dispatcher: request.param)
    operators.dispatch_to(dispatcher)
    yield device
    operators.dispatch_to(None)


@pytest.mark.parametrize("attend", [attend_paged, attend_varlen])
def test_autocast_casts_q_k_and_v_as_pytorch_s_own_attention(attend: Attend, device: FakeDevice) -> None:
    q, k, v = zeros(60, 4, 128, dtype=torch.float32), zeros(95, 2, 128, dtype=torch.float16), zeros(95, 2, 128)
    with pytest.raises(RuntimeError, match="of one dtype"):
        attend(q, k, v)
    with torch.autocast("cpu", dtype=BF16):
        pytorch_s = torch.nn.functional.scaled_dot_product_attention(q, q.half(), q)
        assert attend(q, k, v).dtype == pytorch_s.dtype == BF16
        assert compile_whole(attend)(q, k, v).dtype == BF16
    with torch.autocast("cpu", dtype=BF16), pytest.raises(RuntimeError, match="of one dtype"):
        attend(q.double(), k, v)
    assert len(device.launched) == 2


def test_autocast_leaves_fp8_caches_and_their_scales(device: FakeDevice) -> None:
    cache, scale = zeros(95, 2, 128, dtype=torch.float8_e4m3fn), torch.ones(1)
    with torch.autocast("cpu", dtype=BF16):
        o = attend_paged(zeros(60, 4, 128, dtype=torch.float32), cache, cache, k_descale=scale, v_descale=scale)
    assert (o.dtype, device.launched[0].data_type) == (BF16, b"bf16kvfp8")


@pytest.mark.parametrize("compiles", [False, True])
def test_parameters_of_float32_get_gradients_in_autocast(compiles: bool, device: FakeDevice) -> None:
    """And keys that PyTorch expanded get the sum of their gradients."""
    layer, k = torch.nn.Linear(512, 512), zeros(95, 1, 128).requires_grad_()

    def attend(x: Any) -> Any:
        with torch.autocast("cpu", dtype=BF16):
            return attend_varlen(layer(x).view(-1, 4, 128), *[k.expand(95, 2, 128)] * 2)

    (compile_whole(attend) if compiles else attend)(torch.zeros(60, 512)).sum().backward()
    assert (layer.weight.grad.dtype, layer.weight.grad.shape) == (torch.float32, (512, 512))
    assert (k.grad.dtype, k.grad.shape) == (BF16, k.shape)
    assert len(device.launched) == 2


@pytest.mark.parametrize("attend", [attend_paged, attend_varlen])
@pytest.mark.parametrize("shape", [(60, 1, 128), (1, 4, 128), (60, 4, 1), (1, 1, 1)])
def test_expanded_tensors_are_copied(shape: tuple[int, ...], attend: Attend, device: FakeDevice) -> None:
    read: list[Any] = []

    def answer(launch: Any) -> int:
        sizes = {"q": 60 * 4 * 256, "k": 95 * 2 * 256}
        read.append([ctypes.string_at(getattr(launch, name), size) for name, size in sizes.items()])
        return 0

    device.answer = answer
    q = torch.randn(shape, dtype=BF16).expand(60, 4, 128)
    of_k = [length if size > 1 else 1 for size, length in zip(shape, (95, 2, 128), strict=True)]
    k = torch.randn(of_k, dtype=BF16).expand(95, 2, 128)
    for call in (attend, compile_whole(attend)):
        assert call(q, k, k).shape == (60, 4, 128)
    attend(q.contiguous(), k.contiguous(), k.contiguous())
    assert read[0] == read[1] == read[2]


@pytest.mark.parametrize("compiles", [False, True])
def test_model_with_parameters_infers_by_paged_prefill(compiles: bool, device: FakeDevice) -> None:
    """A gradient is refused when a backward pass runs, not when torch.compile traces it."""
    layer, cache = torch.nn.Linear(512, 512, dtype=BF16), zeros(100, 2, 128)

    def attend(x: Any) -> Any:
        return attend_paged(layer(x).view(-1, 4, 128), cache, cache)

    o = (compile_whole(attend) if compiles else attend)(zeros(60, 512))
    assert (o.shape, len(device.launched)) == ((60, 4, 128), 1)
    with pytest.raises(RuntimeError, match=r"^ckpm::paged_prefill has no gradient: call varlen_attention"):
        o.sum().backward()


@pytest.mark.parametrize("attend", [attend_paged, attend_varlen])
@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.jacrev])
def test_gradient_of_torch_func_is_refused_with_remedy(attend: Attend, transform: Any, device: FakeDevice) -> None:
    with pytest.raises(RuntimeError, match=r"no gradient in torch.func .*call backward\(\)"):
        transform(lambda q: attend(q, *[zeros(95, 2, 128)] * 2).sum())(zeros(60, 4, 128))
    assert not device.launched


@pytest.mark.parametrize("attend", [attend_paged, attend_varlen])
@pytest.mark.parametrize("transform", [torch.func.jvp, lambda f, x, t: dual(f, x[0], t)])
def test_forward_derivative_is_refused_instead_of_zero(attend: Attend, transform: Any, device: FakeDevice) -> None:
    q, kv = zeros(60, 4, 128), [zeros(95, 2, 128)] * 2
    with pytest.raises(RuntimeError, match=r"has no tangents .*call backward\(\)"):
        transform(lambda q: attend(q, *kv), (q,), (torch.ones_like(q),))
    assert not device.launched


def dual(attend: Attend, q: Any, tangents: Any) -> Any:
    with torch.autograd.forward_ad.dual_level():
        return attend(torch.autograd.forward_ad.make_dual(q, *tangents))


def test_second_derivative_is_refused_instead_of_zero(device: FakeDevice) -> None:
    q = zeros(60, 4, 128).requires_grad_()
    (dq,) = torch.autograd.grad(attend_varlen(q, *[zeros(95, 2, 128)] * 2).sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        dq.sum().backward()
