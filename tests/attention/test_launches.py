"""Real kernels on the emulated gfx950 through the dispatcher, each compared with the float64 reference."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ckpm.attention import reference
from ckpm.attention.appending import append
from ckpm.attention.arrays.tables import Pages
from ckpm.attention.arrays.tensors import OnDevice
from ckpm.attention.call import Attention, fmha
from ckpm.attention.callers.aiter import mha_batch_prefill_func
from ckpm.attention.callers.flashinfer import BatchPrefillWithPagedKVCacheWrapper
from ckpm.attention.dispatcher import Dispatcher
from ckpm.attention.launch.device import Device
from ckpm.attention.launch.encodings import decode, encode
from ckpm.attention.launch.plan import Timing
from ckpm.attention.registry import Registry
from ckpm.attention.tuning import Measurement, TuningDatabase
from ckpm.base.errors import LaunchError, NoKernelError
from ckpm.suites.appendkv_cases import differences, make_append
from tests.attention.calls import ARCH, Call, contiguous, copy_to_device, numbers, paged_call
from tests.emulated.emulator_fwd import append_case

CAUSAL: dict[str, Any] = {"mask": "bottom_right"}
LENGTHS = ((40, 70), (20, 25))
CALLS = {
    "fwd": contiguous(1, ((100, 150),) * 2),
    "fwd with heads before tokens": contiguous(2, ((100, 150),) * 2, heads=(4, 2), layout="BHSD", **CAUSAL),
    "fwd in group mode": contiguous(3, LENGTHS, layout="", **CAUSAL),
    "split-KV": contiguous(4, ((40, 300),) * 2, lse=True, splits=3),
    "split-KV in group mode": contiguous(5, LENGTHS, layout="", lse=True, splits=2),
    "paged": paged_call(6, LENGTHS, 128, "vllm", family="fwd_pagedkv"),
    "batch prefill": paged_call(7, LENGTHS),
    "batch prefill, causal, capped, LSE": paged_call(8, LENGTHS, soft_cap=5.0, lse=True, **CAUSAL),
    "batch prefill, vectorized pages": paged_call(9, LENGTHS, 16, layout="vectorized"),
}


@pytest.mark.parametrize("name", CALLS)
def test_call_agrees_with_reference(name: str, dispatcher: Dispatcher) -> None:
    done = CALLS[name].check(dispatcher)
    assert len(done.ran.kernels) == (2 if "split" in name else 1)


def test_call_without_lse_has_bits_of_call_with_lse(dispatcher: Dispatcher) -> None:
    """Launch at head dims 576/512, of which a kernel with LSE alone is built."""
    paged = paged_call(10, LENGTHS, heads=(4, 1), hdim=576, **CAUSAL)
    q, k, v = paged.arrays
    call = replace(paged, arrays=(q, k, np.ascontiguousarray(v[..., :512])), v=[array[..., :512] for array in paged.v])
    plain, whole = call.check(dispatcher), call.check(dispatcher, lse=True)
    assert (plain.lse, plain.ran.kernels) == (None, whole.ran.kernels)
    assert np.array_equal(plain.o, whole.o)


def test_bits_follow_batch_unless_call_is_batch_invariant(registry: Registry, device: Device) -> None:
    """Dispatch takes the tile of 64 rows for one sequence, of 128 rows for 104. An element is rounded otherwise."""
    call = paged_call(2, ((128, 1000),))
    pages = call.options["pages"]

    def run(sequences: int, **options: Any) -> Attention:
        """Launch the sequence, and others without queries and keys after it."""
        sums = np.array([0, *[128] * sequences], np.int32)
        more = replace(pages, indptr=np.array([0, *[1000] * sequences], np.int32))
        return call.check(dispatcher, **{"cu_seqlens_q": sums, "pages": more, **options})

    aiter_registry = Registry(instance for instance in registry.instances() if instance.upstream == "aiter")
    dispatcher = Dispatcher(aiter_registry, device)
    alone, beside = run(1), run(104)
    assert [result.ran.kernels[0].split("_b")[-1][:3] for result in (alone, beside)] == ["64x", "128"]
    assert not np.array_equal(alone.o, beside.o)
    fixed = [run(sequences, batch_invariant=True) for sequences in (1, 104)]
    assert fixed[0].ran.kernels == fixed[1].ran.kernels
    assert np.array_equal(fixed[0].o, fixed[1].o)


def test_few_queries_of_long_keys_are_split(dispatcher: Dispatcher) -> None:
    """Bits repeat, and where a call names its split they don't depend on the other sequence."""
    lengths = ((4, 3000), (1, 700))
    call = paged_call(11, lengths, heads=(8, 2), lse=True, **CAUSAL)
    first, second = call.check(dispatcher), call.check(dispatcher)
    assert "_qr_async_split_" in first.ran.kernels[0]
    assert np.array_equal(first.o, second.o)
    assert np.array_equal(first.lse, second.lse)
    fixed: dict[str, Any] = {"batch_invariant": True, "split_keys": 512}
    both = call.check(dispatcher, **fixed)
    q, k, v = call.arrays
    pages = replace(call.options["pages"], indptr=np.array([0, 3000], np.int32))
    alone = fmha(
        q[:4], k, v, dtype="bf16", dispatcher=dispatcher, pages=pages, cu_seqlens_q=np.array([0, 4], np.int32),
        lse=True, **CAUSAL, **fixed,
    )  # fmt: skip
    assert np.array_equal(alone.o, both.o[:4])
    assert np.array_equal(alone.lse, both.lse[:, :4])


