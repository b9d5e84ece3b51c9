/* The C ABI of a library of CK's backward kernels: the gradients of attention with respect to Q, K,
 * V and an elementwise bias, from Q, K, V, O, its log-sum-exp and the gradient of O; an error code
 * out.
 *
 * Plain C types only. No exception leaves a function. Pointers inside a problem are device
 * addresses, strides count elements. A launch is up to three kernels, one after the other:
 * dot_do_o writes d, dq_dk_dv reads it and writes dk, dv, dbias and dq_acc, convert_dq writes dq.
 * It is refused if it asks for a feature without what that needs, or gives what only a feature that
 * it doesn't ask for would read; the message then begins with the field's name. What lies on the
 * device (lengths) can't be checked here. Status codes are those of ckpm.h.
 */
#ifndef CKPM_BWD_H
#define CKPM_BWD_H

#include "ckpm.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CKPM_BWD_ABI_VERSION 1

typedef struct ckpm_bwd_problem
{
    uint32_t struct_bytes; /* sizeof(ckpm_bwd_problem) of the caller: guards against another
                              version */
    uint32_t abi_version;  /* CKPM_BWD_ABI_VERSION */
    char data_type[16];    /* "fp32", "fp16", "bf16" */

    const void* q;
    const void* k;
    const void* v;
    const void* bias; /* elementwise in data_type, or ALiBi's slopes in float32 */
    const void* o;    /* of the forward pass */
    const void* lse;  /* of the forward pass: float32, natural logarithms */
    const void* dout; /* the gradient of o, in data_type */
    void* d;          /* float32, as lse: the sums of dout * o, times 1 - p_drop */
    void* rand_val;   /* with store_randval: a byte for each score */
    void* dq;
    void* dk; /* of each head of Q: who has fewer heads of K and V adds them up, dv alike */
    void* dv;
    void* dbias; /* with has_dbias; scores that a mask hides are not written */
    /* float32: added to, so it must hold zeros before the launch; after timed launches it holds
     * the sum of all. With is_deterministic an array for each 16 rows of K, of which each kernel
     * uses as many as it has tiles of keys. */
    void* dq_acc;
    /* in group mode int32 [batch + 1]: the first row of each sequence, and the end */
    const void* seqstart_q;
    const void* seqstart_k;
    /* in group mode may be, int32 [batch]: rows in use of each sequence */
    const void* seqlen_q_ptr;
    const void* seqlen_k_ptr;
    /* instead of these two: int32 [batch + 1], sums of rows in use */
    const void* cu_seqlen_q;
    const void* cu_seqlen_k;
    void* stream;

    uint64_t dropout_seed, dropout_offset; /* those of the forward pass */

    /* in group mode the longest, which dispatch may ask for, as max_seqlen_q and max_seqlen_k */
    int32_t seqlen_q, seqlen_k;
    int32_t batch, max_seqlen_q, max_seqlen_k, hdim_q, hdim_v, nhead_q, nhead_k;
    /* stride_bias of ALiBi: nhead_q if each sequence has slopes of its own, 0 if all share them */
    int32_t stride_q, stride_k, stride_v, stride_bias, stride_o, stride_randval, stride_dout;
    int32_t stride_dq_acc, stride_dq, stride_dk, stride_dv, stride_dbias;
    int32_t nhead_stride_q, nhead_stride_k, nhead_stride_v, nhead_stride_bias, nhead_stride_o;
    int32_t nhead_stride_randval, nhead_stride_dout, nhead_stride_lsed, nhead_stride_dq_acc;
    int32_t nhead_stride_dq, nhead_stride_dk, nhead_stride_dv, nhead_stride_dbias;
    int32_t batch_stride_q, batch_stride_k, batch_stride_v, batch_stride_bias, batch_stride_o;
    int32_t batch_stride_randval, batch_stride_dout, batch_stride_lsed, batch_stride_dq_acc;
    int32_t batch_stride_dq, batch_stride_dk, batch_stride_dv, batch_stride_dbias;
    int32_t split_stride_dq_acc;                  /* with is_deterministic */
    int32_t mask_type, window_left, window_right; /* as in ckpm.h */
    int32_t bias_type;                            /* as in ckpm.h */
    int32_t is_group_mode, has_dbias, has_dropout, store_randval, is_deterministic;
    float scale, p_drop;

    int32_t warmup; /* launches before the timed ones; only with repeat > 0 */
    /* 0: launch once, untimed; else the mean time of that many launches goes to milliseconds */
    int32_t repeat;
} ckpm_bwd_problem;

CKPM_API int ckpm_bwd_abi_version(void);
CKPM_API size_t ckpm_bwd_problem_bytes(void);
CKPM_API const char* ckpm_bwd_family(void); /* "bwd_dq_dk_dv" */
CKPM_API const char* ckpm_bwd_dialect(void);
CKPM_API int ckpm_bwd_kernel_count(void);
/* Kernel `index` of all stages; null outside 0..count-1. */
CKPM_API const char* ckpm_bwd_kernel_name(int index);
/* Launch what the library's dispatch chooses, on the problem's stream. `milliseconds` may be null.
 * `message` (may be null) receives a zero-terminated text unless the result is CKPM_OK. */
CKPM_API int ckpm_bwd_launch(const ckpm_bwd_problem* problem,
                             float* milliseconds,
                             char* message,
                             size_t message_bytes);
/* Name of the kernel that this thread's last launch chose, for stage 0 (dot_do_o), 1 (dq_dk_dv) or
 * 2 (convert_dq); null if it launched none. */
CKPM_API const char* ckpm_bwd_selected_kernel(int stage);

#ifdef __cplusplus
}
#endif
#endif
