"""The C ABI of libraries of fwd, paged, split-KV and V3: the struct of kernels/include_fwd/ckpm_fwd.h."""

from __future__ import annotations

import ctypes

from ckpm.attention.launch.c_abi import CheckedArguments, fields

ABI_VERSION = 1

# struct ckpm_fwd_problem: names by C type, in the header's order and grouping
FIELDS = fields(
    [
        (ctypes.c_uint32, "struct_bytes abi_version"),
        (ctypes.c_char * 16, "data_type"),
        (ctypes.c_void_p, "q k v bias rand_val lse o seqstart_q seqstart_k seqlen_q_ptr seqlen_k_ptr"),
        (ctypes.c_void_p, "cu_seqlen_q cu_seqlen_k lse_acc o_acc block_table cache_batch_idx stream"),
        (ctypes.c_uint64, "dropout_seed dropout_offset"),
        (ctypes.c_int32, "seqlen_q seqlen_k batch max_seqlen_q hdim_q hdim_v nhead_q nhead_k"),
        (ctypes.c_int32, "stride_q stride_k stride_v stride_bias stride_randval stride_o stride_o_acc"),
        (ctypes.c_int32, "nhead_stride_q nhead_stride_k nhead_stride_v nhead_stride_bias nhead_stride_randval"),
        (ctypes.c_int32, "nhead_stride_lse nhead_stride_o nhead_stride_lse_acc nhead_stride_o_acc"),
        (ctypes.c_int32, "batch_stride_q batch_stride_k batch_stride_v batch_stride_bias batch_stride_randval"),
        (ctypes.c_int32, "batch_stride_lse batch_stride_o batch_stride_lse_acc batch_stride_o_acc"),
        (ctypes.c_int32, "split_stride_lse_acc split_stride_o_acc"),
        (ctypes.c_int32, "num_splits batch_stride_block_table page_block_size is_gappy"),
        (ctypes.c_int32, "mask_type window_left window_right min_seqlen_q bias_type"),
        (ctypes.c_int32, "is_group_mode is_v_rowmajor has_logits_soft_cap has_lse has_dropout"),
        (ctypes.c_int32, "do_fp8_static_quant skip_min_seqlen_q store_randval"),
        (ctypes.c_float, "scale_s scale_p scale_o logits_soft_cap p_drop"),
        (ctypes.c_int32, "warmup repeat"),
    ]
)


class FwdArguments(CheckedArguments):
    """One launch: ``FwdArguments(data_type="bf16", q=address, ...)``."""

    START = "ckpm_fwd"
    VERSION = ABI_VERSION
    STAGES = 2  # split-KV and its combine stage
    _fields_ = FIELDS