def test_every_order_gives_numbers_that_agree(registry: Registry, device: Device, tmp_path: Any) -> None:
    call = CALLS["batch prefill"]
    kernels = {}
    for order in ("first-fit", "seqtune", lambda problem, able: able[::-1]):
        done = call.check(Dispatcher(registry, device, order=order))
        kernels[done.ran.kernels] = done.problem
    assert len(kernels) == 2  # of 64 and of 128 rows
    (slow,), (fast,) = kernels
    base = TuningDatabase(tmp_path / "t.db")
    (problem, _) = kernels.values()
    base.add(problem, device.kind, [Measurement(kernel=slow, value=2.0), Measurement(kernel=fast, value=1.0)])
    done = call.check(Dispatcher(registry, device, order="measured", tuning=base))
    assert done.ran.kernels == (fast,)


def test_bias_alibi_and_dropout(dispatcher: Dispatcher) -> None:
    random = np.random.default_rng(3)
    bias = numbers(random, 2, 60, 70)
    per_sequence = [bias[:, :40, :70], bias[:, 40:, :25]]
    plain = paged_call(11, LENGTHS, lse=True, **CAUSAL)
    with_bias = Call(**{**vars(plain), "more": {"bias": per_sequence}})
    with_bias.check(dispatcher, bias=bias)
    # the smoke tier has a bias with LSE only
    assert with_bias.check(dispatcher, bias=bias, soft_cap=0.0, lse=False).lse is None
    slopes = np.array([0.25, 0.5], np.float32)
    with_slopes = Call(**{**vars(plain), "more": {"slopes": np.stack([slopes, slopes]).astype(np.float64)}})
    with_slopes.check(dispatcher, alibi_slopes=slopes)


def test_timing_repeats_launch(dispatcher: Dispatcher) -> None:
    done = CALLS["batch prefill"].check(dispatcher, timing=Timing(warmups=1, repeats=2, cold_bytes=1 << 16))
    assert len(done.ran.milliseconds) == 2
    assert min(done.ran.milliseconds) > 0


def test_device_arrays_with_strides_give_same_bits(dispatcher: Dispatcher, device: Device) -> None:
    call = CALLS["batch prefill, causal, capped, LSE"]
    host = call.check(dispatcher)
    q, k, v = (copy_to_device(device, encode(array, "bf16", ARCH), "bf16") for array in call.arrays)
    both = encode(np.stack((call.arrays[1], call.arrays[2]), axis=1), "bf16", ARCH)  # one pool, page by page
    pool = copy_to_device(device, both, "bf16")
    half = both[0, 0].size
    strides = (2 * half, call.arrays[1].shape[2] * 128, 128, 1)
    interleaved = [
        OnDevice(address=pool.address + 2 * at * half, shape=call.arrays[1].shape, dtype="bf16", strides=strides)
        for at in (0, 1)
    ]
    host_pages = call.options["pages"]
    pages = Pages(
        indices=copy_to_device(device, np.pad(host_pages.indices, (0, 256)), "int32"),
        indptr=copy_to_device(device, host_pages.indptr, "int32"), longest=70,
    )  # fmt: skip
    sums = copy_to_device(device, call.options["cu_seqlens_q"], "int32")
    for keys, values in ((k, v), interleaved):
        o, lse = device.hip.malloc(60 * 2 * 128 * 2), device.hip.malloc(60 * 2 * 4)
        options = {**call.options, "cu_seqlens_q": sums, "max_seqlen_q": 40, "pages": pages}
        fmha(
            q, keys, values, dispatcher=dispatcher, **options,
            out=OnDevice(address=o.address, shape=(60, 2, 128), dtype="bf16"),
            lse_out=OnDevice(address=lse.address, shape=(2, 60), dtype="fp32"),
        )  # fmt: skip
        device.hip.synchronize()
        assert (decode(device.hip.read(o, np.uint16, (60, 2, 128)), "bf16", ARCH) == host.o).all()
        assert (device.hip.read(lse, np.float32, (2, 60)) == host.lse).all()


