"""Arguments of a wrong type, at every entry: a call ends well or with an error of this project, never with another."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ckpm.attention.alibi import lse_shift
from ckpm.attention.appending import append
from ckpm.attention.arrays.tables import Pages
from ckpm.attention.arrays.tensors import OnDevice
from ckpm.attention.backward.call import fmha_backward
from ckpm.attention.call import fmha
from ckpm.attention.callers.aiter import flash_attn_varlen_func, mha_batch_prefill_func, unified_attention
from ckpm.attention.callers.cascade import merge_state
from ckpm.attention.callers.flashinfer import BatchPrefillWithPagedKVCacheWrapper
from ckpm.attention.chunks import chunk_lengths, chunk_pages
from ckpm.attention.dispatcher import Dispatcher
from ckpm.attention.kernel_sets import kernel_set
from ckpm.attention.launch.plan import Timing
from ckpm.attention.registry import Registry
from ckpm.attention.tuning import TuningDatabase
from ckpm.base.errors import ArgumentError, CkPrefillError, ProblemError
from tests.unit.attention.fakes import (
    POINTERS,
    PREFILL,
    WRONG,
    FakeDevice,
    built,
    fp8_prefill,
    make_dispatcher,
    prefill,
)

SUMS, INDPTR = np.array([0, 40, 60], np.int32), np.array([0, 70, 95], np.int32)
PAGES = Pages(indices=np.arange(95, dtype=np.int32), indptr=INDPTR)
Q, K = np.zeros((60, 4, 128), np.float32), np.zeros((100, 1, 2, 128), np.float32)
BITS, CACHE = np.zeros((60, 4, 128), ml_dtypes.bfloat16), np.zeros((9, 16, 2, 128), ml_dtypes.bfloat16)
MEMORY = np.zeros((60, 4, 128), np.float32)
HEADS = np.zeros((1, 8, 2, 64), np.float32)
BACKWARD = ("bwd_dot_do_o", "bwd_dq_dk_dv", "bwd_convert_dq")
PAGED: dict[str, Any] = {"q": Q, "k": K, "v": K, "dtype": "bf16", "cu_seqlens_q": SUMS, "pages": PAGES}


@functools.cache
def dispatcher_of(family: str, kind: str = "emulator") -> Dispatcher:
    kernels: dict[str, Callable[[], Registry]] = {
        "paged": prefill,
        "fp8": fp8_prefill,
        "fwd": lambda: Registry(built("fwd", dtype="bf16", hdim_q=128, mode="group")),
        "backward": lambda: Registry(kernel for name in BACKWARD for kernel in built(name, dtype="bf16", hdim_q=64)),
        "pages of 16": lambda: Registry(built("batch_prefill", "ckpm", dtype="bf16", hdim_q=128, page_size=16)),
        "append": lambda: Registry(built("fwd_appendkv", dtype="bf16", hdim_q=64)),
    }
    return make_dispatcher(kernels[family](), FakeDevice(kind))[0]


def call_with_pages(**fields: Any) -> Any:
    return fmha(**{**PAGED, "pages": dataclasses.replace(PAGES, **fields)}, dispatcher=dispatcher_of("paged"))


def call_on_device(**fields: Any) -> Any:
    q = OnDevice(**{"address": 4096, "shape": (60, 4, 128), "dtype": "bf16", **fields})
    k = OnDevice(address=1 << 20, shape=K.shape, dtype="bf16")
    sums = OnDevice(address=1 << 24, shape=(3,), dtype="int32")
    pages = Pages(indices=OnDevice(address=1 << 25, shape=(95,), dtype="int32"), indptr=sums, longest=70)
    return fmha(
        q, k, k, dispatcher=dispatcher_of("paged", "hip"), cu_seqlens_q=sums, max_seqlen_q=40, pages=pages,
        out=OnDevice(address=1 << 26, shape=Q.shape, dtype="bf16"),
    )  # fmt: skip


def run_plan(**changes: Any) -> Any:
    plan = dispatcher_of("paged").plan(PREFILL)
    return plan.run(**{"pointers": POINTERS, **changes})


def run_addresses(**addresses: Any) -> Any:
    return dispatcher_of("paged").plan(PREFILL).run({**POINTERS, **addresses})


def run_wrapper(**changes: Any) -> Any:
    plan = {
        "qo_indptr": SUMS, "paged_kv_indptr": np.array([0, 5, 7], np.int32), "page_size": 16, "causal": True,
        "paged_kv_indices": np.arange(7, dtype=np.int32), "paged_kv_last_page_len": np.array([6, 9], np.int32),
        "num_qo_heads": 4, "num_kv_heads": 2, "head_dim_qk": 128, "q_data_type": "bfloat16", "sm_scale": None,
        "fixed_split_size": None,
    }  # fmt: skip
    run = {"q": Q, "paged_kv_cache": np.zeros((7, 2, 16, 2, 128), np.float32), "return_lse": True}
    wrapper = BatchPrefillWithPagedKVCacheWrapper(dispatcher=dispatcher_of("pages of 16"))
    wrapper.plan(**{**plan, **{name: value for name, value in changes.items() if name in plan}})
    return wrapper.run(**{**run, **{name: value for name, value in changes.items() if name not in plan}})


OPTIONS = (
    "family", "layout", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k", "mask", "window", "sink_size", "sink_logits",
    "bias", "alibi_slopes", "dropout", "seed", "random_values", "soft_cap", "scale", "descales", "kv_block_descale",
    "lse", "splits", "split_keys", "batch_invariant", "out", "lse_out", "stream", "timing", "dispatcher",
)  # fmt: skip
ENTRIES: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "fmha": (
        lambda **changes: fmha(**{**PAGED, "dispatcher": dispatcher_of("paged"), **changes}),
        (*PAGED, *OPTIONS),
    ),
    "fmha in fp8": (
        lambda **changes: fmha(
            Q.astype(np.uint8), K.astype(np.uint8), K.astype(np.uint8), dispatcher=dispatcher_of("fp8"),
            dtype="fp8bf16", cu_seqlens_q=SUMS, pages=PAGES, **changes,
        ),
        ("descales", "kv_block_descale"),
    ),
    "Pages": (call_with_pages, ("indices", "indptr", "last_page_lens", "seqlens_k", "kv_layout", "longest")),
    "Timing": (Timing, ("warmups", "repeats", "cold_bytes")),
    "OnDevice": (call_on_device, ("address", "shape", "dtype", "strides")),
    "run": (run_plan, ("pointers", "stream", "timing")),
    "addresses": (run_addresses, tuple(POINTERS)),
    "plan": (lambda problem: dispatcher_of("paged").plan(problem), ("problem",)),
    "why": (lambda problem: dispatcher_of("paged").why(problem), ("problem",)),
    "Dispatcher": (
        lambda **changes: Dispatcher(**{"registry": prefill(), "device": FakeDevice(), **changes}),
        ("registry", "device", "order"),
    ),
    "add": (lambda instances: Registry().add(instances), ("instances",)),
    "add_library": (lambda library: Registry().add_library(library), ("library",)),
    "find": (lambda name: prefill().find(name), ("name",)),
    "set_priority": (
        lambda **changes: prefill().set_priority(**{"names": [], "priority": 1, **changes}),
        ("names", "priority"),
    ),
    "read": (lambda file: Registry.read(file), ("file",)),
    "fmha_backward": (
        lambda **changes: fmha_backward(**{
            **dict.fromkeys(("do", "q", "k", "v", "o"), HEADS), "lse": np.zeros((1, 2, 8), np.float32), "dtype": "bf16",
            "dispatcher": dispatcher_of("backward"),
            **changes,
        }),
        ("do", "q", "k", "v", "o", "lse", "dtype", "dbias", "deterministic", "timing", "window", "dispatcher"),
    ),
    "append": (
        lambda **changes: append(**{
            **dict.fromkeys(("q", "knew", "vnew"), HEADS), **dict.fromkeys(("k", "v"), np.zeros((1, 32, 2, 64))),
            "seqlens_k": np.array([3], np.int32), "dtype": "bf16",
            "dispatcher": dispatcher_of("append"), **changes,
        }),
        ("q", "knew", "vnew", "k", "v", "seqlens_k", "dtype", "rope", "cos", "sin", "block_table", "cache_batch_idx",
         "dispatcher"),
    ),
    "chunk_lengths": (
        lambda **changes: chunk_lengths(**{"cu_seqlens_q": SUMS, "cu_seqlens_k": INDPTR, "chunk": 16, **changes}),
        ("cu_seqlens_q", "cu_seqlens_k", "chunk"),
    ),
    "chunk_pages": (
        lambda **changes: chunk_pages(**{"cu_seqlens_q": SUMS, "pages": PAGES, "page_size": 1, "chunk": 16, **changes}),
        ("cu_seqlens_q", "pages", "page_size", "chunk"),
    ),
    "mha_batch_prefill_func": (
        lambda **changes: mha_batch_prefill_func(**{
            "q": Q, "k": K[:, 0], "v": K[:, 0], "cu_seqlens_q": SUMS, "kv_indptr": INDPTR, "dtype": "bf16",
            "kv_page_indices": PAGES.indices, "max_seqlen_q": 40, "max_seqlen_k": 70,
            "dispatcher": dispatcher_of("paged"), **changes,
        }),
        ("q", "k", "v", "cu_seqlens_q", "kv_indptr", "kv_page_indices", "max_seqlen_q", "max_seqlen_k", "dropout_p",
         "softmax_scale", "logits_soft_cap", "window_size", "alibi_slopes", "out", "kv_last_page_lens", "block_table",
         "q_descale", "sink_ptr", "dispatcher"),
    ),
    "unified_attention": (
        lambda **changes: unified_attention(**{
            "q": BITS, "k": CACHE, "v": CACHE, "out": np.zeros_like(BITS), "cu_seqlens_q": SUMS, "max_seqlen_q": 40,
            "seqused_k": np.array([70, 25], np.int32), "max_seqlen_k": 80, "softmax_scale": 0.1, "causal": True,
            "window_size": (-1, -1), "block_table": np.zeros((2, 5), np.int32), "softcap": 0.0, "q_descale": None,
            "k_descale": None, "v_descale": None, "dispatcher": dispatcher_of("pages of 16"), **changes,
        }),
        ("q", "k", "v", "out", "cu_seqlens_q", "max_seqlen_q", "seqused_k", "max_seqlen_k", "softmax_scale",
         "window_size", "block_table", "softcap", "k_descale", "dispatcher"),
    ),
    "FlashInfer": (
        run_wrapper,
        ("qo_indptr", "paged_kv_indptr", "paged_kv_indices", "page_size", "fixed_split_size", "sm_scale", "q",
         "paged_kv_cache", "q_scale", "k_scale", "v_scale", "out", "lse", "sinks"),
    ),
    "merge_state": (
        lambda **changes: merge_state(**{"v_a": Q, "s_a": Q[..., 0], "v_b": Q, "s_b": Q[..., 0], **changes}),
        ("v_a", "s_a", "v_b", "s_b"),
    ),
    "lse_shift": (
        lambda **changes: lse_shift(**{
            "problem": dataclasses.replace(PREFILL, bias="alibi", mask="bottom_right", window_right=0),
            "slopes": np.ones(4), "lengths": [(40, 70), (20, 25)], **changes,
        }),
        ("slopes",),
    ),
    "kernel_set": (
        lambda **changes: kernel_set(**{"family": "fwd", **changes}),
        ("family", "arch", "upstream", "mask_impl", "receipt", "tile", "dtype", "hdim_q"),
    ),
    "TuningDatabase": (lambda file: TuningDatabase(file), ("file",)),
    "flash_attn_varlen_func": (
        lambda **changes: flash_attn_varlen_func(**{
            "q": Q, "k": K[:, 0], "v": K[:, 0], "cu_seqlens_q": SUMS, "cu_seqlens_k": np.array([0, 70, 100], np.int32),
            "max_seqlen_q": 40, "max_seqlen_k": 70, "dtype": "bf16", "dispatcher": dispatcher_of("fwd"), **changes,
        }),
        ("q", "k", "v", "cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "softmax_scale", "window_size", "dispatcher"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("entry", "name"), [(entry, name) for entry, (_, names) in ENTRIES.items() for name in names])
def test_argument_of_any_type_ends_well_or_with_project_s_error(
    entry: str, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)  # some values name a file
    for value in WRONG:
        if value is None and name == "dispatcher":  # the default one
            continue
        with contextlib.suppress(CkPrefillError):
            ENTRIES[entry][0](**{name: value})


@pytest.mark.parametrize(
    ("entry", "changes", "message"),
    [
        ("fmha", {"pages": 5}, "pages is 5: give ckpm.Pages"),
        ("fmha", {"window": (1,)}, "window has 1 values: give 2"),
        ("fmha", {"window": (1, "x")}, "a side of window is 'x': give a whole number"),
        ("fmha", {"timing": 5}, r"timing is 5: give ckpm.Timing\(warmups="),
        ("fmha", {"dispatcher": 5}, "dispatcher is 5: give ckpm.Dispatcher"),
        ("fmha", {"max_seqlen_q": "40"}, "max_seqlen_q is '40': give a whole number"),
        ("fmha", {"stream": "x"}, "stream is 'x': give its address"),
        ("fmha", {"stream": 2**64}, "stream is 18446744073709551616: it must be an address of 64 bits"),
        ("fmha", {"stream": -1}, "stream is -1: it must be an address"),
        ("fmha in fp8", {"descales": (1.0, 1.0)}, "descales has 2 values: give 3"),
        ("fmha in fp8", {"descales": (np.ones(2), 1.0, 1.0)}, r"q_descale is \[2\], not \[1\]"),
        ("fmha in fp8", {"descales": (1.0, None, 1.0)}, "descales of K and V are missing"),
        ("Pages", {"indices": None}, "pages.indices are page numbers"),
        ("run", {"pointers": None}, "give a mapping from names to addresses"),
        ("run", {"pointers": {**POINTERS, "kw": 1}}, "a launch of batch_prefill has no pointer 'kw': it takes q, k, v"),
        ("run", {"stream": 2**64}, "stream is 18446744073709551616"),
        ("addresses", {"q": 2**64}, "q is 18446744073709551616: it must be an address of 64 bits"),
        ("addresses", {"q": -4096}, "q is -4096"),
        ("Timing", {"repeats": -1}, "repeats is -1: give a whole number from 0"),
        ("plan", {"problem": 5}, "the problem is 5: give ckpm.Problem"),
        ("add_library", {"library": 5}, "the library is 5: give the path of a libckpm.so"),
        ("FlashInfer", {"out": MEMORY, "lse": MEMORY.reshape(-1)[:240].reshape(60, 4)}, "overlap: a kernel"),
        ("FlashInfer", {"lse": np.zeros((60, 3), np.float32)}, r"lse is \[60, 3\], not \[60, 4\]"),
        ("FlashInfer", {"paged_kv_cache": np.zeros((7, 16, 2, 128))}, "its second axis is K and V"),
        ("merge_state", {"s_b": Q[:1, :, 0]}, "of the same queries"),
        ("append", {"rope": "iner"}, "rope 'iner' is none of no, inter, half; did you mean"),  # before its cosines
        ("lse_shift", {"lengths": [(40, 70)]}, "the problem has 2 sequences and 4 heads"),
        ("mha_batch_prefill_func", {"window_size": (1,)}, "window_size has 1 values"),
    ],
)  # fmt: skip
def test_wrong_argument_is_named_with_what_to_give(entry: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        ENTRIES[entry][0](**changes)


def test_factors_that_are_no_numbers_are_refused_by_fwd() -> None:
    dispatcher, device = make_dispatcher(Registry(built("fwd", dtype="fp8bf16", hdim_q=128, mode="batch")))
    q = np.zeros((1, 9, 2, 128), np.uint8)
    for scale in (np.ones(2), "x", [1.0]):
        with pytest.raises(ProblemError, match="descales must be a number"):
            fmha(q, q, q, dispatcher=dispatcher, dtype="fp8bf16", descales=(1.0, scale, 1.0))
    assert not device.launched


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_seqlen_k": 70}, r"max_seqlen_k is not read beside pages: give Pages\(longest="),
        ({"cu_seqlens_k": INDPTR}, "cu_seqlens_k is not read beside pages"),
        ({"pages": dataclasses.replace(PAGES, seqlens_k=SUMS[1:])}, "pages.seqlens_k is not read beside a list"),
        (
            {"pages": Pages(indices=np.zeros((2, 70), np.int32), seqlens_k=SUMS[1:], indptr=INDPTR)},
            r"pages.indptr is not read beside a table of \[batch, entry\]",
        ),
        ({"bias": np.zeros((4, 60, 70), np.float32), "alibi_slopes": np.ones(4)}, "alibi_slopes is not read"),
        ({"kv_block_descale": np.ones((100, 2, 2), np.float32)}, "kv_block_descale is not read without descales"),
        ({"cu_seqlens_q": None, "max_seqlen_q": 40}, "max_seqlen_q is not read without cu_seqlens_q"),
    ],
)  # fmt: skip
def test_option_that_no_kernel_reads_is_refused(options: dict[str, Any], message: str) -> None:
    dispatcher, device = make_dispatcher(prefill())
    with pytest.raises(ArgumentError, match=message):
        fmha(**{**PAGED, **options}, dispatcher=dispatcher)
    assert not device.launched
