"""Decide which kernels serve a problem, and why none does.

A kernel serves a problem if it has the problem's head dims and features, no feature more, and pads every length that
its tile doesn't divide. Conditions of dispatch that only choose among such kernels are left out, because a launch may
name its kernel. These are few blocks, a short seqlen_q on a small tile, and unpadded before padded where dispatch takes
either.

Sources: the codegen's API files (fmha_fwd.py, fmha_fwd_splitkv.py, fmha_fwd_appendkv.py, fmha_pagedkv_prefill.py,
fmha_batch_prefill.py, fmha_bwd.py): the properties scheck, skcheck, dcheck, dvcheck, max_seq_q_cond and extra_cond,
and the order of their head dims.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from ckpm.matrix.keys import ANY_PAGE, SPLIT_PIPELINE, V3_PIPELINE, Key, has_one_load, is_v3, takes_pages
from ckpm.matrix.problems.problem import NAMED, V2_MOST_16BIT_ROWS, Problem, launch_seqlen_k, loads

_V3_HEAD_DIMS = ((64, 64), (128, 128), (192, 128), (256, 256))
_SUBMAX = {80: 96, 96: 128}  # CK's K0_MAX_SUBMAX_MAP where it isn't the head dim itself
_BITS = {"fp32": 32, "fp16": 16, "bf16": 16, "mxfp4": 4}  # the others have 8
_ROWS_1D = 64  # rows of a block of the backward kernels with one-dimensional tiles (CK's M0_1D)
_SHORT_K = 256
_FEW_QUERIES = f"V3 takes {{}} for more than {V2_MOST_16BIT_ROWS} queries, and never with batch_invariant"
_PAD = re.compile("p(s(?!k))?(sk)?(d(?!v))?(dv)?")


@dataclass(frozen=True, slots=True)
class Match:
    """The ``kernels`` that serve a problem, in the order of the library, or the ``reason`` why none does.

    ``lack`` is None, or the first field in which no kernel is left. With it are the values of which the problem needs
    one, and the kernels that fit in all earlier fields.
    """

    kernels: tuple[Key, ...]
    reason: str = ""
    lack: tuple[str, frozenset[Any], Sequence[Key]] | None = None


def serves(key: Key, problem: Problem) -> bool:
    """Return True if the kernel serves the problem."""
    return bool(match((key,), problem).kernels)


def serving_kernels(keys: Iterable[Key], problem: Problem) -> tuple[Key, ...]:
    """The kernels of a library that serve the problem, in the order of ``keys``."""
    return match(keys, problem).kernels


def missing_kernel(keys: Iterable[Key], problem: Problem) -> str:
    """The reason why no kernel of a library serves the problem, in one line; "" if one serves it."""
    return match(keys, problem).reason


def match(keys: Iterable[Key], problem: Problem, left_open: Collection[str] = ()) -> Match:
    """Match a library's kernels of one family with a problem. Any value fits in the fields ``left_open``.

    With ``pad`` left open, kernels that dispatch passes over for their padding match, too: a launch may name them.
    """
    left = keys = list(keys)
    family = left[0].family if left else problem.family
    for field, values in needed_values(problem, family, left_open).items():
        before, left = left, _keys_with(left, field, values, problem)
        if not left:
            limit = "dtype" not in left_open and _limit_of_v3(keys, problem, left_open)
            reason = limit or _lack(field, values, before, problem)
            return Match((), reason, (field, values, before))
        if field == "dtype" and "hdim_q" not in _READS[family]:
            left = with_head_dims(left, problem, family)
            if not left:
                return Match((), f"no head dims from {problem.hdim_q}x{problem.hdim_v} on")
    fitting = tuple(key for key in left if not_for_its_lengths(key, problem) is None)
    if not fitting:
        return Match((), str(not_for_its_lengths(left[0], problem)))
    taken = fitting if "pad" in left_open else tuple(key for key in fitting if _dispatch_takes(key, problem))
    refused = f"dispatch launches none of the {len(fitting)} that fit at a seqlen_k of {problem.seqlen_k}"
    return Match(taken, "" if taken else refused)


def _lack(field: str, values: frozenset[Any], fitting: Sequence[Key], problem: Problem) -> str:
    """The reason why none of the kernels that fit in earlier fields has one of the values."""
    among = f"among {len(fitting)} that fit otherwise"
    if field == "page_size" and problem.sink_logits and any(key.page_size is None for key in fitting):
        return f"no kernel with sink logits {among}: this version of CK has no sink_ptr"
    if field == "dtype" and any(key.dtype in values for key in fitting):
        return _FEW_QUERIES.format(problem.dtype)
    if not values:
        return f"no head dims from {problem.hdim_q}x{problem.hdim_v} on"
    if field == "hdim_q" and any(key.hdim_q in values for key in fitting):
        return f"V3 pads no head dim, and has none of {problem.hdim_q}"
    return f"no kernel with {field} {in_words(values)} {among}"


def _limit_of_v3(keys: Sequence[Key], problem: Problem, left_open: Collection[str]) -> str:
    """The reason why V3 takes no launch of few queries, if a kernel of V3 has all else that the launch needs."""
    of_v3 = [key for key in keys if is_v3(key.pipeline) and key.dtype == problem.dtype]
    short = of_v3 and problem.family in NAMED and _is_short_for_v3(problem)
    decides = short and match(of_v3, problem, {*left_open, "dtype"}).kernels
    return _FEW_QUERIES.format(problem.dtype) if decides else ""


def in_words(values: frozenset[Any]) -> str:
    """The text for values of a key field, of which a problem needs one."""
    return " or ".join(sorted(str(value) for value in values if value is not None)) or "none"


_ATTENTION = ("mode", "vlayout", "logits", "mask", "bias", "qscale", "sink")
# The features of a problem that a family reads. It does not compute the others, or takes them at run time.
_READS: Mapping[str, tuple[str, ...]] = {
    "fwd": (*_ATTENTION, "lse", "dropout", "skip"),
    "fwd_splitkv": (*_ATTENTION, "dropout", "paged_kv"),  # its LSE is between the two stages
    "fwd_splitkv_combine": ("mode", "lse", "dropout"),
    "fwd_appendkv": ("vlayout", "rope", "paged_kv"),
    "fwd_pagedkv": (*_ATTENTION, "lse", "dropout", "skip", "paged_kv"),
    "batch_prefill": (
        *("hdim_q", "mode", "vlayout", "logits", "bias", "mask", "lse", "dropout", "qscale", "sink", "page_size"),
        *("kv_layout", "kv_table", "pipeline", "tile.bm0", "pad", "load"),
    ),
    "fwd_v3": (*_ATTENTION, "lse", "dropout", "skip"),
    "bwd_dot_do_o": ("mode",),
    "bwd_dq_dk_dv": ("mode", "mask", "bias", "dbias", "dropout", "dropout_impl", "deterministic"),
    "bwd_convert_dq": ("mode", "deterministic"),
}


def needed_values(problem: Problem, family: str = "", left_open: Collection[str] = ()) -> dict[str, frozenset[Any]]:
    """The values of which a kernel must have one to serve the problem, by key field. Other fields don't matter.

    None is for dialects without the field, whose kernels serve only its default (page size 1, a table of SGLang).
    """
    fields = ("dtype", *_READS[family or problem.family])
    if problem.v3 != "any" and "pipeline" in fields:  # the caller's word decides before all else
        fields = ("pipeline", *(field for field in fields if field != "pipeline"))
    values = {
        field: _VALUES[field](problem) if field in _VALUES else (getattr(problem, field),)
        for field in fields
        if field not in left_open
    }
    return {field: frozenset(needed) for field, needed in values.items() if needed is not None}


def _head_dims(p: Problem) -> tuple[int, ...]:
    """The hdim_q of batch prefill's kernels for the problem's head dims: dispatch takes the first that a library has.

    Only ckpm-extended and its child ckpm-serving have head dims 64, 192/128, 512 and 576/512. They may lack a feature
    there that larger head dims have.
    """
    largest = max(p.hdim_q, p.hdim_v)
    if largest <= 64:
        return 64, 128
    if largest <= 128:
        return (128,)
    if p.hdim_q <= 192 and p.hdim_v <= 128:
        return 192, 256
    if largest <= 256:
        return (256,)
    if largest <= 512:
        return 512, 576
    if p.hdim_q <= 576 and p.hdim_v <= 512:
        return (576,)
    return (largest,) if largest != 576 else ()


def _masks(p: Problem) -> tuple[str, ...]:
    """The masks of both sets. In the generic set a left bound needs the mask `window`: its `causal` has none."""
    if p.mask == "no":
        return ("no",)
    if p.mask == "window":
        return "mask", "generic"
    return ("mask", "causal") if p.window_left < 0 else ("mask",)


def _pages(p: Problem) -> tuple[int | None, ...]:
    """The page size; None is for keys without the field, of CK before 2026, which takes no pointer to sink_logits."""
    return (1, None) if p.page_size == 1 and not p.sink_logits else (p.page_size,)


def _pipelines(p: Problem) -> tuple[str, ...]:
    if p.split_keys:
        return (SPLIT_PIPELINE,)
    return {"any": ("qr_async", V3_PIPELINE), "on": (V3_PIPELINE,), "off": ("qr_async",)}[p.v3]


def _pads(p: Problem) -> tuple[str, ...] | None:
    """The padding of batch prefill's kernels; any in group mode at V3's head dims, as V3 pads no head dim."""
    if p.mode == "batch":
        whole = launch_seqlen_k(p) and launch_seqlen_k(p) % 128 == 0 and not p.batch_invariant
        return ("psddv" if whole else "psskddv",)
    return None if (p.hdim_q, p.hdim_v) in _V3_HEAD_DIMS else ("psskddv",)


def _dropout_impls(p: Problem) -> tuple[str, ...]:
    if not p.p_drop:
        return ("no",)
    return ("wg16_storerandval", "wg32_storerandval") if p.store_randval else ("wg16", "wg32")


# The values of which a problem needs one, None if any will do; of other fields the problem has the value itself.
_VALUES: Mapping[str, Callable[[Problem], tuple[Any, ...] | None]] = {
    "hdim_q": _head_dims,
    "logits": lambda p: (p.logits_soft_cap > 0,),
    "mask": _masks,
    "dropout": lambda p: (p.p_drop > 0,),
    "dropout_impl": _dropout_impls,
    "qscale": lambda p: ("pertensor" if p.qscale == "perhead" else p.qscale,),  # one kernel, by a stride
    "sink": lambda p: (True,) if p.sink_size else (False, None),
    "skip": lambda p: (True,) if p.min_seqlen_q else (False, None),
    "page_size": _pages,
    "paged_kv": lambda p: (p.page_size > 0,),
    "kv_layout": lambda p: (p.kv_layout, None) if p.kv_layout == "linear" else (p.kv_layout,),
    "kv_table": lambda p: (p.kv_table, None) if p.kv_table == "sglang" else (p.kv_table,),
    "pipeline": _pipelines,
    "tile.bm0": lambda p: (p.tile_rows,) if p.tile_rows else None,
    "pad": _pads,
    "load": lambda p: (*loads(p), None),
}


def _keys_with(keys: list[Key], field: str, values: frozenset[Any], problem: Problem) -> list[Key]:
    """The keys with one of the values in a field. Kernels for pages of any size have 64-bit addresses alone.

    Kernels of V3 of batch prefill match other values (:func:`_of_v3`): their page descriptors reach every pool, their
    masks have any bounds, and they pad no head dim.
    """
    value = attrgetter(field)
    if field == "page_size" and takes_pages(ANY_PAGE, problem.page_size):
        values |= {ANY_PAGE}
    of_v3 = _of_v3(field, values, problem) if problem.family in NAMED else values
    if of_v3 is values:
        return [key for key in keys if value(key) in values]
    return [
        key
        for key in keys
        if value(key) in (of_v3 if is_v3(key.pipeline) else values) or (field == "load" and key.page_size == ANY_PAGE)
    ]


def _is_short_for_v3(p: Problem) -> bool:
    """True if V3 in 16 bits leaves a launch to V2: by its longest sequence, which batch_invariant forbids to ask."""
    return p.dtype != "fp8bf16" and (p.seqlen_q <= V2_MOST_16BIT_ROWS or p.batch_invariant)


def _of_v3(field: str, values: frozenset[Any], p: Problem) -> Collection[Any]:
    """The values of V3's kernels of batch prefill, in either mask set: `generic` has any bounds and sink logits."""
    if field == "load":
        return values | {"bload"}
    if field == "hdim_q":
        return (p.hdim_q,)
    if field == "dtype" and _is_short_for_v3(p):
        return ()
    if field != "mask":
        return values
    if p.mask == "no":
        return () if p.sink_logits else ("no",)
    causal = p.mask != "window" and (p.window_left < 0, p.window_right) == (True, 0) and not p.sink_logits
    return ("causal", "generic") if causal else ("generic",)


