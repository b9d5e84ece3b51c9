"""Cases of a sweep: each kernel, of those that a call runs first, on each shape that it serves.

With a category the shapes are the testing matrix's. Without a category each kernel gets one shape of the given sizes,
with the kernel's own head dims and features.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ckpm.matrix.keys import Key
from ckpm.matrix.problems.matching import Matcher, is_tried
from ckpm.matrix.problems.testing import Shape

_MASKS = {"no": "no", "": "no", "generic": "window"}  # of a key: of a shape; all others serve top_left
_BY_KERNEL = ("hdim_q", "hdim_v", "dtype", "mask", "bias", "dropout", "lse", "logits", "sink", "skip", "mode")


@dataclass(frozen=True, slots=True)
class Case:
    """One kernel, which a library's call runs first, on one shape. ``shape`` leaves nothing open of what it asks."""

    shape: Shape
    key: Key

    @property
    def identity(self) -> tuple[str, str]:
        """The fields that no two cases of a run share."""
        return self.shape.name, self.key.name


def cases(keys: Sequence[Key], shapes: Sequence[Shape], shard: Sequence[Key] | None = None) -> tuple[Case, ...]:
    """Each kernel of one family with each of the shapes that it serves, shape by shape in dispatch order.

    Of a ``shard`` of them its kernels alone: what they serve depends on the head dims that all kernels have.
    """
    family, matcher = keys[0].family, Matcher(keys)
    mine = {key.name for key in (keys if shard is None else shard)}
    return tuple(
        Case(_settle(shape, key), key)
        for shape in shapes
        if is_tried(family, shape)
        for key in matcher(family, shape).kernels
        if key.name in mine
    )


def own_cases(keys: Sequence[Key], sizes: Shape) -> tuple[Case, ...]:
    """Each kernel with a shape of its own. ``sizes`` gives batch, lengths and heads.

    A kernel that pads no keys gets as many as fill its tiles: the next multiple of kN0.
    """
    made = []
    for key in keys:
        shape = dataclasses.replace(sizes, direction="fwd", **_of_key(key))
        if not Matcher([key])(key.family, shape).kernels:
            step = key.tile.bn0 or 1
            shape = dataclasses.replace(shape, seqlen_k=-(-shape.seqlen_k // step) * step)
        made.append(Case(_settle(dataclasses.replace(shape, name=_shape_name(shape)), key), key))
    return tuple(made)


def _shape_name(shape: Shape) -> str:
    """A name that kernels of other features don't share; features that are off are left out."""
    s = shape
    sizes = f"b{s.batch}-q{s.seqlen_q}k{s.seqlen_k}-h{s.nhead_q}x{s.nhead_k}-d{s.hdim_q}x{s.hdim_v}-{s.dtype}"
    words = [s.layout.lower() if s.layout != "BHSD" else "", *(one for one in (s.mask, s.bias) if one != "no")]
    words += [name for name in ("lse", "dropout", "logits", "sink", "skip") if getattr(s, name)]
    return "-".join(filter(None, (f"one/{sizes}", *words)))


def _of_key(key: Key) -> dict[str, Any]:
    values: dict[str, Any] = {name: getattr(key, name) for name in _BY_KERNEL}
    return values | {
        "mask": _MASKS.get(key.mask, "top_left"),
        "bias": key.bias or "no",
        "dropout": 0.2 if key.dropout else 0.0,
        "sink": bool(key.sink),
        "skip": bool(key.skip),
    }


def _settle(shape: Shape, key: Key) -> Shape:
    """The shape with what it leaves open as the kernel has it."""
    paged = bool(key.paged_kv) or key.family == "batch_prefill"
    return dataclasses.replace(
        shape,
        mode=key.mode,
        vlayout=key.vlayout or "row",
        qscale=key.qscale or "no",
        paged_kv=paged,
        page_size=(key.page_size or 1) if key.family == "batch_prefill" else None,
        kv_layout=key.kv_layout or "linear",
        kv_table=key.kv_table or "sglang",
    )
