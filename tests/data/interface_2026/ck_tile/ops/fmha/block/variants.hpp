// The attention variant: what happens to a logit. A code of bits, of which batch prefill uses one.
#pragma once

#include "ck_tile/core.hpp"

namespace ck_tile {

constexpr uint32_t LOGITS_SOFT_CAP = 4;

template <uint32_t Code, bool FastExp2 = false>
struct ComposedAttention
{
    static constexpr bool use_logits_soft_cap = (Code & LOGITS_SOFT_CAP) != 0;
    static constexpr bool use_exp2            = FastExp2;
};

} // namespace ck_tile
