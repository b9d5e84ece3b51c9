"""A problem of fwd, paged or split-KV on a device: tensors uploaded, kernels launched, O and LSE read back.

Q, K, V and O lie as [token, head, dim], LSE as [batch, head, token] (batch mode) or [head, token] (group mode), the
accumulators of split-KV as [split] of these in float32, with O's as [head, token, dim]. A problem with pages of more
than one token has K and V in a paged cache (fwd_pages.py). An elementwise bias lies as [head, token, key], the tokens
and the longest length of all sequences; ALiBi's slopes as [head], or [batch, head] if each sequence has its own.
Dropout and fp8 are in fwd_features.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckpm.attention.launch.c_abi import Launch, Library, Status
from ckpm.attention.launch.encodings import bits_type
from ckpm.attention.launch.fwd_features import Descales, feature_fields, random_values
from ckpm.attention.launch.fwd_harness import FwdArguments
from ckpm.attention.launch.fwd_pages import page_fields, pages
from ckpm.attention.launch.hip_api import HipApi, Memory
from ckpm.base.errors import HipError, ProblemError
from ckpm.kernels.families.libraries import host
from ckpm.matrix.problems.problem import Problem

Form = tuple[tuple[int, ...], np.dtype[Any]]  # of an array: shape and type
_POISON = 0xFF  # NaN in every format
_MASKS = {"no": 0, "top_left": 1, "bottom_right": 2, "window": 3}
_BIASES = {"no": 0, "bias": 1, "alibi": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class FwdOutcome:
    """``o`` are O's bits [token, head, hdim_v] and ``lse`` [head, token], None without; empty after a refusal.

    ``random_values`` of each sequence are [head, query, key], None without dropout.
    """

    launch: Launch
    o: NDArray[Any]
    lse: NDArray[np.float32] | None
    random_values: tuple[NDArray[Any], ...] | None = None


def fields(problem: Problem, splits: int = 0, descales: Descales | None = None) -> dict[str, int | float | str]:
    """Sizes, strides (in elements) and switches of a launch; ``splits`` 0 is one stage, more is split-KV.

    Raises:
        ProblemError: it asks for what is not laid out here: block scales, sinks, column-major V, a table other than
            :func:`fwd_pages.page_fields` says; ``descales`` don't fit its scales; or it is in batch mode with
            several lengths, which only keys in pages may have.
    """
    p, batch, paged = problem, problem.mode == "batch", problem.page_size > 1
    if p.vlayout != "row" or p.sink_size:
        raise ProblemError(f"{p.name}: sinks and column-major V are not laid out for fwd.")
    if batch and (len({*p.seqlens_q}) > 1 or (len({*p.seqlens_k}) > 1 and not paged)):
        raise ProblemError(f"{p.name}: in batch mode all sequences have one length.")
    longest_q, longest_k = max(p.seqlens_q), max(p.seqlens_k)
    rows = longest_q if batch else sum(p.seqlens_q)
    values: dict[str, int | float | str] = {
        "data_type": p.dtype, "batch": p.batch, "seqlen_q": longest_q, "seqlen_k": longest_k,
        "max_seqlen_q": longest_q, "hdim_q": p.hdim_q, "hdim_v": p.hdim_v, "nhead_q": p.nhead_q, "nhead_k": p.nhead_k,
        "mask_type": _MASKS[p.mask], "window_left": p.window_left, "window_right": p.window_right,
        "bias_type": _BIASES[p.bias], "is_group_mode": int(not batch), "is_v_rowmajor": 1,
        "has_lse": int(p.lse), "has_logits_soft_cap": int(p.logits_soft_cap > 0), "logits_soft_cap": p.logits_soft_cap,
        "scale_s": p.softmax_scale, "scale_p": 1.0, "scale_o": 1.0,
        "nhead_stride_lse": rows, "batch_stride_lse": p.nhead_q * rows if batch else 0,
    }  # fmt: skip
    values |= feature_fields(p, rows, descales)
    for name, heads, hdim, length in (
        ("q", p.nhead_q, p.hdim_q, longest_q),
        ("k", p.nhead_k, p.hdim_q, longest_k),
        ("v", p.nhead_k, p.hdim_v, longest_k),
        ("o", p.nhead_q, p.hdim_v, longest_q),
    ):
        values |= {f"stride_{name}": heads * hdim, f"nhead_stride_{name}": hdim}
        values[f"batch_stride_{name}"] = length * heads * hdim if batch else 0
    if paged:
        values |= page_fields(p)
    if p.bias == "alibi":
        values["stride_bias"] = p.nhead_q if p.alibi_per_batch else 0
    elif p.bias == "bias":
        values |= {"stride_bias": longest_k, "nhead_stride_bias": sum(p.seqlens_q) * longest_k}
        values["batch_stride_bias"] = longest_q * longest_k if batch else 0
    return {**values, **_split_fields(p, splits, rows)} if splits else values


def _split_fields(p: Problem, splits: int, rows: int) -> dict[str, int]:
    """Where each split of split-KV writes its O and LSE, of ``rows`` queries a sequence (all, in group mode)."""
    batch, total = p.mode == "batch", sum(p.seqlens_q)
    return {
        "num_splits": splits,
        "stride_o_acc": p.hdim_v,
        "nhead_stride_o_acc": rows * p.hdim_v,
        "batch_stride_o_acc": p.nhead_q * rows * p.hdim_v if batch else 0,
        "split_stride_o_acc": p.nhead_q * total * p.hdim_v,
        "nhead_stride_lse_acc": rows,
        "batch_stride_lse_acc": p.nhead_q * rows if batch else 0,
        "split_stride_lse_acc": p.nhead_q * total,
    }


def run_attention(
    hip: HipApi,
    library: Library,
    problem: Problem,
    tensors: Mapping[str, NDArray[Any]],
    *,
    splits: int = 0,
    descales: Descales | None = None,
    min_seqlen_q: int = 0,
) -> FwdOutcome:
    """:func:`launch` of :func:`laid_out` tensors."""
    given = laid_out(problem, tensors)
    return launch(hip, library, problem, given, splits=splits, descales=descales, min_seqlen_q=min_seqlen_q)


def inputs(problem: Problem) -> dict[str, Form]:
    """Of Q, K and V as [token, head, dim], sequences one after another, and of the bias if the problem has one."""
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


def checked(
    problem: Problem, wanted: Mapping[str, Form], tensors: Mapping[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    """The tensors that are wanted. Raises ProblemError: one has another size or type."""
    for name, (shape, dtype) in wanted.items():
        if tensors[name].shape != shape or tensors[name].dtype != dtype:
            raise ProblemError(
                f"{problem.name}: {name} is {tensors[name].dtype}{list(tensors[name].shape)}, not {dtype}{list(shape)}."
            )
    return {name: tensors[name] for name in wanted}


def laid_out(problem: Problem, tensors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The arrays of a launch, by their field of ckpm_fwd_problem.

    ``tensors``: bits of q, k, v as [token, head, dim], sequences one after another; ``bias`` if the problem has one.

    Raises:
        ProblemError: a tensor has another size than the problem says.
    """
    p = problem
    arrays = checked(p, inputs(p), tensors)
    if p.page_size > 1:
        arrays |= pages(p, tensors)
    if p.mode == "group":
        arrays["seqstart_q"] = np.cumsum((0, *p.seqlens_q), dtype=np.int32)
        arrays["seqstart_k"] = np.cumsum((0, *p.seqlens_k), dtype=np.int32)
    return arrays


