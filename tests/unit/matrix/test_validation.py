"""Each rule of validation accepts what CK's dispatcher accepts and refuses what it refuses; kernels aren't refused."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from ckpm.matrix.configurations.configuration import Configuration, configuration_of
from ckpm.matrix.configurations.report import findings, judge
from ckpm.matrix.configurations.tiles import async_lds_bytes
from ckpm.matrix.configurations.validation import RULES
from ckpm.matrix.dialects import dialect, dialect_names
from ckpm.matrix.keys import Key
from tests.unit.enumerated import keys_of

_BASE = {
    "arch": "gfx950",
    "family": "fwd",
    "dtype": "fp16",
    "mode": "batch",
    "hdim_q": 128,
    "hdim_v": 128,
    "vlayout": "r",
    "mask": "no",
    "bias": "no",
    "logits": False,
    "dropout": False,
    "paged_kv": False,
    "page_size": 0,
    "pipeline": "qr",
    "tile": (128, 128, 32, 128, 32, 128),
    "wave": (4, 1, 1, 4, 1, 1, 1, 1, 1),
    "warp": (32, 32, 16, 32, 32, 16, 16, 16, 16),
    "padding": (True, True, True, True),
    "block_per_cu": -1,
    "num_wave_groups": 1,
}
_OF_FAMILY: dict[str, dict[str, Any]] = {
    "fwd": {},
    "fwd_splitkv": {"tile": (64, 128, 32, 128, 32, 128)},
    "fwd_splitkv_combine": {"pipeline": "unused", "tile": (0, 0, 0, 32, 0, 0)},
    "fwd_appendkv": {"pipeline": "appendkv", "tile": (64, 64, 128, 128, 0, 0)},
    "fwd_pagedkv": {"pipeline": "qr_pagedkv", "paged_kv": True},
    "batch_prefill": {"pipeline": "qr_async", "paged_kv": True, "page_size": 16, "mode": "group"},
    "bwd_dot_do_o": {"pipeline": "bwd", "tile": (64, 0, 0, 0, 0, 0)},
    "bwd_dq_dk_dv": {"pipeline": "bwd", "tile": (16, 128, 128, 16, 128, 16, 32, 128, 128)},
    "bwd_convert_dq": {"pipeline": "bwd", "tile": (64, 0, 0, 0, 0, 0)},
}


def _broken_rules(family: str, **changes: object) -> set[str]:
    values: dict[str, Any] = {**_BASE, "family": family, **_OF_FAMILY[family], **changes}
    return {finding.rule for finding in findings(Configuration(values, {}))}


@pytest.mark.parametrize("family", _OF_FAMILY)
def test_plain_configuration_of_each_family_is_valid(family: str) -> None:
    assert _broken_rules(family) == set()


def _read_cases(text: str) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """The head of each line HEAD: FIELD=ACCEPTED/REFUSED, and the two sets of fields. FIELD=VALUE belongs to both.

    An indented line has the head of the line before.
    """
    head = ""
    for line in text.strip().splitlines():
        if not line.startswith(" "):
            head, _, line = line.partition(":")
        fields = {field: values.split("/") for field, values in (word.split("=") for word in line.split())}
        if fields:
            accepted, refused = ({field: _value(choices[at]) for field, choices in fields.items()} for at in (0, -1))
            yield head, accepted, refused


def _value(text: str) -> Any:
    if "," in text:
        return tuple(_value(part) for part in text.split(","))
    return int(text) if text.isdigit() else {"True": True, "False": False}.get(text, text)


# RULE FAMILY: FIELD=ACCEPTED/REFUSED. The dispatcher refuses the same by the rules after the family, too. Without a
# slash nothing is refused.
# qr at d256: (128/32)(128/32)(32/16)/4 = 8 instructions, half of it with kN0 = 64
# async pipelines: 65280 bytes of K in three buffers: gfx950 has room, gfx942 hasn't
# async copies: a load is 4 waves * 64 lanes * 8 elements = 2048; before gfx950, 2 elements = 512
_CASES = [*_read_cases("""
dtype_is_supported_on_arch batch_prefill: dtype=fp8bf16 arch=gfx950/gfx90a
backward_dtype_is_known bwd_dot_do_o: dtype=fp32/fp8
forward_dtype_is_known fwd dtype_is_supported_on_arch:
 dtype=fp8fp16/mxfp8 tile=128,128,64,128,32,128/128,128,32,128,32,128 pipeline=qr_async/qr
