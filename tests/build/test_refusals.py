"""A problem that a library's CK can't do is refused with the field's name, and nothing is launched: ckpm.h's promise.

The harness of each dialect is compiled over its tree's own headers (the interface of 2026 for the newest). It is
linked with a library without kernels: a problem that is not refused ends with "no kernel".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from ckpm.attention.launch.c_abi import Library
from ckpm.kernels.abi import KvLayout, KvTable, LaunchArguments, QScale, Status
from ckpm.kernels.families import spellings
from ckpm.kernels.families.batch_prefill import harness_text
from ckpm.kernels.upstream.tree import Tree
from tests.build.newest import DIALECT as NEWEST
from tests.build.newest import INTERFACE, Compiler

OLD = {"ck-2025-06": "flash-attn", "ck-2025-11": "aiter"}
OWN = "ckpm-extended"
TREES = {**OLD, OWN: OWN}
DIALECTS = (*TREES, NEWEST)

# The rest of a library: no kernel, a dispatch that takes nothing, a HIP runtime without a device.
NO_KERNELS = f"""
const ckpm::KernelEntry ckpm::kernel_table[] = {{{{nullptr, nullptr}}}};
const int ckpm::kernel_count                 = 0;
float fmha_batch_prefill(fmha_batch_prefill_traits, fmha_batch_prefill_args, const ck_tile::stream_config&)
{{
    return -1;
}}
#include "{INTERFACE / "fake_runtime.hip"}"
"""

POINTERS = ("q", "k", "v", "o", "seqstart_q", "kv_indptr", "kv_page_indices")
PLAIN: Mapping[str, Any] = {
    **{name: 4096 * at for at, name in enumerate(POINTERS, 1)},
    **{"data_type": "bf16", "batch": 2, "nhead_q": 8, "nhead_k": 2, "hdim_q": 128, "hdim_v": 128, "max_seqlen_q": 16},
    **{"seqlen_q": 16, "seqlen_k": 32, "num_total_pages": 64, "page_size": 1, "is_group_mode": 1, "is_v_rowmajor": 1},
}
PAGES = {"page_size": 16, "kv_last_page_lens": 1 << 20}
BLOCK_TABLE = {"kv_table": KvTable.VLLM_2D, "seqlen_k_ptr": 1 << 21, "batch_stride_block_table": 4}
DESCALES = {"q_descale": 1 << 22, "k_descale": 1 << 23, "v_descale": 1 << 24}


@pytest.fixture(scope="module")
def library(trees: Mapping[str, Tree], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Library]:
    """``library(dialect)``: its harness without kernels, built once."""
    built: dict[str, Library] = {}

    def build(dialect: str) -> Library:
        if dialect not in built:
            includes = trees[TREES[dialect]].includes if dialect in TREES else (INTERFACE,)
            compiler = Compiler(tmp_path_factory.mktemp(dialect), includes)
            source = compiler.folder / "harness.hip"
            source.write_text(harness_text(dialect, spellings.features(dialect)) + NO_KERNELS)
            built[dialect] = compiler.link(f"lib{dialect}", [compiler.compile(source)])
        return built[dialect]

    return build


def refusal_text(library: Library, **fields: Any) -> str:
    """The text of a refusal, '' if the problem went on to dispatch. Asked for by name it must be the same."""
    problem = LaunchArguments(**{**PLAIN, **fields})
    launch, named = library.launch(problem), library.launch(problem, "fmha_nothing")
    assert (launch.kernel, named.kernel) == (None, None)
    if launch.status == Status.UNSUPPORTED:
        assert (launch.message, named.status) == ("no kernel of this library serves the request", Status.NO_KERNEL)
        return ""
    assert (launch.status, named.status, named.message) == (Status.BAD_PROBLEM, Status.BAD_PROBLEM, launch.message)
    return launch.message


@pytest.mark.parametrize("dialect", DIALECTS)
def test_fields_of_dialect_go_to_dispatch(library: Callable[[str], Library], dialect: str) -> None:
    for fields in (
        {},
        {"bias_type": 1, "bias": 8},
        {"has_lse": 1, "lse": 8},
        {"has_dropout": 1},
        {"has_dropout": 1, "store_randval": 1, "rand_val": 8},
        {"is_group_mode": 0, "seqstart_q": None},
    ):
        assert refusal_text(library(dialect), **fields) == "", fields


@pytest.mark.parametrize("dialect", OLD)
@pytest.mark.parametrize(
    ("field", "value", "neutral"),
    [
        *((name, 4096, "null") for name in ("q_descale", "k_descale", "v_descale", "sink")),
        *((name, 4096, "null") for name in ("kv_last_page_lens", "seqlen_k_ptr")),
        ("kv_layout", KvLayout.VECTORIZED, "0"),
        ("kv_table", KvTable.VLLM_2D, "0"),
        ("qscale_type", QScale.PERTENSOR, "0"),
        ("batch_stride_block_table", 1, "0"),
        *((name, 1, "0") for name in ("block_stride_kv_descale", "nhead_stride_kv_descale")),
        *((name, -1, "0") for name in ("has_sink", "sink_size")),
    ],
)
def test_field_of_later_ck_must_be_neutral(
    library: Callable[[str], Library], dialect: str, field: str, value: int, neutral: str
) -> None:
    expected = f"{field} must be {neutral}: the CK of this library ({dialect}) doesn't know it"
    assert refusal_text(library(dialect), **{field: value}) == expected


@pytest.mark.parametrize("dialect", OLD)
@pytest.mark.parametrize("page_size", [0, 2, 16])
def test_early_ck_with_larger_pages_is_refused(library: Callable[[str], Library], dialect: str, page_size: int) -> None:
    assert f"page_size must be 1: the CK of this library ({dialect})" in refusal_text(
        library(dialect), page_size=page_size
    )


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        *(({name: 0}, f"{name} must be positive") for name in ("batch", "nhead_q", "nhead_k", "hdim_q", "hdim_v")),
        *(({name: -1}, f"{name} must not be negative") for name in ("max_seqlen_q", "seqlen_q", "seqlen_k")),
        *(({name: -1}, f"{name} must not be negative") for name in ("num_total_pages", "warmup", "repeat")),
        *(({name: None}, f"{name} must not be null") for name in ("q", "k", "v", "o", "kv_page_indices")),
        ({"nhead_q": 9}, "nhead_q must be a multiple of nhead_k"),
        ({"mask_type": 4}, "mask_type must be 0 to 3"),
        ({"mask_type": -1}, "mask_type must be 0 to 3"),
        ({"bias_type": 3, "bias": 8}, "bias_type must be 0 to 2"),
        ({"seqstart_q": None}, "seqstart_q must not be null in group mode"),
        ({"bias_type": 1}, "bias must not be null with a bias_type"),
        ({"bias_type": 2}, "bias must not be null with a bias_type"),
        ({"has_lse": 1}, "lse must not be null with has_lse"),
        ({"store_randval": 1, "rand_val": 8}, "store_randval needs has_dropout"),
        ({"has_dropout": 1, "store_randval": 1}, "rand_val must not be null with store_randval"),
        *(
            ({"has_logits_soft_cap": 1, **cap}, "logits_soft_cap must be positive with has_logits_soft_cap")
            for cap in ({}, {"logits_soft_cap": -30.0}, {"logits_soft_cap": float("nan")})
        ),
        ({"struct_bytes": 8}, "the caller's ckpm_problem is of another version: use the ckpm.h beside this library"),
        ({"abi_version": 1}, "the caller's ckpm_problem is of another version: use the ckpm.h beside this library"),
    ],
)
def test_impossible_problem_is_refused(
    library: Callable[[str], Library], dialect: str, fields: Mapping[str, Any], message: str
) -> None:
    assert refusal_text(library(dialect), **fields) == message


def test_kernel_of_splits_without_split_keys_is_refused(library: Callable[[str], Library]) -> None:
    """The number of splits is seqlen_k divided by split_keys."""
    problem = LaunchArguments(**PLAIN)
    launch = library(OWN).launch(problem, "fmha_batch_prefill_qr_async_split_vr")
    assert launch.status == Status.BAD_PROBLEM
    assert launch.message == "split_keys must be positive with a kernel that splits the keys"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_missing_page_table_is_named(library: Callable[[str], Library], dialect: str) -> None:
    assert refusal_text(library(dialect), kv_indptr=None).startswith("kv_indptr must not be null")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (PAGES, ""),
        (BLOCK_TABLE, ""),
        ({**BLOCK_TABLE, "page_size": 1024, "kv_indptr": None}, ""),
        ({**PAGES, "kv_layout": KvLayout.VECTORIZED}, ""),
        ({"has_sink": 1, "sink": 8, "sink_size": 4}, ""),
        ({**DESCALES, "qscale_type": QScale.PERTENSOR}, ""),
        ({**DESCALES, **PAGES, "qscale_type": QScale.KV_BLOCKSCALE, "block_stride_kv_descale": 2}, ""),
        ({"page_size": 16}, "kv_last_page_lens must not be null with a 1-D table of pages of several tokens"),
        ({**BLOCK_TABLE, "seqlen_k_ptr": None}, "seqlen_k_ptr must not be null with a 2-D block table"),
        *(
            ({**DESCALES, "qscale_type": QScale.PERTENSOR, name: None}, f"{name} must not be null with a qscale_type")
            for name in DESCALES
        ),
        ({"qscale_type": 4}, "qscale_type must be 0 to 3"),
        ({**DESCALES, "qscale_type": QScale.PERHEAD}, "qscale_type may be 3 only with fp8 K and V and a Q of 16 bits"),
        ({"kv_layout": 2}, "kv_layout must be 0 or 1"),
        ({"kv_table": -1}, "kv_table must be 0 or 1"),
        ({"page_size": 0}, "page_size must be a power of two"),
        ({"page_size": 48}, "page_size must be a power of two"),
        ({"sink_size": -1}, "sink_size must not be negative"),
    ],
)
def test_newest_dialect_refuses_inconsistent_fields(
    library: Callable[[str], Library], fields: Mapping[str, Any], message: str
) -> None:
    assert refusal_text(library(NEWEST), **fields) == message
