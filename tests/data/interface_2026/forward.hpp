// What fmha_fwd.hpp of 2026 gives to fwd, fwd_pagedkv and fwd_splitkv: requests, arguments,
// dispatch traits, and the types that a kernel is put together from. Included by the fmha_fwd.hpp
// beside it.
#pragma once

struct FmhaFwdFp32
{};
struct FmhaFwdFp8
{};
struct FmhaFwdFp8Fp32
{};
struct FmhaFwdMxFp8
{};
struct FmhaFwdMxFp4
{};
template <>
struct FmhaFwdTypeConfig<FmhaFwdFp32> : InterfaceTypes<float, float, float>
{};
template <>
struct FmhaFwdTypeConfig<FmhaFwdFp8> : InterfaceTypes<ck_tile::fp8_t, float, ck_tile::fp8_t>
{};
template <>
struct FmhaFwdTypeConfig<FmhaFwdFp8Fp32> : InterfaceTypes<ck_tile::fp8_t, float, float>
{};
template <>
struct FmhaFwdTypeConfig<FmhaFwdMxFp8> : InterfaceTypes<ck_tile::fp8_t, float, float>
{};
template <>
struct FmhaFwdTypeConfig<FmhaFwdMxFp4> : InterfaceTypes<ck_tile::fp4_t, float, float>
{};

// Arguments that the three families share, then each one's own.
struct InterfaceForwardArgs
{
    const void *q_ptr, *k_ptr, *v_ptr, *bias_ptr;
    void *lse_ptr, *o_ptr;
    const void *seqstart_q_ptr, *seqstart_k_ptr, *seqlen_k_ptr, *sink_ptr;
    ck_tile::index_t seqlen_q, seqlen_k, batch, max_seqlen_q, hdim_q, hdim_v, nhead_q, nhead_k;
    float scale_s, logits_soft_cap;
    ck_tile::index_t stride_q, stride_k, stride_v, stride_bias, stride_o;
    ck_tile::index_t nhead_stride_q, nhead_stride_k, nhead_stride_v, nhead_stride_bias,
        nhead_stride_lse, nhead_stride_o;
    ck_tile::index_t batch_stride_q, batch_stride_k, batch_stride_v, batch_stride_bias,
        batch_stride_lse, batch_stride_o;
    ck_tile::index_t window_size_left, window_size_right, sink_size, mask_type;
};

struct fmha_fwd_args : InterfaceForwardArgs
{
    const void *q_descale_ptr, *k_descale_ptr, *v_descale_ptr;
    void* rand_val_ptr;
    const void *seqlen_q_ptr, *cu_seqlen_q_ptr, *cu_seqlen_k_ptr;
    ck_tile::index_t stride_randval, nhead_stride_randval, batch_stride_randval, min_seqlen_q;
    float p_drop;
    bool s_randval;
    std::variant<std::pair<uint64_t, uint64_t>, std::pair<const void*, const void*>>
        drop_seed_offset;
};

struct InterfacePagedArgs : InterfaceForwardArgs
{
    float scale_p, scale_o;
    void* block_table_ptr;
    ck_tile::index_t batch_stride_block_table, page_block_size;
    bool is_gappy;
    const void* cache_batch_idx;
};
struct fmha_fwd_pagedkv_args : InterfacePagedArgs
{
    ck_tile::index_t min_seqlen_q;
};
struct fmha_fwd_splitkv_args : InterfacePagedArgs
{
    void *lse_acc_ptr, *o_acc_ptr;
    ck_tile::index_t num_splits, stride_o_acc, nhead_stride_lse_acc, nhead_stride_o_acc,
        batch_stride_lse_acc, batch_stride_o_acc, split_stride_lse_acc, split_stride_o_acc;
};

// What arrives at a kernel: nothing more is recorded than which kernel it was.
struct InterfaceNoKargs
{
    void describe(ck_tile::Record&) const {}
};
#define INTERFACE_2026_CREATE(name, args)                   \
    template <typename Kernel>                              \
    auto name##_create_kargs_and_grids(args)                \
    {                                                       \
        return std::make_pair(InterfaceNoKargs{}, dim3(1)); \
    }
INTERFACE_2026_CREATE(fmha_fwd, fmha_fwd_args)
INTERFACE_2026_CREATE(fmha_fwd_v3, fmha_fwd_args)
INTERFACE_2026_CREATE(fmha_fwd_pagedkv, fmha_fwd_pagedkv_args)
INTERFACE_2026_CREATE(fmha_fwd_splitkv, fmha_fwd_splitkv_args)
INTERFACE_2026_CREATE(fmha_fwd_splitkv_combine, fmha_fwd_splitkv_args)

template <INTERFACE_2026_FIRST,
          bool IsPagedKv,
          bool StaticQuant,
          bool PadS,
          bool PadSK,
          bool PadD,
          bool PadDv,
          bool SkipMinSeqlenQ,
          bool HasSink INTERFACE_2026_LAST>
struct fmha_fwd_pagedkv_traits_
{};
template <INTERFACE_2026_FIRST,
          bool StaticQuant,
          bool IsPagedKv,
          bool HasSink,
          bool PadS,
          bool PadSK,
          bool PadD,
          bool PadDv INTERFACE_2026_LAST>
struct fmha_fwd_splitkv_traits_
{};
template <ck_tile::index_t HDim,
          typename DataType,
          bool IsGroupMode,
          ck_tile::index_t N1,
          bool StoreLse,
          bool StaticQuant,
          bool PadS,
          bool PadDv>
struct fmha_fwd_splitkv_combine_traits_
{};

template <typename Traits_, typename Arch = void>
float fmha_fwd_(const ck_tile::stream_config&, fmha_fwd_args);
template <typename Traits_, typename Arch = void>
float fmha_fwd_pagedkv_(const ck_tile::stream_config&, fmha_fwd_pagedkv_args);
template <typename Traits_, typename Arch = void>
void fmha_fwd_splitkv_oneshot_(const ck_tile::stream_config&, fmha_fwd_splitkv_args);
template <typename Traits_, typename Arch = void>
void fmha_fwd_splitkv_combine_oneshot_(const ck_tile::stream_config&, fmha_fwd_splitkv_args);

// A request.
struct fmha_fwd_pagedkv_traits
{
    int hdim_q, hdim_v;
    std::string data_type;
    bool is_group_mode, is_v_rowmajor, has_logits_soft_cap;
    mask_enum mask_type;
    bias_enum bias_type;
    bool has_lse             = false;
    bool use_pagedkv         = true;
    bool do_fp8_static_quant = false;
    bool skip_min_seqlen_q   = false;
    bool has_sink            = false;
};
struct fmha_fwd_splitkv_traits
{
    int hdim_q, hdim_v;
    std::string data_type;
    bool is_group_mode, is_v_rowmajor, has_logits_soft_cap;
    mask_enum mask_type;
    bias_enum bias_type;
    bool has_lse;
    bool do_fp8_static_quant = false;
    bool has_sink            = false;
};

float fmha_fwd(fmha_fwd_traits, fmha_fwd_args, const ck_tile::stream_config&);
float fmha_fwd_pagedkv(fmha_fwd_pagedkv_traits&,
                       fmha_fwd_pagedkv_args&,
                       const ck_tile::stream_config&);
float fmha_fwd_splitkv(fmha_fwd_splitkv_traits,
                       fmha_fwd_splitkv_args,
                       const ck_tile::stream_config&);
