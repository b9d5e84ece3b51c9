"""V3 in the rendered text: tried first and on its own device alone, the load modes of a launch, what is left to V2."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ckpm.base.errors import UsageError
from ckpm.kernels.code.toolchains import Toolchain
from ckpm.kernels.families import words
from ckpm.kernels.families.render import dispatch_text, instance_text, plan_units
from ckpm.kernels.library.request import Request, prepare
from ckpm.kernels.library.write_manifest import match_symbols
from ckpm.matrix.dialects import dialect
from ckpm.matrix.keys import Key
from ckpm.matrix.names import parse
from ckpm.matrix.selection import Selection, select

DIALECT = dialect("prefill-v3")
FEATURES = words.features("prefill-v3")
MODE = "ck_tile::BlockAttentionKVCacheLoadModeEnum::"


def keys(*archs: str, where: str = "key.dtype == 'fp8bf16'") -> list[Key]:
    return select(DIALECT, Selection(archs=archs, where=(where,)))


def is_v3(key: Key) -> bool:
    return "_trload_v3_" in key.name


def load_modes(text: str) -> list[str]:
    """The load modes that a kernel is launched with, in the order of the text."""
    return re.findall(rf"return ckpm::k0::launch<{MODE}(\w+)>", text)


def test_v3_is_tried_before_v2_wherever_its_keys_stand() -> None:
    both = keys("gfx942", "gfx950")[::-1]
    assert not is_v3(both[0])
    text = dispatch_text(both, FEATURES)
    table = re.findall(r'\{"(fmha_batch_prefill_\w+)", &fmha_batch_prefill_<(T\d+)>\}', text)
    names = [name for name, _ in table]
    assert sorted(names) == sorted(key.name for key in both)
    assert [("_v3_" in name) for name in names] == [True] * 32 + [False] * (len(names) - 32)
    arms = re.findall(r"return fmha_batch_prefill_<(T\d+)>\(s, a\)", text)
    assert arms == [alias for _, alias in table]  # dispatch asks in the table's order
    guard = text.index('if(device_name.compare(0, 6, "gfx950") == 0 && v3_is_on())')
    assert guard < text.index("return fmha_batch_prefill_<T0>") < text.index("return fmha_batch_prefill_<T31>")
    inside = text[guard : text.index("return fmha_batch_prefill_<T32>")]
    depths = [inside[:end].count("{") - inside[:end].count("}") for end in (inside.index("<T31>"), len(inside))]
    assert depths == [3, 2]  # V2's first arm is outside the block of V3, whose arms return only where they fit
    assert "else" not in inside[inside.rindex("}") :]


def test_library_without_v3_has_no_word_of_it() -> None:
    text = dispatch_text(keys("gfx942"), FEATURES)
    assert not re.search(r"v3|device_name|getenv|if\((?:false|true)\)", text)
    newest = select(dialect("rocm-libraries-2026"), Selection(archs=("gfx950",), tier="smoke"))
    assert "getenv" not in dispatch_text(newest, words.features("rocm-libraries-2026"))


def test_v3_is_turned_off_by_environment() -> None:
    text = dispatch_text(keys("gfx950"), FEATURES)
    assert 'std::getenv("CKPM_V3")' in text


@pytest.mark.parametrize(
    ("v3", "page_size", "modes"),
    [
        (True, 1, ["GLOBAL_LOAD_LDS"]),
        (True, 16, ["BUFFER_LOAD"]),  # a wave brings 8 tokens at once: of one page, which has a descriptor
        (True, 1024, ["BUFFER_LOAD"]),
        (False, 1, ["GLOBAL_LOAD_LDS"]),
        (False, 16, ["GLOBAL_LOAD_LDS", "BUFFER_LOAD"]),
        (False, 1024, ["BUFFER_LOAD"]),
    ],
)
def test_kernel_has_load_modes_that_launch_may_need(v3: bool, page_size: int, modes: list[str]) -> None:
    """Issue 13's selector: pages of a tile or more have a descriptor each, pages of one token always take 64 bits."""
    some = [key for key in keys("gfx950") if is_v3(key) == v3 and key.page_size == page_size]
    for key in some:
        text = instance_text(key, FEATURES)
        assert load_modes(text) == modes
        calls = re.findall(rf"if\((\w+)\((.*)\) == {MODE}(\w+)\)", text)
        arguments = "args.page_block_size, 128, args.num_total_pages, args.batch_stride_k, args.batch_stride_v, 1, "
        arguments += "args.k_ptr, args.v_ptr"
        selector_calls = [("fmha_batch_prefill_select_kv_load_mode", arguments, "GLOBAL_LOAD_LDS")]
        assert calls == (selector_calls if len(modes) == 2 else [])
        assert f'note_selected("{key.name}")' in text


