/* The C ABI of a library of CK's append-KV kernels: new keys and values in, written after those
 * that a KV cache holds, with an optional rotary embedding (RoPE) of the new keys and of Q, an
 * error code out.
 *
 * Plain C types only. No exception leaves a function. Pointers inside a problem are device
 * addresses, strides count elements. There is no group mode: each of `batch` sequences has seqlen_q
 * rows of Q and seqlen_knew of K and V, and in the cache a length of its own, seqlen_k_ptr, which
 * the launch reads and doesn't change. A launch is refused if it asks for a feature without what
 * that needs, or gives what only a feature that it doesn't ask for would read; the message then
 * begins with the field's name. What lies on the device (lengths, page ids) can't be checked here:
 * the cache must have room for seqlen_k_ptr[i] + seqlen_knew rows. Status codes are those of
 * ckpm.h.
 */
#ifndef CKPM_APPENDKV_H
#define CKPM_APPENDKV_H

#include "ckpm.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CKPM_APPENDKV_ABI_VERSION 1

/* rope_type: which dimensions of the first rotary_dim are rotated together */
enum ckpm_rope
{
    CKPM_ROPE_NONE         = 0,
    CKPM_ROPE_INTERLEAVED  = 1, /* 0 and 1, 2 and 3, ... */
    CKPM_ROPE_HALF_ROTATED = 2  /* 0 and rotary_dim / 2, 1 and rotary_dim / 2 + 1, ... */
};

typedef struct ckpm_appendkv_problem
{
    uint32_t struct_bytes; /* sizeof(ckpm_appendkv_problem) of the caller: guards against another
                              version */
    uint32_t abi_version;  /* CKPM_APPENDKV_ABI_VERSION */
    char data_type[16];    /* "fp16", "bf16", "fp8" */

    /* rotated in place, with a rope_type: each launch, timed ones too, rotates it once more */
    void* q;
    void* k; /* the cache: rows are written after the first seqlen_k_ptr[i] */
    void* v;
    const void* knew; /* as vnew: may be null if seqlen_knew is 0 */
    const void* vnew;
    const void* seqlen_k_ptr; /* int32 [batch]: rows of each in the cache before the launch */
    /* with a rope_type, both [position, rotary_dim / 2], in data_type */
    const void* rotary_cos;
    const void* rotary_sin;
    /* a paged cache: int32 [batch, ...], page of each page_block_size rows */
    const void* block_table;
    /* else may be: int32 [batch], the place of each sequence in the cache */
    const void* cache_batch_idx;
    void* stream;

    int32_t seqlen_q, seqlen_knew, batch, hdim_q, hdim_v, nhead_q, nhead_k;
    int32_t rotary_dim; /* with a rope_type: a multiple of 16, at most hdim_q */
    int32_t rope_type;
    int32_t has_mask; /* with a rope_type: row i of Q has position seqlen_k_ptr[...] + i; else all
                         have that of row 0 */
    int32_t is_v_rowmajor;
    int32_t batch_stride_block_table;
    /* With a block_table; at least the smaller of seqlen_knew and 64: of 64 new rows each, CK
     * writes those in the first two pages that they meet, and loses the others. */
    int32_t page_block_size;
    int32_t stride_q, stride_k, stride_knew, stride_v, stride_vnew;
    int32_t nhead_stride_q, nhead_stride_k, nhead_stride_knew, nhead_stride_v, nhead_stride_vnew;
    /* of K and V: from page to page with a block_table */
    int32_t batch_stride_q, batch_stride_k, batch_stride_knew, batch_stride_v, batch_stride_vnew;

    int32_t warmup; /* launches before the timed ones; only with repeat > 0 */
    /* 0: launch once, untimed; else the mean time of that many launches goes to milliseconds */
    int32_t repeat;
} ckpm_appendkv_problem;

CKPM_API int ckpm_appendkv_abi_version(void);
CKPM_API size_t ckpm_appendkv_problem_bytes(void);
CKPM_API const char* ckpm_appendkv_family(void); /* "fwd_appendkv" */
CKPM_API const char* ckpm_appendkv_dialect(void);
CKPM_API int ckpm_appendkv_kernel_count(void);
/* Kernel `index` in dispatch order; null outside 0..count-1. */
CKPM_API const char* ckpm_appendkv_kernel_name(int index);
/* Launch what the library's dispatch chooses, on the problem's stream. `milliseconds` may be null.
 * `message` (may be null) receives a zero-terminated text unless the result is CKPM_OK. */
CKPM_API int ckpm_appendkv_launch(const ckpm_appendkv_problem* problem,
                                  float* milliseconds,
                                  char* message,
                                  size_t message_bytes);
/* Name of the kernel that this thread's last launch chose, for stage 0, the only one; null if it
 * launched none. */
CKPM_API const char* ckpm_appendkv_selected_kernel(int stage);

#ifdef __cplusplus
}
#endif
#endif
