"""Where the arguments lie of which tests/mutants/arguments.py knows something: in the upstreams' own headers."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from kernels.upstream.trees import Tree
from tests.mutants.arguments import PROMISED

_HEADER = "include/ck_tile/ops/fmha/kernel/fmha_batch_prefill_kernel.hpp"
_SIZES = {"void*": 8, "ck_tile::index_t": 4}  # ck_tile/core/numeric/integer.hpp: index_t is int32_t


@pytest.mark.parametrize("upstream", PROMISED)
def test_the_head_dims_lie_where_the_rules_take_them_from(trees: Mapping[str, Tree], upstream: str) -> None:
    text = (trees[upstream].root / _HEADER).read_text()
    _, _, fields = text.partition("struct FmhaFwdCommonKargs")
    places, at = {}, 0
    for kind, name in re.findall(r"(?:const )?(void\*|ck_tile::index_t) (\w+);", fields.partition("#if")[0])[:8]:
        places[name] = at
        at += _SIZES[kind]
    assert {places["hdim_q"], places["hdim_v"]} == set(PROMISED[upstream])
