/* The C ABI of a library of CK forward kernels (fwd, fwd_pagedkv, or fwd_splitkv with its combine
 * stage): a problem in, kernels launched, an error code out.
 *
 * Plain C types only. No exception leaves a function. Pointers inside a problem are device
 * addresses, strides count elements. The struct is the same for all families; a field that the
 * library's family doesn't know must hold 0 or null, otherwise the launch is refused; so is one
 * that asks for a feature without the pointer it needs. The message then begins with the field's
 * name. Values of mask_type and bias_type are those of ckpm.h, as are the status codes.
 */
#ifndef CKPM_FWD_H
#define CKPM_FWD_H

#include "ckpm.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CKPM_FWD_ABI_VERSION 1

typedef struct ckpm_fwd_problem
{
    uint32_t
        struct_bytes; /* sizeof(ckpm_fwd_problem) of the caller: guards against another version */
    uint32_t abi_version; /* CKPM_FWD_ABI_VERSION */
    char data_type[16];   /* "fp16", "bf16", "fp8", "fp8bf16", "fp8fp32", "fp32" */

    const void* q;
    const void* k;
    const void* v;
    const void* bias; /* elementwise bias or ALiBi slopes: with a bias_type */
    void* rand_val;   /* fwd, with store_randval, which needs has_dropout */
    void* lse;        /* with has_lse */
    void* o;
    const void*
        seqstart_q; /* in group mode, as seqstart_k: where each sequence begins, [batch + 1] */
    const void* seqstart_k;
    const void* seqlen_q_ptr; /* fwd, group mode: lengths without padding, [batch] */
    const void* seqlen_k_ptr; /* group mode: the same; paged and split-KV, batch mode: lengths in a
                                 KV cache */
    const void* cu_seqlen_q;  /* fwd: cumulative lengths without padding, [batch + 1] */
    const void* cu_seqlen_k;
    void* lse_acc;     /* split-KV: [split, ...], float32 */
    void* o_acc;       /* split-KV: [split, ...], float32 */
    void* block_table; /* paged, and split-KV over a paged cache: page numbers, [batch, max pages],
                          int32 */
    const void* cache_batch_idx; /* split-KV in batch mode without a block_table: a sequence's place
                                    in the cache */
    void* stream;
    uint64_t dropout_seed;
    uint64_t dropout_offset;

    int32_t seqlen_q, seqlen_k, batch, max_seqlen_q;
    int32_t hdim_q, hdim_v, nhead_q, nhead_k;
    int32_t stride_q, stride_k, stride_v, stride_bias, stride_randval, stride_o, stride_o_acc;
    int32_t nhead_stride_q, nhead_stride_k, nhead_stride_v, nhead_stride_bias, nhead_stride_randval;
    int32_t nhead_stride_lse, nhead_stride_o, nhead_stride_lse_acc, nhead_stride_o_acc;
    int32_t batch_stride_q, batch_stride_k, batch_stride_v, batch_stride_bias, batch_stride_randval;
    int32_t batch_stride_lse, batch_stride_o, batch_stride_lse_acc, batch_stride_o_acc;
    int32_t split_stride_lse_acc, split_stride_o_acc;
    int32_t num_splits;
    /* With a block_table: entries from one sequence's row to the next; tokens of a page, a multiple
     * of 128. batch_stride_k and batch_stride_v then lead from page to page. With is_gappy (group
     * mode) seqstart_k holds at which token of its pages each sequence begins, and seqlen_k_ptr how
     * long it is. */
    int32_t batch_stride_block_table, page_block_size, is_gappy;
    int32_t mask_type, window_left, window_right, min_seqlen_q, bias_type;
    int32_t is_group_mode, is_v_rowmajor, has_logits_soft_cap, has_lse, has_dropout;
    int32_t do_fp8_static_quant, skip_min_seqlen_q, store_randval;

    float scale_s, scale_p, scale_o, logits_soft_cap, p_drop;

    int32_t warmup; /* launches before the timed ones; only with repeat > 0 */
    /* 0: launch once, untimed; else the mean time of that many launches goes to milliseconds */
    int32_t repeat;
} ckpm_fwd_problem;

CKPM_API int ckpm_fwd_abi_version(void);
CKPM_API size_t ckpm_fwd_problem_bytes(void);
CKPM_API const char* ckpm_fwd_family(void); /* "fwd", "fwd_pagedkv", "fwd_splitkv" or "fwd_v3" */
CKPM_API const char* ckpm_fwd_dialect(void);
CKPM_API int ckpm_fwd_kernel_count(void);
/* Kernel `index` in dispatch order; null outside 0..count-1. Combine kernels come after those of
 * fwd_splitkv. */
CKPM_API const char* ckpm_fwd_kernel_name(int index);
/* Launch what the library's dispatch chooses, on the problem's stream. `milliseconds` may be null.
 * `message` (may be null) receives a zero-terminated text unless the result is CKPM_OK. */
CKPM_API int ckpm_fwd_launch(const ckpm_fwd_problem* problem,
                             float* milliseconds,
                             char* message,
                             size_t message_bytes);
/* Name of the kernel that this thread's last launch chose; with split-KV, 0 is the first stage and
 * 1 combine. Null if it launched none. */
CKPM_API const char* ckpm_fwd_selected_kernel(int stage);

#ifdef __cplusplus
}
#endif
#endif
