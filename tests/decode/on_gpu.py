"""The decode kernels on this machine's GPU, AMD's or NVIDIA's, against float64: PyTorch and Triton are enough.

``python -m tests.decode.on_gpu`` runs 92 problems, two pools of 10 and 18 GB for each of K and V, and times. It prints
a JSON line each, and fails if an error is larger than its bound. Slots that no page names have scales of NaN. A pool
that doesn't fit the GPU is skipped.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import triton

from ckpm.decode import splitk

ROUNDING = 2.0**-8  # of bf16, whose significand has 8 bits
_DEVICE = "cuda"  # PyTorch's name for AMD's GPUs, too
_POOL_SHARE = 2.6  # of both pools with scales and shifts, by the size of a pool


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProblem:
    """Sequences of 1 to ``tokens`` tokens, if ``timed`` all longest. K and V have ``pool_gb`` each; 0: as needed."""

    form: str = "streaming"
    sequences: int = 3
    heads_kv: int = 8
    heads_q: int = 8
    head_dim: int = 128
    groups: int = 4
    splits: int = 8
    page_size: int = 0
    stored: str = "fp8"
    tokens: int = 1024
    block_n: int = 64
    step: int = 32
    warps: int = 1
    pool_gb: int = 0
    timed: bool = False


def problems() -> Iterator[GpuProblem]:
    """Yield both forms on small caches, then the large pools, then the timed problems."""
    layouts = itertools.product(("fp8", "int8"), (0, 1, 16, 64, 1024), ((64, 2), (128, 4), (256, 8)))
    for (stored, page_size, (head_dim, groups)), (heads_kv, heads_q, splits) in itertools.product(
        layouts, ((1, 8, 8), (2, 16, 3), (4, 1, 1))
    ):
        yield GpuProblem(
            stored=stored,
            page_size=page_size,
            head_dim=head_dim,
            groups=groups,
            heads_kv=heads_kv,
            heads_q=heads_q,
            splits=splits,
            tokens=1024 if page_size else 1000,
            step=16 if page_size % 32 else 32,
        )
    yield GpuProblem(form="resident", heads_kv=1, head_dim=64, groups=2, tokens=1000, block_n=32)
    yield GpuProblem(form="resident", heads_kv=1, tokens=1000, block_n=32)
    yield GpuProblem(sequences=2, page_size=64, tokens=4096, pool_gb=10)
    yield GpuProblem(sequences=2, page_size=1, stored="int8", tokens=4096, step=16, pool_gb=18)
    timed = GpuProblem(sequences=64, tokens=8192, timed=True)
    for step, warps in ((32, 1), (32, 4), (16, 1), (64, 1)):
        yield dataclasses.replace(timed, step=step, warps=warps)
    for warps in (1, 4):
        yield dataclasses.replace(timed, form="resident", block_n=128, warps=warps)


def run(problem: GpuProblem) -> dict[str, Any]:
    """Launch a problem; return the largest error as a share of its bound, registers, spills, and time."""
    rows = problem.sequences * problem.heads_kv * problem.heads_q
    q = torch.randn(problem.sequences, rows // problem.sequences, problem.head_dim, device=_DEVICE).bfloat16()
    table, slots = _pages(problem)
    pools = {name: _cache(problem, table, slots) for name in ("k", "v")}
    shortest = problem.tokens if problem.timed else 1
    lengths = torch.linspace(shortest, problem.tokens, problem.sequences).to(torch.int32).to(_DEVICE)
    partial = torch.full((rows, problem.splits, problem.head_dim), torch.nan, device=_DEVICE)
    logsum = torch.full((rows, problem.splits), torch.nan, device=_DEVICE)
    out = torch.full_like(q, torch.nan)
    constants = {
        "HEADS_KV": problem.heads_kv,
        "HEADS_Q": problem.heads_q,
        "HEAD_DIM": problem.head_dim,
        "GROUPS": problem.groups,
        "SPLITS": problem.splits,
        "PAGE_SIZE": problem.page_size,
        "BLOCK_M": 16,
        "BLOCK_N": problem.block_n,
        "num_warps": problem.warps,
        "num_stages": 2,
    }
    if problem.form == "streaming":
        constants |= {"STEP": problem.step, "LEAST_K": 1 if torch.version.hip else 16}
    (k, k_scale, k_shift), (v, v_scale, v_shift) = pools.values()
    arguments = (q, k, v, k_scale, k_shift, v_scale, v_shift, partial, logsum, lengths, table, table.shape[1])
    kernel, grid = getattr(splitk, problem.form), (problem.sequences, problem.heads_kv, problem.splits)
    blocks = triton.next_power_of_2(max(problem.splits, 2))

    def launch() -> Any:
        compiled = kernel[grid](*arguments, problem.head_dim**-0.5 * 1.4426950408889634, **constants)
        splitk.reduction[(rows,)](
            partial, logsum, out, HEAD_DIM=problem.head_dim, SPLITS=problem.splits, BLOCK_SPLITS=blocks, num_warps=1
        )
        return compiled

    compiled = launch()
    result = {
        "worst": round(_worst(problem, q, pools, lengths, table, out), 3),
        "registers": compiled.n_regs,
        "spills": compiled.n_spills,
    }
    if problem.timed:
        result["us"] = round(triton.testing.do_bench(launch, return_mode="median") * 1e3, 1)
    return result


def _pages(problem: GpuProblem) -> tuple[torch.Tensor, int]:
    """Pages of each sequence, or of a contiguous cache its slots in a row, and the number of slots."""
    size = problem.page_size or problem.tokens
    entries = triton.cdiv(problem.tokens, size)
    count = problem.sequences * entries
    if not problem.page_size:  # the table's width is the slots of a sequence
        return torch.empty(problem.sequences, problem.tokens, dtype=torch.int32, device=_DEVICE), count * size
    total = problem.pool_gb * 10**9 // (problem.heads_kv * problem.head_dim * size) or count
    pages = total // 2 + torch.randperm(total - total // 2)[:count] if problem.pool_gb else torch.randperm(count)
    return pages.reshape(problem.sequences, entries).to(torch.int32).to(_DEVICE), total * size


def _slots(problem: GpuProblem, table: torch.Tensor, sequence: int) -> torch.Tensor:
    tokens = torch.arange(problem.tokens, device=_DEVICE)
    if not problem.page_size:
        return sequence * problem.tokens + tokens
    return table[sequence].long()[tokens // problem.page_size] * problem.page_size + tokens % problem.page_size


def _cache(problem: GpuProblem, table: torch.Tensor, slots: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """K or V with its scales and shifts: random numbers in the sequences' slots."""
    shape = (slots, problem.heads_kv, problem.groups)
    stored = torch.full((slots, problem.heads_kv, problem.head_dim), 127, dtype=torch.int8, device=_DEVICE)
    scales, shifts = (torch.full(shape, torch.nan, device=_DEVICE) for _ in range(2))
    for sequence in range(problem.sequences):
        at = _slots(problem, table, sequence)
        values = torch.randn(len(at), problem.heads_kv, problem.groups, problem.head_dim // problem.groups) + 0.5
        values = values.to(_DEVICE)
        low, high = values.amin(-1), values.amax(-1)
        scale, shift = (high - low) / (254 if problem.stored == "int8" else 480), (low + high) / 2
        numbers = (values - shift[..., None]) / scale[..., None]
        numbers = numbers.round().to(torch.int8) if problem.stored == "int8" else numbers.to(_fp8()).view(torch.int8)
        stored[at], scales[at], shifts[at] = numbers.flatten(2), scale, shift
    return (stored if problem.stored == "int8" else stored.view(_fp8())), scales, shifts


def _fp8() -> torch.dtype:
    """The fp8 that the GPU has instructions for."""
    cdna3 = torch.version.hip and "gfx942" in torch.cuda.get_device_properties(0).gcnArchName
    return torch.float8_e4m3fnuz if cdna3 else torch.float8_e4m3fn


def _worst(
    problem: GpuProblem,
    q: torch.Tensor,
    pools: dict[str, tuple[torch.Tensor, torch.Tensor, torch.Tensor]],
    lengths: torch.Tensor,
    table: torch.Tensor,
    out: torch.Tensor,
) -> float:
    """The largest error as a share of its bound.

    The bound: P times V's scale and the output are rounded to bf16, in ``resident`` K and V, too. Rounding of K moves a
    score by up to ``moved``, and a probability by twice that share. Without it, 2^-18 stands for sums in float32.
    """
    worst = 0.0
    for sequence, length in enumerate(lengths.tolist()):
        at = _slots(problem, table, sequence)[:length]
        (k, _), (v, scaled) = (_dequantise(problem, at, *pool) for pool in pools.values())
        queries = q[sequence].double().reshape(problem.heads_kv, problem.heads_q, -1) * problem.head_dim**-0.5
        p = torch.softmax(queries @ k.mT, -1)
        moved = (queries.abs() @ k.abs().mT).amax(-1, keepdim=True)
        moved *= ROUNDING if problem.form == "resident" else 2.0**-18
        right = p @ v
        parts = scaled.abs() + (v.abs() if problem.form == "resident" else 0)
        bound = ROUNDING * (p @ parts + right.abs()) + 2 * moved * (p @ v.abs())
        error = (out[sequence].double().reshape(right.shape) - right).abs() / bound
        worst = max(worst, error.nan_to_num(torch.inf).max().item())
    return worst


def _dequantise(
    problem: GpuProblem, at: torch.Tensor, stored: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Float64 of some slots, (heads_kv, tokens, head_dim), and without the shift."""
    numbers = stored.view(torch.int8)[at].view(stored.dtype).double()
    scaled = numbers.unflatten(2, (problem.groups, -1)) * scale[at].double()[..., None]
    return tuple(each.flatten(2).transpose(0, 1) for each in (scaled + shift[at].double()[..., None], scaled))


def main() -> int:
    torch.manual_seed(0)
    gpu = torch.cuda.get_device_name(0)
    print(json.dumps({"gpu": gpu, "torch": torch.__version__, "triton": triton.__version__}), flush=True)
    wrong = 0
    for problem in problems():
        torch.cuda.empty_cache()
        fits = _POOL_SHARE * problem.pool_gb * 10**9 < torch.cuda.mem_get_info()[0]
        result: dict[str, Any] = run(problem) if fits else {"skipped": "not enough memory"}
        wrong += fits and not result["worst"] <= 1
        print(json.dumps({**dataclasses.asdict(problem), **result}), flush=True)
    print(json.dumps({"wrong": wrong}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