def launch(
    hip: HipApi,
    library: Library,
    problem: Problem,
    given: Mapping[str, NDArray[Any]],
    *,
    splits: int = 0,
    descales: Descales | None = None,
    min_seqlen_q: int = 0,
) -> FwdOutcome:
    """Launch what dispatch chooses. ``given``: see :func:`laid_out`.

    ``min_seqlen_q`` above 0 asks for kernels that leave out sequences with no more queries than that.

    Raises:
        ProblemError: see :func:`fields`.
        HipError: memory ran out, or the device faulted.
    """
    p, numbers = problem, fields(problem, splits, descales)
    if min_seqlen_q:
        numbers |= {"skip_min_seqlen_q": 1, "min_seqlen_q": min_seqlen_q}
    unread = host(library.family).unread
    numbers = {name: value for name, value in numbers.items() if name not in unread}
    tokens, kind = sum(p.seqlens_q), np.dtype(np.uint32 if p.dtype in ("fp32", "fp8fp32") else np.uint16)
    sizes = {"o": tokens * p.nhead_q * p.hdim_v * kind.itemsize}
    if p.lse:
        sizes["lse"] = tokens * p.nhead_q * 4
    if p.p_drop:
        sizes["rand_val"] = tokens * p.nhead_q * max(p.seqlens_k)
    if splits:
        sizes |= {"o_acc": splits * tokens * p.nhead_q * p.hdim_v * 4, "lse_acc": splits * tokens * p.nhead_q * 4}
    with uploaded(hip, given, sizes) as memory:
        addresses = {name: part.address for name, part in memory.items()}
        ended = library.launch(FwdArguments(**numbers, **addresses))
        if ended.status != Status.OK:
            return FwdOutcome(launch=ended, o=np.empty(0, kind), lse=None)
        hip.synchronize()
        o = hip.read(memory["o"]).view(kind).reshape(tokens, p.nhead_q, p.hdim_v)
        lse = hip.read(memory["lse"]).view(np.float32) if p.lse else None
        drawn = random_values(p, hip.read(memory["rand_val"])) if p.p_drop else None
    if lse is not None and p.mode == "batch":
        lse = lse.reshape(p.batch, p.nhead_q, -1).transpose(1, 0, 2)
    lse = None if lse is None else lse.reshape(p.nhead_q, tokens)
    return FwdOutcome(launch=ended, o=o, lse=lse, random_values=drawn)


@contextlib.contextmanager
def uploaded(hip: HipApi, given: Mapping[str, NDArray[Any]], sizes: Mapping[str, int]) -> Iterator[dict[str, Memory]]:
    """Inputs and poisoned outputs on the device; freed at the end whatever happened."""
    memory: dict[str, Memory] = {}
    try:
        for name, array in given.items():
            memory[name] = hip.malloc(array.nbytes)
            hip.write(memory[name], array)
        for name, size in sizes.items():
            memory[name] = hip.malloc(size)
            hip.fill(memory[name], _POISON)
        yield memory
    finally:
        for part in memory.values():
            with contextlib.suppress(HipError):  # of a lost device: the first error is the one to report
                hip.free(part)
