// From scores to weights: 32 queries a wave, two lanes a query, 32 of 64 keys a lane.
#pragma once

#include "ckpm_prefill_v3/products.hpp"

namespace ckpm::prefill::v3 {

// What a query's weights add up to: 2 to the power of each score, in base 2, less `origin`
struct WeightSum
{
    float origin;
    float sum; // in fp8 of weights as they were multiplied with V, rounded

    // Adds a key that has a logit, in base 2, and no V: a sink. What was accumulated keeps its size
    // in units of the origin, which may rise: returns by how much it must be rescaled.
    CK_TILE_DEVICE float add_sink(float logit)
    {
        const float fresh = ck_tile::max(origin, logit);
        const float by    = ck_tile::exp2(origin - fresh);
        sum               = sum * by + ck_tile::exp2(logit - fresh);
        origin            = fresh;
        return by;
    }

    // Of what O was divided by, in fp8 the sum of rounded weights: outputs that are merged by it
    // differ from one pass by roundings. -inf of a query without a key.
    CK_TILE_DEVICE float lse() const
    {
        return sum == 0.f ? -ck_tile::numeric<float>::infinity()
                          : origin * ck_tile::log2e_rcp_v<float> + ck_tile::log(sum);
    }
};

// The origin of a lane's query, in base 2: the largest score when it was set.
//
// Weights are 2^kShift times as large as what they stand for, so that small ones keep their bits;
// sums are so, too, and it cancels. The origin follows the largest score only when weights are too
// large (arithmetic.hpp), and O is rescaled less often.
template <typename Arithmetic>
struct RunningSoftmax
{
    static constexpr float kShift = Arithmetic::kShift;

    // The origin less kShift. Of a row without a key so far it is finite: -inf has a weight of 0.
    float shift = -ck_tile::numeric<float>::max();

    // Makes weights of scores (times `scale` they are in base 2) for the origin as it is.
    CK_TILE_DEVICE void weigh(const Floats16 (&scores)[2],
                              float scale,
                              typename Arithmetic::Weights& weights) const
    {
#pragma unroll
        for(index_t i = 0; i < 32; i += 4)
        {
            float w[4];
#pragma unroll
            for(index_t j = 0; j < 4; ++j)
                w[j] = ck_tile::exp2(scores[i / 16][i % 16 + j] * scale - shift);
            Arithmetic::put(weights, i, w);
        }
    }

    // Moves the origin to the largest score. Returns by how much what was accumulated must be
    // rescaled.
    CK_TILE_DEVICE float follow(const Floats16 (&scores)[2], float scale)
    {
        const Halves halves = both_halves(highest(scores));
        const float most    = ck_tile::max(halves.lower, halves.upper) * scale - kShift;
        const float fresh   = ck_tile::max(most, shift);
        const float factor  = ck_tile::exp2(shift - fresh);
        shift               = fresh;
        return factor;
    }

private:
    CK_TILE_DEVICE static float highest(const Floats16 (&scores)[2])
    {
        float most[2] = {scores[0][0], scores[1][0]}; // two chains, of which neither waits
#pragma unroll
        for(index_t i = 2; i < 32; ++i)
            most[i % 2] = ck_tile::max(most[i % 2], scores[i % 2][i / 2]);
        return ck_tile::max(most[0], most[1]);
    }
};

} // namespace ckpm::prefill::v3
