"""The C ABI of batch prefill's libraries: the struct and the enumerations of kernels/include/ckpm.h."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from ckpm.attention.launch.c_abi import CheckedArguments, fields

ABI_VERSION = 1


class Mask(IntEnum):
    NONE = 0
    TOP_LEFT = 1
    BOTTOM_RIGHT = 2
    WINDOW = 3


class Bias(IntEnum):
    NONE = 0
    ELEMENTWISE = 1
    ALIBI = 2


class QScale(IntEnum):
    NONE = 0
    PERTENSOR = 1
    KV_BLOCKSCALE = 2


class KvLayout(IntEnum):
    LINEAR = 0
    VECTORIZED = 1


class KvTable(IntEnum):
    SGLANG_1D = 0
    VLLM_2D = 1


# struct ckpm_problem: names by C type, in the header's order and grouping
FIELDS = fields(
    [
        (ctypes.c_uint32, "struct_bytes abi_version"),
        (ctypes.c_char * 16, "data_type"),
        (ctypes.c_void_p, "q k v bias q_descale k_descale v_descale rand_val lse o seqstart_q sink"),
        (ctypes.c_void_p, "kv_indptr kv_page_indices kv_last_page_lens seqlen_k_ptr stream"),
        (ctypes.c_uint64, "dropout_seed dropout_offset"),
        (ctypes.c_int32, "seqlen_q seqlen_k batch max_seqlen_q"),
        (ctypes.c_int32, "hdim_q hdim_v nhead_q nhead_k"),
        (ctypes.c_int32, "num_total_pages page_size kv_layout kv_table batch_stride_block_table"),
        (ctypes.c_int32, "stride_q stride_k stride_v stride_bias stride_randval stride_o"),
        (ctypes.c_int32, "nhead_stride_q nhead_stride_k nhead_stride_v nhead_stride_bias nhead_stride_randval"),
        (ctypes.c_int32, "nhead_stride_lse nhead_stride_o"),
        (ctypes.c_int32, "batch_stride_q batch_stride_k batch_stride_v batch_stride_bias batch_stride_randval"),
        (ctypes.c_int32, "batch_stride_lse batch_stride_o"),
        (ctypes.c_int32, "mask_type window_left window_right sink_size"),
        (ctypes.c_int32, "bias_type qscale_type"),
        (ctypes.c_int32, "block_stride_kv_descale nhead_stride_kv_descale"),
        (ctypes.c_int32, "is_group_mode is_v_rowmajor has_logits_soft_cap has_lse has_dropout has_sink store_randval"),
        (ctypes.c_float, "scale_s scale_p scale_o logits_soft_cap p_drop"),
        (ctypes.c_int32, "warmup repeat"),
    ]
)


class LaunchArguments(CheckedArguments):
    """One launch: ``LaunchArguments(data_type="bf16", q=address, ...)``. Fields not given are 0 or null.

    None can be set later: :meth:`replace` gives a changed copy.
    """

    __slots__ = ()
    START = "ckpm"
    VERSION = ABI_VERSION
    FAMILY = "batch_prefill"
    BY_NAME = True
    _fields_ = FIELDS

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"arguments are not changed: use replace({name}=...)")

    def replace(self, **values: Any) -> LaunchArguments:
        """A copy with some fields changed."""
        return LaunchArguments(**{**self.values(), **values})

    def values(self) -> Mapping[str, Any]:
        """All fields by name; a null pointer is None, the data type text."""
        values = {name: getattr(self, name) for name, _ in FIELDS}
        return {**values, "data_type": values["data_type"].decode()}

    def __repr__(self) -> str:
        given = (f"{name}={value!r}" for name, value in self.values().items() if value)
        return f"LaunchArguments({', '.join(given)})"
