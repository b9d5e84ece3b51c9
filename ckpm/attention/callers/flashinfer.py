"""FlashInfer's plan and run over a paged KV cache, by its own names (flashinfer/prefill.py, of summer 2026).

NHD caches are [page, token, head, dim], HND caches [page, head, token, dim]. A cache is a pair of tensors, or one
tensor with K and V on its second axis. LSE has base 2 and is [query token, head], as FlashInfer returns it. NHD caches
with page sizes that no kernel has are read token by token (single_tokens.py).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from ckpm.attention.arrays.options import read_number
from ckpm.attention.arrays.outputs import demand_apart
from ckpm.attention.arrays.pytorch import padded_list, span_of
from ckpm.attention.arrays.tables import Pages
from ckpm.attention.arrays.tensors import OnDevice
from ckpm.attention.call import Attention, fmha
from ckpm.attention.callers.custom_masks import bias_of
from ckpm.attention.callers.graphs import FixedTables
from ckpm.attention.callers.single_tokens import TokenTables, has_kernels, single_tokens, token_view
from ckpm.attention.callers.tensors import LOG2_E, demand_arrays, demand_layout, demand_scale, refuse, swap_axes
from ckpm.attention.dispatcher import Dispatcher
from ckpm.base.errors import ArgumentError, NoKernelError, ProblemError, demand_type
from ckpm.matrix.keys import MIXED_DTYPES
from ckpm.matrix.problems.problem import STEP

_DTYPES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float8_e4m3fn": "fp8bf16"}
_DTYPES |= {"float8_e4m3fnuz": "fp8bf16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    """State that ``plan`` leaves: options of every run, and the sizes that its arrays must have."""

    options: dict[str, Any]
    nhead_q: int
    cache: tuple[int, int]  # tokens of a page, heads
    hdims: tuple[int, int]
    tokens: TokenTables | None  # of pages that no kernel has


def _dtype_name(data_type: Any) -> str:
    """The name of a dtype: a string, torch's, or NumPy's dtype or class."""
    return str(getattr(data_type, "__name__", data_type)).rpartition(".")[2]


def _mask(causal: bool, window_left: int, *, custom: bool = False) -> dict[str, Any]:
    """Options of a mask. A custom mask replaces the causal mask, and needs kernels with a mask.

    Kernels without a mask divide by the sum of a row's weights, which is 0 if the row sees no key.
    """
    demand_type("window_left", window_left, int, "a number of keys, -1 for all")
    causal = causal and not custom
    masked = causal or custom or window_left >= 0
    return {"mask": "bottom_right" if masked else "no", "window": (window_left, 0 if causal else -1)}


def _splits(fixed: int | None, page_size: int, disabled: bool, *, custom: bool) -> dict[str, Any]:
    """Options of splits that don't depend on the batch. Kernels split at multiples of STEP, and never with a bias."""
    keys = max(fixed or 0, 0) * page_size
    taken = keys % STEP == 0 and not disabled and not custom
    return {"batch_invariant": disabled or keys > 0, "split_keys": keys if taken else 0}


def _kernel_dtype(q_data_type: Any, kv_data_type: Any, o_data_type: Any) -> str:
    """Return the kernels' dtype. Refuse dtypes that no kernel reads."""
    word = _dtype_name(q_data_type)
    if word not in _DTYPES:
        raise ProblemError(f"q_data_type {q_data_type} is none of {', '.join(_DTYPES)}.")
    written = "bfloat16" if _DTYPES[word] == "fp8bf16" else word
    dtype, of_kv = _DTYPES[word], word if kv_data_type is None else _dtype_name(kv_data_type)
    if f"{dtype}kvfp8" in MIXED_DTYPES and _DTYPES.get(of_kv) == "fp8bf16":
        dtype, of_kv = f"{dtype}kvfp8", word
    for name, data_type, served in (("kv_data_type", of_kv, word), ("o_data_type", o_data_type, written)):
        if data_type is not None and _dtype_name(data_type) != served:
            raise ProblemError(f"{name} {_dtype_name(data_type)} is not served with q_data_type {word}: {served}.")
    return dtype


def _take_scales(options: dict[str, Any], scales: tuple[Any, ...], hdim_q: int) -> float:
    """Add the scales of Q, K and V to a call's options. Return the factor of O that no kernel applies."""
    if options["dtype"] == "fp8bf16":
        options["descales"] = scales
        return 1.0
    of_q, of_k, of_o = scales
    if options["dtype"] in MIXED_DTYPES:
        options["descales"], of_k, of_o = (None, of_k, of_o), 1.0, 1.0
    of_q, of_k, of_o = (
        read_number(f"{name}_scale", scale) for name, scale in zip("qkv", (of_q, of_k, of_o), strict=True)
    )
    if of_q * of_k != 1:
        options["scale"] = (options["scale"] or hdim_q**-0.5) * of_q * of_k
    return float(of_o)


