"""A case of fwd, paged, split-KV or V3 on a device: tensors uploaded, the plan launched, O and LSE read back.

Tensors of a case lie as [token, head, dim], sequences one after another. An elementwise bias lies as [head, token, key]
with the keys of the longest sequence. :func:`laid_out` returns the arrays for the plan's pointers. K and V of a case
with pages of more than one token lie in a pool each, as [page, token of the page, head, dim].
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckpm.attention.launch.c_abi import Launch, Library
from ckpm.attention.launch.device import Device, Fault
from ckpm.attention.launch.encodings import bits_type
from ckpm.attention.launch.launching import host_buffers, launch_plan
from ckpm.attention.launch.page_tables import block_table, page_table, shares_pages
from ckpm.attention.launch.plan import LaunchPlan
from ckpm.base.errors import ProblemError
from ckpm.matrix.problems.case import SuiteCase

Form = tuple[tuple[int, ...], np.dtype[Any]]  # of an array: shape and type


@dataclass(frozen=True, slots=True, kw_only=True)
class FwdOutcome:
    """``o`` are O's bits [token, head, hdim_v] and ``lse`` [head, token], None without LSE.

    After a refusal or a fault ``o`` is empty and ``lse`` is None. ``random_values`` of each sequence are [head, query,
    key], None without dropout.
    """

    launch: Launch
    fault: Fault | None = None
    o: NDArray[Any]
    lse: NDArray[np.float32] | None
    random_values: tuple[NDArray[Any], ...] | None = None


def pose(case: SuiteCase, family: str, arch: str) -> SuiteCase:
    """The case for a library of a family: pages of one token as a contiguous cache, others with their table's sizes.

    Refuse sinks, column-major V, other tables, and in batch mode several lengths of contiguous keys.
    """
    p, paged = case, case.page_size > 1
    if p.vlayout != "row" or p.sink_size:
        raise ProblemError(f"{p.name}: sinks and column-major V are not laid out for fwd.")
    if p.mode == "batch" and (len({*p.seqlens_q}) > 1 or (len({*p.seqlens_k}) > 1 and not paged)):
        raise ProblemError(f"{p.name}: in batch mode all sequences have one length.")
    if not paged:
        return dataclasses.replace(p, family=family, arch=arch, page_size=0)
    if (p.kv_table, p.kv_layout, p.storage) != ("vllm", "linear", "separate") or shares_pages(p):
        raise ProblemError(
            f"{p.name}: fwd reads a vllm table that names each page once, and linear pages in separate pools."
        )
    table = page_table(p)
    return dataclasses.replace(p, family=family, arch=arch, pool_pages=table.pool_pages, table_width=table.width)


def inputs(problem: SuiteCase) -> dict[str, Form]:
    """Forms of Q, K and V as [token, head, dim], and of the bias if the problem has one."""
    p, kind = problem, np.dtype(bits_type(problem.dtype))
    tokens, keys = sum(p.seqlens_q), sum(p.seqlens_k)
    wanted: dict[str, Form] = {
        "q": ((tokens, p.nhead_q, p.hdim_q), kind),
        "k": ((keys, p.nhead_k, p.hdim_q), kind),
        "v": ((keys, p.nhead_k, p.hdim_v), kind),
    }
    if p.bias == "bias":
        wanted["bias"] = (p.nhead_q, tokens, max(p.seqlens_k)), kind
    elif p.bias == "alibi":
        wanted["bias"] = (p.batch, p.nhead_q) if p.alibi_per_batch else (p.nhead_q,), np.dtype(np.float32)
    return wanted


def check_tensors(
    problem: SuiteCase, wanted: Mapping[str, Form], tensors: Mapping[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    """The wanted tensors, as they lie in memory. Refuse one of another size or type."""
    for name, (shape, dtype) in wanted.items():
        if tensors[name].shape != shape or tensors[name].dtype != dtype:
            raise ProblemError(
                f"{problem.name}: {name} is {tensors[name].dtype}{list(tensors[name].shape)}, not {dtype}{list(shape)}."
            )
    by_rows = ("lse", "bias") if problem.bias == "bias" else ("lse",)
    return {name: by_sequence(problem, tensors[name]) if name in by_rows else tensors[name] for name in wanted}


def by_sequence(p: SuiteCase, rows: NDArray[Any]) -> NDArray[Any]:
    """Convert [head, token, ...] to its order in memory: in batch mode [batch, head, token, ...]."""
    if p.mode == "group":
        return rows
    return np.ascontiguousarray(rows.reshape(p.nhead_q, p.batch, -1, *rows.shape[2:]).swapaxes(0, 1))


def by_head(p: SuiteCase, rows: NDArray[Any]) -> NDArray[Any]:
    """Reverse :func:`by_sequence` for a flat array. A row has one number (LSE) or ``p.seqlen_k``."""
    shape = (p.batch, p.nhead_q, p.seqlen_q, -1) if p.mode == "batch" else (p.nhead_q, p.rows_q, -1)
    rows = rows.reshape(shape)
    if p.mode == "batch":
        rows = rows.swapaxes(0, 1)
    return rows.reshape(p.nhead_q, p.rows_q, -1)


def laid_out(problem: SuiteCase, tensors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The arrays of a launch, by their field of ckpm_fwd_problem."""
    p = problem
    arrays = check_tensors(p, inputs(p), tensors)
    if p.page_size > 1:
        arrays |= pages(p, tensors)
    if p.mode == "group":
        arrays["seqstart_q"] = np.cumsum((0, *p.seqlens_q), dtype=np.int32)
        arrays["seqstart_k"] = np.cumsum((0, *p.seqlens_k), dtype=np.int32)
    return arrays


