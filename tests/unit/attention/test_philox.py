"""Dropout's random bytes: the generator against its authors' vectors, and what a kernel stored against it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from ckpm.attention.launch.buffers import POISON
from ckpm.attention.launch.c_abi import Launch
from ckpm.attention.launch.encodings import encode
from ckpm.attention.launch.fwd_launching import FwdOutcome
from ckpm.attention.philox import drawn, philox, random_bytes
from ckpm.attention.reference import Bytes, exact
from ckpm.kernels.abi import Status
from ckpm.matrix.problems.case import SuiteCase
from ckpm.suites import fwd_cases
from ckpm.suites.checks import foreign_random_values
from tests.unit.attention.fakes import make_case

make = functools.partial(make_case, p_drop=0.2)


@pytest.mark.parametrize(
    ("counter", "key", "vector"),
    [
        ([0, 0, 0, 0], (0, 0), [0x5F6FB709, 0x0D893F64, 0x4F121F81, 0x4F730A48]),
        ([0xFFFFFFFF] * 4, (0xFFFFFFFF, 0xFFFFFFFF), [0x5207DDC2, 0x45165E59, 0x4D8EE751, 0x8C52F662]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            (0xA4093822, 0x299F31D0),
            [0x4DFCCABA, 0x190A87F0, 0xC47362BA, 0xB6B5242A],
        ),
    ],
)
def test_seven_rounds_give_vectors_of_random123(counter: list[int], key: tuple[int, int], vector: list[int]) -> None:
    """kat_vectors of Random123, lines "philox4x32 7"."""
    assert philox(np.array(counter, np.uint64), key).tolist() == vector


def test_tile_of_32_by_32_is_drawn_by_64_lanes_of_16_bytes() -> None:
    """One byte by hand: row 40, column 70 is row 8, column 6 of tile (1, 2): lane 32 + 6, byte 0."""
    problem = make(seqlens_q=(64, 64), seqlens_k=(96, 96), nhead_q=3, seed=2**40 + 5, dropout_offset=2**33 + 1)
    lane = 32 + 6
    offset = 2**33 + 1 + (1 * 3 + 2) * 64 + lane
    numbers = philox(np.array([offset & 0xFFFFFFFF, offset >> 32, 1, 2], np.uint64), (5, 2**8))
    assert random_bytes(problem, 1, 2)[40, 70] == int(numbers[0]) & 0xFF
    assert random_bytes(problem, 1, 2)[32 + 16 + 8 + 5, 70] == int(numbers[3]) >> 8 & 0xFF


def test_neither_lengths_nor_masks_change_byte() -> None:
    long, short = make(seqlens_q=(70,), seqlens_k=(150,)), make(seqlens_q=(33,), seqlens_k=(65,))
    assert np.array_equal(random_bytes(long, 0, 0)[:33, :65], random_bytes(short, 0, 0))


def test_changed_bytes_are_found_and_poison_only_at_seen_keys() -> None:
    problem = make(seqlens_q=(3,), seqlens_k=(5,), mask="top_left", window_right=0)
    stored = [values.copy() for values in drawn(problem)]
    assert foreign_random_values(problem, stored) == []
    stored[0][0, 0, 4] = POISON  # no query sees it
    assert foreign_random_values(problem, stored) == []
    stored[0][0, 0, 4] ^= 1
    (unseen,) = foreign_random_values(problem, stored)
    assert unseen == "1 of 15 random values of sequence 0 are not Philox's, first that of head 0, query 0, key 4"
    stored = [values.copy() for values in drawn(problem)]
    stored[0][0, 2, 1] = 255 if stored[0][0, 2, 1] != 255 else 0
    assert "query 2, key 1" in foreign_random_values(problem, stored)[0]
    assert foreign_random_values(problem, [np.roll(drawn(problem)[0], 1, axis=2)]) != []


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (drawn, 0),
        (lambda p: drawn(dataclasses.replace(p, seed=p.seed + 1)), 2),
        (lambda p: [values[:1].repeat(p.nhead_q, axis=0) for values in drawn(p)], 2),
        (lambda p: [np.roll(values, 1, axis=1) for values in drawn(p)], 2),
    ],
)
def test_fwd_kernel_with_foreign_bytes_is_wrong(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[SuiteCase], list[Bytes]], wrong: int
) -> None:
    """O and the stored bytes agree with each other. Wrong are then O, by the right bytes, and the bytes."""
    problem = make(seqlens_q=(64,), seqlens_k=(96,), nhead_q=2, nhead_k=2, family="fwd", store_randval=True)

    def launch(device: Any, library: Any, p: SuiteCase, bits: Mapping[str, Any]) -> FwdOutcome:
        stored = change(p)
        o = encode(exact(fwd_cases.inputs(p, bits, "gfx950"), stored).o, p.dtype, "gfx950")
        ran = Launch(status=Status.OK, message="", kernels=("k",), milliseconds=0)
        return FwdOutcome(launch=ran, fault=None, o=o, lse=None, random_values=tuple(stored))

    monkeypatch.setattr(fwd_cases, "run_attention", launch)
    ended = fwd_cases.run_case(problem, cast(Any, SimpleNamespace(arch="gfx950")), cast(Any, None))
    assert len(ended.wrong) == wrong
