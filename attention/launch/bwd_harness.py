"""The C ABI of libraries of the backward families: the struct of kernels/include_bwd/ckpm_bwd.h."""

from __future__ import annotations

import ctypes

from ckpm.attention.launch.c_abi import CheckedArguments, fields

# struct ckpm_bwd_problem: names by C type, in the header's order and grouping
_FIELDS = fields(
    [
        (ctypes.c_uint32, "struct_bytes abi_version"),
        (ctypes.c_char * 16, "data_type"),
        (ctypes.c_void_p, "q k v bias o lse dout d rand_val dq dk dv dbias dq_acc"),
        (ctypes.c_void_p, "seqstart_q seqstart_k seqlen_q_ptr seqlen_k_ptr cu_seqlen_q cu_seqlen_k stream"),
        (ctypes.c_uint64, "dropout_seed dropout_offset"),
        (ctypes.c_int32, "seqlen_q seqlen_k batch max_seqlen_q max_seqlen_k hdim_q hdim_v nhead_q nhead_k"),
        (ctypes.c_int32, "stride_q stride_k stride_v stride_bias stride_o stride_randval stride_dout"),
        (ctypes.c_int32, "stride_dq_acc stride_dq stride_dk stride_dv stride_dbias"),
        (ctypes.c_int32, "nhead_stride_q nhead_stride_k nhead_stride_v nhead_stride_bias nhead_stride_o"),
        (ctypes.c_int32, "nhead_stride_randval nhead_stride_dout nhead_stride_lsed nhead_stride_dq_acc"),
        (ctypes.c_int32, "nhead_stride_dq nhead_stride_dk nhead_stride_dv nhead_stride_dbias"),
        (ctypes.c_int32, "batch_stride_q batch_stride_k batch_stride_v batch_stride_bias batch_stride_o"),
        (ctypes.c_int32, "batch_stride_randval batch_stride_dout batch_stride_lsed batch_stride_dq_acc"),
        (ctypes.c_int32, "batch_stride_dq batch_stride_dk batch_stride_dv batch_stride_dbias"),
        (ctypes.c_int32, "split_stride_dq_acc mask_type window_left window_right bias_type"),
        (ctypes.c_int32, "is_group_mode has_dbias has_dropout store_randval is_deterministic"),
        (ctypes.c_float, "scale p_drop"),
        (ctypes.c_int32, "warmup repeat"),
    ]
)


class BwdArguments(CheckedArguments):
    """One launch: ``BwdArguments(data_type="bf16", q=address, ...)``."""

    START = "ckpm_bwd"
    VERSION = 1
    STAGES = 3  # dot_do_o, dq_dk_dv, convert_dq
    _fields_ = _FIELDS
