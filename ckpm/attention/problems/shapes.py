"""Check a problem against the rules of the kernel matrix; convert between problems and CK's testing shapes."""

from __future__ import annotations

from typing import Any

from ckpm.matrix.configurations.configuration import Configuration
from ckpm.matrix.configurations.report import findings
from ckpm.matrix.problems.problem import PAGED, Problem
from ckpm.matrix.problems.testing import ListedShape

_RULE_MASKS = {"window": "generic"}
_SAME = ("batch", "seqlen_q", "seqlen_k", "nhead_q", "nhead_k", "hdim_q", "hdim_v", "dtype", "mask", "bias", "lse")


def broken_rules(problem: Problem) -> list[str]:
    """The errors that `ckpm validate` reports for the problem, a line each.

    A problem has no algorithm, so rules about it find nothing. Rules that some kernel of CK breaks (``contradiction``)
    are left out: the registry decides whether such a kernel exists.
    """
    p = problem
    values: dict[str, Any] = {
        "arch": p.arch, "family": p.family, "dtype": p.dtype, "mode": p.mode, "hdim_q": p.hdim_q, "hdim_v": p.hdim_v,
        "vlayout": p.vlayout[:1], "mask": _RULE_MASKS.get(p.mask, p.mask), "bias": p.bias, "lse": p.lse,
        "logits": p.logits_soft_cap > 0, "dropout": p.p_drop > 0, "qscale": p.qscale, "rope": p.rope,
        "sink": p.sink_size > 0, "paged_kv": p.page_size > 0, "page_size": p.page_size,
    }  # fmt: skip
    all_findings = findings(Configuration(values, {}))
    return [
        f"{finding.text} ({finding.rule}: {finding.reason})"
        for finding in all_findings
        if finding.severity == "error" and not finding.contradiction
    ]


def to_shape(problem: Problem) -> ListedShape:
    """The shape of the testing matrix: the fields that decide which kernels serve the problem."""
    p = problem
    return ListedShape(
        **{name: getattr(p, name) for name in _SAME},
        direction="bwd" if p.family.startswith("bwd") else "fwd",
        layout=p.layout,
        dropout=p.p_drop,
        dbias=p.dbias,
        deterministic=p.deterministic,
        store_randval=p.store_randval,
        logits=p.logits_soft_cap > 0,
        sink=p.sink_size > 0,
        rope=p.rope,
        vlayout=p.vlayout,
        mode=p.mode,
        qscale=p.qscale,
        page_size=p.page_size if p.family == "batch_prefill" else None,
        paged_kv=p.page_size > 0,
        kv_layout=p.kv_layout,
        kv_table=p.kv_table,
    )


def from_shape(shape: ListedShape, family: str, arch: str = "gfx950") -> Problem:
    """A problem of a family from a shape of the testing matrix.

    Fields that the shape leaves open get the family's usual values: batch mode (batch prefill: group) and no scales.
    For families that read pages, pages have 128 tokens (batch prefill: 1, in SGLang's table).

    A shape only turns features on, but a problem has their numbers: a soft cap of 30, a sink of 4 tokens, 2 splits of
    split-KV. No mask has a bound to the left, and only causal masks have a bound to the right. Append-KV has
    ``seqlen_k`` new keys.
    """
    s, batch_prefill = shape, family == "batch_prefill"
    mode = s.mode or ("group" if batch_prefill else "batch")
    page_size = (s.page_size or (1 if batch_prefill else 128)) if family in PAGED or s.paged_kv else 0
    pages = -(-s.seqlen_k // page_size) if page_size else 0
    table = s.kv_table or ("sglang" if batch_prefill or not page_size else "vllm")
    return Problem(
        **{name: getattr(s, name) for name in _SAME},
        family=family,
        arch=arch,
        mode=mode,
        layout=s.layout,
        vlayout=s.vlayout,
        total_q=s.batch * s.seqlen_q if mode == "group" else 0,
        total_k=s.batch * s.seqlen_k if mode == "group" and not page_size else 0,
        p_drop=s.dropout,
        dbias=s.dbias,
        deterministic=s.deterministic,
        store_randval=s.store_randval,
        logits_soft_cap=30.0 if s.logits else 0.0,
        sink_size=4 if s.sink else 0,
        window_left=-1,
        window_right=0 if s.mask in ("top_left", "bottom_right") else -1,
        qscale=s.qscale or "no",
        page_size=page_size,
        pool_pages=s.batch * pages,
        table_width=pages if table == "vllm" else 0,
        kv_layout=s.kv_layout or "linear",
        kv_table=table,
        splits=2 if family == "fwd_splitkv" else 0,
        rope=s.rope,
        seqlen_knew=s.seqlen_k if family == "fwd_appendkv" else 0,
    )