def test_fault_is_one_error_and_next_call_works(dispatcher: Dispatcher, device: Device) -> None:
    """An output that is smaller than declared is only noticed when the kernel writes past its end."""
    call = CALLS["batch prefill"]
    q, k, v = (copy_to_device(device, encode(array, "bf16", ARCH), "bf16") for array in call.arrays)
    host_pages = call.options["pages"]
    indptr = copy_to_device(device, host_pages.indptr, "int32")
    pages = Pages(
        indices=copy_to_device(device, np.pad(host_pages.indices, (0, 256)), "int32"), indptr=indptr, longest=70
    )
    out = OnDevice(address=device.hip.malloc(16).address, shape=(60, 2, 128), dtype="bf16")
    sums = copy_to_device(device, call.options["cu_seqlens_q"], "int32")
    with pytest.raises(LaunchError, match="touches an unmapped page"):
        fmha(q, k, v, dispatcher=dispatcher, cu_seqlens_q=sums, max_seqlen_q=40, pages=pages, out=out)
    call.check(dispatcher)


def test_aiter_s_and_flashinfer_s_calls_give_same_numbers(dispatcher: Dispatcher) -> None:
    call = CALLS["batch prefill, causal, capped, LSE"]
    host = call.check(dispatcher)
    pages, (q, k, v) = call.options["pages"], call.arrays
    o, lse = mha_batch_prefill_func(
        q, k[:, 0], v[:, 0], call.options["cu_seqlens_q"], pages.indptr, pages.indices, 40, 70, causal=True,
        logits_soft_cap=5.0, return_lse=True, dispatcher=dispatcher, dtype="bf16",
    )  # fmt: skip
    assert (o == host.o).all()
    assert (lse == host.lse).all()
    for layout in ("NHD", "HND"):
        wrapper = BatchPrefillWithPagedKVCacheWrapper(None, layout, dispatcher=dispatcher)
        last = np.ones(2, np.int32)
        wrapper.plan(
            call.options["cu_seqlens_q"], pages.indptr, pages.indices, last, 2, 1, 128, 1, causal=True,
            logits_soft_cap=5.0, q_data_type="bfloat16",
        )  # fmt: skip
        cache = np.stack((k, v), axis=1)
        o, lse2 = wrapper.run(q, cache if layout == "NHD" else cache.swapaxes(2, 3), return_lse=True)
        assert (o == host.o).all()
        np.testing.assert_allclose(np.exp2(lse2.T), np.exp(host.lse), rtol=1e-5)


