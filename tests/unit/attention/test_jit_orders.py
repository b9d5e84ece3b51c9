"""Units compiled for a kernel's name, and names that are refused before anything is compiled."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckpm.attention.jit.orders import Order, Place, order_for
from ckpm.base.errors import CkPrefillError, NameSyntaxError, RecordError, UnknownWordError, UsageError
from ckpm.kernels.library.request import prepare
from ckpm.matrix.dialects import dialect, upstreams
from ckpm.matrix.selection import Selection, select
from tests.unit.attention.jit_requests import COMPILER, DIALECT, NAME, TREE

PLACE = Place(upstream="aiter")


def names(family: str, arch: str = "gfx950") -> list[str]:
    return [key.name for key in select(dialect(DIALECT), Selection(archs=(arch,), families=(family,)))]


@pytest.mark.parametrize("family", ["batch_prefill", "fwd", "fwd_pagedkv", "fwd_appendkv"])
def test_kernel_of_one_stage_is_library_of_its_own(family: str, tmp_path: Path) -> None:
    name = names(family)[0]
    order, keys = order_for(name, PLACE, "gfx950", DIALECT)
    assert [key.name for key in keys] == [name]
    plan, selected = prepare(order.request(TREE, COMPILER, tmp_path))
    assert [key.name for key in selected] == [name]
    assert plan.folder.startswith("build/gfx950/aiter")


def test_first_stage_comes_with_its_combine_kernels(tmp_path: Path) -> None:
    name = next(name for name in names("fwd_splitkv") if "_d128_fp16_" in name)
    order, keys = order_for(name, PLACE, "gfx950", DIALECT)
    first, *second = keys
    assert (first.name, {key.family for key in second}) == (name, {"fwd_splitkv_combine"})
    # with and without LSE, for the same head dim and type; the pads of both are those that CK's dispatch compares
    assert {(key.dtype, key.hdim_q, key.mode) for key in second} == {("fp16", 128, first.mode)}
    assert {key.lse for key in second} == {True, False}
    _, selected = prepare(order.request(TREE, COMPILER, tmp_path))  # raises unless the dispatch has all it needs
    assert {key.name for key in selected} == set(order.names)


@pytest.mark.parametrize(("tile", "stages"), [("_maxq0_", {"pd", "psd"}), ("_maxq32_", {"psd"})])
def test_gradients_come_with_stages_before_and_after(tmp_path: Path, tile: str, stages: set[str]) -> None:
    """Stages of whole and of padded blocks of rows. A tile for few queries has padded blocks alone."""
    name = next(name for name in names("bwd_dq_dk_dv") if "_d64_bf16_batch_" in name and f"{tile}pd8dv8_" in name)
    order, keys = order_for(name, PLACE, "gfx950", DIALECT)
    main, *beside = keys
    assert main.name == name
    assert {key.pad.replace("dv", "d") for key in beside if key.family == "bwd_dot_do_o"} == stages
    assert {(key.dtype, key.hdim_q, key.mode) for key in beside} == {("bf16", 64, "batch")}
    _, selected = prepare(order.request(TREE, COMPILER, tmp_path))  # raises unless the dispatch has all it needs
    assert {key.name for key in selected} == set(order.names)


def test_key_reports_which_masks_it_means() -> None:
    generic = Selection(archs=("gfx950",), mask_impl="generic", where=("key.mask == 'no'",))
    key = select(dialect(DIALECT), generic)[0]
    assert order_for(key, PLACE, "gfx950", DIALECT)[0].mask_impl == "generic"
    assert order_for(key.name, PLACE, "gfx950", DIALECT)[0].mask_impl == "simplified"


@pytest.mark.parametrize(
    ("name", "arch", "kind", "message"),
    [
        (NAME.replace("d128", "d130"), "gfx950", NameSyntaxError, "d130"),
        ("no_kernel", "gfx950", NameSyntaxError, "no_kernel"),
        (NAME, "gfx900", UnknownWordError, "gfx900"),
        (NAME, "gfx1201", UsageError, "gfx1201"),
        ("combine", "gfx950", UsageError, "fwd_splitkv"),
        ("of gfx950", "gfx942", UsageError, "gfx942 has no such kernel"),
    ],
)
def test_order_of_kernel_that_cannot_be_compiled_is_refused(
    name: str, arch: str, kind: type[CkPrefillError], message: str
) -> None:
    examples = {"combine": names("fwd_splitkv_combine")[0]}
    examples["of gfx950"] = next(kernel for kernel in names("fwd") if kernel not in names("fwd", "gfx942"))
    with pytest.raises(kind, match=message):
        order_for(examples.get(name, name), PLACE, arch, DIALECT)


def test_order_of_family_without_texts_in_dialect_is_refused() -> None:
    """Texts of fwd are those of aiter's CK alone; flash-attn's has the same kernels by name."""
    of = dialect(upstreams()["flash-attn"].dialect)
    key = select(of, Selection(archs=("gfx950",), families=("fwd",)))[0]
    with pytest.raises(UsageError, match="can't be rendered"):
        order_for(key, Place(upstream="flash-attn"), "gfx950", of.name)


def test_order_of_family_with_headers_of_another_ck_is_refused() -> None:
    """Upstream ckpm has May's batch prefill over aiter's headers of November, whose fwd has no sinks."""
    of = dialect(upstreams()["ckpm"].dialect)
    key = select(of, Selection(archs=("gfx950",), families=("fwd",)))[0]
    with pytest.raises(UsageError, match="can't be rendered"):
        order_for(key, Place(upstream="ckpm"), "gfx950", of.name)
    assert order_for(key, Place(upstream="checkout"), "gfx950", of.name)[1] == (key,)


def test_order_is_read_as_it_was_written(tmp_path: Path) -> None:
    source = Place(upstream="checkout", toolchain="embedded", ck_root="/ck", headers="/own")
    order, _ = order_for(NAME, source, "gfx950", DIALECT)
    order.write(tmp_path / "order.json")
    assert Order.read(tmp_path / "order.json") == order


def test_damaged_order_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "order.json"
    file.write_text('{"origin": {"upstream": 3}}')
    with pytest.raises(RecordError, match=r"origin\.upstream"):
        Order.read(file)


def test_combine_kernels_with_other_pads_are_left_out() -> None:
    """CK's dispatch compares rows of Q and columns of V (kPadSeqLenQ, kPadHeadDimV), so two of eight serve a kernel."""
    name = next(name for name in names("fwd_splitkv") if "_d128_fp16_batch_" in name and "_pssk_" in name)
    _, (_, *second) = order_for(name, PLACE, "gfx950", DIALECT)
    assert [(key.pad, key.lse) for key in second] == [("ps", True), ("ps", False)]