def with_head_dims(keys: Iterable[Key], p: Problem, family: str) -> list[Key]:
    """The kernels of the first head dims that both fit. Each arch trait, and V3, has a dispatch of its own."""
    if "hdim_q" in _READS[family]:
        return [key for key in keys if key.hdim_q in _head_dims(p)]
    first: dict[tuple[str, bool], tuple[int, int]] = {}
    return [
        key
        for key in keys
        if p.hdim_q <= key.hdim_q
        and p.hdim_v <= key.hdim_v
        and first.setdefault((key.arch_trait, is_v3(key.pipeline)), (key.hdim_q, key.hdim_v))
        == (key.hdim_q, key.hdim_v)
    ]


def not_for_its_lengths(key: Key, problem: Problem) -> str | None:
    """The first length or head dim that the kernel neither divides nor pads, as a reason; None without one."""
    for name, length, step in _steps(key):
        value = getattr(problem, name)
        if length and value > length:
            return f"{name} {value} is over {length}"
        if step > 1 and (value % step or not value):
            return f"{name} {value} is not a multiple of {step}, and {key.pad} does not pad it"
    return None


def _dispatch_takes(key: Key, problem: Problem) -> bool:
    """Return False if the dispatch of qr_async takes another kernel for the length of keys.

    In batch mode it takes the kernel without padding of keys if ``seqlen_k`` is a multiple of kN0 and there are no
    ``cu_seqlens``, and else the kernel with padding (fwd_spellings.attention_conditions). Launches of these families
    can't name a kernel instead; batch prefill needs a padding.
    """
    if "pad" in _READS[key.family] or key.pipeline != "qr_async" or key.mode == "group":
        return True
    whole = problem.seqlen_k > 0 and problem.seqlen_k % key.tile.bn0 == 0 and not problem.cu_seqlens
    return whole != ("sk" in padding(key.pad))


