"""Make a problem and pointers of the arrays of a call, and check their shapes, dtypes and devices.

Contiguous K and V have the layout of Q:

- BSHD: [batch, token, head, dim]
- BHSD: [batch, head, token, dim]
- group mode: [token, head, dim] with running sums of lengths

Pages are [page, token, head, dim]. Vectorized pages, with x elements of 16 bytes, are:

- K: [page, head, dim / x, token, x]
- V: [page, head, token / x, dim, x]
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckpm.attention.alibi import shifts_lse
from ckpm.attention.arrays.options import Options
from ckpm.attention.arrays.pytorch import single_precision
from ckpm.attention.arrays.tables import TABLES, keys_of_list, lengths_of, longest_of, paged_keys, rows_of_batch
from ckpm.attention.arrays.tensors import (
    FP8,
    Operand,
    contiguous,
    demand_contiguous,
    demand_dtype,
    demand_one_place,
    demand_shape,
    operand,
)
from ckpm.attention.launch.buffers import PADDING
from ckpm.attention.launch.device import Device
from ckpm.attention.launch.encodings import decode, encode, number_type
from ckpm.attention.problems.validation import factor_is_usable, none_of
from ckpm.base.errors import ArgumentError, ProblemError, demand_type
from ckpm.matrix.keys import FP8_KV_DTYPES, MIXED_DTYPES
from ckpm.matrix.problems.problem import ELEMENT_BYTES, Problem, Strides, tensor_dtypes

_FLOATS = ("fp32", "fp64")
_MOST_SCORE = 2.0**31  # in base 2: half a step of a float32 is then 2^7, and exp2 of it is infinite


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Posed:
    """A problem, and its inputs by the C ABI's names. ``floats``: the dtype of Q if it was encoded for the kernel."""

    problem: Problem
    inputs: Mapping[str, Operand]
    on_device: bool
    floats: np.dtype[Any] | None = None

    def offset(self, name: str) -> int:
        """Bytes from an input's address to its pointer: K's and V's block scales alternate, V's follows K's."""
        return 4 if name == "v_descale" and self.problem.qscale == "kv_blockscale" else 0


def kernel_dtype(q: Operand, dtype: str | None, k: Operand | None = None) -> str:
    """The dtype of the kernels: the caller's, or the one that Q and K imply."""
    if dtype is not None:
        demand_type("dtype", dtype, str, "the word of a dtype, such as 'bf16'")
        if dtype not in ELEMENT_BYTES:
            raise ArgumentError(none_of("dtype", dtype, ELEMENT_BYTES), kind="dtype")
        return dtype
    if q.dtype in ("fp16", "bf16") and k is not None and k.dtype in (*FP8, "bits8"):
        return f"{q.dtype}kvfp8"
    if q.dtype in ("fp16", "bf16", "fp32"):
        return q.dtype
    if q.dtype in FP8:
        return "fp8bf16"
    raise ArgumentError(
        f"q is of {q.dtype}, which doesn't say what a kernel makes of it: give dtype='bf16', or another.", kind="dtype"
    )


def encode_operand(operand: Operand, dtype: str, arch: str) -> Operand:
    """Encode floats of the host as bits of a kernel's dtype. Check the dtype of any other operand and return it."""
    if operand.array is not None and operand.dtype in _FLOATS and dtype not in (operand.dtype, "int32"):
        bits = encode(operand.array.astype(np.float64), dtype, arch)
        if bits.itemsize == 4:
            return dataclasses.replace(operand, dtype="fp32", array=bits.view(np.float32))
        return dataclasses.replace(operand, dtype={2: "bits16", 1: "bits8"}[bits.itemsize], array=bits)
    demand_dtype(operand, dtype)
    if operand.dtype in FP8 and (own := number_type("fp8", arch).name.removeprefix("float8_")) != operand.dtype:
        raise ArgumentError(
            f"{operand.name} is of {operand.dtype}, and the kernels of {arch} read {own}: their numbers differ. "
            f"Convert it, or give bits of {own} as uint8.",
            kind="dtype",
        )
    return operand


