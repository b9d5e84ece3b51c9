"""From a kernel's key to small launches that dispatch should send to it.

What dispatch asks for is fwd_cpp.py's and appendkv_cpp.py's `conditions`: a kernel that pads a length is only
reached with one that isn't whole where another kernel is there for whole tiles. A kernel has scenarios (masks, numbers
of splits, merged heads), each of which must be reached, and a scenario has candidates: the first that dispatch sends to
the kernel is the one that counts.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kernels.families.appendkv_cpp import APPENDKV
from kernels.families.cpp import pad_flags
from kernels.families.fwd_cpp import COMBINE, FWD, PAGED, SPLITKV, combine_place, merges
from kernels.families.fwd_v3_render import FWD_V3
from matrix.keys import Key
from matrix.problems.problem import FAMILY_SUITE, Problem
from tests.gpu.appendkv_cases import AppendCandidate
from tests.gpu.fwd_cases import FwdCandidate

Candidate = FwdCandidate | AppendCandidate
_PAGE = 128  # tokens: kernels take a tile of at most so many keys from one page
_MOST = 8  # candidates of a scenario
# One for each array that the combine stage keeps its scales in: it is compiled for up to 8, 16, 32, 64 and 128 splits.
_SPLITS = (3, 9, 17, 33, 65)
_CAUSAL = {"mask": "bottom_right", "window_right": 0}
_BOUNDS = {"window_left": 60, "window_right": 7}
# Not the type `window`: with that one CK has no corner that ALiBi's distances could start from.
_WINDOW = {"mask": "bottom_right", **_BOUNDS}
_MASKS: dict[str, dict[str, dict[str, Any]]] = {
    "no": {"no mask": {}},
    "mask": {"causal": _CAUSAL, "window": _WINDOW},
    "causal": {"causal": _CAUSAL},
    "generic": {"window": {"mask": "window", **_BOUNDS}},
    "": {"no mask": {}},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One of the ways in which a kernel must be seen to work."""

    label: str
    candidates: tuple[Candidate, ...]


def not_laid_out(key: Key) -> str | None:
    """What the kernel needs that nothing here gives it; None if it can be run."""
    if key.vlayout == "col":
        return "column-major V"
    if key.dtype not in ("fp16", "bf16", "fp8bf16"):
        return f"tensors and tolerances of {key.dtype}"
    if key.dtype == "fp8bf16" and (key.qscale != "pertensor" or key.bias == "bias" or key.family == APPENDKV):
        return "fp8 without scales" if key.qscale != "pertensor" else "an elementwise bias in float32"
    if (key.mask, key.bias) == ("generic", "alibi"):
        return "ALiBi with a window of neither corner"
    if key.family == PAGED and not key.paged_kv:
        return "a cache without pages"
    return None


def scenarios(key: Key, keys: Sequence[Key]) -> tuple[Scenario, ...]:
    """What to launch for a kernel of a library of ``keys``; empty if none of them leads to it.

    Of kernels that can't be run (:func:`not_laid_out`) nothing may be asked.
    """
    if key.family == APPENDKV:
        return (Scenario(label="append", candidates=_appends(key)),)
    if key.family == COMBINE:
        return _combine(key, keys)
    found = [
        Scenario(label=label, candidates=_candidates(key, keys, mask, _lse(key, keys)))
        for label, mask in _MASKS[key.mask].items()
    ]
    if key.family == SPLITKV:
        found += _splitkv(key, keys)
    return tuple(scenario for scenario in found if scenario.candidates)


def _combine(key: Key, keys: Sequence[Key]) -> tuple[Scenario, ...]:
    """Through a first stage that this kernel serves, with each range of splits."""
    place = combine_place(key)
    first = [one for one in keys if one.family == SPLITKV and combine_place(one) == place and not not_laid_out(one)]
    some = [one for one in first if one.mask == "no"][:2] or first[:2]
    return tuple(
        Scenario(label=f"{splits} splits", candidates=found)
        for splits in _SPLITS
        if (found := _first(_many(some, keys, key.lse, splits)))
    )


