"""Requests to a library of the newest dialect, and the kernels that its dispatch should choose.

The choice is worked out from upstream's rules, not from our templates.
"""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ckpm.kernels.abi import Bias, KvLayout, KvTable, LaunchArguments, Mask, QScale
from ckpm.matrix.keys import Key
from tests.build.newest import FIVE

INT32_MAX = 2**31 - 1

BYTES = {"fp16": 2, "bf16": 2, "fp8bf16": 1}
BIAS = {"no": Bias.NONE, "bias": Bias.ELEMENTWISE, "alibi": Bias.ALIBI}
QSCALE = {"no": QScale.NONE, "pertensor": QScale.PERTENSOR, "kv_blockscale": QScale.KV_BLOCKSCALE}
LAYOUT = {"linear": KvLayout.LINEAR, "vectorized": KvLayout.VECTORIZED}
TABLE = {"sglang": KvTable.SGLANG_1D, "vllm": KvTable.VLLM_2D}
MASKS = {
    ("simplified", "no"): {Mask.NONE},
    ("simplified", "mask"): {Mask.TOP_LEFT, Mask.BOTTOM_RIGHT, Mask.WINDOW},
    ("generic", "no"): {Mask.NONE},
    ("generic", "causal"): {Mask.TOP_LEFT, Mask.BOTTOM_RIGHT},
    ("generic", "generic"): {Mask.WINDOW},
}


def load_mode(form: str, p: Mapping[str, Any], bn0: int, size: int) -> str:
    if p["page_size"] >= bn0:
        return "bload"
    pool_k = p["num_total_pages"] * p["batch_stride_k"] * size
    pool_v = p["num_total_pages"] * p["batch_stride_v"] * size
    if form == FIVE:
        return "gload" if pool_k > INT32_MAX else "bload"
    beyond = max(p["k"] % 2**32 + pool_k, p["v"] % 2**32 + pool_v) > INT32_MAX
    return "gload" if p["page_size"] == 1 or beyond else "bload"


