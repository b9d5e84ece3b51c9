"""Every rule keeps out the kernels it should and no others, and has its reason and upstream's source."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ckpm.matrix.dialects import dialect, dialect_names, features, with_features
from ckpm.matrix.keys import Tile
from ckpm.matrix.rule import Rule, broken
from ckpm.matrix.rules import RULES
from tests.unit.matrix.matrix_samples import read_cases

TILE = Tile(128, 128, 32, 128, 32, 128, 4, 1, 1, 4, 1, 1, 32, 32, 16, 32, 32, 16)  # kN0 is 128
TILES = {
    "TILE": TILE,
    "ROWS_64": dataclasses.replace(TILE, bm0=64),
    "SHORT_Q": dataclasses.replace(TILE, max_seq_q=32),
    "UNSPLIT": dataclasses.replace(TILE, bn0=0),
    "SPLIT_N": dataclasses.replace(TILE, rm0=1, rn0=4),  # its waves lie along kN0
    "NARROW": Tile(128, 64, 32, 128, 16, 128, 4, 1, 1, 4, 1, 1, 32, 32, 16, 32, 32, 16),
    "LOW": Tile(64, 128, 64, 128, 64, 128, 4, 1, 1, 4, 1, 1, 16, 16, 16, 16, 16, 16),
    "V3": Tile(256, 64, 128, 128, 64, 128, 8, 1, 1, 8, 1, 1, 32, 32, 32, 32, 32, 32),
}
# RULE: FIELD=ACCEPTED/REFUSED
CASES = [*read_cases("""
group_mode_pads_both_seqlens: mode=group pad=psskddv/psddv
 mode=batch/group pad=psddv
logits_soft_cap_without_bias: logits=True bias=no/alibi
 logits=False/True bias=bias
group_mode_only: mode=group/batch
sink_needs_mask: sink=True mask=causal/no
 sink=False/True mask=no
fp8_needs_qscale: dtype=fp8bf16 qscale=pertensor/no
 dtype=bf16kvfp8 qscale=kv_blockscale/no
qscale_needs_fp8: dtype=bf16 qscale=no/kv_blockscale
fp8_is_inference_only: dtype=bf16/fp8bf16 bias=alibi lse=False dropout=False
 dtype=bf16/fp8bf16 bias=no lse=True dropout=False
 dtype=bf16/fp8bf16 bias=no lse=False dropout=True
fp8_of_v2_is_inference_only: pipeline=qr_async_trload_v3/qr_async dtype=fp8bf16 bias=alibi lse=False dropout=False
 pipeline=qr_async_trload_v3/qr_async dtype=fp8bf16 bias=no lse=True dropout=False
 pipeline=qr_async_trload_v3/qr_async dtype=fp8bf16 bias=no lse=False dropout=True
page_size_1_is_linear: page_size=1 kv_layout=linear/vectorized
 page_size=16/1 kv_layout=vectorized
kv_blockscale_within_page: qscale=kv_blockscale page_size=128/127 tile=TILE
 qscale=pertensor/kv_blockscale page_size=16 tile=TILE
beyond_upstreams_axes: pipeline=qr_async dtype=bf16/fp8bf16 hdim_q=192/256 hdim_v=128/256 page_size=16/1024
 pipeline=qr_async dtype=fp16 hdim_q=128 hdim_v=128 page_size=64/16
 pipeline=qr_async_trload_v3/qr_async dtype=fp8bf16 hdim_q=128 hdim_v=128 page_size=16
 pipeline=qr_async dtype=bf16kvfp8/bf16 hdim_q=128 hdim_v=128 page_size=16
fp8_kv_is_inference_only: dtype=bf16/bf16kvfp8 bias=alibi dropout=False
 dtype=bf16/bf16kvfp8 bias=bias dropout=False
 dtype=bf16/bf16kvfp8 bias=no dropout=True
fp8_kv_has_one_load_for_pages_of_one_token: dtype=fp16kvfp8 page_size=1 load=gload/bload
whole_keys_take_tiles_of_128_rows: pipeline=qr_async_split/qr_async hdim_q=64 tile=ROWS_64
serving_splits_masked_keys: pipeline=qr_async/qr_async_split hdim_q=128 mask=no logits=False
 pipeline=qr_async/qr_async_split hdim_q=128 mask=mask logits=True
 pipeline=qr_async/qr_async_split hdim_q=192 mask=mask logits=False
split_has_no_bias: pipeline=qr_async/qr_async_split bias=alibi
split_has_no_dropout: pipeline=qr_async/qr_async_split dropout=True
split_takes_tiles_of_64_rows: pipeline=qr_async/qr_async_split tile=TILE
split_reads_tokens_by_64_bits: pipeline=qr_async/qr_async_split page_size=1 load=bload
 pipeline=qr_async_split page_size=16/1 load=bload
