"""Help for callers with tensors of PyTorch: outputs, the stream, inputs other than Q. PyTorch is optional."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from ckpm.attention.arrays.tensors import WORDS
from ckpm.attention.launch.buffers import PADDING

_NAMES = {word: name for name, word in WORDS.items()}


def _torch_of(array: Any) -> Any:
    """The module of a tensor of PyTorch, None for other arrays."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(array, torch.Tensor) else None


def namespace(array: Any) -> Any:
    """The module whose functions take an array: torch or NumPy."""
    return _torch_of(array) or np


def dtype_of(word: str, beside: Any) -> Any:
    """PyTorch's dtype of a word for tensors ``beside`` a tensor of PyTorch; None beside other arrays."""
    torch = _torch_of(beside)
    return None if torch is None else getattr(torch, _NAMES[word])


def new_like(q: Any, shape: tuple[int, ...], dtype: Any, like_q: bool) -> Any:
    """Memory for an output on the device of a PyTorch tensor."""
    return sys.modules["torch"].empty_like(q) if like_q else q.new_empty(shape, dtype=dtype)


def is_like(array: Any, beside: Any, shape: tuple[int, ...], dtype: Any) -> bool:
    """True for a contiguous tensor of PyTorch on the GPU of ``beside``, with this shape and dtype."""
    try:
        return bool(
            array.shape == shape
            and array.dtype is dtype
            and array.is_contiguous()
            and array.get_device() == beside.get_device()
        )
    except AttributeError:  # no tensor of PyTorch
        return False


def are_together(tensors: Sequence[Any]) -> bool:
    """True if all are tensors of PyTorch on one device, or None."""
    there = [tensor for tensor in tensors if tensor is not None]
    return all(map(_torch_of, there)) and len({tensor.get_device() for tensor in there}) == 1


def on_gpu(array: Any) -> bool:
    """True for a tensor of PyTorch on its GPU."""
    return _torch_of(array) is not None and array.is_cuda


def in_gpu_memory(array: Any) -> bool:
    """True for a tensor of PyTorch on its GPU, and for other libraries' arrays there."""
    return on_gpu(array) or (_torch_of(array) is None and hasattr(array, "__cuda_array_interface__"))


def current_stream(array: Any) -> int:
    """The stream on which PyTorch queues work for a tensor on its GPU; 0, the default stream, for other arrays."""
    torch = _torch_of(array)
    if torch is None or not array.is_cuda:
        return 0
    return int(torch._C._cuda_getCurrentRawStream(array.get_device()))  # no object is made, as in Triton's launches


def span_of(array: Any) -> tuple[int, int]:
    """Address and size in bytes of an array of NumPy or a tensor of PyTorch."""
    if _torch_of(array) is None:
        first, end = np.lib.array_utils.byte_bounds(array)
        return first, end - first
    reach = sum((length - 1) * step for length, step in zip(array.shape, array.stride(), strict=True))
    return array.data_ptr(), (reach + 1) * array.element_size() if array.numel() else 0


def single_precision(value: Any, beside: Any) -> Any:
    """Convert 16-bit arrays to float32, and a plain number to an array on the device of ``beside``."""
    if isinstance(value, int | float):
        if _torch_of(beside) is None:
            return np.full(1, value, np.float32)
        return beside.new_full((1,), value, dtype=dtype_of("fp32", beside))
    if _torch_of(value) is not None:
        return value.float() if value.element_size() == 2 else value
    short = isinstance(value, np.ndarray) and WORDS.get(value.dtype.name) in ("fp16", "bf16")
    return value.astype(np.float32) if short else value


def padded_list(pages: Any) -> Any:
    """Append zeros to a page list of PyTorch on its GPU, because kernels read ahead; return others unchanged.

    If the storage has enough room after the list, the caller has padded it.
    """
    if not on_gpu(pages) or pages.ndim != 1:
        return pages
    size = pages.shape[0]
    room = pages.untyped_storage().nbytes() // pages.element_size() - pages.storage_offset() - size
    if room >= PADDING or not pages.is_contiguous():
        return pages
    padded = pages.new_zeros(size + PADDING)
    padded[:size] = pages
    return padded[:size]