def pose(device: Device, q: Any, k: Any, v: Any, options: Options) -> Posed:
    """Return the problem of a call, with its arrays.

    Raises:
        ProblemError: an array doesn't fit the other arrays, the options or the device.
    """
    tensors = {"q": operand("q", q, device), "k": operand("k", k, device), "v": operand("v", v, device)}
    kind = kernel_dtype(tensors["q"], options.dtype, tensors["k"])
    if kind in FP8_KV_DTYPES:
        options = dataclasses.replace(options, descales=_descales(kind, options))
    floats = tensors["q"].array.dtype if tensors["q"].array is not None and tensors["q"].dtype in _FLOATS else None
    of_q, of_kv, _ = tensor_dtypes(kind)
    tensors = {
        name: encode_operand(tensor, of_q if name == "q" else of_kv, device.arch) for name, tensor in tensors.items()
    }
    listed = _read_tables(device, options)
    extra = {
        name: encode_operand(operand(name, array, device), word, device.arch)
        for name, (array, word) in _as_read(options.more(kind), q).items()
    }
    extra |= {
        name: _one_number(scale) for name, scale in extra.items() if name.endswith("_descale") and scale.size == 1
    }
    on_device = demand_one_place([*tensors.values(), *listed.values(), *extra.values()])
    sizes = _sizes(tensors["q"], listed, options)
    listed = rows_of_batch(listed, sizes["batch"])
    if options.pages is None:
        sizes |= _contiguous_keys(tensors, listed, options, sizes)
    else:
        # arrays of scores have this length, and known defects of windows and ALiBi depend on it
        windowed = options.window is not None and options.window[0] >= 0
        biased = options.bias is not None or options.alibi_slopes is not None
        exact = windowed or biased or options.dropout > 0 or options.split_keys > 0
        sizes |= paged_keys(tensors, listed, options.pages, kind, sizes, exact=exact)
    features = options.features()
    of_heads = any(scale.size > 1 for name, scale in extra.items() if name in ("k_descale", "v_descale"))
    if kind in MIXED_DTYPES and features["qscale"] == "pertensor" and of_heads:
        features["qscale"] = "perhead"
    problem = Problem(family=options.of_family, arch=device.arch, dtype=kind, **{**sizes, **features})
    if on_device:
        problem = dataclasses.replace(problem, strides=_strides(problem, tensors))
    posed = {**tensors, **_pointers(listed, problem), **extra}
    _check_extra(problem, extra)
    if problem.sink_logits and shifts_lse(problem):
        raise ProblemError(
            "sink logits with ALiBi under a causal mask: kernels compare the sinks with scores that have slope * key "
            "instead of -slope * distance, so that O would be another. Leave one of them out.",
            kind="contradiction",
        )
    return _check_scores(Posed(problem=problem, inputs=posed, on_device=on_device, floats=floats))


def _as_read(more: Mapping[str, tuple[Any, str]], q: Any) -> dict[str, tuple[Any, str]]:
    return {
        name: (single_precision(array, q) if word == "fp32" else array, word) for name, (array, word) in more.items()
    }


def _descales(kind: str, options: Options) -> tuple[Any, Any, Any]:
    """The scales of an fp8 Q, K and V, or of K and V with a Q that has none."""
    mixed = kind in MIXED_DTYPES
    of_q, of_k, of_v = options.descales or (None if mixed else 1.0, 1.0, 1.0)
    if options.kv_block_descale is None and (of_k is None or of_v is None):
        raise ArgumentError("descales of K and V are missing: give both, or kv_block_descale.", kind="scale")
    if mixed and of_q is not None:
        raise ArgumentError("a Q of 16 bits has no q_descale: leave it out, and put its factor in scale.", kind="scale")
    if not mixed and of_q is None:
        raise ArgumentError("q_descale, k_descale and v_descale come together with an fp8 Q.", kind="dtype")
    return of_q, of_k, of_v


def _one_number(operand: Operand) -> Operand:
    """An operand of one number, with any number of axes, reshaped to [1]."""
    array = None if operand.array is None else operand.array.reshape(1)
    return dataclasses.replace(operand, shape=(1,), strides=(1,), array=array)