pipeline_is_supported_on_arch fwd: pipeline=qs arch=gfx950/gfx1100
v3_needs_its_arch fwd pipeline_is_supported_on_arch:
 pipeline=qr_async_trload_v3 tile=256,32,128,128,32,128 arch=gfx950/gfx942
trload_needs_transposing_loads fwd pipeline_is_supported_on_arch:
 pipeline=qr_async_trload tile=128,64,32,128,32,128 arch=gfx950/gfx942
head_dims_are_multiples_of_8 fwd_appendkv: hdim_q=8/12
 hdim_v=72/0
d192x128_has_few_tiles_with_bias_or_dropout fwd: hdim_q=192 bias=no/alibi dropout=False/True
logits_soft_cap_without_bias fwd: logits=True bias=no/alibi
transposing_pipelines_have_symmetric_head_dims fwd: hdim_q=64 hdim_v=64/128 tile=128,64,32,64,32,64 pipeline=v3
 hdim_q=64/256 hdim_v=64/256 tile=128,64,32,64,32,64/128,128,32,256,32,256 pipeline=qr_async_trload
group_mode_pads_both_seqlens fwd: mode=group padding=True,True,False,False/True,False,True,True
group_mode_pads_both_seqlens fwd_pagedkv: padding=False,False,False,False/False,True,True,True mode=batch/group
group_mode_pads_seqlen_q fwd_splitkv_combine: mode=group padding=True,False,False,False/False,True,True,True
head_dims_padded_by_8_are_backwards bwd_dq_dk_dv: padding=False,False,8,8/8,False,8,8
tile_has_its_length fwd: tile=128,128,32,128,32,128/128,128,32,128,32
tile_has_its_length bwd_dq_dk_dv: tile=16,128,128,16,128,16,32,128,128/128,128,32,128,32,128
wave_has_its_length fwd: wave=4,1,1,4,1,1,1,1,1/4,1,1,4,1,1,1,1
warp_has_its_length fwd: warp=32,32,16,32,32,16,16,16,16/32,32,16
blocks_per_cu_are_positive_or_automatic fwd: block_per_cu=1/0
wave_groups_are_positive fwd: num_wave_groups=2/0
family_reads_row_major_v batch_prefill: vlayout=r/c
family_reads_row_major_v fwd_appendkv: vlayout=r/c
family_reads_row_major_v fwd_pagedkv: vlayout=r/c
family_reads_row_major_v fwd_splitkv: vlayout=r/c
forward_is_tried_with_row_major_v fwd: vlayout=r/c
family_has_its_pipeline batch_prefill: pipeline=qr_async/qr
family_has_its_pipeline fwd_appendkv: pipeline=appendkv/qr
family_has_its_pipeline fwd_pagedkv: pipeline=qr_pagedkv/qr
family_has_its_pipeline fwd_splitkv: pipeline=qr_nwarp_sshuffle/qs
family_reads_paged_kv batch_prefill: paged_kv=True/False
family_reads_paged_kv fwd_pagedkv: paged_kv=True/False
batch_prefill_page_size_is_served batch_prefill: page_size=48/24
 page_size=1/0
batch_prefill_page_size_is_served fwd_pagedkv: page_size=0
family_has_its_mode batch_prefill: mode=group/batch
family_has_its_mode fwd_appendkv: mode=batch/group
family_has_its_mode fwd_splitkv_combine: mode=group
combine_has_its_bn1 fwd_splitkv_combine: tile=8,8,8,32,8,8/0,0,0,64,0,0
combine_bn1_divides_hdim_v fwd_splitkv_combine: hdim_v=96/80
combine_bn1_divides_hdim_v fwd_splitkv_combine combine_has_its_bn1: hdim_v=32/128 tile=0,0,0,32,0,0/0,0,0,0,0,0
tile_wave_and_warp_are_positive fwd_splitkv: wave=4,1,1,4,1,1,1,1,1/4,1,1,4,0,1,1,1,1
tile_wave_and_warp_are_positive bwd_dq_dk_dv: tile=16,128,128,16,128,16,32,128,128/16,128,128,16,128,16,32,128,0
tile_wave_and_warp_are_positive fwd: tile=128,128,32,128,32,128/0,128,32,128,32,128
qr_at_d256_issues_mfma_by_eights fwd: hdim_q=256 hdim_v=256 tile=128,128,32,256,32,256/128,64,32,256,32,256
 hdim_q=256 hdim_v=256 tile=128,64,32,256,32,256 arch=gfx1100/gfx942
