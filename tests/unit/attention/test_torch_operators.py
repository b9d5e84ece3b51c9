"""PyTorch's operators without kernels: what is refused, traced and launched. Skipped where PyTorch is not installed."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ckpm.attention import call, plan_cache
from ckpm.attention.arrays import posing, pytorch
from ckpm.attention.arrays.tables import Pages
from ckpm.attention.arrays.tensors import OnDevice
from ckpm.attention.call import fmha
from ckpm.attention.callers.aiter import flash_attn_varlen_func, mha_batch_prefill_func
from ckpm.attention.dispatcher import Dispatcher
from ckpm.attention.registry import Registry
from ckpm.base.errors import ArgumentError
from ckpm.kernels.abi import Mask, QScale, Status
from tests.unit.attention.fakes import FakeDevice, built, fp8_prefill, make_dispatcher, prefill

torch: Any = pytest.importorskip("torch")
operators: Any = pytest.importorskip("ckpm.attention.callers.torch")

INT = torch.int32


def arguments(dtype: Any = torch.bfloat16, **changes: Any) -> dict[str, Any]:
    """Two sequences of 40 and 20 queries over 70 and 25 pages of one token."""
    cache = torch.zeros(100, 2, 128, dtype=dtype)
    return {
        "q": torch.zeros(60, 4, 128, dtype=dtype), "k": cache, "v": cache,
        "cu_seqlens_q": torch.tensor([0, 40, 60], dtype=INT), "page_table": torch.arange(95, dtype=INT),
        "indptr": torch.tensor([0, 70, 95], dtype=INT), "max_seqlen_q": 40, "max_seqlen_k": 70, **changes,
    }  # fmt: skip


@pytest.fixture
def device() -> Iterator[FakeDevice]:
    dispatcher, device = make_dispatcher(prefill())
    operators.dispatch_to(dispatcher)
    yield device
    operators.dispatch_to(None)


@pytest.fixture
def in_place(device: FakeDevice, monkeypatch: pytest.MonkeyPatch) -> FakeDevice:
    """Tensors of the CPU are taken for tensors of the device."""
    monkeypatch.setattr(operators, "_is_in_place", lambda q, dispatcher: True)
    return device


@pytest.fixture
def posed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The problem of each call that was posed."""
    problems = []

    def pose(*arguments: Any) -> Any:
        result = posing.pose(*arguments)
        problems.append(result.problem)
        return result

    for module in (call, operators):
        monkeypatch.setattr(module, "pose", pose)
    return problems


def test_masks_and_caps_of_paged_prefill_reach_the_c_abi(device: FakeDevice) -> None:
    o, lse = operators.paged_prefill(**arguments(), causal=True, window_left=9, soft_cap=3.0, return_lse=True)
    assert (o.shape, o.dtype, lse.shape, lse.dtype) == ((60, 4, 128), torch.bfloat16, (4, 60), torch.float32)
    launch = device.launched[0]
    assert (launch.mask_type, launch.window_left, launch.window_right) == (Mask.BOTTOM_RIGHT, 9, 0)
    assert (launch.logits_soft_cap, launch.page_size, launch.num_total_pages) == (3.0, 1, 100)
    assert operators.paged_prefill(**arguments())[1].shape == (0,)
    assert device.launched[1].mask_type == Mask.NONE


def test_fp8_gives_bfloat16_and_needs_scales() -> None:
    dispatcher, device = make_dispatcher(fp8_prefill())
    operators.dispatch_to(dispatcher)
    inputs, scale = arguments(torch.float8_e4m3fn), torch.ones(1)
    assert (
        operators.paged_prefill(**inputs, q_descale=scale, k_descale=scale, v_descale=scale)[0].dtype == torch.bfloat16
    )
    scales = dict.fromkeys(("q_descale", "k_descale", "v_descale"), scale)
    traced = {name: t.to("meta") if isinstance(t, torch.Tensor) else t for name, t in {**inputs, **scales}.items()}
    assert operators.paged_prefill(**traced)[0].dtype == torch.bfloat16
    with pytest.raises(RuntimeError, match="Expected q_descale, k_descale and v_descale with fp8 q"):
        operators.paged_prefill(**inputs)
    operators.dispatch_to(None)
    assert len(device.launched) == 1


