// What CK's example header fmha_bwd.hpp of 2026 gives to the backward kernels: requests, arguments,
// dispatch traits, the launch of the stages.
#pragma once

#include "fmha_fwd.hpp"

struct FmhaBwdFp32
{};
struct FmhaBwdFp16
{};
struct FmhaBwdBf16
{};

template <typename Element>
struct InterfaceGradientTypes
{
    using QDataType             = Element;
    using KDataType             = Element;
    using VDataType             = Element;
    using GemmDataType          = Element;
    using BiasDataType          = Element;
    using ODataType             = Element;
    using OGradDataType         = Element;
    using QGradDataType         = Element;
    using KGradDataType         = Element;
    using VGradDataType         = Element;
    using BiasGradDataType      = Element;
    using LSEDataType           = float;
    using AccDataType           = float;
    using DDataType             = float;
    using RandValOutputDataType = uint8_t;
};
template <typename Config>
struct FmhaBwdTypeConfig;
template <>
struct FmhaBwdTypeConfig<FmhaBwdFp32> : InterfaceGradientTypes<float>
{};
template <>
struct FmhaBwdTypeConfig<FmhaBwdFp16> : InterfaceGradientTypes<ck_tile::half_t>
{};
template <>
struct FmhaBwdTypeConfig<FmhaBwdBf16> : InterfaceGradientTypes<ck_tile::bf16_t>
{};

// Of the arguments only those that generated text names: dQ is accumulated in the workspace.
struct fmha_bwd_args
{
    void* workspace_ptr;
    ck_tile::index_t batch;
};
// A request: conditions of dispatch read it alone.
struct fmha_bwd_traits
{
    int seqlen_q, seqlen_k, batch, max_seqlen_q, max_seqlen_k, hdim_q, hdim_v, nhead_q, nhead_k;
    std::string data_type;
    bool is_group_mode;
    mask_enum mask_type;
    bias_enum bias_type;
    bool has_dbias, has_dropout, is_store_randval, is_deterministic;
};

template <ck_tile::index_t HDim,
          typename DataType,
          bool IsGroupMode,
          typename Mask,
          typename Dropout,
          ck_tile::BlockAttentionBiasEnum Bias,
          bool HasBiasGrad,
          ck_tile::index_t PadD,
          ck_tile::index_t PadDv,
          bool IsDeterministic,
          bool UseTrLoad,
          ck_tile::index_t MaxSeqLenQ,
          ck_tile::index_t N0>
struct fmha_bwd_dq_dk_dv_traits_
{};
template <ck_tile::index_t HDim, typename DataType, bool IsGroupMode, bool PadS, bool PadDv>
struct fmha_bwd_dot_do_o_traits_
{};
template <ck_tile::index_t HDim,
          typename DataType,
          bool IsGroupMode,
          bool PadS,
          bool PadD,
          bool IsDeterministic>
struct fmha_bwd_convert_dq_traits_
{};

#define INTERFACE_2026_STAGE(name)                                      \
    template <typename Traits_, typename Arch = void>                   \
    void name##_oneshot_(const ck_tile::stream_config&, fmha_bwd_args); \
    template <typename Traits_, typename Arch = void>                   \
    std::string name##_get_name_();                                     \
    template <typename Kernel>                                          \
    auto name##_create_kargs_and_grids(fmha_bwd_args)                   \
    {                                                                   \
        return std::make_pair(InterfaceNoKargs{}, dim3(1));             \
    }
INTERFACE_2026_STAGE(fmha_bwd_dot_do_o)
INTERFACE_2026_STAGE(fmha_bwd_dq_dk_dv)
INTERFACE_2026_STAGE(fmha_bwd_convert_dq)

// The launch of the stages is CK's since 2026. The last stage is void if dQ needs no conversion.
template <typename First, typename Main, typename Last, typename Arch>
float fmha_bwd_(const ck_tile::stream_config& s, fmha_bwd_args a)
{
    std::string names = fmha_bwd_dot_do_o_get_name_<First, Arch>();
    names += "," + fmha_bwd_dq_dk_dv_get_name_<Main, Arch>();
    fmha_bwd_dot_do_o_oneshot_<First, Arch>(s, a);
    fmha_bwd_dq_dk_dv_oneshot_<Main, Arch>(s, a);
    if constexpr(!std::is_void_v<Last>)
    {
        names += "," + fmha_bwd_convert_dq_get_name_<Last, Arch>();
        fmha_bwd_convert_dq_oneshot_<Last, Arch>(s, a);
    }
    ckpm_fake_take(names.c_str());
    return 0;
}

template <int Version = 2>
float fmha_bwd(const fmha_bwd_traits&, fmha_bwd_args, const ck_tile::stream_config&);
