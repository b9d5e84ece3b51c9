"""The load selector of our own batch prefill, at the boundaries of 32 bits, compiled for the host.

What one descriptor reaches follows from the hardware: a base of which the low 32 bits are added to offsets that CK
counts in signed 32 bits. The expectations are worked out here, in Python's unbounded integers.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpm.kernels.families.family import INCLUDE
from tests.build.newest import Compiler

HEADERS = INCLUDE.parent / "include_prefill"
INT32_MAX = 2**31 - 1
KN0 = 128
BUFFER, ADDRESS = 0, 1  # BlockAttentionKVCacheLoadModeEnum

_SOURCE = """
#include "ckpm_prefill/load_mode.hpp"
extern "C" __attribute__((visibility("default"))) int ckpm_test_load_mode(
    int page, int kn0, int pages, int k_stride, int v_stride, int bytes, const void* k, const void* v)
{
    return int(fmha_batch_prefill_select_kv_load_mode(page, kn0, pages, k_stride, v_stride, bytes, k, v));
}
"""

Select = Callable[..., int]


@pytest.fixture(scope="module")
def select(tmp_path_factory: pytest.TempPathFactory) -> Select:
    """``select(page, pages, stride_k, stride_v, bytes, k, v)``: the header's answer for tiles of 128 keys."""
    compiler = Compiler(tmp_path_factory.mktemp("selector"), (HEADERS,))
    source, library = compiler.folder / "selector.hip", compiler.folder / "selector.so"
    source.write_text(_SOURCE)
    # the header needs nothing of a C++ library, so that LLD alone links it
    link = [compiler.toolchain.linker[0], "ld.lld", "-shared", compiler.compile(source), "-o", str(library)]
    subprocess.run(link, env={**os.environ, **compiler.toolchain.environment}, check=True, timeout=1800)
    function = ctypes.CDLL(str(library)).ckpm_test_load_mode
    function.argtypes = [ctypes.c_int] * 6 + [ctypes.c_void_p] * 2

    def load_mode(page: int, pages: int, stride_k: int, stride_v: int, size: int, k: int = 0, v: int = 0) -> int:
        return int(function(page, KN0, pages, stride_k, stride_v, size, k, v))

    return load_mode


@pytest.mark.parametrize("page", [128, 1024, 2048])
def test_pages_of_tile_have_descriptor_each(select: Select, page: int) -> None:
    assert select(page, INT32_MAX, INT32_MAX, INT32_MAX, 2, 2**47, 2**47) == BUFFER


def test_scattered_pages_of_one_token_take_64_bits(select: Select) -> None:
    assert select(1, 1, 128, 128, 2) == ADDRESS


def test_exactly_int32_max_is_reached_and_byte_more_is_not(select: Select) -> None:
    assert select(16, 1, INT32_MAX, 1, 1) == BUFFER
    assert select(16, 1, INT32_MAX, 1, 1, k=1) == ADDRESS
    assert select(16, 2**27, 16, 1, 1) == ADDRESS  # 2^31 bytes
    assert select(16, 2**27 - 1, 16, 1, 1) == BUFFER


def test_product_of_0_in_32_bits_takes_64_bits(select: Select) -> None:
    assert select(16, 2**16, 2**16, 1, 1) == ADDRESS  # 2^32
    assert select(16, INT32_MAX, INT32_MAX, 1, 4) == ADDRESS  # 2^64, nearly


@pytest.mark.parametrize("high", [0, 2**32, 2**47 - 2**32])
def test_small_pool_across_4_gb_takes_64_bits(select: Select, high: int) -> None:
    pool = 2**20
    assert select(16, 1, pool, 1, 1, k=high) == BUFFER
    assert select(16, 1, pool, 1, 1, k=high + INT32_MAX - pool) == BUFFER
    assert select(16, 1, pool, 1, 1, k=high + INT32_MAX - pool + 1) == ADDRESS
    assert select(16, 1, pool, 1, 1, k=high + 2**32 - pool) == ADDRESS


def test_k_or_v_beyond_32_bits_takes_64_bits(select: Select) -> None:
    """Each with its own stride and base: either alone decides for 64 bits."""
    small, large = 2**10, 2**21
    pages = 2**10
    assert select(16, pages, small, small, 2) == BUFFER
    assert select(16, pages, large, small, 2) == ADDRESS
    assert select(16, pages, small, large, 2) == ADDRESS
    assert select(16, pages, small, small, 2, v=INT32_MAX) == ADDRESS
    assert select(16, pages, small, small, 2, k=INT32_MAX) == ADDRESS


sizes = st.integers(1, INT32_MAX)


@given(
    page=st.sampled_from([2, 16, 64]),
    pages=sizes | st.integers(1, 2**12),
    strides=st.tuples(sizes, sizes) | st.tuples(st.integers(1, 2**20), st.integers(1, 2**20)),
    size=st.sampled_from([1, 2]),
    bases=st.tuples(st.integers(0, 2**48), st.integers(0, 2**31)),
)
def test_selector_agrees_with_unbounded_integers(
    select: Select, page: int, pages: int, strides: tuple[int, int], size: int, bases: tuple[int, int]
) -> None:
    reaches = [base % 2**32 + pages * stride * size <= INT32_MAX for base, stride in zip(bases, strides, strict=True)]
    assert select(page, pages, *strides, size, *bases) == (BUFFER if all(reaches) else ADDRESS)


def test_header_needs_no_hip() -> None:
    text = (Path(HEADERS) / "ckpm_prefill/load_mode.hpp").read_text()
    assert [line for line in text.splitlines() if "#include" in line] == ["#include <cstdint>", "#include <limits>"]
