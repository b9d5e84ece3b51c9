"""Libraries of fwd, paged and split-KV for tests that run them on the emulator, their problems, and the comparison."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from kernels import build_command
from kernels.buffers import Inputs
from kernels.build import LIBRARY, Request
from kernels.encodings import from_bf16, to_bf16
from kernels.fwd_launching import FwdOutcome
from kernels.harness import Status
from kernels.settings import cache_folder
from kernels.toolchains import detect
from kernels.upstream import locate
from matrix.problems import Problem
from matrix.selection import Selection
from tests.gpu.reference import attention
from tests.gpu.tolerances import compare_lse, compare_o

CHECKS = dict.fromkeys(("poison", "poison_memory", "late_loads", "lds_races"), True)


def build(work: Path, families: tuple[str, ...], where: str, tier: str = "smoke") -> Path:
    """A library of the default upstream for gfx950: the kernels of a tier that meet a --where expression."""
    request = Request(
        selection=Selection(archs=("gfx950",), families=families, tier=tier, where=(where,)),
        tree=locate("aiter", cache=cache_folder()),
        toolchain=detect("embedded", cache=cache_folder()),
        work=work,
        object_cache=cache_folder() / "objects",
    )
    build_command.run(request, jobs=2, console=Console(file=StringIO()))
    return request.work / request.folder / LIBRARY


def problem(
    seqlen_q: int, seqlen_k: int, nhead_q: int, nhead_k: int, causal: bool, *, batch: int = 1, lse: bool = False
) -> Problem:
    """bf16 with head dim 128 in batch mode."""
    mask = {"mask": "bottom_right", "window_right": 0} if causal else {}
    return Problem(
        name="fwd", suite="batch-prefill", tier="full", group="fwd", mode="batch", seqlens_q=(seqlen_q,) * batch,
        seqlens_k=(seqlen_k,) * batch, nhead_q=nhead_q, nhead_k=nhead_k, lse=lse, **mask,
    )  # fmt: skip


def tensors(p: Problem) -> dict[str, np.ndarray]:
    """Random bits of q, k and v, and of a bias if the problem has one; ALiBi's slopes as powers of two."""
    random = np.random.default_rng([*p.seqlens_q, *p.seqlens_k])
    shapes = {
        "q": (sum(p.seqlens_q), p.nhead_q),
        "k": (sum(p.seqlens_k), p.nhead_k),
        "v": (sum(p.seqlens_k), p.nhead_k),
    }
    found = {name: to_bf16(random.uniform(-2, 2, (*shape, 128))) for name, shape in shapes.items()}
    if p.bias == "bias":
        found["bias"] = to_bf16(random.uniform(-2, 2, (p.nhead_q, sum(p.seqlens_q), max(p.seqlens_k))))
    elif p.bias == "alibi":
        found["bias"] = 2.0 ** -(1 + np.arange(p.batch * p.nhead_q, dtype=np.float32)).reshape(p.batch, p.nhead_q)
    return found


def compared(p: Problem, bits: dict[str, np.ndarray], outcome: FwdOutcome) -> None:
    """O, and LSE if there is one, are as near to the reference as rounding leaves them."""
    assert outcome.launch.status == Status.OK, outcome.launch
    at = {
        name: np.cumsum(lengths)[:-1] for name, lengths in (("q", p.seqlens_q), ("k", p.seqlens_k), ("v", p.seqlens_k))
    }
    parts: dict[str, Any] = {name: tuple(np.split(from_bf16(bits[name]), at[name])) for name in at}
    if p.bias == "bias":
        rows = np.split(from_bf16(bits["bias"]), at["q"], axis=1)
        parts["bias"] = tuple(row[..., :length] for row, length in zip(rows, p.seqlens_k, strict=True))
    elif p.bias == "alibi":
        parts["slopes"] = bits["bias"].astype(np.float64)
    expected = attention(Inputs(problem=p, **parts))
    found = compare_o(p, from_bf16(outcome.o), expected)
    assert found.passed, str(found)
    assert found.worst > 0.02  # the bound isn't so wide that it says nothing
    if p.lse:
        assert outcome.lse is not None
        lse = compare_lse(p, outcome.lse, expected)
        assert lse.passed, str(lse)