large_heads_have_what_models_call: hdim_q=256/512 bias=alibi dropout=False logits=False sink=False
 hdim_q=256/512 bias=no dropout=True logits=False sink=False
 hdim_q=256/512 bias=no dropout=False logits=True sink=False
 hdim_q=256/512 bias=no dropout=False logits=False sink=True
 hdim_q=256/576 bias=alibi dropout=False logits=False sink=False
 hdim_q=256/576 bias=no dropout=True logits=False sink=False
 hdim_q=256/576 bias=no dropout=False logits=True sink=False
 hdim_q=256/576 bias=no dropout=False logits=False sink=True
large_heads_read_linear_pages: hdim_q=256/512 kv_layout=vectorized
 hdim_q=256/576 kv_layout=vectorized
large_heads_read_tokens_by_64_bits: hdim_q=256/512 page_size=1 load=bload
 hdim_q=256/576 page_size=1 load=bload
gload_only_for_small_pages: load=gload page_size=127/128 tile=TILE
 load=bload/gload page_size=1024 tile=TILE
any_page_has_64_bit_loads: page_size=0 load=gload/bload
 page_size=16/0 load=bload
any_page_is_inference_only: page_size=0 bias=alibi/bias dropout=False
 page_size=0 bias=alibi/no dropout=False/True
group_mode_pads_seqlen_q: mode=group pad=psdv/pdv
 mode=batch/group pad=npad
 mode=group pad=psd/pd
nwarp_pipeline_for_several_n_waves: pipeline=qr tile=TILE/SPLIT_N
 pipeline=qr_nwarp_sshuffle tile=SPLIT_N/TILE
dbias_needs_bias: bias=bias/alibi dbias=True
 bias=no dbias=False/True
trload_on_gfx950_in_16_bits: arch_trait=gfx950/gfx9 dtype=bf16 trload=True
 arch_trait=gfx950/gfx12 dtype=bf16 trload=True
 arch_trait=gfx950 dtype=bf16/fp32 trload=True
trload_pads_both_head_dims_by_8: trload=True dpad=0/8 dvpad=0
 trload=True dpad=8/0 dvpad=8
 trload=True dpad=0/1 dvpad=0
 trload=False/True dpad=1 dvpad=1
hdim_q_padded_by_8_needs_hdim_v_too: trload=False dpad=0/8 dvpad=8/0
 trload=False dpad=1/8 dvpad=8/1
short_q_tiles_serve_unmasked_batches: mode=batch/group mask=no tile=SHORT_Q
 mode=batch mask=no/mask tile=SHORT_Q
 mode=batch mask=no/causal tile=SHORT_Q
 mode=group mask=mask tile=TILE/SHORT_Q
short_q_tiles_serve_unmasked_problems: mask=no/mask tile=SHORT_Q
 mask=mask tile=TILE/SHORT_Q
deterministic_dq_is_split_by_kn0: deterministic=True tile=TILE/UNSPLIT
 deterministic=False tile=UNSPLIT/TILE
integrations_pad_both_head_dims_alike: receipt=2 dpad=1/0 dvpad=1
 receipt=3 dpad=1/0 dvpad=1
 receipt=4 dpad=1/0 dvpad=1
 receipt=300/3 dpad=0 dvpad=1
fp32_pads_both_head_dims_alike: dtype=fp16/fp32 dpad=0 dvpad=1
fp32_has_receipts_of_its_own: receipt=800/600 dtype=fp32
 receipt=0/801 dtype=bf16
fp8_has_no_sink: dtype=bf16/fp8bf16 sink=True
d192x128_and_d160_are_inference_only: hdim_q=192 hdim_v=192/128 bias=alibi dropout=False
 hdim_q=192 hdim_v=192/128 bias=no dropout=True
 hdim_q=192/160 hdim_v=192/160 bias=alibi dropout=False
 hdim_q=192/160 hdim_v=192/160 bias=no dropout=True
qr_and_qr_async_take_128_row_tiles: arch_trait=gfx9 dtype=fp16 hdim_q=128 hdim_v=128 pipeline=qr tile=TILE/NARROW
 arch_trait=gfx9 dtype=fp16 hdim_q=64 hdim_v=64 pipeline=qr tile=NARROW/LOW
 arch_trait=gfx9 dtype=fp16 hdim_q=128 hdim_v=128 pipeline=qr tile=LOW/NARROW
 arch_trait=gfx9 dtype=fp16 hdim_q=128 hdim_v=128 pipeline=qr_async_trload/qr_async tile=NARROW
 arch_trait=gfx12/gfx950 dtype=fp16 hdim_q=128 hdim_v=128 pipeline=qr tile=NARROW
 arch_trait=gfx9 dtype=fp32/fp8bf16 hdim_q=128 hdim_v=128 pipeline=qr tile=NARROW