def test_v3_instance_is_for_gfx950_and_takes_problem_of_v2() -> None:
    text = instance_text(next(filter(is_v3, keys("gfx950"))), FEATURES)
    first, second, *_ = (line for line in text.splitlines() if line)
    assert first == '#include "ckpm_prefill_v3/kernel.hpp"'
    assert second == "#if !defined(__HIP_DEVICE_COMPILE__) || defined(__gfx950__)"
    kernel = "ck_tile::FmhaBatchPrefillV3Kernel<ck_tile::BlockFmhaBatchPrefillV3Pipeline<Problem<kLoad>>>"
    assert f"using Kernel = {kernel};" in text
    assert "Variant, Mask, true, 1" in text  # transposing loads; a page size
    assert "TileFmhaBatchPrefillTraits<true, true, false, false," in text  # pssk: lengths alone are padded
    assert text.count("#if") == text.count("#endif") == 1


def test_64_bit_loads_are_compiled_for_archs_that_have_them() -> None:
    guard = "#if !defined(__HIP_DEVICE_COMPILE__) || defined(__gfx94__) || defined(__gfx950__)"
    by_page = {key.page_size: instance_text(key, FEATURES) for key in keys("gfx942") if not is_v3(key)}
    assert by_page[1].startswith(f'#include "ckpm_prefill/kernel.hpp"\n\n{guard}')
    assert guard in by_page[16].split("note_selected")[1]
    assert guard not in by_page[1024]


def arm(key: Key) -> str:
    (text,) = re.findall(r"if\((.*)\)\n\s+return fmha_batch_prefill_<T0>", dispatch_text([key], FEATURES))
    return str(text)


def test_v3_takes_no_request_that_it_would_compute_wrong() -> None:
    v3 = {key.mask: arm(key) for key in keys("gfx950") if is_v3(key)}
    for text in v3.values():
        assert {"a.hdim_q == 128", "a.hdim_v == 128", "a.sink_ptr == nullptr"} <= set(text.split(" && "))
    assert {"a.window_size_left < 0", "a.window_size_right == 0"} <= set(v3["causal"].split(" && "))
    v2 = arm(next(key for key in keys("gfx950") if not is_v3(key) and key.hdim_q == 128))
    assert "a.hdim_q % 16 == 0" in v2
    assert "sink_ptr" not in v2


def test_v3_of_any_bounds_takes_every_mask_and_sinks() -> None:
    extended = select(
        dialect("ckpm-extended"),
        Selection(archs=("gfx950",), where=("key.page_size == 64", "key.lse", "not key.logits", "key.mask != 'no'")),
    )
    unbounded = next(key for key in extended if is_v3(key) and key.mask == "generic")
    same = [
        key for key in extended if is_v3(key) and dataclasses.replace(key, name="", mask="generic") == one_of(unbounded)
    ]
    assert [key.mask for key in same] == ["causal", "generic"]  # a causal request takes the first
    text = dispatch_text([unbounded], words.features("ckpm-extended"))
    (taken,) = re.findall(r"if\((.*)\)\n\s+return fmha_batch_prefill_<T0>", text)
    assert "t.mask_type != mask_enum::no_mask" in taken
    assert "t.has_sink == false" in taken  # sink tokens are V2's
    assert not re.search("sink_ptr|window_size", taken)


