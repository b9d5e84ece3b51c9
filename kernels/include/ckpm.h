/* The C ABI of a library of CK batch-prefill kernels: a problem in, a kernel launched, an error
 * code out.
 *
 * Plain C types only, so that ctypes, cffi or C++ can call it. No exception leaves a function.
 * Pointers inside a problem are device addresses. Strides count elements. The struct is the same
 * for every dialect; a field that the library's CK doesn't know must hold its neutral value (0,
 * null, page_size 1), otherwise the launch is refused; so is one that asks for a feature without
 * the pointer it needs. The message then begins with the field's name.
 */
#ifndef CKPM_H
#define CKPM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CKPM_ABI_VERSION 2
#define CKPM_API         __attribute__((visibility("default")))

enum ckpm_status
{
    CKPM_OK          = 0,
    CKPM_UNSUPPORTED = 1, /* dispatch found no kernel for the request */
    CKPM_BAD_PROBLEM = 2, /* a field is impossible, or the library's CK doesn't know it */
    CKPM_NO_KERNEL   = 3, /* no kernel of the given name in this library */
    CKPM_HIP_ERROR   = 4, /* the HIP runtime reported an error, to us or to CK's host code */
    CKPM_EXCEPTION   = 5  /* CK's host code threw for another reason */
};

enum ckpm_mask
{
    CKPM_MASK_NONE         = 0,
    CKPM_MASK_TOP_LEFT     = 1,
    CKPM_MASK_BOTTOM_RIGHT = 2,
    CKPM_MASK_WINDOW       = 3
};
enum ckpm_bias
{
    CKPM_BIAS_NONE        = 0,
    CKPM_BIAS_ELEMENTWISE = 1,
    CKPM_BIAS_ALIBI       = 2
};
enum ckpm_qscale
{
    CKPM_QSCALE_NONE          = 0,
    CKPM_QSCALE_PERTENSOR     = 1,
    CKPM_QSCALE_KV_BLOCKSCALE = 2,
    CKPM_QSCALE_PERHEAD       = 3 /* of each KV head; with a Q of 16 bits alone */
};
enum ckpm_kv_layout
{
    CKPM_KV_LINEAR     = 0,
    CKPM_KV_VECTORIZED = 1
};
enum ckpm_kv_table
{
    CKPM_TABLE_SGLANG_1D = 0,
    CKPM_TABLE_VLLM_2D   = 1
};

typedef struct ckpm_problem
{
    uint32_t struct_bytes; /* sizeof(ckpm_problem) of the caller: guards against another version */
    uint32_t abi_version;  /* CKPM_ABI_VERSION */
    char data_type[16]; /* "fp16", "bf16", "fp8bf16"; with fp8 K and V "fp16kvfp8", "bf16kvfp8" */

    const void* q;
    const void* k;
    const void* v;
    const void* bias;      /* elementwise bias or ALiBi slopes: with a bias_type */
    const void* q_descale; /* the three descales: with a qscale_type; Q's for an fp8 Q alone */
    const void* k_descale;
    const void* v_descale;
    void* rand_val; /* with store_randval, which needs has_dropout */
    void* lse;      /* with has_lse */
    void* o;
    const void* seqstart_q; /* in group mode */
    const void* sink;
    void* kv_indptr;         /* SGLang */
    void* kv_page_indices;   /* SGLang: 1-D page list; vLLM: 2-D block table */
    void* kv_last_page_lens; /* SGLang, with a page_size over 1 */
    void* seqlen_k_ptr;      /* vLLM */
    void* o_acc;             /* with split_keys: float, hdim_v of each split, query and head */
    void* lse_acc;           /* float, one of each split, query and head */
    void* stream;
    uint64_t dropout_seed;
    uint64_t dropout_offset;

    int32_t seqlen_q, seqlen_k, batch, max_seqlen_q;
    int32_t hdim_q, hdim_v, nhead_q, nhead_k;
    int32_t num_total_pages, page_size, kv_layout, kv_table, batch_stride_block_table;
    int32_t stride_q, stride_k, stride_v, stride_bias, stride_randval, stride_o;
    int32_t nhead_stride_q, nhead_stride_k, nhead_stride_v, nhead_stride_bias, nhead_stride_randval;
    int32_t nhead_stride_lse, nhead_stride_o;
    int32_t batch_stride_q, batch_stride_k, batch_stride_v, batch_stride_bias, batch_stride_randval;
    int32_t batch_stride_lse, batch_stride_o;
    int32_t mask_type, window_left, window_right, sink_size;
    /* above 0: the fewest keys that one workgroup takes. seqlen_k has at most 128 such ranges, and
       a sequence at most as many as seqlen_k: of a longer one they are longer */
    int32_t split_keys;
    int32_t bias_type, qscale_type;
    int32_t block_stride_kv_descale, nhead_stride_kv_descale;
    int32_t is_group_mode, is_v_rowmajor, has_logits_soft_cap, has_lse, has_dropout, has_sink,
        store_randval;

    float scale_s, scale_p, scale_o, logits_soft_cap, p_drop;

    int32_t warmup; /* launches before the timed ones; only with repeat > 0 */
    /* 0: launch once, untimed; else the mean time of that many launches goes to milliseconds */
    int32_t repeat;
} ckpm_problem;

CKPM_API int ckpm_abi_version(void);
CKPM_API size_t ckpm_problem_bytes(void);
CKPM_API const char* ckpm_dialect(void);
CKPM_API int ckpm_kernel_count(void);
/* Kernel `index` in dispatch order; null outside 0..count-1. */
CKPM_API const char* ckpm_kernel_name(int index);
/* Launch on the problem's stream. `kernel` null: the library's dispatch chooses; else that kernel,
 * without its conditions: whether the problem suits it is then the caller's affair. `milliseconds`
 * may be null. `message` (may be null) receives a zero-terminated text unless the result is
 * CKPM_OK. */
CKPM_API int ckpm_launch(const ckpm_problem* problem,
                         const char* kernel,
                         float* milliseconds,
                         char* message,
                         size_t message_bytes);
/* Name of the kernel that this thread's last launch chose; null if it launched none. */
CKPM_API const char* ckpm_selected_kernel(void);

#ifdef __cplusplus
}
#endif
#endif
