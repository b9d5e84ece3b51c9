"""Random calls of ``fmha``, and what O and LSE must be: the float64 reference over the same numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckpm.attention import reference
from ckpm.attention.arrays.tables import Pages
from ckpm.attention.arrays.tensors import OnDevice
from ckpm.attention.call import Attention, fmha
from ckpm.attention.dispatcher import Dispatcher
from ckpm.attention.launch.device import Device
from ckpm.attention.launch.encodings import decode, encode
from ckpm.matrix.problems.problem import KvLayout

ARCH = "gfx950"
Floats = NDArray[np.float64]


def numbers(random: np.random.Generator, *shape: int) -> Floats:
    """Uniform in -1..1, as bf16 has them."""
    drawn: Floats = decode(encode(random.uniform(-1, 1, shape), "bf16", ARCH), "bf16", ARCH)
    return drawn


def copy_to_device(device: Device, array: NDArray[Any], dtype: str) -> OnDevice:
    memory = device.hip.malloc(array.nbytes)
    device.hip.write(memory, array)
    return OnDevice(address=memory.address, shape=array.shape, dtype=dtype)


@dataclass(frozen=True, kw_only=True)
class Call:
    """Arrays and options of a call; ``q``, ``k`` and ``v`` of each sequence as [token, head, dim]."""

    arrays: tuple[Floats, Floats, Floats]
    options: dict[str, Any]
    q: list[Floats]
    k: list[Floats]
    v: list[Floats]
    more: dict[str, Any] = field(default_factory=dict)

    def check(self, dispatcher: Dispatcher, **options: Any) -> Attention:
        """Launch and compare. Raises AssertionError with both verdicts; errors of the dispatcher are the caller's."""
        done = fmha(*self.arrays, dispatcher=dispatcher, dtype="bf16", **{**self.options, **options})
        o, lse = reference.attention(done.problem, self.q, self.k, self.v, **self.more)
        got = done.o
        if done.problem.mode == "batch":
            got = np.concatenate(list(got if done.problem.layout == "BSHD" else got.swapaxes(1, 2)))
        verdict = reference.agreement(got, o, "bf16")
        assert verdict.passed, f"O of {done.ran.kernels}: {verdict}\n{done.problem}"
        if done.lse is not None:
            got_lse = done.lse if done.problem.mode == "group" else np.concatenate(list(done.lse), axis=1)
            assert (lse_verdict := reference.agreement(got_lse, lse, "lse")).passed, (
                f"LSE of {done.ran.kernels}: {lse_verdict}"
            )
        return done


def contiguous(
    seed: int,
    lengths: tuple[tuple[int, int], ...],
    heads: tuple[int, int] = (2, 1),
    hdims: tuple[int, int] = (128, 128),
    layout: str = "BSHD",
    **options: Any,
) -> Call:
    """Sequences of ``lengths`` of Q and K: a batch if ``layout`` is given, else one after another."""
    random = np.random.default_rng(seed)
    q = [numbers(random, sq, heads[0], hdims[0]) for sq, _ in lengths]
    k = [numbers(random, sk, heads[1], hdims[0]) for _, sk in lengths]
    v = [numbers(random, sk, heads[1], hdims[1]) for _, sk in lengths]
    if layout:
        q_, k_, v_ = (
            np.stack(sequences) if layout == "BSHD" else np.stack(sequences).swapaxes(1, 2) for sequences in (q, k, v)
        )
        return Call(arrays=(q_, k_, v_), options={"layout": layout, **options}, q=q, k=k, v=v)
    sums = [np.cumsum([0, *(pair[at] for pair in lengths)]).astype(np.int32) for at in (0, 1)]
    arrays = np.concatenate(q), np.concatenate(k), np.concatenate(v)
    return Call(arrays=arrays, options={"cu_seqlens_q": sums[0], "cu_seqlens_k": sums[1], **options}, q=q, k=k, v=v)


def paged_call(
    seed: int,
    lengths: tuple[tuple[int, int], ...],
    page: int = 1,
    table: str = "sglang",
    layout: KvLayout = "linear",
    heads: tuple[int, int] = (2, 1),
    hdim: int = 128,
    **options: Any,
) -> Call:
    """Sequences whose keys lie in scattered pages, NaN in all that no sequence uses."""
    random = np.random.default_rng(seed)
    plain = contiguous(seed, lengths, heads, (hdim, hdim), layout="")
    counts = [-(-sk // page) for _, sk in lengths]
    pool = sum(counts) + 5
    order = random.permutation(pool).astype(np.int32)
    pages = np.split(order[: sum(counts)], np.cumsum(counts)[:-1])
    caches = [np.full((pool, page, heads[1], hdim), np.nan) for _ in "kv"]
    for cache, tokens in zip(caches, (plain.k, plain.v), strict=True):
        for numbers_, sequence in zip(pages, tokens, strict=True):
            whole = cache[numbers_].reshape(-1, heads[1], hdim)
            whole[: len(sequence)] = sequence
            cache[numbers_] = whole.reshape(-1, page, heads[1], hdim)
        cache[order[-5:]] = 0.0  # what a list that ends may lead to: page 0 of some table's end
    if table == "sglang":
        last = np.array([(sk - 1) % page + 1 for _, sk in lengths], np.int32)
        page_table = Pages(
            indices=np.concatenate(pages), indptr=np.cumsum([0, *counts]).astype(np.int32),
            last_page_lens=last if page > 1 else None, kv_layout=layout,
        )  # fmt: skip
    else:
        rows = np.zeros((len(lengths), max(counts)), np.int32)
        for row, entries in zip(rows, pages, strict=True):
            row[: len(entries)] = entries
        page_table = Pages(indices=rows, seqlens_k=np.array([sk for _, sk in lengths], np.int32), kv_layout=layout)
    k, v = caches if layout == "linear" else _vectorize(*caches)
    sums = plain.options["cu_seqlens_q"]
    return Call(
        arrays=(plain.arrays[0], k, v), options={"cu_seqlens_q": sums, "pages": page_table, **options},
        q=plain.q, k=plain.k, v=plain.v,
    )  # fmt: skip


def _vectorize(k: Floats, v: Floats) -> tuple[Floats, Floats]:
    """K and V in vectors of 8 elements (16 bytes): K along the head dim, V along the tokens of a page."""
    pool, page, heads, hdim = k.shape
    of_k = k.reshape(pool, page, heads, hdim // 8, 8).transpose(0, 2, 3, 1, 4)
    of_v = v.reshape(pool, page // 8, 8, heads, hdim).transpose(0, 3, 1, 4, 2)
    return np.ascontiguousarray(of_k), np.ascontiguousarray(of_v)
