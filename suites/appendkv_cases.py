"""One launch of append-KV: random caches, queries and new rows, and what must be where afterwards.

The caches before a launch contain random bits, NaNs among them. After it, the appended rows contain K_new (rotated in
float64, within the format's rounding) and V_new. All other rows are unchanged.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ckpm.attention.launch.appendkv_launching import Append, run_append
from ckpm.attention.launch.c_abi import Library
from ckpm.attention.launch.device import Device
from ckpm.attention.launch.encodings import bits_type, decode, encode
from ckpm.kernels.abi import Status
from ckpm.kernels.families.fwd_appendkv import AppendRequest
from ckpm.suites.fwd_cases import Ended

NHEAD_Q, NHEAD_K = 4, 2
_ULP = {"bf16": 2.0**-8, "fp16": 2.0**-11}  # half a step of a rounded number, relative to it


def run_case(request: AppendRequest, device: Device, library: Library) -> Ended:
    """Launch what dispatch chooses and compare. Raises ProblemError, HipError."""
    arch = device.arch
    append = make_append(**dataclasses.asdict(request), arch=arch)
    appended = run_append(device, library, append)
    if appended.fault or appended.launch.status != Status.OK:
        return Ended(launch=appended.launch, fault=appended.fault)
    wrong = differences(append, appended.q, appended.k, appended.v, arch)
    return Ended(
        launch=appended.launch,
        outputs=(appended.q, appended.k, appended.v),
        lines=(f"Q and the cache: {', '.join(wrong) or 'nothing'} differs",),
        wrong=tuple(f"{name} isn't what it must be" for name in wrong),
    )


def make_append(
    *,
    seqlen_q: int,
    seqlens_k: tuple[int, ...],
    seqlen_knew: int,
    rope: str = "no",
    rotary_dim: int = 128,
    causal: bool = True,
    page: int = 0,
    hdim: tuple[int, int] = (128, 128),
    dtype: str = "bf16",
    arch: str = "gfx950",
) -> Append:
    """Sequences in shuffled places of a cache with two places too many; ``page`` 0 is a contiguous one."""
    random = np.random.default_rng([seqlen_q, seqlen_knew, *seqlens_k])
    batch, longest = len(seqlens_k), max(seqlens_k) + seqlen_knew
    pages = -(-longest // page) + 1 if page else 0
    places = random.permutation(batch * max(pages, 1) + 2)[: batch * max(pages, 1)].astype(np.int32)
    shape = (len(places) + 2, page or longest + 5, NHEAD_K)
    angles = random.uniform(0, 2 * np.pi, (longest + seqlen_q, rotary_dim // 2))

    def tensor(length: int, heads: int, dim: int) -> np.ndarray:
        return encode(random.uniform(-2, 2, (batch, length, heads, dim)), dtype, arch)

    def cache(dim: int) -> np.ndarray:
        kind = bits_type(dtype)
        return random.integers(0, np.iinfo(kind).max + 1, (*shape, dim), dtype=kind)

    return Append(
        dtype=dtype,
        q=tensor(seqlen_q, NHEAD_Q, hdim[0]),
        knew=tensor(seqlen_knew, NHEAD_K, hdim[0]),
        vnew=tensor(seqlen_knew, NHEAD_K, hdim[1]),
        k=cache(hdim[0]),
        v=cache(hdim[1]),
        seqlens_k=np.array(seqlens_k, np.int32),
        rope=rope,
        cos=None if rope == "no" else encode(np.cos(angles), dtype, arch),
        sin=None if rope == "no" else encode(np.sin(angles), dtype, arch),
        causal=causal,
        block_table=places.reshape(batch, pages) if page else None,
        cache_batch_idx=None if page else places,
    )


def rotate_rows(append: Append, bits: np.ndarray, positions: np.ndarray, arch: str) -> np.ndarray:
    """The numbers of ``bits`` [row, head, dim], each pair of dims turned as a complex number by its row's angle."""
    numbers = decode(bits, append.dtype, arch)
    if append.rope == "no":
        return numbers
    assert append.cos is not None
    assert append.sin is not None
    pairs = append.cos.shape[1]
    dims = np.arange(2 * pairs)
    first, second = (dims[::2], dims[1::2]) if append.rope == "inter" else (dims[:pairs], dims[pairs:])
    turn = decode(append.cos, append.dtype, arch) + 1j * decode(append.sin, append.dtype, arch)
    turn = turn[positions][:, None, :]
    turned = (numbers[..., first] + 1j * numbers[..., second]) * turn
    numbers[..., first], numbers[..., second] = turned.real, turned.imag
    return numbers


def differences(append: Append, q: np.ndarray, k: np.ndarray, v: np.ndarray, arch: str = "gfx950") -> list[str]:
    """Names of the tensors that are wrong after ``append``: new numbers may differ by rounding, others by no bit."""
    actual = {"q": q, "k": k, "v": v}
    wrong = set()
    untouched = {name: np.ones(bits.shape, bool) for name, bits in actual.items()}

    def check(name: str, at: tuple[Any, ...], before: np.ndarray, expected: np.ndarray) -> None:
        turns = append.rope != "no" and name != "v"
        error = np.abs(decode(actual[name][at], append.dtype, arch) - expected)
        # products that cancel are off by float32's rounding
        near = error <= np.abs(expected) * _ULP[append.dtype] + 2.0**-20
        if not (near if turns else actual[name][at] == before).all():
            wrong.add(name)
        untouched[name][at] = False

    for batch, length in enumerate(append.seqlens_k):
        rows = np.arange(append.q.shape[1])
        check("q", (batch,), append.q[batch], rotate_rows(append, append.q[batch], length + rows * append.causal, arch))
        for new in range(append.knew.shape[1]):
            row = length + new
            if append.block_table is not None:
                at = append.block_table[batch, row // append.k.shape[1]], row % append.k.shape[1]
            else:
                assert append.cache_batch_idx is not None
                at = append.cache_batch_idx[batch], row
            expected = rotate_rows(append, append.knew[batch, new][None], np.array([row]), arch)[0]
            check("k", at, append.knew[batch, new], expected)
            check("v", at, append.vnew[batch, new], decode(append.vnew[batch, new], append.dtype, arch))
    for name, where in untouched.items():
        if not np.array_equal(actual[name][where], getattr(append, name)[where]):
            wrong.add(f"{name} elsewhere")
    return sorted(wrong)