def test_fp8_cache_beside_bfloat16_has_scales_of_k_and_v_alone() -> None:
    dispatcher, device = make_dispatcher(
        Registry(built("batch_prefill", "ckpm-extended", dtype="bf16kvfp8", page_size=1))
    )
    operators.dispatch_to(dispatcher)
    cache, scale, heads = torch.zeros(100, 2, 128, dtype=torch.float8_e4m3fn), torch.ones(1), torch.ones(2)
    inputs = arguments(k=cache, v=cache)
    assert operators.paged_prefill(**inputs, k_descale=scale, v_descale=scale)[0].dtype == torch.bfloat16
    operators.paged_prefill(**inputs, k_descale=heads, v_descale=heads)
    assert [launch.qscale_type for launch in device.launched] == [QScale.PERTENSOR, QScale.PERHEAD]
    for scales in ({}, {"k_descale": scale}, dict.fromkeys(("q_descale", "k_descale", "v_descale"), scale)):
        with pytest.raises(RuntimeError, match="or the latter two with fp8 k"):
            operators.paged_prefill(**inputs, **scales)
    operators.dispatch_to(None)
    assert len(device.launched) == 2


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"q": torch.zeros(60, 4, 128, device="meta", dtype=torch.bfloat16)}, RuntimeError, "on the same device"),
        ({"q": torch.zeros(60, 4, 128)}, RuntimeError, "Expected q, k and v of one dtype"),
        ({"q": torch.zeros(60, 3, 128, dtype=torch.bfloat16)}, RuntimeError, "a multiple of 2 heads"),
        ({"k": torch.zeros(100, 0, 128, dtype=torch.bfloat16)}, RuntimeError, "a multiple of 0 heads"),
        ({"q": torch.zeros(60, 128, 4, dtype=torch.bfloat16).mT}, RuntimeError, "a contiguous last dimension"),
        ({"indptr": torch.tensor([0, 70, 95])}, RuntimeError, "torch.int32, .* but got .*torch.int64"),
        ({"page_table": torch.zeros(190, dtype=INT)[::2]}, RuntimeError, "tables and scales to be contiguous"),
        ({"softmax_scale": 0.0}, ValueError, "a scale of 0"),
        ({"soft_cap": -1.0}, ValueError, "cap"),
        ({"q": 3}, RuntimeError, "Expected a value of type 'Tensor' for argument 'q'"),
        ({"sinks": torch.zeros(4)}, NotImplementedError, "no built kernel"),
    ],
)
def test_refused_arguments_raise_pytorch_s_errors(
    changes: dict[str, Any], error: type[Exception], message: str, device: FakeDevice
) -> None:
    with pytest.raises(error, match=message) as raised:
        operators.paged_prefill(**arguments(**changes))
    assert raised.type is error
    assert not device.launched


def test_failed_launch_raises_runtime_error(device: FakeDevice) -> None:
    device.answer = lambda launch: Status.HIP_ERROR
    with pytest.raises(RuntimeError, match="said by the library"):
        operators.paged_prefill(**arguments())


def test_rows_of_a_block_table_may_lie_apart(in_place: FakeDevice) -> None:
    dispatcher, _ = make_dispatcher(prefill(upstream="ckpm", page_size=16), in_place)
    operators.dispatch_to(dispatcher)
    cache = torch.zeros(100, 16, 2, 128, dtype=torch.bfloat16)
    inputs = arguments(k=cache, v=cache, page_table=torch.zeros(8, 64, dtype=INT)[:2, :9], indptr=None)
    operators.paged_prefill(**inputs, seqlens_k=torch.tensor([70, 25], dtype=INT))
    assert in_place.launched[0].batch_stride_block_table == 64
    with pytest.raises(RuntimeError, match="contiguous"):
        operators.paged_prefill(**{**inputs, "seqlens_k": torch.tensor([70, 0, 25, 0], dtype=INT)[::2]})


