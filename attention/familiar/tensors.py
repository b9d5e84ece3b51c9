"""Arrays of NumPy, of a framework, or on the device, as the familiar calls need them: views, and new outputs."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

from ckpm.attention.arrays.tensors import OnDevice, contiguous

LOG2_E = 1.4426950408889634  # a natural logarithm times this has base 2


def swap_axes(array: Any, first: int, second: int) -> Any:
    """A view with two axes exchanged."""
    if not isinstance(array, OnDevice):
        return array.swapaxes(first, second)
    order = list(range(len(array.shape)))
    order[first], order[second] = second, first
    strides = array.strides or contiguous(array.shape)
    return dataclasses.replace(
        array, shape=tuple(array.shape[axis] for axis in order), strides=tuple(strides[axis] for axis in order)
    )


def add_page_axis(array: Any) -> Any:
    """A cache of [token, head, dim] as pages of one token; one in pages as it is."""
    if len(array.shape) != 3:
        return array
    if not isinstance(array, OnDevice):
        return array[:, None]
    strides = array.strides or contiguous(array.shape)
    shape = array.shape
    return dataclasses.replace(array, shape=(shape[0], 1, *shape[1:]), strides=(strides[0], *strides))


def empty_like(array: Any, shape: tuple[int, ...], dtype: str = "") -> Any:
    """Memory for an output beside a tensor of PyTorch on its GPU, in its dtype or the named one; None for others."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(array, torch.Tensor) or array.device.type == "cpu":
        return None
    return array.new_empty(shape, dtype=getattr(torch, dtype) if dtype else array.dtype)
