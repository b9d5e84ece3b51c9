"""A problem step by step: each setter sets a field and returns another builder."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from ckpm.attention.problems.validation import validate
from ckpm.matrix.problems.problem import Problem, Strides


@dataclass(frozen=True, slots=True)
class ProblemBuilder:
    """Build a problem: ``ProblemBuilder().family("fwd").heads(8, 2).lengths(512).mask("top_left", right=0).build()``.

    Fields without a setter's call have the defaults of :class:`Problem`.
    """

    _problem: Problem = field(default_factory=Problem)

    def build(self) -> Problem:
        """Return the problem.

        Raises:
            ProblemError: see attention.problems.validation.validate.
        """
        return validate(self._problem)

    def _with(self, **changes: Any) -> ProblemBuilder:
        return ProblemBuilder(replace(self._problem, **changes))

    def family(self, name: str) -> ProblemBuilder:
        return self._with(family=name)

    def arch(self, name: str) -> ProblemBuilder:
        return self._with(arch=name)

    def dtype(self, name: str) -> ProblemBuilder:
        return self._with(dtype=name)

    def batch(self, sequences: int) -> ProblemBuilder:
        """Set batch mode: all sequences have one length of Q."""
        return self._with(mode="batch", batch=sequences, total_q=0, total_k=0, cu_seqlens=False)

    def group(self, sequences: int, total_q: int, total_k: int = 0) -> ProblemBuilder:
        """Set group mode, with sequences one after another.

        ``total_q`` are the rows of Q of all sequences, ``total_k`` the rows of contiguous K.
        """
        return self._with(mode="group", batch=sequences, total_q=total_q, total_k=total_k)

    def lengths(self, seqlen_q: int, seqlen_k: int | None = None, *, ragged: bool = False) -> ProblemBuilder:
        """Set the lengths of the longest sequence. K's length is Q's by default."""
        return self._with(seqlen_q=seqlen_q, seqlen_k=seqlen_q if seqlen_k is None else seqlen_k, ragged=ragged)

    def heads(self, nhead_q: int, nhead_k: int | None = None) -> ProblemBuilder:
        return self._with(nhead_q=nhead_q, nhead_k=nhead_q if nhead_k is None else nhead_k)

    def hdims(self, hdim_q: int, hdim_v: int | None = None) -> ProblemBuilder:
        return self._with(hdim_q=hdim_q, hdim_v=hdim_q if hdim_v is None else hdim_v)

    def layout(self, name: str) -> ProblemBuilder:
        """Set the layout: BSHD or BHSD."""
        return self._with(layout=name)

    def vlayout(self, name: str) -> ProblemBuilder:
        """Set V's layout: row or col."""
        return self._with(vlayout=name)

    def strides(self, tensor: str, batch: int, nhead: int, row: int) -> ProblemBuilder:
        """Set the strides of q, k, v or o, in elements."""
        others = tuple(pair for pair in self._problem.strides if pair[0] != tensor)
        return self._with(strides=(*others, (tensor, Strides(batch, nhead, row))))

    def mask(self, corner: str, left: int = -1, right: int = -1) -> ProblemBuilder:
        """Set the mask: no, top_left, bottom_right or window, with its window. Causal is a corner with ``right=0``."""
        return self._with(mask=corner, window_left=left, window_right=right)

    def sink(self, tokens: int = 0, *, logits: bool = False) -> ProblemBuilder:
        return self._with(sink_size=tokens, sink_logits=logits)

    def bias(self, kind: str = "bias", *, per_batch: bool = False) -> ProblemBuilder:
        """Set the bias: no, bias (of each query and key) or alibi.

        With ``per_batch`` each sequence has its own slopes.
        """
        return self._with(bias=kind, alibi_per_batch=per_batch)

    def dropout(self, probability: float, seed: int = 0, offset: int = 0, *, store: bool = False) -> ProblemBuilder:
        return self._with(p_drop=probability, dropout_seed=seed, dropout_offset=offset, store_randval=store)

    def lse(self, wanted: bool = True) -> ProblemBuilder:
        return self._with(lse=wanted)

    def soft_cap(self, cap: float) -> ProblemBuilder:
        return self._with(logits_soft_cap=cap)

    def scale(self, scale: float) -> ProblemBuilder:
        """Set the scale of the scores; 0 is 1/sqrt(hdim_q)."""
        return self._with(scale=scale)

    def scales(self, kind: str, descales: tuple[float, float, float] = (1.0, 1.0, 1.0)) -> ProblemBuilder:
        """Set the scales of fp8: no, pertensor or kv_blockscale.

        ``descales`` are the numbers if they don't come as arrays.
        """
        return self._with(qscale=kind, descales=descales)

    def pages(self, size: int, pool: int, *, layout: str = "linear") -> ProblemBuilder:
        """Put K and V in ``pool`` pages of ``size`` tokens, linear or vectorized."""
        return self._with(page_size=size, pool_pages=pool, kv_layout=layout)

    def page_table(self, kind: str, width: int = 0) -> ProblemBuilder:
        """Set the page table: sglang (a flat list) or vllm (rows of ``width`` entries)."""
        return self._with(kv_table=kind, table_width=width)

    def cu_seqlens(self, wanted: bool = True) -> ProblemBuilder:
        return self._with(cu_seqlens=wanted)

    def deterministic(self, wanted: bool = True) -> ProblemBuilder:
        return self._with(deterministic=wanted)

    def dbias(self, wanted: bool = True) -> ProblemBuilder:
        """Compute also the gradient of an elementwise bias."""
        return self._with(dbias=wanted)

    def min_seqlen_q(self, queries: int) -> ProblemBuilder:
        """Leave out sequences with at most so many queries."""
        return self._with(min_seqlen_q=queries)

    def tile(self, rows: int) -> ProblemBuilder:
        """Take a kernel whose tile has so many rows, by name; 0 leaves the tile to dispatch."""
        return self._with(tile_rows=rows)

    def v3(self, use: str) -> ProblemBuilder:
        """Set the use of V3: with on only kernels of V3 serve the problem; off turns V3 off for the launch."""
        return self._with(v3=use)

    def batch_invariant(self, wanted: bool = True) -> ProblemBuilder:
        """Take the same kernel whatever else is in the batch."""
        return self._with(batch_invariant=wanted)

    def splits(self, count: int) -> ProblemBuilder:
        return self._with(splits=count)

    def split_keys(self, keys: int) -> ProblemBuilder:
        """Let a workgroup of batch prefill take so many keys; 0 leaves this to the dispatcher."""
        return self._with(split_keys=keys)

    def new_keys(self, rows: int, rope: str = "no", rotary_dim: int = 0) -> ProblemBuilder:
        """Append rows to a cache; ``rope`` is no, inter or half."""
        return self._with(seqlen_knew=rows, rope=rope, rotary_dim=rotary_dim)
