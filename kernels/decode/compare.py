"""``python -m kernels decode``: counts and modelled cycles of both forms, beside what others measured on an MI350."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

import numpy as np
from rich.table import Table

from kernels.base.console import console
from kernels.decode.attention import DEVICE_OPTIONS, SOURCE, decode
from kernels.decode.problem import FORCED, RESIDENT, Cache, Launch, Shape, attention_candidate, quantised
from kernels.guard.compiling import function_of, judge
from kernels.guard.figures import Budget
from kernels.launch.device import EmulatedDevice
from kernels.timing.machine import numbers
from kernels.timing.record import SIMDS
from kernels.timing.replaying import replay
from matrix.base.display import show

ARCH = "gfx950"
_TOKENS, _SPLITS = 1024, 2
SHAPE = Shape(heads_kv=1, heads_q=8, head_dim=128, groups=4, splits=_SPLITS, page_size=0, stored="fp8")
PUBLISHED = (
    "Measured by others on an MI350 (ROCm/xformers pull request 75, of shapes that it doesn't name): 125 us with "
    "512 VGPRs, 56 spills and one wave a SIMD; 105 us with 108 VGPRs, no spill and two waves; bf16 takes 110 us. "
    "What stands above are counts and a model's cycles, not times."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Raises TritonMissingError, DeviceError, MeasureError."""
    function_of(SOURCE, "streaming")  # without Triton nothing else need be started
    device = EmulatedDevice(ARCH, **DEVICE_OPTIONS)
    forms = {"resident": RESIDENT, "streaming": FORCED[ARCH, SHAPE.head_dim]}
    rows = {form: figures(device, form, launch) for form, launch in forms.items()}
    printed = Table("", *rows)
    for name in next(iter(rows.values())):
        printed.add_row(name, *(f"{row[name]:,}" for row in rows.values()))
    console().print(printed)
    show(f"One sequence of {_TOKENS} tokens, head dim 128, 8 heads on a KV head, fp8, 4 groups, {_SPLITS} splits.")
    show(PUBLISHED)
    return 0


def figures(device: EmulatedDevice, form: str, launch: Launch) -> Mapping[str, float]:
    """Of the first stage: what the code object says, counts on the device, and the model's cycles.

    The model has as many copies of a workgroup on a compute unit as the kernel's occupancy allows.
    """
    outcome = judge(function_of(SOURCE, form), attention_candidate(form, SHAPE, launch, ARCH), Budget()).figures
    assert outcome is not None
    copies = max(outcome.waves * SIMDS // launch.num_warps, 1)
    modelled: dict[str, Any] = {}
    q, cache, lengths = _posed()

    def after_first() -> None:
        modelled.update(replay(device, numbers(ARCH), copies)[0])

    device.configure(record={"workgroup": 0})
    done = decode(device, form, SHAPE, launch, q, cache, lengths, after_first)
    device.configure()
    counted = done.counters["kernels"][form]
    tokens = _TOKENS // _SPLITS
    return {
        "VGPRs": outcome.vgpr,
        "spilled VGPRs": outcome.vgpr_spills,
        "waves on a SIMD": outcome.waves,
        "wave-instructions a token": round(sum(counted["instructions"].values()) / _TOKENS, 1),
        "matrix instructions a token": round(counted["instructions"]["mfma"] / _TOKENS, 2),
        "bytes of scratch moved a token": round(counted["scratch_bytes"] / _TOKENS, 1),
        "bytes loaded a token, by all lanes": round(counted["global_load_bytes"] / _TOKENS, 1),
        "workgroups on a compute unit": copies,
        "modelled cycles, all of them": modelled["cycles"],
        "modelled cycles a token": round(modelled["cycles"] / (copies * tokens), 2),
    }


def _posed() -> tuple[Any, Cache, Any]:
    rng = np.random.default_rng(0)
    k, v = (rng.standard_normal((_TOKENS, SHAPE.heads_kv, SHAPE.head_dim)) for _ in range(2))
    (kb, ks, kh), (vb, vs, vh) = (quantised(one, SHAPE.groups, SHAPE.stored, ARCH) for one in (k, v))
    q = rng.standard_normal((1, SHAPE.heads_kv * SHAPE.heads_q, SHAPE.head_dim)).astype(np.float32)
    cache = Cache(k=kb, v=vb, k_scale=ks, k_shift=kh, v_scale=vs, v_shift=vh)
    return q, cache, np.array([_TOKENS], np.int32)
