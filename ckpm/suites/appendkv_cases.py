"""One launch of append-KV: random caches, queries and new rows, and the contents that must follow.

The caches before a launch contain random bits, NaNs among them. After it, the appended rows contain K_new (rotated in
float64, within the format's rounding) and V_new. All other rows are unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckpm.attention.launch.appends import Append, pointers, pose
from ckpm.attention.launch.c_abi import Launch, Library
from ckpm.attention.launch.device import Device, Fault
from ckpm.attention.launch.encodings import bits_type, decode, encode
from ckpm.attention.launch.launching import host_buffers, launch_plan
from ckpm.attention.launch.plan import LaunchPlan
from ckpm.kernels.abi import Status
from ckpm.matrix.problems.case import SuiteCase
from ckpm.suites.fwd_cases import Ended

Bits = NDArray[Any]
_ULP = {"bf16": 2.0**-8, "fp16": 2.0**-11}  # half a step of a rounded number, relative to it


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendOutcome:
    """Q and the cache after the launch, or as they were if it was refused."""

    launch: Launch
    fault: Fault | None = None
    q: Bits
    k: Bits
    v: Bits


def run_append(device: Device, library: Library, append: Append) -> AppendOutcome:
    """Launch the kernel that dispatch chooses."""
    plan, arrays = LaunchPlan(pose(append, device.arch), device, library), pointers(append)
    ended = launch_plan(plan, host_buffers(arrays, {}), None, ("q", "k", "v"))
    before = {name: arrays[name] for name in ("q", "k", "v")}
    after = {name: data.view(before[name].dtype).reshape(before[name].shape) for name, data in ended.outputs.items()}
    return AppendOutcome(launch=ended.launch, fault=ended.fault, **{**before, **after})


def run_case(case: SuiteCase, device: Device, library: Library) -> Ended:
    """Launch the kernel that dispatch chooses, and compare. Raises HipError."""
    arch = device.arch
    append = make_append(case, arch)
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


def make_append(case: SuiteCase, arch: str = "gfx950") -> Append:
    """Make sequences in shuffled slots of a cache with two more slots; slots are pages if the case has pages."""
    p, page = case, case.page_size
    random = np.random.default_rng([p.seqlen_q, p.seqlen_knew, *p.seqlens_k])
    longest = p.seqlen_k + p.seqlen_knew
    pages = -(-longest // page) + 1 if page else 0
    places = random.permutation(p.batch * max(pages, 1) + 2)[: p.batch * max(pages, 1)].astype(np.int32)
    shape = (len(places) + 2, page or longest + 5, p.nhead_k)
    angles = random.uniform(0, 2 * np.pi, (longest + p.seqlen_q, p.rotary_dim // 2))

    def tensor(length: int, heads: int, dim: int) -> np.ndarray:
        return encode(random.uniform(-2, 2, (p.batch, length, heads, dim)), p.dtype, arch)

    def cache(dim: int) -> np.ndarray:
        kind = bits_type(p.dtype)
        return random.integers(0, np.iinfo(kind).max + 1, (*shape, dim), dtype=kind)

    return Append(
        dtype=p.dtype,
        q=tensor(p.seqlen_q, p.nhead_q, p.hdim_q),
        knew=tensor(p.seqlen_knew, p.nhead_k, p.hdim_q),
        vnew=tensor(p.seqlen_knew, p.nhead_k, p.hdim_v),
        k=cache(p.hdim_q),
        v=cache(p.hdim_v),
        seqlens_k=np.array(p.seqlens_k, np.int32),
        rope=p.rope,
        cos=None if p.rope == "no" else encode(np.cos(angles), p.dtype, arch),
        sin=None if p.rope == "no" else encode(np.sin(angles), p.dtype, arch),
        causal=p.mask != "no",
        block_table=places.reshape(p.batch, pages) if page else None,
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
