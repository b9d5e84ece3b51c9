"""Every kernel of our own upstream renders, and its text names what its headers declare."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckpm.kernels.families import spellings
from ckpm.kernels.families.batch_prefill import harness_text
from ckpm.kernels.families.family import INCLUDE
from ckpm.kernels.families.render import dispatch_text, instance_text
from ckpm.matrix.dialects import dialect, upstreams
from ckpm.matrix.keys import ANY_PAGE, PAGE_STEP, Key
from ckpm.matrix.selection import Selection, select

UPSTREAM = upstreams()["ckpm"]
HEADERS = INCLUDE.parent / UPSTREAM.headers
FEATURES = spellings.features(UPSTREAM.dialect)


def keys(mask_impl: str, tier: str = "full", name: str = "ckpm") -> list[Key]:
    chosen = dialect(upstreams()[name].dialect)
    return select(chosen, Selection(archs=("gfx950",), mask_impl=mask_impl, tier=tier))


def header_names() -> set[str]:
    """Every identifier of our headers without their comments."""
    texts = (re.sub(r"//[^\n]*", "", file.read_text()) for file in HEADERS.rglob("*.hpp"))
    return {word for text in texts for word in re.findall(r"\w+", text)}


# What instances take from the packaged CK and from HIP, and what they name themselves
_NOT_OURS = {"ComposedAttention", "TileFmhaShape", "sequence", "Default2DEpilogue", "Default2DEpilogueProblem"} | {
    *("launch_kernel", "make_kernel", "stream_config", "LOGITS_SOFT_CAP", "SimplifiedGenericAttentionMask"),
    *("QRKSVS", "QRKSVS_ASYNC", "QRKSVS_ASYNC_TRLOAD", "BlockFmhaPipelineEnum", "NO_BIAS"),
    "ceil_to_qualified_tile_length",
}


def unit_names(text: str) -> Iterator[str]:
    """The names that a unit takes from CK's namespace and from the example header, whatever declares them."""
    text = re.sub(r"\"[^\"]*\"", "", text)
    for path in re.findall(r"ck_tile::(\w+(?:::\w+)*)", text):
        yield from path.split("::")
    yield from re.findall(r"\b(?:fmha|Fmha)\w+", text)


@pytest.mark.parametrize(("mask_impl", "count"), [("simplified", 4848), ("generic", 8080)])
def test_every_kernel_renders_with_names_of_our_headers(mask_impl: str, count: int) -> None:
    every = keys(mask_impl)
    assert len(every) == count
    # what only ckpm-extended has: every twentieth of its kernels
    beyond = keys(mask_impl, name="ckpm-extended")
    assert not {key.name for key in beyond} & {key.name for key in every}
    names, unknown = header_names() | _NOT_OURS, set()
    for key in (*every, *beyond[::20]):
        text = instance_text(key, FEATURES)
        assert f'note_selected("{key.name}")' in text
        unknown |= set(unit_names(text)) - names
    assert unknown == set()


def test_dispatch_of_every_kernel_calls_our_selector() -> None:
    text = dispatch_text(keys("simplified"), FEATURES)
    calls = set(re.findall(r"fmha_batch_prefill_select_kv_load_mode\(([^)]*)\)", text))
    arguments = "a.page_block_size, 128, a.num_total_pages, a.batch_stride_k, a.batch_stride_v, kElementBytes"
    assert calls == {f"{arguments}, a.k_ptr, a.v_ptr"}


def test_dispatch_of_our_headers_goes_on_to_larger_head_dims() -> None:
    """Upstreams' dispatch looks in the first head dim that holds the request's, and refuses what that one lacks."""
    every = keys("simplified", "smoke", "ckpm-extended")
    assert "else if(t.hdim_q <=" not in dispatch_text(every, spellings.features("ckpm-extended"))
    assert "else if(t.hdim_q <=" in dispatch_text(keys("simplified"), FEATURES)


def test_pages_of_any_size_are_multiples_of_step_of_our_headers() -> None:
    """They have one load mode, so dispatch asks for none; the request that has a kernel of its page size takes that."""
    every = keys("simplified", "smoke", "ckpm-extended")
    arms = [
        line for line in dispatch_text(every, spellings.features("ckpm-extended")).splitlines() if "t.page_size" in line
    ]
    whole = [line for line in arms if f"t.page_size % {PAGE_STEP} == 0" in line]
    assert len(whole) == len([key for key in every if key.page_size == ANY_PAGE]) == 6
    assert not [line for line in whole if "select_kv_load_mode" in line]
    assert f"PAGE_STEP = {PAGE_STEP};" in (HEADERS / "ckpm_prefill" / "paged_cache.hpp").read_text()
    assert f"ANY_PAGE  = {ANY_PAGE};" in (HEADERS / "ckpm_prefill" / "paged_cache.hpp").read_text()


@pytest.mark.parametrize(
    ("name", "message"),
    [("ckpm-extended", "a power of two or a multiple of 16"), ("rocm-libraries-2026", "a power of two")],
)
def test_library_without_pages_of_any_size_refuses_them(name: str, message: str) -> None:
    text = harness_text(name, spellings.features(name))
    assert f'"page_size must be {message}"' in text
    assert ("p.page_size % 16 != 0" in text) == (name == "ckpm-extended")


def test_no_assert_calls_out_of_kernel() -> None:
    """A call's register pressure moved the words of a descriptor on gfx950 (rocm-libraries pull request 6653)."""
    for file in sorted(Path(HEADERS).rglob("*.hpp")):
        assert not re.search(r"\b(assert|printf|abort|__trap|__builtin_trap)\s*\(", file.read_text()), file


def test_our_headers_have_no_text_of_ck() -> None:
    """No text of CK's is in this repository: each file begins with what it is for, and none with CK's licence line."""
    for file in sorted(Path(HEADERS).rglob("*.hpp")):
        text = file.read_text()
        assert text.startswith("// "), file
        assert "Advanced Micro Devices" not in text, file
