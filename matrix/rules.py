"""Named reasons for which a combination of axis values is no kernel.

A rule is a function of some fields of a key, named by its parameters; it returns True for what it excludes. Which rules
a dialect applies is said in its table. The docstring's first line is the reason shown by ``python -m matrix why``; the
second paragraph names the place of upstream that the rule mirrors.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from matrix.keys import Tile


@dataclass(frozen=True, slots=True)
class Rule:
    """A named predicate: ``excludes(*values of fields)`` is True for what it keeps out."""

    name: str
    fields: tuple[str, ...]
    reason: str
    source: str
    excludes: Callable[..., bool]


def group_mode_pads_both_seqlens(mode: str, pad: str) -> bool:
    """group mode needs seqlen_q and seqlen_k padding: the length of the next sequence is unknown

    codegen/ops/fmha_batch_prefill.py, get_fwd_blobs: spad and skpad must be set in group mode.
    """
    return mode == "group" and not pad.startswith("pssk")


def logits_soft_cap_without_bias(logits: bool, bias: str) -> bool:
    """a logits soft cap is only built without bias

    codegen/ops/fmha_batch_prefill.py, get_fwd_blobs.
    """
    return logits and bias != "no"


def group_mode_only(mode: str) -> bool:
    """the batch-prefill pipeline problem asserts group mode

    static_assert in BlockFmhaBatchPrefillPipelineProblem; codegen skips every other mode.
    """
    return mode != "group"


def sink_needs_mask(sink: bool, mask: str) -> bool:
    """a sink without a mask can't be dispatched

    codegen/ops/fmha_batch_prefill.py of 2026: sink tokens only extend a window.
    """
    return sink and mask == "no"


def fp8_needs_qscale(dtype: str, qscale: str) -> bool:
    """fp8 kernels are built with per-tensor or KV block scales, never without

    codegen/ops/fmha_batch_prefill.py, get_pipelines.
    """
    return dtype == "fp8bf16" and qscale == "no"


def qscale_needs_fp8(dtype: str, qscale: str) -> bool:
    """scales only exist for fp8

    codegen/ops/fmha_batch_prefill.py, get_pipelines.
    """
    return dtype != "fp8bf16" and qscale != "no"


def fp8_is_inference_only(dtype: str, bias: str, lse: bool, dropout: bool) -> bool:
    """fp8 kernels serve inference only: no bias, no LSE, no dropout

    codegen/ops/fmha_batch_prefill.py, get_pipelines.
    """
    return dtype == "fp8bf16" and (bias != "no" or lse or dropout)


def page_size_1_is_linear(page_size: int, kv_layout: str) -> bool:
    """the vectorized KV layout interleaves tokens of one page, so page size 1 has none

    codegen/ops/fmha_batch_prefill.py, get_fwd_blobs.
    """
    return page_size == 1 and kv_layout != "linear"


def kv_blockscale_within_page(qscale: str, page_size: int, tile: Tile) -> bool:
    """with KV block scales, one loop step of kN0 tokens must stay inside one page (page_size >= kN0)

    codegen/ops/fmha_batch_prefill.py, get_fwd_blobs.
    """
    return qscale == "kv_blockscale" and page_size < tile.bn0


def gload_only_for_small_pages(load: str, page_size: int, tile: Tile) -> bool:
    """64-bit loads are not needed when page_size >= kN0: the SRD is rebased for every page

    codegen/ops/fmha_batch_prefill.py, get_fwd_blobs; rocm-libraries pull request 6653.
    """
    return load == "gload" and page_size >= tile.bn0


def _rule(function: Callable[..., bool]) -> Rule:
    reason, _, source = (inspect.getdoc(function) or "").partition("\n\n")
    fields = tuple(inspect.signature(function).parameters)
    return Rule(function.__name__, fields, reason, " ".join(source.split()), function)


RULES: Mapping[str, Rule] = {
    function.__name__: _rule(function)
    for function in (
        group_mode_pads_both_seqlens,
        logits_soft_cap_without_bias,
        group_mode_only,
        sink_needs_mask,
        fp8_needs_qscale,
        qscale_needs_fp8,
        fp8_is_inference_only,
        page_size_1_is_linear,
        kv_blockscale_within_page,
        gload_only_for_small_pages,
    )
}


def broken(rules: tuple[Rule, ...], values: Mapping[str, Any]) -> list[Rule]:
    """The rules that exclude ``values`` (field name to value)."""
    return [rule for rule in rules if rule.excludes(*(values[name] for name in rule.fields))]