async_pipelines_fit_in_lds fwd:
 pipeline=qr_async hdim_q=128/256 hdim_v=128/256 tile=128,128,32,128,32,128/128,512,128,256,32,256
 hdim_q=256 hdim_v=256 tile=128,128,128,256,32,256 pipeline=qr_async arch=gfx950/gfx942
other_pipelines_fit_in_lds fwd: hdim_q=256 hdim_v=256 tile=128,128,128,256,32,256/192,128,128,256,32,256
bk0_is_within_hdim_q fwd_pagedkv bk0_divides_hdim_q: hdim_q=32 tile=128,128,32,128,32,128/128,128,64,128,32,128
bk0_divides_hdim_q fwd_pagedkv: hdim_q=96/80
warp_tile_divides_block_tile fwd_splitkv: tile=64,128,32,128,32,128/48,128,32,128,32,128
async_copy_is_a_whole_number_of_loads fwd:
 hdim_q=64/32 hdim_v=64/32 tile=128,64,32,64,32,64/128,64,16,32,32,32 pipeline=qr_async
 arch=gfx942 hdim_q=32 hdim_v=32 pipeline=qr_async tile=128,64,16,32,32,32
d128_takes_tiles_of_128_keys fwd: dtype=fp32/fp16 tile=128,128,32,128,32,128/128,64,32,128,32,128
d128_takes_tiles_of_128_keys fwd_splitkv: tile=64,64,32,128,32,128
qr_async_at_d128_takes_tiles_of_128_queries batch_prefill: tile=128,128,32,128,32,128/64,128,32,128,32,128
other_head_dims_take_known_tiles_of_queries fwd: hdim_q=64 hdim_v=64 tile=192,64,32,64,32,64/32,64,32,64,32,64
qr_and_qs_at_d128_take_no_slices_of_64 fwd: tile=128,128,64,128,32,128 pipeline=qr_async/qr
trload_at_d128_takes_narrow_tiles fwd: pipeline=qr_async_trload tile=128,64,32,128,32,128/128,128,32,128,32,128
v3_takes_tiles_of_256_queries fwd: pipeline=qr_async_trload_v3 tile=256,128,32,128,32,128/128,128,32,128,32,128
""")]  # fmt: skip


@pytest.mark.parametrize(("head", "accepted", "refused"), _CASES)
def test_rule_accepts_and_refuses(head: str, accepted: dict[str, Any], refused: dict[str, Any]) -> None:
    rule, family, *also = head.split()
    assert _broken_rules(family, **accepted) == set()
    if refused != accepted:
        assert _broken_rules(family, **refused) == {rule, *also}


def test_rules_have_case_reason_source_and_name() -> None:
    assert {head.split()[0] for head, accepted, refused in _CASES if refused != accepted} == set(RULES)
    assert all(rule.reason and rule.source and rule.paths for rule in RULES.values())
    warnings = {name for name, rule in RULES.items() if rule.severity == "warning"}
    assert warnings == {
        "v3_needs_its_arch",
        "d192x128_has_few_tiles_with_bias_or_dropout",
        "forward_is_tried_with_row_major_v",
    }


@pytest.mark.parametrize(
    ("arch", "dtype", "tile", "hdim", "expected"),
    [
        # V 4*(128/8)*72 = 4608 elements, K 8 issues * 4 waves * (64*2 + 8) = 4352: V, 2 bytes, three times
        ("gfx942", "bf16", (128, 128, 32), 128, 3 * 4608 * 2),
        # rows of 128 elements: V 4*(128/16)*136 = 4352; K 2 * 4 * (64*8 + 8) = 4160
        ("gfx950", "bf16", (128, 128, 32), 128, 3 * 4352 * 2),
        # K 8 * 4 * 520 = 16640 with slices of 128
        ("gfx950", "fp16", (128, 128, 128), 128, 3 * 16640 * 2),
    ],
)
def test_async_lds_is_three_buffers_of_larger_tensor(
    arch: str, dtype: str, tile: tuple[int, ...], hdim: int, expected: int
) -> None:
    assert async_lds_bytes(arch, dtype, hdim, tile, (32, 32, 16)) == expected


def test_all_errors_are_collected_in_one_report_with_their_paths() -> None:
    changes = {
        "dtype": "fp32",
        "hdim_q": 100,
        "vlayout": "c",
        "mode": "batch",
        "page_size": 3,
        "paged_kv": False,
        "logits": True,
        "bias": "bias",
        "block_per_cu": 0,
        "pipeline": "qs",
        "arch": "gfx1201",
        "tile": (128, 128, 32),
    }
    values: dict[str, Any] = {**_BASE, "family": "batch_prefill", **changes}
    report = judge("x", Configuration(values, {}), [])
    assert not report.valid
    assert {(finding.rule, finding.paths[0]) for finding in report.findings} == {
        ("dtype_is_supported_on_arch", "signature.data_type"),
        ("pipeline_is_supported_on_arch", "algorithm.pipeline"),
        ("head_dims_are_multiples_of_8", "signature.hdim_q"),
        ("logits_soft_cap_without_bias", "signature.logits"),
        ("tile_has_its_length", "algorithm.tile"),
        ("blocks_per_cu_are_positive_or_automatic", "algorithm.block_per_cu"),
        ("family_reads_row_major_v", "signature.vlayout"),
        ("family_has_its_pipeline", "algorithm.pipeline"),
        ("family_reads_paged_kv", "signature.paged_kv"),
        ("batch_prefill_page_size_is_served", "signature.page_size"),
        ("family_has_its_mode", "signature.mode"),
        ("bk0_divides_hdim_q", "algorithm.tile[2]"),
    }


def test_zeros_and_empty_lists_are_refused_without_crash() -> None:
    for family in _OF_FAMILY:
        for numbers in ((), (0,) * 6, (1,) * 3, (2**70,) * 5):
            assert _broken_rules(family, tile=numbers, wave=numbers, warp=numbers)


def _keys(name: str) -> Iterator[tuple[Key, str]]:
    """About 400 kernels of a dialect, of every family and arch."""
    for family in dialect(name).families.values():
        for arch in family.archs:
            for key in keys_of(name, family.name, arch)[::61]:
                yield key, arch


@pytest.mark.parametrize("name", dialect_names())
def test_dispatcher_objections_to_kernels_are_contradicted(name: str) -> None:
    errors = Counter(
        finding.rule
        for key, arch in _keys(name)
        for finding in findings(configuration_of(key, arch))
        if finding.severity == "error" and not finding.contradiction
    )
    assert errors == {}


@pytest.mark.parametrize("name", dialect_names())
@pytest.mark.parametrize("family", _OF_FAMILY)
def test_kernel_as_configuration_is_found_and_valid(name: str, family: str) -> None:
    chosen = dialect(name)
    arch = next(arch for arch in reversed(list(chosen.families[family].archs)) if keys_of(name, family, arch))
    keys = keys_of(name, family, arch)
    key = keys[len(keys) * 2 // 3]
    report = judge("x", configuration_of(key, arch), [chosen])
    assert report.valid
    assert (name, key.name) in {(kernel.dialect, kernel.name) for kernel in report.kernels}


def test_mistake_stays_error_beside_contradicted_rule() -> None:
    chosen = dialect("rocm-libraries-2026")
    keys = keys_of(chosen.name, "batch_prefill")
    key = next(key for key in keys if key.tile.bm0 == 64)
    configuration = configuration_of(key, "gfx950")
    wrong = Configuration({**configuration.values, "num_wave_groups": -3}, {})
    severities = {finding.rule: finding.severity for finding in judge("x", wrong, [chosen]).findings}
    assert severities == {
        "qr_async_at_d128_takes_tiles_of_128_queries": "contradicted",
        "wave_groups_are_positive": "error",
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"block_per_cu": 3},
        {"padding": (True, True, False, True)},
        {"tile": (128, 128, 32, 128, 32, 64)},
        {"mask": "generic"},
        {"sink": True},
        {"page_size": 16},
        {"kv_memory_layout": "vectorized"},
    ],
)
def test_configuration_differing_in_one_field_is_another(changes: dict[str, Any]) -> None:
    chosen = dialect("rocm-libraries-2026")
    keys = keys_of(chosen.name, "batch_prefill", "gfx942")
    key = next(
        key
        for key in keys
        if (key.page_size, key.kv_layout, key.mask, key.sink) == (1024, "linear", "no", False) and key.tile.bm0 == 128
    )
    values = configuration_of(key, "gfx942").values
    assert key.name in {kernel.name for kernel in judge("x", Configuration(values, {}), [chosen]).kernels}
    other = judge("x", Configuration({**values, **changes}, {}), [chosen]).kernels
    assert key.name not in {kernel.name for kernel in other}
