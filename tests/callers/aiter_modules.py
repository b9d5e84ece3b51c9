"""Stand-ins for the modules of aiter that its tests import, without aiter's own kernels.

Written from what the tests use. ``ckpm.install`` puts this project's functions in the place of theirs. A call that
falls through to a stand-in's own function is skipped with the reason, because aiter's kernels need a GPU.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch

from ckpm.attention.callers import aiter as served
from ckpm.attention.callers.installing import SERVED
from tests.callers.missing import Module

FP8 = torch.float8_e4m3fn  # gfx950's
UNIFIED = ("attention.unified_attention", "unified_attention")  # its module, and the older place


def per_tensor_quant(x: Any, quant_dtype: Any = torch.int8, **_: Any) -> tuple[Any, Any]:
    """Numbers of ``quant_dtype`` whose largest is the format's largest, and what one of them stands for, [1]."""
    largest = torch.finfo(quant_dtype).max if quant_dtype.is_floating_point else torch.iinfo(quant_dtype).max
    scale = x.float().abs().max() / largest
    return (x.float() / scale).to(quant_dtype), scale.view(1)


def metadata_sizes(*_: Any, **__: Any) -> list[tuple[Any, torch.dtype]]:
    """Lengths and dtypes of the tables by which aiter's persistent kernels divide their work: one part, of one tile."""
    return [(2, torch.uint64), *((shape, torch.int32) for shape in (2, (1, 8), 2, (1, 2), 1))]


def fill_metadata(*arguments: Any, **_: Any) -> None:
    """Write one part into the tables of the sizes above, in the order of aiter's own functions."""
    reduce_indptr, _, reduce_partial_map = arguments[-3:]
    reduce_indptr.copy_(torch.tensor([0, 1]))
    reduce_partial_map.zero_()


class _Reasons(logging.Handler):
    """Keeps aiter's function and the reason of the last call that fell through."""

    last = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.last = ": ".join(map(str, record.args)) if isinstance(record.args, tuple) else ""


_REASONS = _Reasons(logging.WARNING)
logging.getLogger("ckpm.attention.callers.installing").addHandler(_REASONS)


def _own_function(name: str) -> Callable[..., Any]:
    """A function that skips the test, with the parameters of the served one of this name, which vLLM looks at."""

    def skip(*_: Any, **__: Any) -> Any:
        pytest.skip(f"refused: {_REASONS.last}")

    skip.__signature__ = inspect.signature(getattr(served, name))  # type: ignore[attr-defined]
    return skip


def modules() -> dict[str, ModuleType]:
    """Stand-ins by name, for sys.modules."""
    own = {name: _own_function(name) for name in SERVED}
    kinds = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32, "fp8": FP8, "i8": torch.int8}
    dtypes = Module("aiter.dtypes", **kinds, d_dtypes=kinds, str2bool=bool, str2Dtype=kinds.__getitem__)
    common = Module("aiter.test_common", perftest=lambda **_: lambda function: function)
    unified = {name: Module(f"aiter.ops.triton.{name}", **own) for name in UNIFIED}
    parts = [dtypes, common, Module("aiter.ops"), Module("aiter.ops.mha", **own), Module("aiter.mla", **own)]
    parts += [Module("aiter.ops.triton"), Module("aiter.ops.triton.attention"), *unified.values()]
    by_name: dict[str, ModuleType] = {
        module.__name__: module for module in [Module("aiter", **own), *parts, Module("pandas")]
    }
    for name, module in by_name.items():
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(by_name[parent], last, module)
    by_name["aiter"].__dict__.update(
        per_tensor_quant=per_tensor_quant, logger=logging.getLogger("aiter"),
        get_ps_metadata_info_v1=metadata_sizes, get_ps_metadata_v1=fill_metadata,
        get_mla_metadata_info_v1=metadata_sizes, get_mla_metadata_v1=fill_metadata,
    )  # fmt: skip
    return by_name
