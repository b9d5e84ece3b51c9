"""The newest dialect's dispatch chooses what upstream's rules choose, in a sample and over all of its kernels."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence

import pytest

from ckpm.attention.launch.c_abi import Library
from ckpm.kernels.abi import LaunchArguments, Status
from ckpm.matrix.keys import Key
from tests.build.newest import DIALECT, EIGHT, FIVE, FORMS, all_keys, fake
from tests.build.newest_requests import Model, request, requests


@pytest.mark.parametrize(("mask_impl", "form"), FORMS)
def test_kernels_are_selection_in_order(
    libraries: Mapping[tuple[str, str], Library], samples: Mapping[str, list[Key]], mask_impl: str, form: str
) -> None:
    library = libraries[mask_impl, form]
    assert library.dialect == DIALECT
    assert library.kernels == tuple(key.name for key in samples[mask_impl])
    assert library.abi.ckpm_kernel_name(-1) is None
    assert library.abi.ckpm_kernel_name(len(library.kernels)) is None


def test_problem_has_size_of_library(libraries: Mapping[tuple[str, str], Library]) -> None:
    for library in libraries.values():
        assert library.abi.ckpm_problem_bytes() == ctypes.sizeof(LaunchArguments)


@pytest.mark.parametrize(("mask_impl", "form"), FORMS)
def test_dispatch_chooses_as_upstream(
    libraries: Mapping[tuple[str, str], Library], samples: Mapping[str, list[Key]], mask_impl: str, form: str
) -> None:
    library, keys = libraries[mask_impl, form], samples[mask_impl]
    model = Model(keys, form)
    chosen = set()
    for problem, cus in requests(keys, 20, seed=len(form)):
        fake(library, cus=cus)
        launch = library.launch(LaunchArguments(**problem))
        expected = model.choose(problem, cus)
        assert launch.kernel == expected, problem
        assert (launch.status, launch.message) == (
            (Status.OK, "") if expected else (Status.UNSUPPORTED, "no kernel of this library serves the request")
        )
        assert library.abi.ckpm_fake_launches() == (1 if expected else 0)
        chosen.add(expected)
    assert None in chosen
    # with the 8-parameter selector a page of 1 token always takes 64-bit loads
    unreachable = {key.name for key in keys if form == EIGHT and key.page_size == 1 and key.load == "bload"}
    assert chosen - {None} == {key.name for key in keys} - unreachable


def test_whole_dispatch_chooses_as_upstream(whole: Library) -> None:
    keys = all_keys("simplified")
    assert whole.kernels == tuple(key.name for key in keys)
    model = Model(keys, EIGHT)
    chosen = set()
    for problem, cus in requests(keys, 1, seed=1):
        fake(whole, cus=cus)
        expected = model.choose(problem, cus)
        assert whole.launch(LaunchArguments(**problem)).kernel == expected, problem
        chosen.add(expected)
    assert len(chosen - {None}) == 4848 - 600  # the 600 bload kernels of page size 1


def find(keys: Sequence[Key], bm0: int) -> Key:
    """The smoke tier's masked bf16 kernel of page size 16 and ``bm0`` rows, without further features."""
    plain = f"_d128_bf16_group_ps16_bload_b{bm0}x", "_nlogits_nbias_mask_nlse_ndropout_nqscale_nsink_vectorized_sglang"
    return next(key for key in keys if plain[0] in key.name and key.name.endswith(plain[1]))


@pytest.mark.parametrize(
    ("blocks", "cus", "rows"), [(204, 256, 64), (205, 256, 128), (243, 304, 64), (244, 304, 128), (256, 320, 128)]
)
def test_short_tile_serves_few_blocks(
    libraries: Mapping[tuple[str, str], Library], samples: Mapping[str, list[Key]], blocks: int, cus: int, rows: int
) -> None:
    """Blocks are counted with 128 rows for each tile; the bound is 0.8 of the CUs."""
    library = libraries["simplified", EIGHT]
    problem = request(find(samples["simplified"], bm0=64))
    fake(library, cus=cus)
    launch = library.launch(
        LaunchArguments(**{**problem, "batch": 1, "nhead_q": 1, "nhead_k": 1, "max_seqlen_q": 128 * blocks})
    )
    assert f"_b{rows}x128" in (launch.kernel or "")


@pytest.mark.parametrize(
    ("form", "change", "load_word"),
    [
        # 2**16 pages of 2**14 elements of 2 bytes are 2 GB; of a base address the low half counts
        (FIVE, {"num_total_pages": 2**16 - 1}, "bload"),
        (FIVE, {"num_total_pages": 2**16}, "gload"),
        (FIVE, {"num_total_pages": 2**16 - 1, "batch_stride_v": 2**15}, "bload"),
        (FIVE, {"num_total_pages": 2**16 - 1, "k": 2**31}, "bload"),
        (EIGHT, {"num_total_pages": 2**16 - 1, "k": 2**32, "v": 2**32}, "bload"),
        (EIGHT, {"num_total_pages": 2**16 - 1, "k": 2**32 + 2**15 - 1, "v": 2**32}, "bload"),
        (EIGHT, {"num_total_pages": 2**16 - 1, "k": 2**32 + 2**15, "v": 2**32}, "gload"),
        (EIGHT, {"num_total_pages": 2**16 - 1, "k": 2**32, "v": 2**32 + 2**15}, "gload"),
        (EIGHT, {"num_total_pages": 2**15, "batch_stride_v": 2**15, "k": 2**32, "v": 2**32}, "gload"),
    ],
)
def test_pools_over_2_gb_take_64_bit_loads(
    libraries: Mapping[tuple[str, str], Library],
    samples: Mapping[str, list[Key]],
    form: str,
    change: Mapping[str, int],
    load_word: str,
) -> None:
    library, key = libraries["simplified", form], find(samples["simplified"], bm0=128)
    fake(library)
    strides = {"batch_stride_k": 2**14, "batch_stride_v": 2**14}
    launch = library.launch(LaunchArguments(**{**request(key), **strides, **change}))
    assert launch.kernel == key.name.replace("bload", load_word)