def _steps(key: Key) -> list[tuple[str, int, int]]:
    """The (name, largest value or 0, divisor) of each length of a problem."""
    pads, group = padding(key.pad), key.mode == "group"
    padded = {"s": group or "s" in pads, "sk": group or "sk" in pads, "d": "d" in pads, "dv": "dv" in pads}
    return _STEPS.get(key.family, _attention_steps)(key, padded)


def _attention_steps(key: Key, padded: Mapping[str, bool]) -> list[tuple[str, int, int]]:
    tile, pipeline = key.tile, key.pipeline
    unpadded = {"d": _SUBMAX.get(tile.bk0max, tile.bk0max), "dv": key.hdim_v}
    if not pipeline.startswith("qr_async"):
        unpadded["s"] = tile.bm0
    if not pipeline.startswith("qr_async_trload"):
        unpadded["sk"] = tile.bn0
    bytes_16 = 128 // _BITS.get(key.dtype, 8)
    vector = {"qr_async": bytes_16, SPLIT_PIPELINE: bytes_16, "qr_hpad": 8}.get(pipeline, 1)
    return [*_unpadded_lengths(padded, unpadded), ("hdim_q", 0, vector), ("hdim_v", 0, vector)]


def _backward_steps(key: Key, padded: Mapping[str, bool]) -> list[tuple[str, int, int]]:
    tile = key.tile
    short = _SHORT_K if tile.when == "short_k" else 0
    steps = [("hdim_q", 0, key.dpad or key.hdim_q), ("hdim_v", 0, key.dvpad or key.hdim_v)]
    if key.pipeline:  # CK of mid-2025; later kernels have one pipeline, which pads lengths always
        steps += _unpadded_lengths(padded, {"s": tile.bm0, "sk": tile.bn0})
    return [("seqlen_q", tile.max_seq_q, 1), ("seqlen_k", short, 1), *steps]