def test_tensors_in_place_are_launched_by_their_addresses(
    in_place: FakeDevice, monkeypatch: pytest.MonkeyPatch, posed: list[Any]
) -> None:
    pool = torch.zeros(100, 2, 2, 128, dtype=torch.bfloat16)  # K and V of a page beside one another
    inputs = arguments(k=pool[:, 0], v=pool[:, 1])
    monkeypatch.setattr(operators, "current_stream", lambda q: 77)
    outputs = [operators.paged_prefill(**inputs, return_lse=True) for _ in range(2)]
    assert len(posed) == 1
    for launch, (o, lse) in zip(in_place.launched, outputs, strict=True):
        names = {"q": "q", "k": "k", "v": "v", "seqstart_q": "cu_seqlens_q", "kv_indptr": "indptr"}
        assert {name: getattr(launch, name) for name in names} == {
            n: inputs[argument].data_ptr() for n, argument in names.items()
        }
        assert (launch.kv_page_indices, launch.o, launch.lse) == (
            inputs["page_table"].data_ptr(),
            o.data_ptr(),
            lse.data_ptr(),
        )
        assert (launch.batch_stride_k, launch.seqlen_k, launch.stream) == (512, 72, 77)
    operators.paged_prefill(**arguments(q=torch.zeros(50, 4, 128, dtype=torch.bfloat16)))
    operators.paged_prefill(**inputs, return_lse=True, causal=True)
    assert len(posed) == 3
    operators.paged_prefill(**arguments(), return_lse=True)  # the shapes of the first call, not its strides
    assert in_place.launched.pop().batch_stride_k == 256
    assert [launch.mask_type for launch in in_place.launched[-2:]] == [Mask.NONE, Mask.BOTTOM_RIGHT]


