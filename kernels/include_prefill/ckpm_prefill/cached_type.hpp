// K and V as they lie in the cache, and as they are multiplied: 8 bits beside a Q of 16 bits are
// widened between the cache and LDS. So each number has one conversion in a workgroup, and not one
// in each wave. Every number of e4m3 is one of bf16 and of fp16: nothing is rounded, and NaN stays
// NaN.
#pragma once

#include "ck_tile/core.hpp"
#include "ckpm_prefill/lds_tile.hpp"

#include <type_traits>

namespace ckpm::prefill {

using ck_tile::int32x2_t;

// A chunk of LDS as the cache holds it. `Cached` is K's and V's type there, T in LDS.
template <typename T, typename Cached>
struct CachedChunk
{
    static constexpr bool kWidens = sizeof(Cached) < sizeof(T);
    static_assert(kWidens ? sizeof(T) == 2 * sizeof(Cached) : std::is_same_v<T, Cached>);

    using Bits                      = std::conditional_t<kWidens, int32x2_t, int32x4_t>;
    static constexpr index_t kBytes = sizeof(Bits);
    // The vectorized layout has chunks of 16 bytes, and so several of these in one.
    static constexpr index_t kInVector = CHUNK_BYTES / kBytes;

    CK_TILE_DEVICE static int32x4_t widen(const Bits& bits)
    {
        if constexpr(!kWidens)
            return bits;
        else
            return int32x4_t{
                two<false>(bits[0]), two<true>(bits[0]), two<false>(bits[1]), two<true>(bits[1])};
    }

private:
    // The low or high two of four numbers as two of T
    template <bool kHigh>
    CK_TILE_DEVICE static int32_t two([[maybe_unused]] int32_t four)
    {
        constexpr bool bf16 = std::is_same_v<T, ck_tile::bf16_t>;
#if defined(__gfx950__)
        if constexpr(bf16)
            return bits_of(__builtin_amdgcn_cvt_scalef32_pk_bf16_fp8(four, 1.f, kHigh));
        else
            return bits_of(__builtin_amdgcn_cvt_scalef32_pk_f16_fp8(four, 1.f, kHigh));
#elif defined(__gfx94__)
        const auto wide = __builtin_amdgcn_cvt_pk_f32_fp8(four, kHigh);
        if constexpr(bf16) // the high halves: the low ones are 0
            return __builtin_amdgcn_perm(bits_of(wide[1]), bits_of(wide[0]), 0x07060302u);
        else
            return bits_of(__builtin_amdgcn_cvt_pkrtz(wide[0], wide[1]));
#else
        const auto one = [&](int shift) {
            const auto byte = static_cast<uint8_t>(static_cast<uint32_t>(four) >> shift);
            const float wide =
                ck_tile::type_convert<float>(ck_tile::bit_cast<ck_tile::fp8_t>(byte));
            const T narrow = ck_tile::type_convert<T>(wide);
            return static_cast<uint32_t>(ck_tile::bit_cast<uint16_t>(narrow));
        };
        constexpr int low = kHigh ? 16 : 0;
        return static_cast<int32_t>(one(low) | one(low + 8) << 16);
#endif
    }

    template <typename Value>
    CK_TILE_DEVICE static int32_t bits_of(const Value& value)
    {
        return __builtin_bit_cast(int32_t, value);
    }
};

} // namespace ckpm::prefill
