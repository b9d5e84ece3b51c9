"""Cases of a sweep: each kernel of a call's first stage, on each shape that the kernel serves.

The shapes come from a category of the testing matrix. Without a category each kernel has one shape: the given sizes,
with the kernel's own head dims and features. :func:`tensors` makes the random arrays of a case.
"""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckpm.attention.arrays.options import Options
from ckpm.attention.arrays.tables import Pages
from ckpm.attention.launch.encodings import decode, encode
from ckpm.attention.philox import drawn
from ckpm.attention.reference import TOLERANCES
from ckpm.matrix.keys import Key, example_page
from ckpm.matrix.problems.case import TIERS, SuiteCase
from ckpm.matrix.problems.matching import Matcher, is_tried
from ckpm.matrix.problems.problem import ELEMENT_BYTES, KvLayout
from ckpm.matrix.problems.testing import ListedShape
from ckpm.matrix.sessions import FAMILY_SUITE

_MASKS = {"no": "no", "": "no", "generic": "window"}  # a key's mask -> its shape's; others get top_left
_SEED = 7  # of dropout
_BY_KERNEL = ("hdim_q", "hdim_v", "dtype", "mask", "bias", "dropout", "lse", "logits", "sink", "skip", "mode")


@dataclass(frozen=True, slots=True)
class SweepCase:
    """One kernel of a call's first stage, on one shape. ``shape`` also has the kernel's mode, layouts and pages."""

    shape: ListedShape
    key: Key

    @property
    def identity(self) -> tuple[str, str]:
        """The fields that no two cases of a run share."""
        return self.shape.name, self.key.name


def cases(
    keys: Sequence[Key], shapes: Sequence[ListedShape], shard: Sequence[Key] | None = None
) -> tuple[SweepCase, ...]:
    """Each kernel of one family with each of the shapes that it serves, shape by shape in dispatch order.

    With a ``shard`` of the kernels there are only its cases. ``keys`` are all kernels nevertheless, because the head
    dims of all decide which kernel serves a shape.
    """
    family, matcher = keys[0].family, Matcher(keys)
    names = {key.name for key in (keys if shard is None else shard)}
    return tuple(
        SweepCase(_settle(shape, key), key)
        for shape in shapes
        if is_tried(family, shape)
        for key in matcher(family, shape).kernels
        if key.name in names
    )