# families whose kernels divide lengths in other ways than attention with a tile of Q and K
_STEPS: Mapping[str, Callable[[Key, Mapping[str, bool]], list[tuple[str, int, int]]]] = {
    "bwd_dq_dk_dv": _backward_steps,
    "bwd_dot_do_o": lambda key, padded: _unpadded_lengths(padded, {"s": _ROWS_1D, "dv": key.hdim_v}),
    "bwd_convert_dq": lambda key, padded: _unpadded_lengths(padded, {"s": _ROWS_1D, "d": key.hdim_q}),
    # its key lacks the rows of its block: the key of the split-KV kernel beside it decides about seqlen_q
    "fwd_splitkv_combine": lambda key, padded: _unpadded_lengths(padded, {"dv": key.hdim_v}),
    "fwd_appendkv": lambda key, padded: _unpadded_lengths(
        padded, {"s": key.tile.bs, "d": key.tile.bd, "dv": key.tile.bdv}
    ),
}


_LENGTHS = {"s": "seqlen_q", "sk": "seqlen_k", "d": "hdim_q", "dv": "hdim_v"}


def _unpadded_lengths(padded: Mapping[str, bool], steps: Mapping[str, int]) -> list[tuple[str, int, int]]:
    return [(_LENGTHS[word], 0, step) for word, step in steps.items() if not padded[word]]