@pytest.mark.parametrize("packed", [False, True])
def test_flashinfer_s_custom_mask_agrees_with_float64(packed: bool, dispatcher: Dispatcher) -> None:
    call = paged_call(11, LENGTHS)
    random = np.random.default_rng(11)
    masks = [random.random(lengths) < 0.5 for lengths in LENGTHS]
    masks[0][3, :64] = False  # the row sees nothing in the first tile of keys
    masks[0][4] = False  # nor at all
    bits = [np.packbits(mask.reshape(-1), bitorder="little") if packed else mask.reshape(-1) for mask in masks]
    mask_argument: dict[str, Any] = {"packed_custom_mask" if packed else "custom_mask": np.concatenate(bits)}
    pages, (q, k, v) = call.options["pages"], call.arrays
    wrapper = BatchPrefillWithPagedKVCacheWrapper(dispatcher=dispatcher)
    tables = (call.options["cu_seqlens_q"], pages.indptr, pages.indices, np.ones(2, np.int32))
    wrapper.plan(*tables, 2, 1, 128, 1, causal=True, q_data_type="bfloat16", **mask_argument)
    o, lse = wrapper.run(q, np.stack((k, v), axis=1), return_lse=True)
    sequences = zip(call.q, call.k, call.v, masks, strict=True)
    want = [softmax_over_seen(one_q, one_k, one_v, mask, 128**-0.5) for one_q, one_k, one_v, mask in sequences]
    exact_o, exact_lse = (np.concatenate(parts) for parts in zip(*want, strict=True))
    assert (o[4] == 0).all()
    assert (lse[4] == -np.inf).all()
    assert (verdict := reference.agreement(o, exact_o, "bf16")).passed, str(verdict)
    np.testing.assert_allclose(lse, exact_lse, atol=1e-3)


def softmax_over_seen(
    q: NDArray[Any], k: NDArray[Any], v: NDArray[Any], seen: NDArray[np.bool_], scale: float
) -> tuple[NDArray[Any], NDArray[Any]]:
    """O [query, head, dim] and LSE of base 2 [query, head] over the keys that each query sees; one head of K and V."""
    scores = np.where(seen[:, None], np.einsum("qhd,kd->qhk", q, k[:, 0]) * scale, -np.inf)
    weights = np.exp(scores)
    whole = weights.sum(-1)
    with np.errstate(divide="ignore"):
        lse = np.log2(whole)
    return weights @ v[:, 0] / np.where(whole == 0, 1, whole)[..., None], lse


@pytest.mark.parametrize("fields", [{}, {"rope": "inter"}, {"rope": "half", "page_size": 128}])
def test_append_writes_new_rows_and_no_others(fields: dict[str, Any], dispatcher: Dispatcher) -> None:
    a = make_append(append_case(seqlens_q=(5, 5), seqlens_k=(30, 17), seqlen_knew=40, **fields))
    done = append(
        a.q, a.knew, a.vnew, a.k, a.v, a.seqlens_k, dispatcher=dispatcher, dtype="bf16", rope=a.rope, cos=a.cos,
        sin=a.sin, causal=a.causal, block_table=a.block_table, cache_batch_idx=a.cache_batch_idx,
    )  # fmt: skip
    assert differences(a, done.q, done.k, done.v, ARCH) == []


def drawn(random: Random, family: str) -> Call:
    """A small call with features that the family's smoke tier may have or not."""
    lengths = tuple((random.randint(1, 70), random.randint(1, 140)) for _ in range(random.randint(1, 2)))
    options: dict[str, Any] = {
        "lse": random.random() < 0.2,
        "mask": random.choice(["no", "top_left", "bottom_right"]),
        "soft_cap": random.choice([0.0] * 5 + [5.0]),
    }
    seed, heads, hdim = random.randrange(1000), (2 * random.randint(1, 2), 2), random.choice([128, 128, 120, 64])
    if family == "fwd_pagedkv":
        return paged_call(seed, lengths, 128, "vllm", heads=heads, hdim=hdim, family=family, **options)
    if family == "vectorized":
        return paged_call(seed, lengths, 16, layout="vectorized", heads=heads, hdim=hdim, **options)
    if family == "batch_prefill":
        return paged_call(seed, lengths, heads=heads, hdim=hdim, **options)
    if family == "fwd_splitkv":
        options["splits"] = random.randint(1, 4)
    layout = random.choice(["", "BSHD", "BHSD"])
    return contiguous(seed, lengths[:1] * 2 if layout else lengths, heads, (hdim, 128), layout, **options)


@pytest.mark.parametrize("family", ["fwd", "fwd_splitkv", "fwd_pagedkv", "batch_prefill", "vectorized"])
def test_random_calls_agree_with_reference_or_are_refused(family: str, dispatcher: Dispatcher) -> None:
    """500 in all. A refusal by a library, a fault or other numbers are failures: only selection may say no."""
    random, ran = Random(f"{family} 1"), 0
    for _ in range(100):
        call = drawn(random, family)
        with contextlib.suppress(NoKernelError):
            call.check(dispatcher)
            ran += 1
    assert ran >= 20, f"{ran} of 100 calls ran: too few to say anything"
