"""FlashInfer's plan and run over a paged KV cache, by its own names (flashinfer/prefill.py, of summer 2026).

NHD caches are [page, token, head, dim], HND ones [page, head, token, dim]; both tensors, or one with K and V on its
second axis. LSE has base 2 and is [query token, head], as FlashInfer returns it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ckpm.attention.arrays.tables import Pages
from ckpm.attention.arrays.tensors import OnDevice
from ckpm.attention.call import fmha
from ckpm.attention.dispatcher import Dispatcher
from ckpm.attention.familiar.tensors import LOG2_E, empty_like, swap_axes
from ckpm.base.errors import ArgumentError, ProblemError

_LAYOUTS = ("NHD", "HND")
_DTYPES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float8_e4m3fn": "fp8bf16"}
_DTYPES |= {"float8_e4m3fnuz": "fp8bf16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    """State that ``plan`` leaves: options of every run, and the sizes that its arrays must have."""

    options: dict[str, Any]
    nhead_q: int
    cache: tuple[int, int]  # tokens of a page, heads
    hdims: tuple[int, int]


def _asks(name: str, value: Any, q_data_type: Any) -> bool:
    """True if a parameter that is not served has an effect."""
    if name in ("kv_data_type", "o_data_type"):
        return value is not None and value != q_data_type
    plain = value is None or value is False or (isinstance(value, str) and value == "NONE")
    return name != "non_blocking" and not plain


class BatchPrefillWithPagedKVCacheWrapper:
    """``plan`` once for a batch, then ``run`` for each layer. Workspaces are the dispatcher's: a buffer is not used."""

    def __init__(
        self, float_workspace_buffer: Any = None, kv_layout: str = "NHD", *, dispatcher: Dispatcher | None = None
    ) -> None:
        """Raises ProblemError: ``kv_layout`` is neither NHD nor HND."""
        del float_workspace_buffer
        if kv_layout not in _LAYOUTS:
            raise ProblemError(f"kv_layout '{kv_layout}' is none of {', '.join(_LAYOUTS)}.")
        self._layout, self._dispatcher = kv_layout, dispatcher
        self._planned: _Planned | None = None

    def plan(
        self,
        qo_indptr: Any,
        paged_kv_indptr: Any,
        paged_kv_indices: Any,
        paged_kv_last_page_len: Any,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        page_size: int,
        head_dim_vo: int | None = None,
        *,
        causal: bool = False,
        sm_scale: float | None = None,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        q_data_type: Any = "float16",
        max_token_per_sequence: int | None = None,
        max_sequence_kv: int | None = None,
        **others: Any,
    ) -> None:
        """Keep what all runs share. Tables on a GPU need both maxima, which FlashInfer copies to the host to learn.

        Raises:
            ProblemError: another of FlashInfer's parameters is used, or a dtype that no kernel reads.
        """
        if given := sorted(name for name, value in others.items() if _asks(name, value, q_data_type)):
            raise ProblemError(f"plan has no {', '.join(given)} here. Leave it out, or call dispatcher.fmha.")
        word = str(q_data_type).rpartition(".")[2]
        if word not in _DTYPES:
            raise ProblemError(f"q_data_type {q_data_type} is none of {', '.join(_DTYPES)}.")
        pages = Pages(
            indices=paged_kv_indices,
            indptr=paged_kv_indptr,
            last_page_lens=paged_kv_last_page_len if page_size > 1 else None,
            longest=max_sequence_kv,
        )
        masked = causal or window_left >= 0
        self._planned = _Planned(
            options={
                "dtype": _DTYPES[word], "cu_seqlens_q": qo_indptr, "max_seqlen_q": max_token_per_sequence,
                "pages": pages, "mask": "bottom_right" if masked else "no",
                "window": (window_left, 0 if causal else -1), "scale": sm_scale or 0.0,
                "soft_cap": logits_soft_cap or 0.0,
            },
            nhead_q=num_qo_heads,
            cache=(page_size, num_kv_heads),
            hdims=(head_dim_qk, head_dim_vo or head_dim_qk),
        )  # fmt: skip

    def run(
        self,
        q: Any,
        paged_kv_cache: Any,
        *,
        q_scale: float | None = None,
        k_scale: float | None = None,
        v_scale: float | None = None,
        out: Any = None,
        lse: Any = None,
        return_lse: bool = False,
        sinks: Any = None,
    ) -> Any:
        """O [query token, head, dim], or (O, LSE [query token, head] of base 2).

        Raises:
            ProblemError: nothing was planned. ArgumentError: arrays are not as planned.
            ArgumentError: LSE of raw addresses, which can't be turned here; else as :func:`attention.call.fmha`.
        """
        if self._planned is None:
            raise ProblemError("run comes after plan.")
        planned = self._planned
        k, v = self._halves(paged_kv_cache)
        self._check(planned, q, k, v)
        scales = (q_scale, k_scale, v_scale)
        fp8 = planned.options["dtype"] == "fp8bf16"
        if return_lse and isinstance(q, OnDevice):
            raise ArgumentError("LSE of raw addresses stays natural: call dispatcher.fmha with lse_out.", kind="device")
        options = {
            **planned.options, "lse": return_lse, "sink_logits": sinks,
            "descales": tuple(1.0 if one is None else one for one in scales) if fp8 else None,
        }  # fmt: skip
        done = fmha(
            q, k, v, dispatcher=self._dispatcher,
            out=out if out is not None else empty_like(q, (*q.shape[:2], planned.hdims[1]), "bfloat16" if fp8 else ""),
            lse_out=empty_like(q, (q.shape[1], q.shape[0]), "float32") if return_lse else None, **options,
        )  # fmt: skip
        if not return_lse:
            return done.o
        turned = swap_axes(done.lse, 0, 1) * LOG2_E
        if lse is None:
            return done.o, turned
        lse[...] = turned
        return done.o, lse

    def _halves(self, cache: Any) -> tuple[Any, Any]:
        """K and V as [page, token, head, dim]."""
        k, v = cache if isinstance(cache, tuple) else (cache[:, 0], cache[:, 1])
        return (k, v) if self._layout == "NHD" else (swap_axes(k, 1, 2), swap_axes(v, 1, 2))

    def _check(self, planned: _Planned, q: Any, k: Any, v: Any) -> None:
        of_qk, of_vo = planned.hdims
        wanted: dict[str, tuple[Any, tuple[int, ...]]] = {"q": (q.shape[1:], (planned.nhead_q, of_qk))}
        wanted |= {"k": (k.shape[1:], (*planned.cache, of_qk)), "v": (v.shape[1:], (*planned.cache, of_vo))}
        for name, (given, planned_shape) in wanted.items():
            if tuple(given) != planned_shape:
                raise ArgumentError(
                    f"{name} has {list(given)} after its first axis, and {list(planned_shape)} was planned.",
                    kind="shape",
                )