def padding(pad: str) -> frozenset[str]:
    """The lengths that a kernel pads: s, sk, d, dv for ``psskddv``, none for ``npad``.

    The backward pads of CK from autumn 2025 on (``pd8dv1``) are in fields of their own.
    """
    parts = _PAD.fullmatch(pad)
    return frozenset(part for part in parts.groups() if part) if parts else frozenset()


def serves_every_batch(key: Key) -> bool:
    """Return True if calls with ``batch_invariant`` may take the kernel, because it serves every batch.

    Dropout draws its bytes by a sequence's position. Kernels without padding of keys serve batches of whole tiles
    alone, V3 in 16 bits batches with a long sequence (:func:`_of_v3`). Launches of other families name no kernel.
    """
    by_length = key.pad == "psddv" or (is_v3(key.pipeline) and key.dtype != "fp8bf16")
    return key.family in NAMED and not key.dropout and not by_length


def measured_kernel(keys: Iterable[Key], problem: Problem) -> str | None:
    """The name of the kernel that a measurement of the problem measures; None if dispatch chooses it at launch.

    The problem names the tile. Of two load modes for pages of one token it is 64 bits, which the newest selectors take
    for all pools (see :func:`loads`).
    """
    able = serving_kernels(keys, problem) if problem.tile_rows else ()
    wide = [key for key in able if key.load == "gload" and problem.page_size == 1]
    return next((key.name for key in (*wide, *able)), None)


def missing_load(keys: Iterable[Key], problem: Problem) -> str | None:
    """The load mode that dispatch may choose for the problem although no serving kernel has it, or None.

    A dialect without load modes in its names has one dispatch for all pools and misses none. V3 and kernels for any
    page serve every pool.
    """
    able = serving_kernels(keys, problem)
    there = {
        key.load if f"_{key.load}_" in key.name and not has_one_load(key.pipeline, key.page_size) else None
        for key in able
    }
    return None if None in there else next((load for load in loads(problem) if load not in there), None)


def refused_for(load: str) -> str:
    """The reason for a refusal by a library that lacks the kernels of a load mode (:func:`missing_load`)."""
    return f"dispatch asks for a {load} kernel, and this library has none that fits"
