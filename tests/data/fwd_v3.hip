// The two bf16 instances of fmha_fwd_v3 that CK ships, behind a C function. CK's own text is only included.
#include <type_traits>

#include "fmha_fwd_v3.hpp"
#include "fmha_fwd_v3_impl.hpp"
#include "mask.hpp"

// Both files call their traits the same.
#define kernel_traits full_traits
#include "instances/fmha_fwd_v3_d128_bf16_nmask.cpp"
#undef kernel_traits
#define kernel_traits causal_traits
#include "instances/fmha_fwd_v3_d128_bf16_mask.cpp"
#undef kernel_traits

// Q, K, V and O are [token, head, 128] of one sequence. Returns whether a kernel was launched.
extern "C" __attribute__((visibility("default"))) bool fwd_v3(
    const void* q, const void* k, const void* v, void* o, int seqlen_q, int seqlen_k, int nhead_q, int nhead_k, bool causal)
{
    constexpr int hdim = 128;
    ck_tile::fmha_fwd_v3_args args{};
    args.data_type     = ck_tile::fmha_fwd_v3_args::data_type_enum::bf16;
    args.batch         = 1;
    args.seqlen_q      = seqlen_q;
    args.seqlen_k      = seqlen_k;
    args.nhead_q       = nhead_q;
    args.nhead_kv      = nhead_k;
    args.hdim_qk       = hdim;
    args.hdim_v        = hdim;
    args.softmax_scale = 0.08838834764831845f;

    args.window_size_left  = -1;
    args.window_size_right = causal ? 0 : -1;
    args.mask_type         = static_cast<int>(causal ? mask_enum::mask_bottom_right : mask_enum::no_mask);

    args.q_ptr = q;
    args.k_ptr = k;
    args.v_ptr = v;
    args.o_ptr = o;
    args.stride_q = args.stride_o = nhead_q * hdim;
    args.stride_k = args.stride_v = nhead_k * hdim;
    args.nhead_stride_q = args.nhead_stride_k = args.nhead_stride_v = args.nhead_stride_o = hdim;
    args.batch_stride_q = args.batch_stride_o = seqlen_q * nhead_q * hdim;
    args.batch_stride_k = args.batch_stride_v = seqlen_k * nhead_k * hdim;

    const ck_tile::stream_config stream{nullptr, false, 0};
    const auto launched = causal ? ck_tile::fmha_fwd_v3_kernel_dispatch<ck_tile::causal_traits>(args, stream)
                                 : ck_tile::fmha_fwd_v3_kernel_dispatch<ck_tile::full_traits>(args, stream);
    return launched.first;
}
