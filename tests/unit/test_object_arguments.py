"""Tables of arguments of AITER's code objects: places, and the block that is made of values."""

from __future__ import annotations

import itertools
import struct

import pytest

from tests.programs.objects.launching import layouts, pack


@pytest.mark.parametrize("table", layouts())
def test_arguments_of_table_do_not_overlap(table: str) -> None:
    for argument, following in itertools.pairwise(layouts()[table]):
        assert argument.end <= following.offset
        assert following.offset % 8 == 0


def test_block_has_values_at_their_offsets() -> None:
    block = pack("bf16gemm", {"d": 0x1122334455667788, "alpha": 0.5, "splits": 3})
    assert len(block) == 276
    assert struct.unpack_from("<Q", block)[0] == 0x1122334455667788
    assert struct.unpack_from("<f", block, 64)[0] == 0.5
    assert struct.unpack_from("<I", block, 272)[0] == 3
    assert not any(block[8:64])


def test_value_without_place_is_refused() -> None:
    with pytest.raises(KeyError, match="nothing"):
        pack("bf16gemm", {"nothing": 1})
