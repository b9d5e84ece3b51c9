"""Arguments of calls with other packages' names: arrays of NumPy, of a framework or on the device."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckpm.attention.arrays.options import read_number
from ckpm.attention.arrays.pytorch import namespace
from ckpm.attention.arrays.tables import MOST_KEYS, Pages
from ckpm.attention.arrays.tensors import OnDevice, contiguous
from ckpm.base.errors import ArgumentError, ProblemError, demand_type

LOG2_E = 1.4426950408889634  # a natural logarithm times this has base 2


def demand_scale(scale: Any) -> float:
    """A caller's scale for a problem, in which 0 stands for the usual scale, 1 / sqrt(hdim_q). Refuse a caller's 0."""
    number = 0.0 if scale is None else read_number("the scale", scale)
    if scale is not None and number == 0:
        raise ProblemError("a scale of 0 gives each key the same weight, which no kernel does. Give a positive scale.")
    return number


def demand_arrays(axes: int = 1, /, **arrays: Any) -> None:
    """Refuse what has fewer axes."""
    for name, array in arrays.items():
        if not (shape := getattr(array, "shape", ())):
            raise ArgumentError(
                f"{name} is of type {type(array).__name__}, without axes: give a NumPy array, a tensor or OnDevice.",
                kind="dtype",
            )
        if len(shape) < axes:
            raise ArgumentError(f"{name} is {list(shape)}: give an array of {axes} axes.", kind="shape")


def demand_values(axes: int = 1, /, **arrays: Any) -> None:
    """Refuse what has fewer axes, and raw addresses, of which no part can be taken."""
    demand_arrays(axes, **arrays)
    if names := [name for name, array in arrays.items() if isinstance(array, OnDevice)]:
        raise ArgumentError(f"{', '.join(names)}: no part of a raw address can be taken: give arrays.", kind="device")


def demand_layout(name: str, layout: Any) -> None:
    """Refuse a layout of caches that is neither NHD nor HND."""
    demand_type(name, layout, str, "NHD or HND")
    if layout not in ("NHD", "HND"):
        raise ProblemError(f"{name} '{layout}' is none of NHD, HND.")


def mask_options(causal: bool, left: int, right: int) -> dict[str, Any]:
    """Options of a mask with its corner at the bottom right. -1 means open, but causal masks end at the diagonal."""
    masked = causal or (left, right) != (-1, -1)
    return {"mask": "bottom_right" if masked else "no", "window": (left, 0 if causal else right)}


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
    """A cache of [token, head, dim] as pages of one token; a cache in pages unchanged."""
    if len(array.shape) != 3:
        return array
    if not isinstance(array, OnDevice):
        return array[:, None]
    strides = array.strides or contiguous(array.shape)
    shape = array.shape
    return dataclasses.replace(array, shape=(shape[0], 1, *shape[1:]), strides=(strides[0], *strides))


def count_up(size: int, beside: Any) -> Any:
    """The numbers 0 to ``size`` - 1 in int32, on the device of ``beside``.

    They serve as a table of one-token pages in order, and as running sums of one-query sequences.
    """
    library = namespace(beside)
    return library.arange(size, dtype=library.int32, **({} if library is np else {"device": beside.device}))


def as_int32(array: Any) -> Any:
    """A table of int64, as int32; any other table unchanged."""
    demand_arrays(table=array)
    if isinstance(array, OnDevice) or not str(array.dtype).endswith("int64"):
        return array
    return array.astype("int32") if hasattr(array, "astype") else array.int()


def has_fp8(array: Any) -> bool:
    """Return True if the elements of an array have 8 bits."""
    return any(word in str(array.dtype) for word in ("8", "e4m3"))


def can_widen(q: Any, beside: Any) -> bool:
    """Return True if Q has numbers in fp8, not their bits, and ``beside`` is an array of 16-bit floats."""
    arrays = not isinstance(q, OnDevice) and not isinstance(beside, OnDevice)
    return arrays and "float8" in str(q.dtype) and str(beside.dtype).endswith(("bfloat16", "float16"))


def widen(q: Any, scale: Any, beside: Any) -> Any:
    """Q in fp8 times its scale, in the 16-bit dtype of ``beside``."""
    if not can_widen(q, beside):
        raise ArgumentError("a Q in fp8 is widened here: give arrays of float8 and of 16 bits.", kind="dtype")
    wide = q.astype(np.float32) if namespace(q) is np else q.float()
    wide = wide if scale is None else wide * shrink_scale(scale)
    return wide.astype(beside.dtype) if namespace(q) is np else wide.to(beside.dtype)


def is_on_host(array: Any) -> bool:
    """Return True for arrays of NumPy and for tensors of the host."""
    return str(getattr(array, "device", "")) == "cpu"


def shrink_scale(scale: Any) -> Any:
    """A view of one element of a tensor that PyTorch expanded from one number; anything else unchanged."""
    repeats = hasattr(scale, "stride") and scale.ndim > 0 and not any(scale.stride())
    return scale[(slice(0, 1),) * scale.ndim] if repeats else scale


def read_on_host(array: Any) -> NDArray[Any]:
    """Copy a table or mask to the host. Refuse a raw address."""
    if isinstance(array, OnDevice):
        raise ArgumentError(
            "custom masks, and tables beside them, are read on the host, as are those of odd page sizes: give arrays.",
            kind="device",
        )
    return np.asarray(array if namespace(array) is np else array.cpu())


def refuse(call: str, arguments: Mapping[str, Any]) -> None:
    """Refuse values of parameters that are not served. None, False, 0 and "NONE" count as no value."""
    plain = [
        name
        for name, value in arguments.items()
        if value is None or (isinstance(value, int | str) and value in (0, "NONE"))
    ]
    if used := sorted(arguments.keys() - plain):
        raise ProblemError(f"{call} has no {', '.join(used)} here. ckpm.fmha has more options.")


def descales_of(scales: tuple[Any, Any, Any], of_pages: Any) -> tuple[Any, Any, Any] | None:
    """The scales of Q, K and V, checked to come together; None without scales.

    Scales of pages replace K's and V's. A Q of 16 bits with fp8 K and V has no scale.
    """
    of_q, of_k, of_v = (scale is not None for scale in scales)
    if of_pages is not None and (of_k or of_v):
        raise ArgumentError(
            "kv_block_descale comes with q_descale, without k_descale and v_descale; a Q of 16 bits has no q_descale.",
            kind="dtype",
        )
    if of_pages is None and (of_k != of_v or (of_q and not of_k)):
        raise ArgumentError("q_descale, k_descale and v_descale come together.", kind="dtype")
    return scales if of_q or of_k or of_pages is not None else None


def cache_descales(cache: Any, scales: tuple[Any, Any, Any]) -> tuple[Any, Any, Any] | None:
    """The scales of Q, K and V for a cache in fp8; None for a cache in 16 bits.

    A cache in 16 bits takes only scales of 1, which is checked for arrays of the host.
    """
    of_q, of_k, of_v = map(shrink_scale, scales)
    if has_fp8(cache):
        return descales_of((of_q, of_k, of_v), None)
    for scale in (of_q, of_k, of_v):
        if scale is not None and is_on_host(scale) and read_number("a scale", scale.reshape(-1)[0]) != 1:
            raise ArgumentError("k and v of 16 bits have no scales: give 1, or none.", kind="scale")
    return None


def listed_pages(indices: Any, indptr: Any, last_page_lens: Any, page_size: int) -> Pages:
    """Pages of a list. On a GPU the lengths are not read, so a sequence may have all pages."""
    demand_type("the page size", page_size, int | np.integer, "the tokens of a page")
    return Pages(
        indices=indices,
        indptr=indptr,
        last_page_lens=last_page_lens if page_size > 1 else None,
        longest=None if is_on_host(indptr) else min(indices.shape[0] * page_size, MOST_KEYS),
    )