qr_takes_no_64_wide_slices_at_d128: arch_trait=gfx9 dtype=fp16 hdim_q=128 hdim_v=128 pipeline=qr tile=TILE/LOW
 arch_trait=gfx9 dtype=fp16 hdim_q=128 hdim_v=128 pipeline=qr_async/qr tile=LOW
 arch_trait=gfx9 dtype=mxfp8/fp16 hdim_q=128 hdim_v=128 pipeline=qr tile=LOW
 arch_trait=gfx9 dtype=fp16 hdim_q=192/128 hdim_v=128 pipeline=qr tile=LOW
 arch_trait=gfx12/gfx9 dtype=fp16 hdim_q=128 hdim_v=128 pipeline=qr tile=LOW
trload_takes_narrow_tiles_at_d128: hdim_q=128 hdim_v=128 pipeline=qr_async_trload tile=NARROW/TILE
 hdim_q=128 hdim_v=128 pipeline=qr_async/qr_async_trload tile=TILE
 hdim_q=256/128 hdim_v=256/128 pipeline=qr_async_trload tile=TILE
trload_pads_no_sequence_of_batches: mode=batch pipeline=qr_async_trload pad=npad/pssk
 mode=group/batch pipeline=qr_async_trload pad=pssk
 mode=batch pipeline=qr_async/qr_async_trload pad=psddv
v3_has_its_own_tiles: arch_trait=gfx950 pipeline=qr_async_trload_v3 tile=V3/TILE
 arch_trait=gfx950 pipeline=qr_async tile=TILE/V3
v3_takes_fp8: pipeline=qr_async_trload_v3 dtype=fp8bf16/bf16
 pipeline=qr_async/qr_async_trload_v3 dtype=bf16
v3_takes_head_dim_128: pipeline=qr_async_trload_v3 hdim_q=128/256 hdim_v=128/256
 pipeline=qr_async/qr_async_trload_v3 hdim_q=256 hdim_v=256
v3_takes_linear_layout: pipeline=qr_async_trload_v3 kv_layout=linear/vectorized
 pipeline=qr_async/qr_async_trload_v3 kv_layout=vectorized
v3_has_no_bias: pipeline=qr_async_trload_v3 bias=no/alibi
 pipeline=qr_async/qr_async_trload_v3 bias=alibi
v3_has_no_lse: pipeline=qr_async_trload_v3 lse=False/True
 pipeline=qr_async/qr_async_trload_v3 lse=True
v3_has_no_dropout: pipeline=qr_async_trload_v3 dropout=False/True
 pipeline=qr_async/qr_async_trload_v3 dropout=True
v3_has_no_sink: pipeline=qr_async_trload_v3 sink=False/True
 pipeline=qr_async/qr_async_trload_v3 sink=True
v3_has_no_window: pipeline=qr_async_trload_v3 mask=causal/generic
 pipeline=qr_async/qr_async_trload_v3 mask=generic
v3_takes_pages_up_to_1024: pipeline=qr_async_trload_v3 page_size=64/2048
 pipeline=qr_async/qr_async_trload_v3 page_size=2048
v3_has_one_load_for_each_page_size: pipeline=qr_async_trload_v3 page_size=16 load=bload/gload
 pipeline=qr_async/qr_async_trload_v3 page_size=16 load=gload
 pipeline=qr_async_trload_v3 page_size=1 load=gload/bload
 pipeline=qr_async/qr_async_trload_v3 page_size=1 load=bload
v3_takes_head_dim_256_in_fp8: pipeline=qr_async_trload_v3 hdim_q=256 dtype=fp8bf16/bf16
 pipeline=qr_async/qr_async_trload_v3 hdim_q=256 dtype=bf16
 pipeline=qr_async_trload_v3 hdim_q=192/256 dtype=fp16
 pipeline=qr_async/qr_async_trload_v3 hdim_q=256 dtype=fp16
serving_has_v3_of_head_dim_256_without_soft_caps: pipeline=qr_async_trload_v3 hdim_q=128/256 logits=True
 pipeline=qr_async/qr_async_trload_v3 hdim_q=256 logits=True
