"""Small launches that dispatch should send to an attention kernel, made from its key.

They follow each family's ``conditions``. Where one kernel serves whole tiles and another pads, the second is only
reached with a length that is not a multiple of the tile. A kernel has scenarios (masks, numbers of splits, merged
heads). A scenario has candidates: the first that dispatch sends to the kernel counts.

Dispatch must send at least one scenario to the kernel. It may send others elsewhere: in split-KV it sends whole tiles
to a kernel that pads less, if the library has one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from ckpm.kernels.families.family import Scenario
from ckpm.kernels.families.spellings import pad_flags
from ckpm.matrix.keys import Key
from ckpm.matrix.problems.case import SuiteCase
from ckpm.matrix.sessions import FAMILY_SUITE

_PAGE = 128  # tokens: kernels take a tile of at most so many keys from one page
MOST = 8  # candidates of a scenario
_CAUSAL = {"mask": "bottom_right", "window_right": 0}
_BOUNDS = {"window_left": 60, "window_right": 7}
# Not the type `window`: a window has no corner that ALiBi's distances could start from.
_WINDOW = {"mask": "bottom_right", **_BOUNDS}
# a key's mask: fields of problems that it serves, by label
MASKS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "no": {"no mask": {}},
    "mask": {"causal": _CAUSAL, "window": _WINDOW},
    "causal": {"causal": _CAUSAL},
    "generic": {"window": {"mask": "window", **_BOUNDS}},
    "": {"no mask": {}},
}


def not_laid_out(key: Key) -> str | None:
    """Return what the kernel needs that no launch here provides; None if it can run."""
    if key.vlayout == "col":
        return "column-major V"
    if key.dtype not in ("fp16", "bf16", "fp8bf16"):
        return f"tensors and tolerances of {key.dtype}"
    if key.dtype == "fp8bf16" and key.qscale != "pertensor":
        return "fp8 without scales"
    if key.dtype == "fp8bf16" and key.bias == "bias":
        return "an elementwise bias in float32"
    if (key.mask, key.bias) == ("generic", "alibi"):
        return "ALiBi with a window of neither corner"
    return None


def attention_scenarios(
    key: Key, *, lse: bool, splits: int = 0, seqlens_q: tuple[int, ...] = (), hdims: tuple[tuple[int, int], ...] = ()
) -> tuple[Scenario, ...]:
    """One scenario for each of the key's masks; arguments as for :func:`candidates`."""
    return tuple(
        Scenario(
            label=label,
            candidates=candidates(key, {**mask, "lse": lse}, splits=splits, seqlens_q=seqlens_q, hdims=hdims),
        )
        for label, mask in MASKS[key.mask].items()
    )


def candidates(
    key: Key,
    changes: Mapping[str, Any],
    *,
    splits: int = 0,
    seqlens_q: tuple[int, ...] = (),
    only_seqlens_q: tuple[int, ...] = (),
    seqlens_k: tuple[int, ...] = (),
    hdims: tuple[tuple[int, int], ...] = (),
) -> tuple[SuiteCase, ...]:
    """Launches for a kernel with the fields ``changes`` in their problems.

    Lengths (tokens) and head dims that the kernel pads are not whole in the first candidates. ``seqlens_q`` are the
    lengths of Q to try, as :func:`queries` gives them; keys are then as many and two tiles more, unless ``seqlens_k``
    are given. ``only_seqlens_q`` are tried instead, with the keys that ``seqlens_q`` would have.
    """
    rows = seqlens_q or queries(key)
    launches = itertools.product(
        hdims or head_dims(key), seqlens_k or _keys(key, max(rows)), only_seqlens_q or rows, _same_lengths(key)
    )
    fields = {**changes, "splits": splits, "min_seqlen_q": 1 if key.skip else 0}
    return first(_problem(key, hdims, seqlen_q, seqlen_k, same, fields) for hdims, seqlen_k, seqlen_q, same in launches)


def first(requests: Iterable[SuiteCase]) -> tuple[SuiteCase, ...]:
    """The first few launches that differ."""
    unlike: list[SuiteCase] = []
    for request in requests:
        if request not in unlike:
            unlike.append(request)
    return tuple(unlike[:MOST])


def queries(key: Key, *, limited: bool = False) -> tuple[int, ...]:
    """Lengths of Q: more than a tile; less if the kernel is ``limited`` to the rows of its tile."""
    rows = key.tile.bm0
    padded, *_ = pad_flags(key.pad)
    if not (padded or key.mode == "group" or key.pipeline.startswith("qr_async")):
        return (rows,)
    return (rows - 3 if limited else rows + 9), rows


def head_dims(key: Key) -> tuple[tuple[int, int], ...]:
    """Head dims smaller than the tile's by one load if the kernel pads them or loads at most 16 bytes at once."""
    unit = 16 if key.dtype == "fp8bf16" else 8
    _, _, padded_q, padded_v = pad_flags(key.pad)
    small = key.pipeline == "qr_async"
    of_q = [key.hdim_q - unit, key.hdim_q] if padded_q or small else [key.hdim_q]
    of_v = [key.hdim_v - unit, key.hdim_v] if padded_v or small else [key.hdim_v]
    both = [(of_q[0], of_v[0]), (of_q[-1], of_v[-1]), (of_q[0], of_v[-1]), (of_q[-1], of_v[0])]
    return tuple(dict.fromkeys(both))


def _problem(
    key: Key, hdims: tuple[int, int], seqlen_q: int, seqlen_k: int, same: bool, changes: Mapping[str, Any]
) -> SuiteCase:
    """A case of two sequences, of two lengths in group mode."""
    group = key.mode == "group"
    shorter = max(seqlen_q // 2, 1) if group else seqlen_q
    fields: dict[str, Any] = {
        "mode": key.mode, "dtype": key.dtype, "hdim_q": hdims[0], "hdim_v": hdims[1], "nhead_q": 2, "nhead_k": 1,
        "seqlens_q": (seqlen_q, shorter), "seqlens_k": (seqlen_k, seqlen_k if same else seqlen_k // 2 + 3),
        "bias": key.bias, "alibi_per_batch": True, "logits_soft_cap": 3.0 if key.logits else 0.0,
        "p_drop": 0.25 if key.dropout else 0.0, "seed": 7, "qscale": key.qscale,
    }  # fmt: skip
    if key.paged_kv:
        fields |= {"page_size": _PAGE, "kv_table": "vllm", "table_end": "minus_one"}
    return SuiteCase(
        name=f"{FAMILY_SUITE}/{key.name}", suite=FAMILY_SUITE, tier="full", group=key.family, family=key.family,
        **{**fields, **changes},
    )  # fmt: skip


def _same_lengths(key: Key) -> tuple[bool, ...]:
    """True if the sequences have one length of keys: in batch mode they may differ in pages that are padded."""
    _, padded, _, _ = pad_flags(key.pad)
    if key.mode == "group":
        return (False,)
    return (False, True) if key.paged_kv and padded else (True,)


def _keys(key: Key, queries: int) -> tuple[int, ...]:
    """Lengths of keys: the lengths of Q and two tiles more."""
    _, padded, _, _ = pad_flags(key.pad)
    tile = key.tile.bn0
    whole = (queries // tile + 3) * tile
    any_length = padded or key.mode == "group" or key.pipeline == "qr_async_trload"
    return (whole - tile + 37 % tile, whole) if any_length else (whole,)
