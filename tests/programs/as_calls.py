"""A configuration of upstream's example program as a call of the dispatcher, on numbers of our own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckpm.attention import reference
from ckpm.attention.call import Attention, fmha
from ckpm.attention.dispatcher import Dispatcher
from ckpm.attention.launch.encodings import decode, encode
from ckpm.attention.reference import Agreement
from tests.programs.example_program import ARCH, Configuration

Floats = NDArray[np.float64]
_MASKS = {"0": "no", "t": "top_left", "b": "bottom_right"}


def arguments(configuration: Configuration) -> dict[str, str]:
    """The program's arguments by name, with the program's defaults."""
    values = dict(word.lstrip("-").split("=", 1) for word in configuration.arguments.split())
    return {"prec": "fp16", "iperm": "1", "mask": "0", "bias": "n", "mode": "0", "d_v": values["d"], **values}


def compare(configuration: Configuration, dispatcher: Dispatcher) -> tuple[Attention, Agreement]:
    """Launch the same shapes and features and compare them with the float64 reference."""
    settings = arguments(configuration)
    dtype, group = settings["prec"], settings["mode"] == "1"
    random = np.random.default_rng(0)
    q, k, v = _sequences(settings, random)
    options: dict[str, Any] = {"dtype": dtype, "lse": settings.get("lse") == "1", "layout": "BSHD"}
    options |= {"soft_cap": float(settings.get("logits_soft_cap", 0)), **_mask(settings["mask"])}
    more: dict[str, Any] = {}
    if dtype == "fp8bf16":
        options["descales"] = (0.5, 1.25, 0.75)
    if settings["bias"] == "e":
        lengths = [(len(queries), len(keys)) for queries, keys in zip(q, k, strict=True)]
        more["bias"] = [_numbers(random, dtype, int(settings["h"]), *pair) for pair in lengths]
        options["bias"] = _by_token(more["bias"]) if group else np.stack(more["bias"])
    elif settings["bias"] == "a":
        slopes = np.array([0.5**head for head in range(1, int(settings["h"]) + 1)], np.float32)
        options["alibi_slopes"], more["slopes"] = slopes, np.tile(slopes.astype(np.float64), (len(q), 1))
    if drop := float(settings.get("p_drop", 0)):
        options |= {"dropout": drop, "seed": 1, "random_values": True}
    arrays: list[Floats] = [np.concatenate(sequences) if group else np.stack(sequences) for sequences in (q, k, v)]
    if group:
        sums = [np.cumsum([0, *map(len, sequences)]).astype(np.int32) for sequences in (q, k)]
        options |= {"cu_seqlens_q": sums[0], "cu_seqlens_k": sums[1]}
    elif settings["iperm"] == "1":
        options["layout"], arrays = "BHSD", [array.swapaxes(1, 2) for array in arrays]
    done = fmha(*map(np.ascontiguousarray, arrays), dispatcher=dispatcher, **options)
    if drop:
        assert done.random_values is not None
        more["random_values"] = _by_sequence(done.random_values, q, k) if group else list(done.random_values)
    want, _ = reference.attention(done.problem, q, k, v, **more)
    got = done.o if options["layout"] == "BSHD" else done.o.swapaxes(1, 2)
    return done, reference.agreement(got if group else np.concatenate(list(got)), want, dtype)


def _by_token(bias: Sequence[Floats]) -> Floats:
    """Bias of each sequence, [head, query, key], as [head, token, key] with the keys of the longest sequence."""
    keys = max(sequence.shape[2] for sequence in bias)
    return np.concatenate(
        [np.pad(sequence, ((0, 0), (0, 0), (0, keys - sequence.shape[2]))) for sequence in bias], axis=1
    )


def _by_sequence(values: NDArray[np.uint8], q: Sequence[Floats], k: Sequence[Floats]) -> list[NDArray[np.uint8]]:
    """Random values [head, token, key] as [head, query, key] of each sequence."""
    parts = np.split(values, np.cumsum([len(queries) for queries in q])[:-1], axis=1)
    return [part[:, :, : len(keys)] for part, keys in zip(parts, k, strict=True)]


def _numbers(random: np.random.Generator, dtype: str, *shape: int) -> Floats:
    drawn: Floats = decode(encode(random.uniform(-1, 1, shape), dtype, ARCH), dtype, ARCH)
    return drawn


def _sequences(
    settings: dict[str, str], random: np.random.Generator
) -> tuple[list[Floats], list[Floats], list[Floats]]:
    """Q, K and V of each sequence as [token, head, dim]."""
    lengths = [[int(number) for number in settings[name].split(",")] for name in ("s", "s_k")]
    of_q, of_k = (counts * int(settings["b"]) if len(counts) == 1 else counts for counts in lengths)
    dtype, heads_k = settings["prec"], int(settings.get("h_k", settings["h"]))
    q = [_numbers(random, dtype, count, int(settings["h"]), int(settings["d"])) for count in of_q]
    k = [_numbers(random, dtype, count, heads_k, int(settings["d"])) for count in of_k]
    return q, k, [_numbers(random, dtype, count, heads_k, int(settings["d_v"])) for count in of_k]


def _mask(mask: str) -> dict[str, Any]:
    """t, b: causal at a corner; t:64,16: a window there."""
    corner, _, window = mask.partition(":")
    options: dict[str, Any] = {"mask": _MASKS[corner]}
    if window:
        left, right = window.split(",")
        options["window"] = (int(left), int(right))
    return options