def one_of(key: Key) -> Key:
    return dataclasses.replace(key, name="")


def test_units_do_not_mix_v3_and_v2() -> None:
    for unit in plan_units(keys("gfx950")):
        assert len({is_v3(key) for key in unit.keys}) == 1


SYMBOL = (  # as clang mangles it, of two load modes
    "_ZN7ck_tile6kentryILi2ENS_4gfx9E37FmhaBatchPrefillWithPagedKVCacheKernelIN7ck_tile36BlockFmhaBatchPrefillPipeline"
    "ProblemINS_13TileFmhaShapeINS_8sequenceIJLi128ELi128ELi32ELi128ELi32ELi128EEEENS1_IJLi4ELi1EEEELb1EEELb1E"
    "NS_30SimplifiedGenericAttentionMaskILb1EEELb0ELi16ENS_26TileFmhaBatchPrefillTraitsILb1ELb1ELb1ELb1ELb0ELNS_22BlockAttentionBiasEnumE0ELb0ELb0ELb0E"
    "LNS_28BlockAttentionQuantScaleEnumE1ELin1ELb0ELb0ELi16ELNS_37LayoutEnumE1ELNS_36TableEnumE1ELNS_33LoadEnumE{load}E"
)
NAME = (
    "fmha_batch_prefill_d128_fp8bf16_group_ps16_b128x128x32x128x32x128_r4x1x1_r4x1x1_w32x32x32_w32x32x32_"
    "qr_async_vr_psskddv_nlogits_nbias_mask_nlse_ndropout_pertensor_nsink_linear_sglang_gfx9"
)


def test_both_load_modes_of_name_are_its_symbols() -> None:
    values = {NAME: parse(DIALECT.family("batch_prefill"), NAME)}
    both = [SYMBOL.format(load=0), SYMBOL.format(load=1)]
    assert match_symbols(values, both, Path("unit.o"), "gfx950", "batch_prefill") == {NAME: both}
    with pytest.raises(Exception, match=r"1 of 1 kernel symbols are .* 2 were planned"):
        match_symbols(values, both[:1], Path("unit.o"), "gfx950", "batch_prefill")


def test_checkout_of_pull_request_6054_is_not_built(
    request_for: Callable[..., Request], stub_toolchain: Callable[..., Toolchain]
) -> None:
    """Our text names classes of our own headers, which that tree has under other names."""
    request = request_for(stub_toolchain())
    foreign = dataclasses.replace(request, tree=dataclasses.replace(request.tree, dialect="prefill-v3"))
    with pytest.raises(UsageError, match=r"is of dialect prefill-v3, whose C\+\+ needs our own headers: .*ckpm-v3"):
        prepare(foreign)


def test_v3_of_ckpm_extended_has_load_mode_of_its_name() -> None:
    features = words.features("ckpm-extended")
    chosen = select(
        dialect("ckpm-extended"), Selection(archs=("gfx950",), where=("key.page_size == 64", "not key.logits"))
    )
    v3 = [key for key in chosen if is_v3(key)]
    assert {key.load for key in v3} == {"bload"}
    for key in v3:
        assert load_modes(instance_text(key, features)) == ["BUFFER_LOAD"]
    v2 = next(key for key in chosen if not is_v3(key) and key.dtype == "fp8bf16" and key.hdim_q == 128)
    text = dispatch_text([v2, v3[0]], features)
    first, second = text.split("return fmha_batch_prefill_<T0>")
    assert v3[0].name in first
    assert "select_kv_load_mode" not in first
    assert "select_kv_load_mode" in second
