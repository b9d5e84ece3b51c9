"""Both forms against attention in float64, on emulated devices: types, layouts, head dims, lengths, empty splits."""

from __future__ import annotations

import dataclasses

import pytest

from ckpm.base.errors import DeviceError, UsageError
from ckpm.decode.problem import RESIDENT, DecodeLaunch, DecodeShape, forced_launch
from tests.decode.posed import SHAPE, worst

ARCHS = ("gfx942", "gfx950")
ARCH = "gfx950"
# P in bf16 has 2**-9, as has the output; what is summed is of size 1
TOLERANCE = 0.02
HEAD_DIMS = [(64, 2), (128, 4), (256, 8)]  # with groups
# resident on small tiles: fewer registers, the same code
SMALL = DecodeLaunch(block_m=16, block_n=32, num_stages=1, num_warps=1)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("stored", ["fp8", "int8"])
@pytest.mark.parametrize("page_size", [0, 1, 16, 128])
@pytest.mark.parametrize(("head_dim", "groups"), HEAD_DIMS)
def test_streaming(arch: str, stored: str, page_size: int, head_dim: int, groups: int) -> None:
    shape = dataclasses.replace(SHAPE, stored=stored, page_size=page_size, head_dim=head_dim, groups=groups)
    assert worst(arch, "streaming", shape, forced_launch(arch, shape)) < TOLERANCE


@pytest.mark.parametrize("page_size", [2, 4, 8, 32, 64, 256, 512, 1024])
def test_every_power_of_two_is_page_size(page_size: int) -> None:
    """A page of 512 or 1,024 tokens is larger than any of the sequences."""
    shape = dataclasses.replace(SHAPE, page_size=page_size, heads_kv=1)
    assert worst(ARCH, "streaming", shape, forced_launch(ARCH, shape)) < TOLERANCE


@pytest.mark.parametrize("page_size", [3, 48, 2048])
def test_another_page_size_is_refused(page_size: int) -> None:
    with pytest.raises(UsageError, match="powers of two up to 1024 are served"):
        dataclasses.replace(SHAPE, page_size=page_size)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("stored", ["fp8", "int8"])
@pytest.mark.parametrize("page_size", [0, 1, 64])
@pytest.mark.parametrize(("head_dim", "groups"), HEAD_DIMS)
def test_resident(arch: str, stored: str, page_size: int, head_dim: int, groups: int) -> None:
    shape = dataclasses.replace(SHAPE, stored=stored, page_size=page_size, head_dim=head_dim, groups=groups)
    assert worst(arch, "resident", shape, SMALL) < TOLERANCE


@pytest.mark.parametrize("page_size", [0, 128])
def test_bad_example_is_right_nevertheless(page_size: int) -> None:
    assert worst(ARCH, "resident", dataclasses.replace(SHAPE, page_size=page_size), RESIDENT) < TOLERANCE


@pytest.mark.parametrize("splits", [1, 3, 8])
@pytest.mark.parametrize("heads_q", [1, 4, 8, 16])
def test_splits_and_shared_heads(splits: int, heads_q: int) -> None:
    shape = dataclasses.replace(SHAPE, splits=splits, heads_q=heads_q, heads_kv=1)
    assert worst(ARCH, "streaming", shape, forced_launch(ARCH, shape)) < TOLERANCE


@pytest.mark.parametrize("name", ["k_shift", "v_shift", "k_scale", "v_scale", "k", "v"])
def test_what_is_left_out_is_seen(name: str) -> None:
    """The comparison notices each part of the cache: what the kernel's second product is for among them."""
    assert worst(ARCH, "streaming", SHAPE, forced_launch(ARCH, SHAPE), damage=name) > 5 * TOLERANCE


@pytest.mark.parametrize("page_size", [1, 64])
def test_page_beyond_pool_is_fault(page_size: int) -> None:
    """Triton's resources claim 2 GB: what a lane addresses beyond an allocation is found all the same."""
    shape: DecodeShape = dataclasses.replace(SHAPE, page_size=page_size)
    with pytest.raises(DeviceError, match="outside the allocations"):
        worst(ARCH, "streaming", shape, forced_launch(ARCH, shape), damage="pages")
