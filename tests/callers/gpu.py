"""A stand-in for PyTorch's GPU: tensors of device "cuda" lie in the host's memory, and streams and events do nothing.

The calls under test copy such tensors to the emulated device and back, so that each call has ended when it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode

from tests.callers.table import ARCH

MEMORY = 8 << 30  # tests that need more skip themselves, on every machine


class OnHost(TorchFunctionMode):  # type: ignore[misc]  # without PyTorch it is Any
    """Replaces the device of each call of PyTorch: "cuda", a GPU's number and ``Tensor.cuda`` mean the host."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        keywords = dict(kwargs or {})
        if func is torch.Tensor.cuda:
            return args[0]
        keywords.pop("pin_memory", None)
        if "device" in keywords:
            keywords["device"] = _on_host(keywords["device"])
        if func is torch.Tensor.to:
            first, *rest = args[1:] or [None]
            args = (args[0], *([] if first is None else [_on_host(first)]), *rest)
        return func(*args, **keywords)


def _on_host(device: Any) -> Any:
    """The host for a GPU, and anything else as it is."""
    of_gpu = (isinstance(device, int) and not isinstance(device, bool)) or str(device).startswith("cuda")
    return "cpu" if of_gpu else device


def _event(*_: Any, **__: Any) -> SimpleNamespace:
    return SimpleNamespace(record=_do_nothing, synchronize=_do_nothing, elapsed_time=lambda other: 0.0)


def _do_nothing(*_: Any, **__: Any) -> None:
    pass


def _functions() -> dict[str, Any]:
    """Replacements of functions of torch.cuda."""
    properties = SimpleNamespace(
        name=f"emulated {ARCH}", gcnArchName=ARCH, multi_processor_count=256, major=9, minor=5,
        total_memory=MEMORY,
    )  # fmt: skip
    stream = SimpleNamespace(cuda_stream=0, synchronize=_do_nothing, wait_stream=_do_nothing)
    return {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_properties": lambda device=None: properties,
        "get_device_capability": lambda device=None: (properties.major, properties.minor),
        "get_device_name": lambda device=None: properties.name,
        "mem_get_info": lambda device=None: (MEMORY, MEMORY),
        "current_stream": lambda device=None: stream,
        "synchronize": _do_nothing,
        "empty_cache": _do_nothing,
        "Event": _event,
    }


@contextmanager
def run_on_host() -> Iterator[None]:
    """Let PyTorch find a GPU that is the host."""
    raw_stream = mock.patch.object(torch._C, "_cuda_getCurrentRawStream", return_value=0, create=True)
    with mock.patch.multiple(torch.cuda, **_functions()), raw_stream, OnHost():
        yield