v3_beyond_pull_request_6054:
 pipeline=qr_async_trload_v3 dtype=bf16/fp8bf16 hdim_q=128 kv_layout=linear page_size=16 lse=False mask=no
 pipeline=qr_async/qr_async_trload_v3 dtype=fp8bf16 hdim_q=128 kv_layout=linear page_size=16 lse=False mask=no
 pipeline=qr_async_trload_v3 dtype=fp8bf16 hdim_q=192/128 kv_layout=linear page_size=16 lse=False mask=no
 pipeline=qr_async_trload_v3 dtype=fp8bf16 hdim_q=128 kv_layout=vectorized/linear page_size=16 lse=False mask=no
 pipeline=qr_async_trload_v3 dtype=fp8bf16 hdim_q=128 kv_layout=linear page_size=64/16 lse=False mask=no
 pipeline=qr_async_trload_v3 dtype=fp8bf16 hdim_q=128 kv_layout=linear page_size=16 lse=True/False mask=no
 pipeline=qr_async_trload_v3 dtype=fp8bf16 hdim_q=128 kv_layout=linear page_size=16 lse=False mask=generic/no
fp32_minimal_set_has_simplified_masks: receipt=801 mask_impl=simplified/generic
 receipt=800/801 mask_impl=generic
serving_takes_bf16_and_fp8: dtype=fp8bf16/fp16
serving_has_fp8_kv_beside_bf16_where_callers_mix:
 dtype=bf16kvfp8 hdim_q=128 page_size=16 kv_table=vllm mask=mask/no lse=False qscale=pertensor
 dtype=bf16/bf16kvfp8 hdim_q=128 page_size=16 kv_table=vllm mask=mask lse=True qscale=pertensor
 dtype=bf16kvfp8 hdim_q=128 page_size=1/16 kv_table=sglang mask=mask lse=False qscale=pertensor
 dtype=bf16kvfp8 hdim_q=576 page_size=1/16 kv_table=sglang/vllm mask=mask lse=True/False qscale=pertensor
 dtype=bf16kvfp8 hdim_q=256/192 page_size=16 kv_table=vllm mask=mask lse=False qscale=pertensor
 dtype=bf16kvfp8 hdim_q=512 page_size=16 kv_table=vllm mask=mask lse=False/True qscale=pertensor
 dtype=bf16kvfp8 hdim_q=64/128 page_size=16/1024 kv_table=vllm mask=mask lse=False qscale=pertensor/kv_blockscale
serving_has_no_bias_and_no_dropout: bias=no/alibi dropout=False
 bias=no dropout=False/True
serving_has_the_callers_pages:
 dtype=bf16 hdim_q=128 hdim_v=128 page_size=64 kv_layout=vectorized/linear kv_table=sglang logits=False qscale=no
 dtype=fp8bf16/bf16 hdim_q=256 hdim_v=256 page_size=64 kv_layout=linear kv_table=sglang logits=False qscale=pertensor/no
 dtype=bf16 hdim_q=64/192 hdim_v=64/128 page_size=1 kv_layout=linear kv_table=vllm logits=False qscale=no
 dtype=bf16 hdim_q=192 hdim_v=128 page_size=16/64 kv_layout=linear kv_table=vllm logits=False qscale=no
serving_has_no_sink_tokens: sink=False/True
serving_has_the_models_soft_caps: hdim_q=256/64 logits=True
serving_has_lse_where_callers_merge: hdim_q=128 hdim_v=128 page_size=1 kv_layout=linear kv_table=sglang lse=False/True
 hdim_q=576/512 hdim_v=512 page_size=1 kv_layout=linear kv_table=sglang lse=True
 hdim_q=64 hdim_v=64 page_size=64 kv_layout=vectorized kv_table=vllm/sglang lse=True
serving_has_no_mask_for_merged_chunks: mask=no lse=True/False page_size=16 kv_table=vllm
 mask=no lse=False page_size=16/1 kv_table=sglang
""", TILES)]  # fmt: skip


@pytest.mark.parametrize(("name", "accepted", "refused"), CASES)
def test_rule_accepts_and_refuses(name: str, accepted: dict[str, Any], refused: dict[str, Any]) -> None:
    rule = RULES[name]
    assert set(accepted) == set(refused) == set(rule.fields)
    assert not broken((rule,), accepted)
    assert list(broken((rule,), refused)) == [rule]


def test_every_rule_is_tested_and_used_by_dialect() -> None:
    assert {name for name, _, _ in CASES} == set(RULES)
    every_feature = with_features(features())
    families = [family for name in (*dialect_names(), every_feature) for family in dialect(name).families.values()]
    used = {rule.name for family in families for rule in family.rules}
    assert used == set(RULES)


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.name)
def test_every_rule_gives_reason_and_source(rule: Rule) -> None:
    assert rule.reason
    assert "\n" not in rule.reason
    assert "codegen" in rule.source or rule.source.startswith("Ours")