def sequence_lengths(posed: Posed) -> list[tuple[int, int]]:
    """Queries and keys of each sequence of a call with arrays of the host."""
    p = posed.problem
    arrays = {name: operand.array for name, operand in posed.inputs.items() if operand.array is not None}
    seqlens_q, seqlens_k = np.full(p.batch, p.seqlen_q), np.full(p.batch, p.seqlen_k)
    if "seqstart_q" in arrays:
        seqlens_q = np.diff(arrays["seqstart_q"])
    if "kv_indptr" in arrays:
        last = arrays.get("kv_last_page_lens", p.page_size)
        seqlens_k = keys_of_list(np.diff(arrays["kv_indptr"]), p.page_size, last)
    elif "seqlen_k_ptr" in arrays:
        seqlens_k = arrays["seqlen_k_ptr"]
    elif "seqstart_k" in arrays:
        seqlens_k = np.diff(arrays["seqstart_k"])
    return list(zip(seqlens_q.tolist(), seqlens_k.tolist(), strict=True))


def _read_tables(device: Device, options: Options) -> dict[str, Operand]:
    """The tables of a call, checked for int32 and contiguity."""
    tables = {"cu_seqlens_q": options.cu_seqlens_q, "cu_seqlens_k": options.cu_seqlens_k}
    if options.pages is not None:
        tables |= {name: getattr(options.pages, name) for name in TABLES}
    listed = {name: operand(name, table, device) for name, table in tables.items() if table is not None}
    for table in listed.values():
        demand_dtype(table, "int32")
        if not (table.on_device and len(table.shape) == 2):  # rows of a block table have a stride
            demand_contiguous(table)
    return listed


def _check_extra(p: Problem, extra: Mapping[str, Operand]) -> None:
    """Check shapes and numbers of bias, slopes, scales and sink logits, which have no strides."""
    leading = (p.batch, p.nhead_q) if p.mode == "batch" else (p.nhead_q,)
    shapes: dict[str, tuple[int, ...]] = {"bias": (*leading, p.head_rows, p.seqlen_k), "sink": (p.nhead_q,)}
    if p.bias == "alibi":
        shapes["bias"] = (p.batch, p.nhead_q) if p.alibi_per_batch else (p.nhead_q,)
    shapes |= dict.fromkeys(("q_descale", "k_descale", "v_descale"), (1,))
    if p.qscale == "kv_blockscale":
        shapes |= dict.fromkeys(("k_descale", "v_descale"), (p.pool_pages, p.nhead_k, 2))
    elif p.qscale == "perhead":
        shapes |= dict.fromkeys(("k_descale", "v_descale"), (p.nhead_k,))
    for name, tensor in extra.items():
        demand_shape(tensor, shapes[name])
    scales = {
        name: scale.array for name, scale in extra.items() if name.endswith("_descale") and scale.array is not None
    }
    if p.qscale in ("pertensor", "perhead") and scales:
        of_q = float(scales["q_descale"][0]) if "q_descale" in scales else 1.0
        for of_k, of_v in zip(scales["k_descale"].tolist(), scales["v_descale"].tolist(), strict=True):
            _check_descales(p, of_q, of_k, of_v)
    if p.qscale == "kv_blockscale" and "q_descale" in scales:  # a page may be in no sequence
        _check_descales(p, float(scales["q_descale"].flat[0]), 1.0, 1.0)
    for tensor in extra.values():
        if tensor.on_device:
            demand_contiguous(tensor)


def _check_descales(p: Problem, of_q: float, of_k: float, of_v: float) -> None:
    """Refuse descales with which scores or O wouldn't be numbers."""
    if not (factor_is_usable(of_q) and factor_is_usable(p.softmax_scale * of_q * of_k) and math.isfinite(of_v)):
        raise ArgumentError(
            f"descales {of_q:g}, {of_k:g}, {of_v:g} of Q, K and V with a softmax scale of {p.softmax_scale:g}: Q's and "
            "K's must be positive and their product with it at most 65536, V's finite.",
            kind="scale",
        )


def _check_scores(posed: Posed) -> Posed:
    """Return the call. Refuse host arrays with rows so long that scores may reach _MOST_SCORE: O would be 0 or NaN.

    Soft caps bound scores, and a bias is added to scores in base 2, which are then subtracted without an error.
    """
    p, q = posed.problem, posed.inputs["q"].array
    of_pages = p.page_size > 0 and p.family != "batch_prefill"
    if q is None or p.dtype not in ("fp16", "bf16") or p.logits_soft_cap or p.bias != "no" or of_pages:
        return posed
    limit = _MOST_SCORE / math.log2(math.e)
    for exact in (False, True):
        of_q = _longest_row(q, p, exact)
        of_k = max((_longest_row(keys, p, exact) for keys in _live_keys(posed)), default=0.0)
        if of_q * of_k * p.softmax_scale < limit:
            return posed
    raise ArgumentError(
        f"scores may reach {of_q * of_k * p.softmax_scale:.3g}: rows of q and k have norms of up to {of_q:.3g} and "
        f"{of_k:.3g}, and the scale is {p.softmax_scale:.3g}. From {limit:.3g} on O would be 0 or NaN. Give smaller "
        "numbers or a smaller scale.",
        kind="scale",
    )


