"""Problems derived for kernels of fwd's families reach them.

The rendered dispatch, read as text, shows which kernel the fields of each launch select.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator
from types import CodeType, SimpleNamespace

import pytest

from ckpm.attention.launch.arguments import fwd_fields
from ckpm.attention.launch.fwd_launching import pose
from ckpm.kernels.families.family import Scenario
from ckpm.kernels.families.fwd_splitkv import conditions
from ckpm.kernels.families.render import dispatch_text as rendered
from ckpm.kernels.families.spellings import features
from ckpm.kernels.families.table import FAMILIES
from ckpm.matrix.dialects import dialect
from ckpm.matrix.keys import Key
from ckpm.matrix.problems.case import SuiteCase
from ckpm.matrix.selection import Selection, select_some
from ckpm.suites.kernel_cases import cases

_HDIMS = re.compile(r"if\(t\.hdim_q <= (\d+) && t\.hdim_v <= (\d+)\)$")
_ARM = re.compile(r"if\((.*)\)\n +return fmha_fwd\w*_<T(\d+),")


def dispatch_text(keys: list[Key]) -> str:
    return rendered(keys, features("ck-2025-11"))


def not_laid_out(key: Key) -> str | None:
    return FAMILIES[key.family].not_laid_out(key)


def scenarios(key: Key, keys: list[Key]) -> tuple[Scenario, ...]:
    list_scenarios = FAMILIES[key.family].scenarios
    assert list_scenarios is not None
    return list_scenarios(key, keys)


class Dispatch:
    """A dispatch text: for each data type and pair of head dims the conditions in order, and whom they lead to."""

    def __init__(self, text: str, device: str) -> None:
        listed = re.findall(r'^    "(fmha_\w+)",$', text, re.MULTILINE)
        body = text[text.index(f'"{device}") == 0)') :]
        self.groups: list[tuple[str, int, int, list[tuple[CodeType, str]]]] = []
        for part in re.split(r't\.data_type\.compare\("', body)[1:]:
            dtype = part.partition('"')[0]
            for piece in re.split(r"\n {12}(?=(?:else )?if)", part)[1:]:
                first, _, rest = piece.partition("\n")
                hdims = _HDIMS.search(first)
                assert hdims, first
                arms = [
                    (compile(_python(match[1]), "arm", "eval"), listed[int(match[2])]) for match in _ARM.finditer(rest)
                ]
                self.groups.append((dtype, int(hdims[1]), int(hdims[2]), arms))

    def chosen(self, candidate: SuiteCase) -> str | None:
        p = candidate
        absent = dict.fromkeys(("logits_soft_cap", "num_splits"), 0)
        arguments = SimpleNamespace(**{**absent, **fwd_fields(pose(p, p.family, "gfx950"))})
        arguments.skip_min_seqlen_q = p.min_seqlen_q > 0
        arguments.mask_type, arguments.bias_type = p.mask, p.bias
        arguments.has_dropout, arguments.do_fp8_static_quant = p.p_drop > 0, p.qscale == "pertensor"
        arguments.use_pagedkv = p.page_size > 1
        arguments.block_table_ptr = 1 if p.page_size > 1 else None
        arguments.cu_seqlen_k_ptr = None
        arguments.seqlen_k_ptr = 1 if p.mode == "batch" and len({*p.seqlens_k}) > 1 else None
        variables = {
            "t": arguments,
            "a": arguments,
            "mask_enum": SimpleNamespace(
                no_mask="no", mask_top_left="top_left", mask_bottom_right="bottom_right", window_generic="window"
            ),
            "bias_enum": SimpleNamespace(no_bias="no", elementwise_bias="bias", alibi="alibi"),
        }
        for dtype, hdim_q, hdim_v, arms in self.groups:
            if (dtype, p.hdim_q <= hdim_q, p.hdim_v <= hdim_v) == (p.dtype, True, True):
                return next((name for condition, name in arms if eval(condition, variables)), None)
        return None


def _python(condition: str) -> str:
    for cpp, python in (
        ("&&", "and"), ("||", "or"), ("::", "."), ("nullptr", "None"), ("true", "True"), ("false", "False"),
    ):  # fmt: skip
        condition = condition.replace(cpp, python)
    return condition


def keys_of(family: str, tier: str, where: str = "True", mask_impl: str = "simplified") -> list[Key]:
    selection = Selection(archs=("gfx950",), families=(family,), tier=tier, where=(where,), mask_impl=mask_impl)
    return select_some(dialect("ck-2025-11"), selection)


def find_missed(keys: list[Key]) -> Iterator[tuple[Key, set[str | None]]]:
    """Kernels that no candidate reaches, and where the candidates go."""
    dispatch = Dispatch(dispatch_text(keys), keys[0].arch_trait)
    for key in keys:
        if not_laid_out(key):
            continue
        candidates = [candidate for scenario in scenarios(key, keys) for candidate in scenario.candidates]
        chosen_names = {dispatch.chosen(candidate) for candidate in candidates}
        if key.name not in chosen_names:
            yield key, chosen_names


@pytest.mark.parametrize(
    ("family", "tier", "where", "never"),
    [
        # kernels that load through LDS transposed come first and take all that qr_async could: but for soft caps
        ("fwd", "smoke", "True", 4),
        # here they come last, and serve what those before them do
        ("fwd", "full", "key.hdim_q == 64 and key.dtype == 'bf16' and not key.skip", 8),
        # whole loads of 128 in a head dim of up to 96: there are none
        ("fwd", "full", "key.hdim_q == 96 and key.dtype == 'bf16' and not key.lse", 8),
        ("fwd_pagedkv", "full", "True", 0),
    ],
)
def test_missed_kernel_is_reached_by_no_candidate(family: str, tier: str, where: str, never: int) -> None:
    keys = keys_of(family, tier, where)
    dispatch = Dispatch(dispatch_text(keys), keys[0].arch_trait)
    missed = list(find_missed(keys))
    assert len(missed) == never
    for key, instead in missed:
        assert key.name not in instead
        for candidate in every_candidate(key, keys):
            assert dispatch.chosen(candidate) != key.name, str(candidate)


def every_candidate(key: Key, keys: list[Key]) -> Iterator[SuiteCase]:
    """Lengths and dims on both sides of all limits of the tile."""
    tile, dims = key.tile, (8, 32, 64, key.hdim_q - 8, key.hdim_q)
    for scenario in scenarios(key, keys):
        first = scenario.candidates[0]
        assert isinstance(first, SuiteCase)
        for seqlen_q, seqlen_k, hdim_q, hdim_v in itertools.product(
            (1, 16, tile.bm0, tile.bm0 + 1), (1, tile.bn0, tile.bn0 + 1), dims, dims
        ):
            yield dataclasses.replace(
                first, seqlens_q=(seqlen_q,) * 2, seqlens_k=(seqlen_k,) * 2, hdim_q=hdim_q, hdim_v=hdim_v
            )


@pytest.mark.parametrize("mask_impl", ["simplified", "generic"])
def test_kernel_alone_in_its_library_is_reached_at_once(mask_impl: str) -> None:
    for key in keys_of("fwd", "full", "key.hdim_q in (128, 256) and key.dtype == 'fp16'", mask_impl)[::7]:
        dispatch = Dispatch(dispatch_text([key]), key.arch_trait)
        for scenario in () if not_laid_out(key) else scenarios(key, [key]):
            first = scenario.candidates[0]
            assert isinstance(first, SuiteCase)
            assert dispatch.chosen(first) == key.name, (key.name, str(first))


def test_first_candidate_of_padding_kernel_has_partial_tiles() -> None:
    (key,) = [
        key for key in keys_of("fwd", "smoke") if key.pad == "psskddv" and key.mode == "batch" and key.mask == "no"
    ]
    (scenario,) = scenarios(key, [key])
    first = scenario.candidates[0]
    assert isinstance(first, SuiteCase)
    p = first
    assert p.seqlens_q[0] % key.tile.bm0
    assert p.seqlens_k[0] % key.tile.bn0
    assert p.hdim_q < key.hdim_q


def test_split_kv_is_asked_for_all_its_machine_code() -> None:
    keys = [*keys_of("fwd_splitkv", "smoke"), *keys_of("fwd_splitkv_combine", "smoke")]
    labels = {key.name: [scenario.label for scenario in scenarios(key, keys)] for key in keys}
    for key in keys:
        if key.family == "fwd_splitkv_combine":
            assert labels[key.name] == [f"{splits} splits" for splits in (3, 9, 17, 33, 65)]
        else:
            wanted = {"even splits"} if key.mode == "batch" else set()
            wanted |= {"no mask", "merged heads"} if key.mask == "no" else {"causal", "window"}
            assert set(labels[key.name]) == wanted
    combine = next(key for key in keys if key.family == "fwd_splitkv_combine")
    assert scenarios(combine, [combine]) == ()


def test_whole_tiles_go_to_kernel_that_pads_less() -> None:
    """A kernel that pads more is not reached in the scenario of even splits."""
    keys = keys_of(
        "fwd_splitkv",
        "full",
        "key.hdim_q == 64 and key.dtype == 'bf16' and key.mode == 'batch' and not (key.paged_kv or key.logits) "
        "and key.bias == key.mask == 'no' and key.lse",
    )
    by_pad = {key.pad: key for key in keys}
    dispatch = Dispatch.__new__(Dispatch)
    arms = [
        (compile(_python(" && ".join(conditions(key, features("ck-2025-11")))), "arm", "eval"), key.name)
        for key in keys
    ]
    dispatch.groups = [("bf16", 64, 64, arms)]
    padded = by_pad["pssk"]  # of queries and keys
    chosen = {
        scenario.label: {dispatch.chosen(each) for each in scenario.candidates} for scenario in scenarios(padded, keys)
    }
    assert padded.name in chosen["no mask"]
    assert chosen["even splits"] == {by_pad["ps"].name, by_pad["psk"].name}


def test_case_is_found_by_glob_with_or_without_suite() -> None:
    keys = keys_of("fwd_v3", "full")
    assert len(cases(keys)) == 4
    assert [case.name for case in cases(keys, "*_bf16_mask")] == ["kernels/fmha_fwd_v3_d128_bf16_mask"]
    assert cases(keys, "kernels/*_bf16_mask") == cases(keys, "*_bf16_mask")


def test_not_laid_out_names_reason() -> None:
    reasons = {not_laid_out(key) for key in keys_of("fwd", "full", "key.dtype not in ('fp16', 'bf16')")}
    assert reasons == {
        None, "tensors and tolerances of fp8", "tensors and tolerances of fp8fp32", "fp8 without scales",
        "an elementwise bias in float32",
    }  # fmt: skip