def own_cases(keys: Sequence[Key], sizes: ListedShape) -> tuple[SweepCase, ...]:
    """Each kernel with a shape of its own. ``sizes`` gives batch, lengths and heads.

    A kernel that pads no keys gets as many as fill its tiles: the next multiple of kN0.
    """
    kernel_cases = []
    for key in keys:
        shape = dataclasses.replace(sizes, direction="fwd", **_of_key(key))
        if not Matcher([key])(key.family, shape).kernels:
            step = key.tile.bn0 or 1
            shape = dataclasses.replace(shape, seqlen_k=-(-shape.seqlen_k // step) * step)
        kernel_cases.append(SweepCase(_settle(dataclasses.replace(shape, name=_shape_name(shape)), key), key))
    return tuple(kernel_cases)


def _shape_name(shape: ListedShape) -> str:
    """A name of the shape's sizes and of the features that are on."""
    s = shape
    sizes = f"b{s.batch}-q{s.seqlen_q}k{s.seqlen_k}-h{s.nhead_q}x{s.nhead_k}-d{s.hdim_q}x{s.hdim_v}-{s.dtype}"
    features = [
        s.layout.lower() if s.layout != "BHSD" else "",
        *(feature for feature in (s.mask, s.bias) if feature != "no"),
    ]
    features += [name for name in ("lse", "dropout", "logits", "sink", "skip") if getattr(s, name)]
    return "-".join(filter(None, (f"one/{sizes}", *features)))


def _of_key(key: Key) -> dict[str, Any]:
    values: dict[str, Any] = {name: getattr(key, name) for name in _BY_KERNEL}
    return values | {
        "mask": _MASKS.get(key.mask, "top_left"),
        "bias": key.bias or "no",
        "dropout": 0.2 if key.dropout else 0.0,
        "sink": bool(key.sink),
        "skip": bool(key.skip),
    }


def _settle(shape: ListedShape, key: Key) -> ListedShape:
    """The shape with the kernel's mode, layouts and pages. The pages are in its name, too."""
    size = example_page(key.page_size) if key.family == "batch_prefill" else None
    layout, table = key.kv_layout or "linear", key.kv_table or "sglang"
    pages = f"-ps{size}-{layout}-{table}" if size else "-paged" if key.paged_kv else ""
    return dataclasses.replace(
        shape,
        name=f"{shape.name}{pages}",
        mode=key.mode,
        vlayout=key.vlayout or "row",
        qscale=key.qscale or "no",
        paged_kv=bool(pages),
        page_size=size,
        kv_layout=layout,
        kv_table=table,
    )


Floats = NDArray[np.float64]
FAMILIES = ("fwd", "fwd_pagedkv", "fwd_splitkv", "batch_prefill")
_PAGE = 128  # tokens, of fwd's families: a tile of keys lies in one page
_CAP = 30.0
_WINDOW = (60, 7)
_SPLITS = 2
_SINK_TOKENS = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tensors:
    """Arrays of a case. ``q``, ``k`` and ``v`` are the arrays of a call with ``options``.

    ``sequences`` are Q, K and V of each sequence [token, head, dim], ``more`` the reference's other arguments.
    """

    q: Floats
    k: Floats
    v: Floats
    options: Options
    sequences: tuple[Sequence[Floats], Sequence[Floats], Sequence[Floats]]
    more: Mapping[str, Any]


def not_laid_out(case: SweepCase) -> str:
    """The feature of the case that :func:`tensors` lacks; "" if nothing is missing."""
    s, key = case.shape, case.key
    if s.impossible:
        return s.impossible
    if key.family not in FAMILIES:
        return f"launches of {key.family}"
    if s.dtype not in TOLERANCES:
        return f"tensors and tolerances of {s.dtype}"
    if s.vlayout != "row":
        return "column-major V"
    if s.sink and key.family != "batch_prefill":
        return "sink tokens, for which this library has no field"
    if s.qscale not in ("no", "pertensor") or (s.dtype == "fp8bf16" and s.qscale == "no"):
        return f"fp8 with qscale {s.qscale}"
    if s.skip and s.seqlen_q < 2:
        return "a sequence of over one query, as the kernel leaves out shorter ones"
    return ""


def tensors(case: SweepCase, arch: str, *, reference: bool) -> Tensors:
    """The arrays of a case, the same for every kernel that serves the shape.

    ``reference``: with the random bytes of dropout, which only the reference takes.
    """
    s = case.shape
    random = np.random.default_rng(zlib.crc32(s.name.encode()))
    q = _uniform(random, s, arch, s.batch, s.seqlen_q, s.nhead_q, s.hdim_q)
    k = _uniform(random, s, arch, s.batch, s.seqlen_k, s.nhead_k, s.hdim_q)
    v = _uniform(random, s, arch, s.batch, s.seqlen_k, s.nhead_k, s.hdim_v)
    options: dict[str, Any] = {
        "dtype": s.dtype, "family": case.key.family, "mask": s.mask, "dropout": s.dropout,
        "seed": _SEED, "soft_cap": _CAP if s.logits else 0.0, "lse": s.lse,
        "window": _WINDOW if s.mask == "window" else None, "sink_size": _SINK_TOKENS if s.sink else 0,
        "splits": _SPLITS if case.key.family == "fwd_splitkv" else 0,
        "descales": (1.0, 1.0, 1.0) if s.qscale == "pertensor" else None,
    }  # fmt: skip
    if s.mode == "batch":
        options["layout"] = s.layout
    more: dict[str, Any] = {}
    if s.dropout and reference:
        problem = SuiteCase(
            name=s.name, suite=FAMILY_SUITE, tier=TIERS[0], group=case.key.family, nhead_q=s.nhead_q, p_drop=s.dropout,
            seqlens_q=(s.seqlen_q,) * s.batch, seqlens_k=(s.seqlen_k,) * s.batch, seed=_SEED,
        )  # fmt: skip
        more["random_values"] = drawn(problem)
    if s.bias == "bias":
        bias = _uniform(random, s, arch, s.nhead_q, s.batch * s.seqlen_q, s.seqlen_k)
        more["bias"] = np.split(bias, s.batch, axis=1)
        options["bias"] = bias if s.mode == "group" else np.stack(more["bias"])
    elif s.bias == "alibi":
        slopes = 2.0 ** -(1 + np.arange(s.nhead_q) % 8)
        options["alibi_slopes"], more["slopes"] = slopes.astype(np.float32), np.tile(slopes, (s.batch, 1))
    arrays = (_queries(q, s), *_keys(k, v, s, case.key.family, options))
    return Tensors(
        q=arrays[0],
        k=arrays[1],
        v=arrays[2],
        options=Options(**options),
        sequences=(list(q), list(k), list(v)),
        more=more,
    )


def _uniform(random: np.random.Generator, shape: ListedShape, arch: str, *sizes: int) -> Floats:
    """Random numbers of -1 to 1, rounded to the shape's dtype."""
    numbers: Floats = decode(encode(random.uniform(-1, 1, sizes), shape.dtype, arch), shape.dtype, arch)
    return numbers


def _queries(q: Floats, s: ListedShape) -> Floats:
    if s.mode == "group":
        return q.reshape(-1, *q.shape[2:])
    return q.swapaxes(1, 2) if s.layout == "BHSD" else q


def _keys(k: Floats, v: Floats, s: ListedShape, family: str, options: dict[str, Any]) -> tuple[Floats, Floats]:
    """K and V in the layout of the call. Their tables are added to the options."""
    if s.mode == "group":
        options["cu_seqlens_q"] = np.arange(s.batch + 1, dtype=np.int32) * s.seqlen_q
    if s.paged_kv:
        return _to_pages(k, v, s, family, options)
    if s.mode == "group":
        options["cu_seqlens_k"] = np.arange(s.batch + 1, dtype=np.int32) * s.seqlen_k
    return _queries(k, s), _queries(v, s)


def _to_pages(k: Floats, v: Floats, s: ListedShape, family: str, options: dict[str, Any]) -> tuple[Floats, Floats]:
    """K and V in pages, the last page first, with zeros after each sequence's end."""
    is_prefill = family == "batch_prefill"
    size = (s.page_size or 1) if is_prefill else _PAGE
    count = math.ceil(s.seqlen_k / size)
    padding = ((0, 0), (0, count * size - s.seqlen_k), (0, 0), (0, 0))
    of_k, of_v = (np.pad(tensor, padding).reshape(-1, size, *tensor.shape[2:])[::-1] for tensor in (k, v))
    table = np.arange(s.batch * count, dtype=np.int32)[::-1].reshape(s.batch, count)
    lengths = np.full(s.batch, s.seqlen_k, np.int32)
    layout: KvLayout = "vectorized" if is_prefill and s.kv_layout == "vectorized" else "linear"
    if is_prefill and s.kv_table == "sglang":
        options["pages"] = Pages(
            indices=np.ascontiguousarray(table.reshape(-1)),
            indptr=np.arange(s.batch + 1, dtype=np.int32) * count,
            last_page_lens=(lengths - 1) % size + 1 if size > 1 else None,
            kv_layout=layout,
        )
    else:
        options["pages"] = Pages(indices=np.ascontiguousarray(table), seqlens_k=lengths, kv_layout=layout)
    if layout == "vectorized":
        return _vectorize(of_k, of_v, 16 // ELEMENT_BYTES[s.dtype])
    return np.ascontiguousarray(of_k), np.ascontiguousarray(of_v)


def _vectorize(k: Floats, v: Floats, x: int) -> tuple[Floats, Floats]:
    """Pages with ``x`` elements of 16 bytes together: K along the head dim, V along the tokens of a page."""
    pool, page, heads, _ = k.shape
    of_k = k.reshape(pool, page, heads, -1, x).transpose(0, 2, 3, 1, 4)
    of_v = v.reshape(pool, page // x, x, heads, -1).transpose(0, 3, 1, 4, 2)
    return np.ascontiguousarray(of_k), np.ascontiguousarray(of_v)