def _demand_form(base: str, layout: str) -> None:
    """Refuse a base or a layout of LSE that FlashInfer lacks."""
    for value, choices in ((base, ("log2", "ln")), (layout, ("NH", "HN"))):
        if value not in choices:
            raise ProblemError(f"the LSE's base or layout '{value}' is none of {', '.join(choices)}.")


def _in_form(lse: Any, base: str, layout: str) -> Any:
    """A natural LSE [head, query token] in a base and a layout: NH is [query token, head]."""
    of_base = lse if base == "ln" else lse * LOG2_E
    return of_base if layout == "HN" else swap_axes(of_base, 0, 1)


def _check_lse(lse: Any, q: Any, out: Any, layout: str) -> None:
    """Refuse an array for LSE of another shape than Q's in a layout, or that overlaps O's."""
    demand_arrays(lse=lse)
    shape = list(q.shape[:2]) if layout == "NH" else [q.shape[1], q.shape[0]]
    if list(lse.shape) != shape:
        raise ArgumentError(f"lse is {list(lse.shape)}, not {shape}, as Q in lse_layout '{layout}'.", kind="shape")
    if out is not None and not isinstance(out, OnDevice):
        demand_apart({"o": span_of(out), "lse": span_of(lse)})


class BatchPrefillWithPagedKVCacheWrapper:
    """``plan`` once for a batch, then ``run`` for each layer.

    Workspaces are the dispatcher's. Parameters that only choose among FlashInfer's own kernels change nothing:
    workspace, backend, programmatic launches.
    """

    def __init__(
        self,
        float_workspace_buffer: Any = None,
        kv_layout: str = "NHD",
        use_cuda_graph: bool = False,
        qo_indptr_buf: Any = None,
        paged_kv_indptr_buf: Any = None,
        paged_kv_indices_buf: Any = None,
        paged_kv_last_page_len_buf: Any = None,
        custom_mask_buf: Any = None,
        mask_indptr_buf: Any = None,
        backend: str = "auto",
        jit_args: Any = None,
        jit_kwargs: Any = None,
        *,
        dispatcher: Dispatcher | None = None,
    ) -> None:
        """Keep the buffers, into which plans with ``use_cuda_graph`` copy their tables (graphs.py)."""
        del float_workspace_buffer, jit_kwargs, custom_mask_buf, mask_indptr_buf, backend
        demand_layout("kv_layout", kv_layout)
        refuse("the wrapper", {"jit_args": jit_args})
        self._layout, self._dispatcher = kv_layout, dispatcher
        buffers = qo_indptr_buf, paged_kv_indptr_buf, paged_kv_indices_buf, paged_kv_last_page_len_buf
        self._fixed = FixedTables(*buffers) if use_cuda_graph else None
        self._planned: _Planned | None = None

    @property
    def is_cuda_graph_enabled(self) -> bool:
        return self._fixed is not None

    def reset_workspace_buffer(self, float_workspace_buffer: Any, int_workspace_buffer: Any) -> None:
        """Do nothing: no buffer is used."""

    # fmt: off
    def plan(
        self, qo_indptr: Any, paged_kv_indptr: Any, paged_kv_indices: Any, paged_kv_last_page_len: Any,
        num_qo_heads: int, num_kv_heads: int, head_dim_qk: int, page_size: int, head_dim_vo: int | None = None,
        custom_mask: Any = None, packed_custom_mask: Any = None, causal: bool = False, pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False, sm_scale: float | None = None, window_left: int = -1,
        logits_soft_cap: float | None = None, rope_scale: float | None = None, rope_theta: float | None = None,
        q_data_type: Any = "float16", kv_data_type: Any = None, o_data_type: Any = None, non_blocking: bool = True,
        prefix_len_ptr: Any = None, token_pos_in_items_ptr: Any = None, token_pos_in_items_len: int = 0,
        max_item_len_ptr: Any = None, seq_lens: Any = None, seq_lens_q: Any = None, block_tables: Any = None,
        max_token_per_sequence: int | None = None, max_sequence_kv: int | None = None,
        fixed_split_size: int | None = None, disable_split_kv: bool = False, uniform_q_len: int | None = None,
        use_token_head_sf: bool = False,
    ) -> None:
        # fmt: on
        """Keep tables and options for all runs.

        Tables on a GPU need both maxima, which FlashInfer would read by a copy to the host. ``seq_lens``,
        ``seq_lens_q`` and ``block_tables`` repeat the other tables for other backends, and ``uniform_q_len`` is a hint.

        With ``disable_split_kv`` or a ``fixed_split_size``, in pages, results don't depend on the batch. Multiples of
        128 keys are split, if a kernel does so. A custom mask replaces the causal mask. It becomes a bias for kernels
        that have one, with 2 bytes for each head, query and key of the longest sequence.
        """
        del non_blocking, seq_lens, seq_lens_q, block_tables, uniform_q_len
        demand_type("page_size", page_size, int, "the tokens of a page")
        demand_type("fixed_split_size", fixed_split_size, int | None, "a number of pages")
        demand_type("max_sequence_kv", max_sequence_kv, int | None, "the keys of the longest sequence")
        demand_type("head_dim_vo", head_dim_vo, int | np.integer | None, "a whole number")
        sizes = {"num_qo_heads": num_qo_heads, "num_kv_heads": num_kv_heads, "head_dim_qk": head_dim_qk}
        for name, size in sizes.items():
            demand_type(name, size, int | np.integer, "a whole number")
        demand_arrays(qo_indptr=qo_indptr, paged_kv_indptr=paged_kv_indptr, paged_kv_indices=paged_kv_indices)
        if page_size > 1 or self._fixed:
            demand_arrays(paged_kv_last_page_len=paged_kv_last_page_len)
        custom = custom_mask is not None or packed_custom_mask is not None
        refuse("plan", {
            "rope_scale": rope_scale, "rope_theta": rope_theta, "pos_encoding_mode": pos_encoding_mode,
            "prefix_len_ptr": prefix_len_ptr, "use_fp16_qk_reduction": use_fp16_qk_reduction,
            "use_token_head_sf": use_token_head_sf,
            "token_pos_in_items_ptr": token_pos_in_items_ptr, "token_pos_in_items_len": token_pos_in_items_len,
            "max_item_len_ptr": max_item_len_ptr, "custom mask with use_cuda_graph": (custom and self._fixed) or None,
        })  # fmt: skip
        tables, bias = (qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len), None
        if custom:
            of_masks = custom_mask, packed_custom_mask, tables, page_size, num_qo_heads, max_sequence_kv
            bias, max_sequence_kv = bias_of(*of_masks, _dtype_name(q_data_type))
        self._planned = _Planned(
            options={
                **self._table_options(tables, page_size, max_token_per_sequence, max_sequence_kv),
                "dtype": _kernel_dtype(q_data_type, kv_data_type, o_data_type), "bias": bias,
                "scale": demand_scale(sm_scale), "soft_cap": logits_soft_cap or 0.0,
                **_splits(fixed_split_size, page_size, disable_split_kv, custom=custom),
                **_mask(causal, window_left, custom=custom),
            },
            nhead_q=num_qo_heads, cache=(page_size, num_kv_heads), hdims=(head_dim_qk, head_dim_vo or head_dim_qk),
            tokens=single_tokens(*tables[1:], page_size),
        )  # fmt: skip

    begin_forward = plan

    def _table_options(
        self, tables: tuple[Any, Any, Any, Any], page_size: int, longest_q: int | None, longest_k: int | None
    ) -> dict[str, Any]:
        """Options of a plan's tables: the caller's own, or copies in the buffers."""
        if self._fixed is not None:
            refuse("plan", {f"page_size {page_size} with use_cuda_graph": not has_kernels(page_size)})
            self._fixed.write(*tables)
            return self._fixed.options(page_size)
        sums, indptr, indices, last = tables
        pages = Pages(
            indices=padded_list(indices),
            indptr=indptr,
            last_page_lens=last if page_size > 1 else None,
            longest=longest_k,
        )
        return {"cu_seqlens_q": sums, "max_seqlen_q": longest_q, "pages": pages}

    def end_forward(self) -> None:
        """Do nothing, as FlashInfer."""

    # fmt: off
    def run(
        self, q: Any, paged_kv_cache: Any, *args: Any, q_scale: Any = None, k_scale: Any = None, v_scale: Any = None,
        out: Any = None, lse: Any = None, return_lse: bool = False, lse_base: str = "log2", lse_layout: str = "NH",
        enable_pdl: bool | None = None, window_left: int | None = None, sinks: Any = None, kv_cache_sf: Any = None,
        skip_softmax_threshold_scale_factor: float | None = None, use_fp16_softmax: bool | None = None,
        uses_spcompress: bool | None = None,
    ) -> Any:
        # fmt: on
        """Return O [query token, head, dim], or (O, LSE) with LSE in the chosen base and layout."""
        del enable_pdl
        _demand_form(lse_base, lse_layout)
        refuse("run", {
            "args": args or None, "kv_cache_sf": kv_cache_sf, "use_fp16_softmax": use_fp16_softmax,
            "skip_softmax_threshold_scale_factor": skip_softmax_threshold_scale_factor,
            "uses_spcompress": uses_spcompress,
        })  # fmt: skip
        if self._planned is None:
            raise ProblemError("run comes after plan.")
        planned = self._planned
        demand_arrays(q=q)
        k, v = self._halves(paged_kv_cache)
        self._check(planned, q, k, v)
        options = {**planned.options, "lse": return_lse, "sink_logits": sinks}
        if planned.tokens is not None:
            (k, of_k), (v, of_v) = token_view(k), token_view(v)
            refuse("run", {"pages of K and V with different strides": of_k != of_v})
            options["pages"] = planned.tokens(of_k)
        if return_lse and isinstance(q, OnDevice):
            raise ArgumentError("LSE of raw addresses stays natural: call ckpm.fmha with lse_out.", kind="device")
        if window_left is not None:
            options |= _mask(options["window"][1] == 0, window_left, custom=options["bias"] is not None)
        scales = tuple(1.0 if scale is None else scale for scale in (q_scale, k_scale, v_scale))
        of_o = _take_scales(options, scales, planned.hdims[0])
        if of_o != 1 and (isinstance(q, OnDevice) or _dtype_name(q.dtype) == "uint16"):
            raise ArgumentError("v_scale of raw addresses or bits can't be applied here: scale V or O.", kind="device")
        if lse is not None:
            _check_lse(lse, q, out, lse_layout)
        done = self._attend(q, k, v, {**options, "out": out})
        o = done.o
        if of_o != 1:
            o *= of_o
        if not return_lse:
            return o
        turned = _in_form(done.lse, lse_base, lse_layout)
        if lse is None:
            return o, turned
        lse[...] = turned
        return o, lse

    run_return_lse = functools.partialmethod(run, return_lse=True)

    # fmt: off
    def forward(
        self, q: Any, paged_kv_cache: Any, causal: bool = False, pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False, k_scale: Any = None, v_scale: Any = None, window_left: int = -1,
        logits_soft_cap: float | None = None, sm_scale: float | None = None, rope_scale: float | None = None,
        rope_theta: float | None = None, *, return_lse: bool = False,
    ) -> Any:
        # fmt: on
        """Run with the mask, cap and scale of this call, which replace the plan's."""
        refuse("forward", {
            "pos_encoding_mode": pos_encoding_mode, "use_fp16_qk_reduction": use_fp16_qk_reduction,
            "rope_scale": rope_scale, "rope_theta": rope_theta,
        })  # fmt: skip
        if self._planned is None:
            raise ProblemError("forward comes after plan.")
        custom = self._planned.options["bias"] is not None
        changes = {"scale": demand_scale(sm_scale), "soft_cap": logits_soft_cap or 0.0}
        changes |= _mask(causal, window_left, custom=custom)
        self._planned = dataclasses.replace(self._planned, options={**self._planned.options, **changes})
        return self.run(q, paged_kv_cache, k_scale=k_scale, v_scale=v_scale, return_lse=return_lse)

    forward_return_lse = functools.partialmethod(forward, return_lse=True)

    def _attend(self, q: Any, k: Any, v: Any, options: dict[str, Any]) -> Attention:
        """Call with the planned splits, or without splits if no kernel has them.

        Lengths and batch have no influence on this.
        """
        if options["split_keys"]:
            with contextlib.suppress(NoKernelError):
                return fmha(q, k, v, dispatcher=self._dispatcher, **options)
        return fmha(q, k, v, dispatcher=self._dispatcher, **{**options, "split_keys": 0})

    def _halves(self, cache: Any) -> tuple[Any, Any]:
        """K and V as [page, token, head, dim]."""
        if not isinstance(cache, tuple):
            demand_arrays(paged_kv_cache=cache)
            if len(cache.shape) != 5 or cache.shape[1] != 2:
                raise ArgumentError(f"paged_kv_cache is {list(cache.shape)}: its second axis is K and V.", kind="shape")
            cache = cache[:, 0], cache[:, 1]
        if len(cache) != 2:
            raise ArgumentError(f"paged_kv_cache has {len(cache)} arrays: give (K, V).", kind="shape")
        k, v = cache
        demand_arrays(k=k, v=v)
        return (k, v) if self._layout == "NHD" else (swap_axes(k, 1, 2), swap_axes(v, 1, 2))

    def _check(self, planned: _Planned, q: Any, k: Any, v: Any) -> None:
        of_qk, of_vo = planned.hdims
        wanted: dict[str, tuple[Any, tuple[int, ...]]] = {"q": (q.shape[1:], (planned.nhead_q, of_qk))}
        wanted |= {"k": (k.shape[1:], (*planned.cache, of_qk)), "v": (v.shape[1:], (*planned.cache, of_vo))}
        for name, (shape, planned_shape) in wanted.items():
            if tuple(shape) != planned_shape:
                raise ArgumentError(
                    f"{name} has {list(shape)} after its first axis, and {list(planned_shape)} was planned.",
                    kind="shape",
                )