def pages(problem: SuiteCase, tensors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Arrays of pages: ``k``, ``v``, ``block_table`` and, where it is needed, ``seqlen_k_ptr``.

    All bits of unused slots are set: NaN, except -240 in gfx942's fp8.
    """
    p, table = problem, page_table(problem)
    arrays: dict[str, NDArray[Any]] = {"block_table": block_table(p, table)}
    ends = list(itertools.pairwise(itertools.accumulate(p.seqlens_k, initial=0)))
    for name in ("k", "v"):
        tokens = tensors[name]
        pool = np.full((table.pool_pages, p.page_size, *tokens.shape[1:]), np.iinfo(tokens.dtype).max, tokens.dtype)
        for numbers, (begin, end) in zip(table.pages, ends, strict=True):
            slots = pool[numbers].reshape(-1, *tokens.shape[1:])
            slots[: end - begin] = tokens[begin:end]
            pool[numbers] = slots.reshape(-1, *pool.shape[1:])
        arrays[name] = pool
    if p.mode == "batch" and len({*p.seqlens_k}) > 1:
        arrays["seqlen_k_ptr"] = np.array(p.seqlens_k, np.int32)
    return arrays


def run_attention(
    device: Device, library: Library, problem: SuiteCase, tensors: Mapping[str, NDArray[Any]]
) -> FwdOutcome:
    """Lay out the tensors of a case, and launch it."""
    return launch(device, library, problem, laid_out(problem, tensors))


def launch(device: Device, library: Library, problem: SuiteCase, arrays: Mapping[str, NDArray[Any]]) -> FwdOutcome:
    """Launch the kernel that dispatch chooses, on the ``arrays`` of :func:`laid_out`."""
    p = pose(problem, library.family, device.arch)
    plan = LaunchPlan(p, device, library)
    ended = launch_plan(plan, host_buffers(arrays, {**plan.outputs, **plan.workspaces}), None, plan.outputs)
    kind = np.dtype(np.uint32 if p.dtype in ("fp32", "fp8fp32") else np.uint16)
    if not ended.ran:
        return FwdOutcome(launch=ended.launch, fault=ended.fault, o=np.empty(0, kind), lse=None)
    read = ended.outputs
    return FwdOutcome(
        launch=ended.launch,
        o=read["o"].view(kind).reshape(p.rows_q, p.nhead_q, p.hdim_v),
        lse=by_head(p, read["lse"].view(np.float32))[..., 0] if p.lse else None,
        random_values=random_values(p, read["rand_val"]) if "rand_val" in read else None,
    )


def random_values(problem: SuiteCase, stored: NDArray[np.uint8]) -> tuple[NDArray[Any], ...]:
    """Random values of each sequence [head, query, key]. Tiles that the kernel didn't visit hold poison."""
    p = problem
    tokens = np.split(by_head(p, stored), np.cumsum(p.seqlens_q)[:-1], axis=1)
    return tuple(part[..., :length] for part, length in zip(tokens, p.seqlens_k, strict=True))