@pytest.mark.parametrize(("pages", "stride"), [(100, 512), (120, 256)])
def test_tensors_changed_in_place_are_posed_again(in_place: FakeDevice, pages: int, stride: int) -> None:
    """PyTorch's guards compare the tensors of the call before, which are the same objects."""
    inputs = arguments(v=torch.zeros(100, 2, 128, dtype=torch.bfloat16))
    for _ in range(2):
        operators.paged_prefill(**inputs)
    for name in ("k", "v"):
        inputs[name].set_(torch.zeros(pages, 2, stride // 2, dtype=torch.bfloat16)[..., :128])
    operators.paged_prefill(**inputs)
    pools = [(launch.num_total_pages, launch.batch_stride_k) for launch in in_place.launched]
    assert pools == [(100, 256), (100, 256), (pages, stride)]
    assert in_place.launched[-1].k == inputs["k"].data_ptr()


class OnOtherGpu(torch.Tensor):  # type: ignore[misc]  # the checker has no PyTorch
    """A tensor that is on a GPU of its own."""

    def get_device(self) -> int:
        return 1


def paged_calls(monkeypatch: pytest.MonkeyPatch, dispatcher: Dispatcher) -> Callable[..., Any]:
    """aiter's call with tensors of the CPU that are taken for tensors of a GPU."""
    monkeypatch.setattr(call, "on_gpu", lambda q: True)

    def run(**changes: Any) -> Any:
        usual = arguments(**changes)
        usual["kv_indptr"], usual["kv_page_indices"] = usual.pop("indptr"), usual.pop("page_table")
        return mha_batch_prefill_func(**usual, dispatcher=dispatcher)

    return run


def test_aiter_s_calls_with_equal_shapes_are_posed_once(monkeypatch: pytest.MonkeyPatch, posed: list[Any]) -> None:
    dispatcher, device = make_dispatcher(prefill(), FakeDevice("hip"))
    run = paged_calls(monkeypatch, dispatcher)
    queries = [torch.zeros(60, 4, 128, dtype=torch.bfloat16) for _ in range(2)]
    outputs = [run(q=query, return_lse=True) for query in queries]
    assert len(posed) == 1
    for launch, q, (o, lse) in zip(device.launched, queries, outputs, strict=True):
        assert (launch.q, launch.o, launch.lse) == (q.data_ptr(), o.data_ptr(), lse.data_ptr())
    run(causal=True)
    run(max_seqlen_k=80)
    run(k=torch.zeros(100, 2, 256, dtype=torch.bfloat16)[..., :128])
    run(q=queries[1], return_lse=True)  # not the latest call of its numbers
    assert len(posed) == 4
    assert [launch.seqlen_k for launch in device.launched] == [72, 72, 72, 80, 72, 72]  # four significant bits
    assert [launch.stride_k for launch in device.launched[-2:]] == [512, 256]
    dispatcher.close()
    run()
    assert len(posed) == 5


def test_kept_calls_are_forgotten_when_registry_changes(monkeypatch: pytest.MonkeyPatch, posed: list[Any]) -> None:
    dispatcher, _ = make_dispatcher(prefill(), FakeDevice("hip"))
    run = paged_calls(monkeypatch, dispatcher)
    run()
    dispatcher.registry.set_priority([dispatcher.registry.instances()[0].name], 1)
    run()
    assert len(posed) == 2
    monkeypatch.setattr(plan_cache, "_MOST", 6)
    for longest in (40, 50, 60, 70, 40):
        run(max_seqlen_q=longest)
        assert len(dispatcher.cache.entries) <= 7
    assert len(posed) == 6


def test_call_planned_amid_change_of_registry_is_posed_again(monkeypatch: pytest.MonkeyPatch, posed: list[Any]) -> None:
    dispatcher, _ = make_dispatcher(prefill(), FakeDevice("hip"))
    run, plan = paged_calls(monkeypatch, dispatcher), dispatcher.plan

    def plan_and_change(problem: Any) -> Any:
        planned = plan(problem)
        dispatcher.registry.set_priority([planned.stages[0].name], len(posed))
        return planned

    with monkeypatch.context() as patch:
        patch.setattr(dispatcher, "plan", plan_and_change)
        run()
    for _ in range(2):
        run()
    assert len(posed) == 2


def test_outputs_of_a_kept_call_that_overlap_are_refused(monkeypatch: pytest.MonkeyPatch, posed: list[Any]) -> None:
    monkeypatch.setattr(call, "on_gpu", lambda q: True)
    dispatcher, device = make_dispatcher(prefill(lse=True), FakeDevice("hip"))
    memory, inputs = torch.zeros(60 * 4 * 128 * 2 + 4 * 60 * 4, dtype=torch.uint8), arguments()
    out = memory[: 60 * 4 * 128 * 2].view(torch.bfloat16).view(60, 4, 128)
    ends = [memory[begin : begin + 4 * 60 * 4].view(torch.float32).view(4, 60) for begin in (60 * 4 * 128 * 2, 64)]

    def run(lse_out: Any) -> Any:
        pages = Pages(indices=inputs["page_table"], indptr=inputs["indptr"], longest=70)
        return fmha(
            inputs["q"], inputs["k"][:, None], inputs["v"][:, None], cu_seqlens_q=inputs["cu_seqlens_q"],
            max_seqlen_q=40, pages=pages, lse=True, out=out, lse_out=lse_out, dispatcher=dispatcher,
        )  # fmt: skip

    for _ in range(2):
        run(ends[0])
        with pytest.raises(ArgumentError, match="overlap: a kernel"):
            run(ends[1])
    assert (len(device.launched), len(posed)) == (2, 1)


def test_sink_logits_of_16_bits_are_converted_for_a_kept_call(
    monkeypatch: pytest.MonkeyPatch, posed: list[Any]
) -> None:
    dispatcher, device = make_dispatcher(prefill(upstream="ckpm"), FakeDevice("hip"))
    run = paged_calls(monkeypatch, dispatcher)
    sinks = [torch.full((4,), 2.5, dtype=torch.bfloat16), torch.full((4,), 2.5)]
    read: list[list[float]] = []

    def answer(launch: Any) -> int:
        read.append([*(ctypes.c_float * 4).from_address(launch.sink)])
        return 0

    device.answer = answer
    keys = torch.zeros(95, 2, 128, dtype=torch.bfloat16)
    for sink in (*sinks, sinks[0]):
        run(sink_ptr=sink, causal=True)
    flash_attn_varlen_func(
        torch.zeros(60, 4, 128, dtype=torch.bfloat16), keys, keys,
        arguments()["cu_seqlens_q"], arguments()["indptr"], 40, 70, sink_ptr=sinks[0], causal=True,
        dispatcher=dispatcher,
    )  # fmt: skip
    assert read == [[2.5] * 4] * 4
    assert len(posed) == 2


def test_lists_are_copied_for_kernels_of_ck_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pytorch, "on_gpu", lambda tensor: True)
    pages = torch.arange(95, dtype=INT)
    for upstream, copied in (("aiter", True), ("ckpm", False)):
        dispatcher, device = make_dispatcher(prefill(upstream=upstream), FakeDevice("hip"))
        paged_calls(monkeypatch, dispatcher)(page_table=pages)
        inputs = arguments()
        fmha(
            inputs["q"], inputs["k"][:, None], inputs["v"][:, None], cu_seqlens_q=inputs["cu_seqlens_q"],
            max_seqlen_q=40, pages=Pages(indices=pages, indptr=inputs["indptr"], longest=70), dispatcher=dispatcher,
        )  # fmt: skip
        assert [launch.kv_page_indices != pages.data_ptr() for launch in device.launched] == [copied, copied]


def test_arrays_beside_tensors_are_posed_each_time(monkeypatch: pytest.MonkeyPatch, posed: list[Any]) -> None:
    dispatcher, _ = make_dispatcher(prefill(), FakeDevice("hip"))
    run = paged_calls(monkeypatch, dispatcher)
    tables = arguments()["cu_seqlens_q"].numpy(), OnDevice(address=4096, shape=(3,), dtype="int32")
    for _ in range(2):
        run(cu_seqlens_q=tables[0])
    assert len(posed) == 2
    with pytest.raises(ArgumentError, match="the device"):
        run(cu_seqlens_q=tables[1])
    with pytest.raises(TypeError, match="unknown_option"):
        run(unknown_option=1)
    with pytest.raises(ArgumentError, match="cu_seqlens_q"):
        run(cu_seqlens_q=torch.ones(3, dtype=torch.bool))  # no word for the dtype
    dispatcher.close()
    posed.clear()
    for _ in range(2):
        run(cu_seqlens_q=torch.from_numpy(tables[0]).as_subclass(OnOtherGpu))
    assert len(posed) == 2


def test_backward_in_place_adds_heads_that_share_keys(in_place: FakeDevice) -> None:
    families = ("bwd_dot_do_o", "bwd_dq_dk_dv", "bwd_convert_dq")
    dispatcher, _ = make_dispatcher(
        Registry(kernel for name in families for kernel in built(name, dtype="bf16", hdim_q=64)), in_place
    )
    operators.dispatch_to(dispatcher)
    q, k = torch.zeros(60, 4, 64, dtype=torch.bfloat16), torch.zeros(95, 2, 64, dtype=torch.bfloat16)
    sums = torch.tensor([0, 40, 60], dtype=INT), torch.tensor([0, 70, 95], dtype=INT)
    numbers = (40, 70, True, -1, -1, None, False)
    do, o, lse = q.clone(), q.clone(), torch.zeros(4, 60)
    dq, dk, dv = operators.varlen_attention_backward(do, q, k, k, o, lse, *sums, *numbers)
    assert (dq.shape, dk.shape, dv.shape) == (q.shape, k.shape, k.shape)
    wanted = {"q": q, "k": k, "v": k, "dout": do, "o": o, "lse": lse, "seqstart_q": sums[0], "dq": dq}
    launch = in_place.launched[0]
    assert {name: getattr(launch, name) for name in wanted} == {name: t.data_ptr() for name, t in wanted.items()}
    for wrong in (do[:59], do.transpose(0, 1).contiguous().transpose(0, 1), do.float()):
        with pytest.raises(RuntimeError, match="do is"):
            operators.varlen_attention_backward(wrong, q, k, k, o, lse, *sums, *numbers)
    assert len(in_place.launched) == 1


def test_added_heads_are_float32_sums_of_neighbours() -> None:
    parts = torch.arange(12.0, dtype=torch.float16).reshape(1, 6, 2)
    assert operators._add_heads(parts, 2).tolist() == [[[6.0, 9.0], [24.0, 27.0]]]


def test_empty_batch_launches_nothing(in_place: FakeDevice) -> None:
    inputs = arguments(q=torch.zeros(0, 4, 128, dtype=torch.bfloat16), cu_seqlens_q=torch.zeros(3, dtype=INT))
    assert operators.paged_prefill(**inputs)[0].shape == (0, 4, 128)
    assert not in_place.launched


def test_traced_shapes_are_those_of_calls(device: FakeDevice) -> None:
    done = operators.paged_prefill(**arguments(), return_lse=True)
    for where in ("test_schema", "test_faketensor"):
        torch.library.opcheck(operators.paged_prefill, (), {**arguments(), "return_lse": True}, test_utils=(where,))
    meta = {
        name: argument.to("meta") if isinstance(argument, torch.Tensor) else argument
        for name, argument in arguments().items()
    }
    traced = operators.paged_prefill(**meta, return_lse=True)
    assert [(tensor.shape, tensor.dtype) for tensor in traced] == [(tensor.shape, tensor.dtype) for tensor in done]
