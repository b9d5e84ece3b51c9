"""The C ABI of libraries of append-KV: the struct of kernels/include_fwd/ckpm_appendkv.h."""

from __future__ import annotations

import ctypes

from ckpm.attention.launch.c_abi import CheckedArguments, fields

# struct ckpm_appendkv_problem: names by C type, in the header's order and grouping
_FIELDS = fields(
    [
        (ctypes.c_uint32, "struct_bytes abi_version"),
        (ctypes.c_char * 16, "data_type"),
        (ctypes.c_void_p, "q k v knew vnew seqlen_k_ptr rotary_cos rotary_sin block_table cache_batch_idx stream"),
        (ctypes.c_int32, "seqlen_q seqlen_knew batch hdim_q hdim_v nhead_q nhead_k"),
        (ctypes.c_int32, "rotary_dim rope_type has_mask is_v_rowmajor batch_stride_block_table page_block_size"),
        (ctypes.c_int32, "stride_q stride_k stride_knew stride_v stride_vnew"),
        (ctypes.c_int32, "nhead_stride_q nhead_stride_k nhead_stride_knew nhead_stride_v nhead_stride_vnew"),
        (ctypes.c_int32, "batch_stride_q batch_stride_k batch_stride_knew batch_stride_v batch_stride_vnew"),
        (ctypes.c_int32, "warmup repeat"),
    ]
)


class AppendKvArguments(CheckedArguments):
    """One launch: ``AppendKvArguments(data_type="bf16", q=address, ...)``."""

    START = "ckpm_appendkv"
    VERSION = 1
    STAGES = 2  # as ckpm_fwd.h, though there is one
    _fields_ = _FIELDS