def _many(first: Iterable[Key], keys: Sequence[Key], lse: bool, splits: int) -> Iterable[Candidate]:
    for key in first:
        mask = next(iter(_MASKS[key.mask].values()))
        yield from _candidates(key, keys, mask, lse, splits)[: _MOST // 2]


def _splitkv(key: Key, keys: Sequence[Key]) -> list[Scenario]:
    """The machine code of a key for splits of whole tiles, and for heads merged into the rows of one query."""
    mask, lse, found = next(iter(_MASKS[key.mask].values())), _lse(key, keys), []
    if key.mode == "batch" and not key.paged_kv:
        even = _candidates(key, keys, mask, lse, splits=2, seqlens_k=(4 * key.tile.bn0,))
        found.append(Scenario(label="even splits", candidates=even))
    padded, *_ = pad_flags(key.pad)
    if merges(key.hdim_q, key.bias, key.mask) and (padded or key.mode == "group"):
        merged = _candidates(key, keys, mask, lse, seqlens_q=(1,), nhead_q=4, nhead_k=2)
        found.append(Scenario(label="merged heads", candidates=merged))
    return found


def _lse(key: Key, keys: Sequence[Key]) -> bool:
    """Of split-KV the combine stage decides, and there may be one without LSE alone."""
    if key.family != SPLITKV:
        return key.lse
    place = combine_place(key)
    return any(one.lse for one in keys if one.family == COMBINE and combine_place(one) == place)


def _candidates(
    key: Key,
    keys: Sequence[Key],
    mask: dict[str, Any],
    lse: bool,
    splits: int = 3,
    *,
    seqlens_q: tuple[int, ...] = (),
    seqlens_k: tuple[int, ...] = (),
    **changes: Any,
) -> tuple[Candidate, ...]:
    """Lengths and head dims that the kernel pads are not whole in the first candidates."""
    launches = itertools.product(
        _head_dims(key), seqlens_k or _seqlens_k(key, keys), seqlens_q or _seqlens_q(key, keys), _same_lengths(key)
    )
    return _first(
        FwdCandidate(
            problem=_problem(key, hdims, seqlen_q, seqlen_k, same, {**mask, "lse": lse, **changes}),
            splits=splits if key.family == SPLITKV else 0,
            min_seqlen_q=1 if key.skip else 0,
        )
        for hdims, seqlen_k, seqlen_q, same in launches
    )


def _first(found: Iterable[Candidate]) -> tuple[Candidate, ...]:
    unlike: list[Candidate] = []
    for one in found:
        if one not in unlike:
            unlike.append(one)
    return tuple(unlike[:_MOST])


def _problem(
    key: Key, hdims: tuple[int, int], seqlen_q: int, seqlen_k: int, same: bool, changes: dict[str, Any]
) -> Problem:
    """Two sequences, of two lengths in group mode."""
    group = key.mode == "group"
    shorter = max(seqlen_q // 2, 1) if group else seqlen_q
    found: dict[str, Any] = {
        "mode": key.mode, "dtype": key.dtype, "hdim_q": hdims[0], "hdim_v": hdims[1], "nhead_q": 2, "nhead_k": 1,
        "seqlens_q": (seqlen_q, shorter), "seqlens_k": (seqlen_k, seqlen_k if same else seqlen_k // 2 + 3),
        "bias": key.bias, "alibi_per_batch": True, "logits_soft_cap": 3.0 if key.logits else 0.0,
        "p_drop": 0.25 if key.dropout else 0.0, "seed": 7, "qscale": key.qscale,
    }  # fmt: skip
    if key.paged_kv:
        found |= {"page_size": _PAGE, "kv_table": "vllm", "table_end": "minus_one"}
    return Problem(
        name=f"{FAMILY_SUITE}/{key.name}", suite=FAMILY_SUITE, tier="full", group=key.family, **{**found, **changes}
    )


def _same_lengths(key: Key) -> tuple[bool, ...]:
    """Whether the sequences have one length of keys: in batch mode they may differ in pages that are padded."""
    _, padded, _, _ = pad_flags(key.pad)
    if key.mode == "group":
        return (False,)
    return (False, True) if key.paged_kv and padded else (True,)


def _seqlens_q(key: Key, keys: Sequence[Key]) -> tuple[int, ...]:
    """More than a tile of the largest one, which alone serves any number of queries; less of the others."""
    rows = key.tile.bm0
    padded, *_ = pad_flags(key.pad)
    if not (padded or key.mode == "group" or key.pipeline.startswith("qr_async")):
        return (rows,)
    larger = key.family == FWD and any(one.tile.bm0 > rows and _dims(one) == _dims(key) for one in keys)
    return (rows - 3 if larger else rows + 9), rows


def _seqlens_k(key: Key, keys: Sequence[Key]) -> tuple[int, ...]:
    """As many keys as queries, and two tiles more."""
    _, padded, _, _ = pad_flags(key.pad)
    tile = key.tile.bn0
    whole = (max(_seqlens_q(key, keys)) // tile + 3) * tile
    any_length = padded or key.mode == "group" or key.pipeline == "qr_async_trload"
    return (whole - tile + 37 % tile, whole) if any_length else (whole,)


def _head_dims(key: Key) -> list[tuple[int, int]]:
    """Smaller than the tile's by one load where the kernel pads them, or loads no more than 16 bytes at once."""
    unit = 16 if key.dtype == "fp8bf16" else 8
    _, _, padded_q, padded_v = pad_flags(key.pad)
    small = key.pipeline == "qr_async"
    if key.family == FWD_V3:  # its pads are not of head dims
        padded_q = padded_v = False
    of_q = [key.hdim_q - unit, key.hdim_q] if padded_q or small else [key.hdim_q]
    of_v = [key.hdim_v - unit, key.hdim_v] if padded_v or small else [key.hdim_v]
    both = [(of_q[0], of_v[0]), (of_q[-1], of_v[-1]), (of_q[0], of_v[-1]), (of_q[-1], of_v[0])]
    return list(dict.fromkeys(both))


def _dims(key: Key) -> tuple[object, ...]:
    return key.family, key.arch_trait, key.dtype, key.hdim_q, key.hdim_v


def _appends(key: Key) -> tuple[AppendCandidate, ...]:
    """Three sequences, new rows across tiles and pages; cosines for all whole sixteens of Q's dims."""
    spad, _, dpad, dvpad = pad_flags(key.pad)
    tile = key.tile
    lengths = (tile.bs + 6, tile.bs) if spad else (tile.bs,)
    dims_q = (key.hdim_q - 8, key.hdim_q) if dpad else (key.hdim_q,)
    dims_v = (key.hdim_v - 8, key.hdim_v) if dvpad else (key.hdim_v,)
    found = []
    for seqlen_q, dim_q, dim_v in itertools.product(lengths, dims_q, dims_v):
        arguments: dict[str, Any] = {
            "dtype": key.dtype, "seqlen_q": seqlen_q, "seqlens_k": (100, 0, 63), "seqlen_knew": tile.bsk + 6,
            "rope": key.rope, "hdim": (dim_q, dim_v), "page": 64 if key.paged_kv else 0,
        }  # fmt: skip
        if key.rope != "no":
            arguments["rotary_dim"] = dim_q // 16 * 16
        found.append(AppendCandidate(arguments=arguments))
    return tuple(found)