def _live_keys(posed: Posed) -> Iterator[NDArray[Any]]:
    """K of the host without pages and slots that no sequence has."""
    p, arrays = posed.problem, {name: operand.array for name, operand in posed.inputs.items()}
    k, table, starts = arrays["k"], arrays.get("kv_page_indices"), arrays.get("kv_indptr")
    assert k is not None, "all are on the host"
    if table is None:
        yield k
        return
    for sequence, (_, keys) in enumerate(sequence_lengths(posed)):
        pages = table[sequence] if starts is None else table[starts[sequence] :]
        page, slot = pages[np.arange(keys) // p.page_size], np.arange(keys) % p.page_size
        yield k[page, slot] if p.kv_layout == "linear" else k[page, :, :, slot]


def _longest_row(rows: NDArray[Any], p: Problem, exact: bool) -> float:
    """The largest norm of rows of Q or K, or a quick bound of it. NaN and infinities count as 0."""
    infinity = encode(np.array(np.inf), p.dtype, p.arch)
    bits = rows.view(np.uint16) & 0x7FFF
    bits[bits >= infinity] = 0
    if not exact:
        return float(decode(bits.max(initial=0), p.dtype, p.arch)) * math.sqrt(p.hdim_q)
    squares = decode(bits.reshape(-1, p.hdim_q), p.dtype, p.arch) ** 2
    return math.sqrt(squares.sum(axis=1).max(initial=0.0))


def _sizes(q: Operand, listed: Mapping[str, Operand], options: Options) -> dict[str, Any]:
    """Batch, heads and lengths from the shape of Q."""
    layout, sums = options.layout, listed.get("cu_seqlens_q")
    if sums is not None:
        if layout != "BSHD":
            raise ArgumentError(
                f"layout '{layout}' with cu_seqlens_q: q is [token, head, dim] then, and O too. Leave layout out.",
                kind="shape",
            )
        if len(q.shape) != 3:
            raise ArgumentError(f"q is {list(q.shape)}: with cu_seqlens_q it must be [token, head, dim].", kind="shape")
        lengths = lengths_of(sums, q.shape[0], "q")
        total, heads, hdim = q.shape
        return {
            "mode": "group", "batch": sums.shape[0] - 1, "total_q": total, "nhead_q": heads, "hdim_q": hdim,
            "seqlen_q": min(longest_of("max_seqlen_q", options.max_seqlen_q, lengths), total) if total else 0,
        }  # fmt: skip
    if len(q.shape) != 4:
        raise ArgumentError(
            f"q is {list(q.shape)}: it must be {layout}, of four axes, or [token, head, dim] with cu_seqlens_q.",
            kind="shape",
        )
    batch, length, heads, hdim = _bshd(q.shape, layout)
    return {
        "mode": "batch", "batch": batch, "seqlen_q": length, "nhead_q": heads, "hdim_q": hdim, "layout": layout,
    }  # fmt: skip


def _bshd(shape: tuple[int, ...], layout: str) -> tuple[int, int, int, int]:
    first, second, third, last = shape
    return (first, third, second, last) if layout == "BHSD" else (first, second, third, last)


def _contiguous_keys(
    tensors: Mapping[str, Operand], listed: Mapping[str, Operand], options: Options, sizes: Mapping[str, Any]
) -> dict[str, Any]:
    """Lengths, heads and dims from the shapes of K and V."""
    layout = options.layout
    k, v = tensors["k"], tensors["v"]
    if sizes["mode"] == "group":
        sums = listed.get("cu_seqlens_k")
        if sums is None or len(k.shape) != 3 or len(v.shape) != 3:
            raise ArgumentError("with cu_seqlens_q, k and v are [token, head, dim], with cu_seqlens_k.", kind="shape")
        demand_shape(sums, (sizes["batch"] + 1,), "batch + 1")
        lengths = lengths_of(sums, k.shape[0], "k", spare=True)
        demand_shape(k, (k.shape[0], k.shape[1], sizes["hdim_q"]), "token, head, dim of q")
        demand_shape(v, (k.shape[0], k.shape[1], v.shape[2]), "token, head of k, dim")
        return {
            "total_k": k.shape[0], "nhead_k": k.shape[1], "hdim_v": v.shape[2],
            "seqlen_k": longest_of("max_seqlen_k", options.max_seqlen_k, lengths),
        }  # fmt: skip
    if len(k.shape) != 4 or len(v.shape) != 4:
        raise ArgumentError(f"k is {list(k.shape)} and v {list(v.shape)}: both must be {layout}, as q.", kind="shape")
    batch, length, heads, hdim = _bshd(k.shape, layout)
    if (batch, hdim) != (sizes["batch"], sizes["hdim_q"]) or _bshd(v.shape, layout)[:3] != (batch, length, heads):
        raise ArgumentError(
            f"k is {list(k.shape)} and v {list(v.shape)} ({layout}): they don't fit q or one another.", kind="shape"
        )
    return {"seqlen_k": length, "nhead_k": heads, "hdim_v": v.shape[3]}


def _strides(problem: Problem, tensors: Mapping[str, Operand]) -> tuple[tuple[str, Strides], ...]:
    """Strides of the tensors on the device that are not contiguous.

    A head of a vectorized page must be contiguous.
    """
    strides = []
    for name, tensor in tensors.items():
        if tensor.contiguous:
            continue
        if name != "q" and problem.kv_layout == "vectorized":
            page, head = tensor.strides[:2]
            if tensor.strides[2:] != contiguous(tensor.shape[2:]):
                raise ArgumentError(
                    f"{name} has strides {list(tensor.strides)}: the last three axes of vectorized pages must lie one "
                    "after another. Give a contiguous copy.",
                    kind="not-contiguous",
                )
            strides.append((name, dataclasses.replace(problem.stride(name), batch=page, nhead=head)))
        elif len(tensor.strides) == 3:
            row, head, _ = tensor.strides
            strides.append((name, Strides(0, head, row)))
        else:
            paged = name != "q" and problem.page_size > 0
            batch, row, head, _ = _bshd(tensor.strides, "BSHD" if paged else problem.layout)
            strides.append((name, Strides(batch, head, row)))
    return tuple(strides)


def _pointers(listed: Mapping[str, Operand], problem: Problem) -> dict[str, Operand]:
    """Tables by the C ABI's names.

    Page lists of the host get zeros after their end, because some kernels read ahead. Paged kernels of fwd take lengths
    from running sums in group mode: on the host they are those of the lengths.
    """
    names = {"cu_seqlens_q": "seqstart_q", "cu_seqlens_k": "seqstart_k", "seqlens_k": "seqlen_k_ptr"}
    names |= {"indptr": "kv_indptr", "last_page_lens": "kv_last_page_lens"}
    names["indices"] = "kv_page_indices" if problem.family == "batch_prefill" else "block_table"
    pointers = {names[name]: table for name, table in listed.items()}
    pages, lengths = pointers.get("kv_page_indices"), pointers.get("seqlen_k_ptr")
    if pages is not None and pages.array is not None and pages.array.ndim == 1:
        pointers["kv_page_indices"] = dataclasses.replace(pages, array=np.pad(pages.array, (0, PADDING)))
    if problem.mode == "group" and problem.page_size and problem.family != "batch_prefill":
        sums, wanted = pointers.get("seqstart_k"), None
        if lengths is not None and lengths.array is not None:
            wanted = np.cumsum(np.concatenate(([0], lengths.array)), dtype=np.int32)
            sums = sums or dataclasses.replace(lengths, shape=wanted.shape, array=wanted)
        if sums is None:
            raise ArgumentError(
                f"give cu_seqlens_k: kernels of {problem.family} read lengths there, and seqlens_k is not on the host.",
                kind="shape",
            )
        demand_shape(sums, (problem.batch + 1,), "batch + 1")
        if wanted is not None and sums.array is not None and not np.array_equal(sums.array, wanted):
            raise ArgumentError(
                f"cu_seqlens_k {sums.array.tolist()[:8]} are not the sums of seqlens_k, {wanted.tolist()[:8]}.",
                kind="shape",
            )
        pointers["seqstart_k"] = sums
    return pointers
