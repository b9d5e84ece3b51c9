// A call of a library's fmha_bwd without the C ABI, which refuses launches. The names of the stages
// are the fake runtime's record, and its count of launches is one more than those of kernels.
#include "ckpm_bwd.h"
#include "fmha_bwd.hpp"

template <>
float fmha_bwd<2>(const fmha_bwd_traits&, fmha_bwd_args, const ck_tile::stream_config&);

extern "C" int ckpm_fake_backward(const ckpm_bwd_problem* p)
{
    const fmha_bwd_traits request{p->seqlen_q,
                                  p->seqlen_k,
                                  p->batch,
                                  p->max_seqlen_q,
                                  p->max_seqlen_k,
                                  p->hdim_q,
                                  p->hdim_v,
                                  p->nhead_q,
                                  p->nhead_k,
                                  p->data_type,
                                  p->is_group_mode != 0,
                                  static_cast<mask_enum>(p->mask_type),
                                  static_cast<bias_enum>(p->bias_type),
                                  p->has_dbias != 0,
                                  p->has_dropout != 0,
                                  p->store_randval != 0,
                                  p->is_deterministic != 0};
    return fmha_bwd<2>(request, {nullptr, p->batch}, {}) >= 0;
}