class Model:
    """Upstream's nest: dtype, then head dim, then one chain of arms of which the first that fits is taken."""

    def __init__(self, keys: Sequence[Key], form: str) -> None:
        self.form = form
        self.nest: dict[str, dict[int, dict[tuple[Any, ...], list[Key]]]] = {}
        self.widest_v: dict[tuple[str, int], int] = {}
        for key in keys:
            assert key.kv_layout
            assert key.kv_table
            cache = (LAYOUT[key.kv_layout], TABLE[key.kv_table], key.page_size)
            exact = (key.logits, BIAS[key.bias], key.lse, key.dropout, QSCALE[key.qscale], key.sink, *cache)
            arms = self.nest.setdefault(key.dtype, {}).setdefault(key.hdim_q, {})
            arms.setdefault(exact, []).append(key)
            self.widest_v[key.dtype, key.hdim_q] = key.tile.bn1

    def choose(self, p: Mapping[str, Any], cus: int, gfx942: bool = True) -> str | None:
        """The kernel that is taken; without ``gfx942`` the tile for few compute units is for no device of this kind."""
        dtype = p["data_type"]
        fitting = [
            arms
            for hdim, arms in self.nest.get(dtype, {}).items()
            if p["hdim_q"] <= hdim and p["hdim_v"] <= self.widest_v[dtype, hdim]
        ]
        if not fitting:
            return None
        vec = 16 // BYTES[dtype]
        if not p["is_group_mode"] or not p["is_v_rowmajor"] or p["hdim_q"] % vec or p["hdim_v"] % vec:
            return None
        what = (bool(p["has_logits_soft_cap"]), p["bias_type"], bool(p["has_lse"]), bool(p["has_dropout"]))
        exact = (*what, p["qscale_type"], bool(p["has_sink"]), p["kv_layout"], p["kv_table"], p["page_size"])
        blocks = p["batch"] * p["nhead_q"] * -(-p["max_seqlen_q"] // 128)
        single = ctypes.c_float
        few = blocks < single(cus * single(0.8).value).value
        for key in fitting[0].get(exact, []):
            if p["mask_type"] not in MASKS[key.mask_impl, key.mask]:
                continue
            if (key.tile.bm0 == 64 and not few) or (key.tile.occupancy == 2 and (cus >= 128 or not gfx942)):
                continue
            if load_mode(self.form, p, key.tile.bn0, BYTES[dtype]) == key.load:
                return key.name
        return None


ANY_POINTERS = {"q": 4096, "k": 4096, "v": 8192, "o": 12288, "kv_page_indices": 16384, "kv_indptr": 20480}
ANY_POINTERS |= {"seqlen_k_ptr": 24576, "kv_last_page_lens": 28672, "seqstart_q": 32768}
ANY_POINTERS |= {"bias": 36864, "lse": 40960, "q_descale": 45056, "k_descale": 49152, "v_descale": 53248}


def pool(page_size: int, nhead_k: int, hdim: int, size: int, wanted: int) -> dict[str, int]:
    """Pages that hold about ``wanted`` bytes: the most that do not exceed it."""
    stride = page_size * nhead_k * hdim
    pages = max(1, wanted // (stride * size))
    return {"num_total_pages": pages, "batch_stride_k": stride, "batch_stride_v": stride}


def request(key: Key) -> dict[str, Any]:
    """A request that ``key`` serves, as far as pool and mode agree."""
    big = key.load == "gload"
    return {
        **ANY_POINTERS,
        "data_type": key.dtype,
        "is_group_mode": 1,
        "is_v_rowmajor": 1,
        "hdim_q": key.hdim_q,
        "hdim_v": key.hdim_v,
        "batch": 2,
        "nhead_q": 8,
        "nhead_k": 2,
        "max_seqlen_q": 128 if key.tile.bm0 == 64 else 128 * 64,
        "has_logits_soft_cap": int(key.logits),
        "logits_soft_cap": 30.0,
        "bias_type": BIAS[key.bias],
        "mask_type": max(MASKS[key.mask_impl, key.mask]),
        "has_lse": int(key.lse),
        "has_dropout": int(key.dropout),
        "has_sink": int(bool(key.sink)),
        "qscale_type": QSCALE[key.qscale],
        "kv_layout": LAYOUT[str(key.kv_layout)],
        "kv_table": TABLE[str(key.kv_table)],
        "page_size": key.page_size,
        **pool(key.page_size or 0, 2, key.hdim_q, BYTES[key.dtype], 2**33 if big else 2**24),
    }


def _pools(p: Mapping[str, Any], rng: random.Random) -> dict[str, int]:
    """Around 2 GB of K; V like K, half or double of it; bases anywhere in their 4 GB."""
    size = BYTES.get(p["data_type"], 2)
    fields = pool(p["page_size"], p["nhead_k"], 128, size, INT32_MAX + rng.choice((-(2**30), 0, 0, 2**30, 2**33)))
    fields["num_total_pages"] += rng.choice((0, 0, 1))
    fields["batch_stride_v"] = max(1, int(fields["batch_stride_v"] * rng.choice((1, 0.5, 2))))
    bases = (4096, 2**32, 2**31 - 2**20, 2**33 + 2**20)
    return {**fields, "k": rng.choice(bases), "v": rng.choice(bases)}


CHANGES: dict[str, Callable[[Mapping[str, Any], random.Random], dict[str, Any]]] = {
    "data_type": lambda p, rng: {"data_type": rng.choice(("fp16", "bf16", "fp8bf16", "fp8", "fp32", "bf16x", ""))},
    "hdim": lambda p, rng: {"hdim_q": rng.choice((8, 64, 72, 100, 128, 136, 192, 256, 264))},
    "hdim_v": lambda p, rng: {"hdim_v": rng.choice((8, 64, 72, 100, 128, 136, 192, 256, 264))},
    "page_size": lambda p, rng: {"page_size": rng.choice((1, 2, 16, 64, 128, 1024, 2048))},
    "kv_layout": lambda p, rng: {"kv_layout": rng.choice(list(KvLayout))},
    "kv_table": lambda p, rng: {"kv_table": rng.choice(list(KvTable))},
    "mask_type": lambda p, rng: {"mask_type": rng.choice(list(Mask))},
    "bias_type": lambda p, rng: {"bias_type": rng.choice(list(Bias))},
    "qscale_type": lambda p, rng: {"qscale_type": rng.choice(list(QScale)[:3])},
    "blocks": lambda p, rng: {"max_seqlen_q": 128 * rng.randint(1, 20) + rng.choice((-127, 0, 1))},
    "pool": _pools,
    **{
        name: (lambda p, rng, name=name: {name: rng.choice((0, 1, 2))})  # type: ignore[misc]
        for name in ("has_lse", "has_dropout", "has_sink", "has_logits_soft_cap")
    },
    "is_group_mode": lambda p, rng: {"is_group_mode": 0},
    "is_v_rowmajor": lambda p, rng: {"is_v_rowmajor": 0},
}


def requests(keys: Sequence[Key], around: int, seed: int) -> Iterator[tuple[dict[str, Any], int]]:
    """Each key's own request, then ``around`` requests that differ from it in a few ways; with a count of CUs."""
    rng = random.Random(seed)
    for key in keys:
        yield request(key), 256
        for _ in range(around):
            problem = request(key)
            for name in rng.sample(list(CHANGES), rng.randint(1, 3)):
                problem |= CHANGES[name](problem, rng)
            yield problem, rng.choice((80, 104, 128, 256, 304, 320))


def served_request(samples: Mapping[str, list[Key]]) -> LaunchArguments:
    """A request with a 2-D table that a library of the simplified sample serves in both forms."""
    served_key = next(key for key in samples["simplified"] if key.page_size == 1024 and key.kv_table == "vllm")
    return LaunchArguments(**request(served_key))
