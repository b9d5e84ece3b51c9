"""K and V as views of one cache, as callers have it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from ckpm.attention.arrays.tensors import OnDevice

# [page, token, head, dim] in two pools, or K's and V's page by turns; the same with heads before tokens; vLLM's packed
# [page, head, token, dims of K and then of V]; vectors of 8 elements
LAYOUTS = (
    "separate",
    "interleaved",
    "heads_first",
    "heads_first_interleaved",
    "packed",
    "vectors",
    "vectors_interleaved",
)


@dataclass(frozen=True, slots=True)
class View:
    """``array`` is a view of the cache, ``offset`` its first element's place there."""

    array: NDArray[Any]
    offset: int

    def on_device(self, address: int) -> OnDevice:
        """The view of a copy of the cache, of 16 bits an element, that lies at ``address``."""
        strides = tuple(step // self.array.itemsize for step in self.array.strides)
        start = address + 2 * self.offset
        return OnDevice(address=start, shape=self.array.shape, dtype="bf16", strides=strides)


def view_latent(cache: NDArray[Any], pool: int, page: int, hdim_v: int) -> tuple[View, View]:
    """K and V of a latent cache of one axis: one head, whose V is the first columns of K."""
    k = cache.reshape(pool, page, 1, -1)
    return View(k, 0), View(k[..., :hdim_v], 0)


def view_cache(cache: NDArray[Any], layout: str, pool: int, page: int, heads: int, hdim: int) -> tuple[View, View]:
    """K and V of a cache of one axis with room for both: [page, token, head, dim], or posing.py's vectorized pages."""
    if layout == "packed":
        both = cache.reshape(pool, heads, page, 2 * hdim).swapaxes(1, 2)
        return View(both[..., :hdim], 0), View(both[..., hdim:], hdim)
    interleaved = layout.endswith("interleaved")
    halves = cache.reshape((pool, 2, -1) if interleaved else (2, pool, -1))
    shapes: list[tuple[int, ...]] = [(page, heads, hdim)] * 2
    if layout.startswith("heads_first"):
        shapes = [(heads, page, hdim)] * 2
    elif layout.startswith("vectors"):
        shapes = [(heads, hdim // 8, page, 8), (heads, page // 8, hdim, 8)]
    views = []
    for at, shape in enumerate(shapes):
        half = halves[:, at] if interleaved else halves[at]
        array = half.reshape(pool, *shape)
        offset = at * (half.shape[1] if interleaved else half.size)
        views.append(View(array.swapaxes(1, 2) if layout.startswith("heads_first") else array, offset))
    return views[0], views[1]
