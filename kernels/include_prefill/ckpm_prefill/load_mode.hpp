// How a kernel reads the KV cache, and which way a launch must take. Needs no HIP: a host compiler
// can include it.
#pragma once

#include <cstdint>
#include <limits>

namespace ck_tile {

enum class BlockAttentionKVCacheMemoryLayoutEnum
{
    VECTORIZED_LAYOUT = 0, // K [page, head, dim / x, token, x], V [page, head, token / x, dim, x]
    LINEAR_LAYOUT     = 1  // [page, token, head, dim]
};

enum class BlockAttentionKVCacheLookupTableEnum
{
    VLLM_BLOCK_TABLE_2D = 0, // a row of pages for each sequence, and its length
    SGLANG_PAGE_TABLE_1D =
        1 // one list of pages, where each sequence begins, its last page's length
};

enum class BlockAttentionKVCacheLoadModeEnum
{
    BUFFER_LOAD     = 0, // buffer loads: offsets of 32 bits from a descriptor's base
    GLOBAL_LOAD_LDS = 1  // addresses of 64 bits
};

enum class BlockAttentionQuantScaleEnum
{
    NO_SCALE      = 0,
    PERTENSOR     = 1,
    BLOCKSCALE    = 2,
    KV_BLOCKSCALE = 3,
    MX            = 4
};

} // namespace ck_tile

namespace ckpm::prefill {

// Whether one descriptor at a pool's base reaches all of it. CK's buffer loads count bytes in
// signed 32 bits; the low half of the base is added as the hardware adds it, so a small pool just
// below a line of 4 GB is out of reach, too.
constexpr bool one_descriptor_reaches(uint64_t base,
                                      int64_t pages,
                                      int64_t page_stride,
                                      int64_t element_bytes)
{
    // pages and stride are below 2^31, an element has at most 4 bytes: no overflow in 64 bits
    const uint64_t pool = static_cast<uint64_t>(pages * page_stride) * element_bytes;
    return (base & 0xFFFFFFFFu) + pool <= uint64_t{std::numeric_limits<int32_t>::max()};
}

} // namespace ckpm::prefill

// The load mode of a launch; K and V are judged apart, and the kernel has one mode for both.
//
// Pages of a whole tile or more have a descriptor each, wherever they are. Pages of one token are
// scattered by serving frameworks beyond num_total_pages, which then bounds nothing: 64 bits
// always.
inline ck_tile::BlockAttentionKVCacheLoadModeEnum fmha_batch_prefill_select_kv_load_mode(
    int32_t page_block_size,
    int32_t kN0,
    int32_t num_total_pages,
    int32_t batch_stride_k,
    int32_t batch_stride_v,
    int32_t element_bytes,
    const void* k_base_ptr,
    const void* v_base_ptr)
{
    using Mode = ck_tile::BlockAttentionKVCacheLoadModeEnum;
    if(page_block_size >= kN0)
        return Mode::BUFFER_LOAD;
    if(page_block_size == 1)
        return Mode::GLOBAL_LOAD_LDS;
    const auto reaches = [&](const void* base, int32_t stride) {
        return ckpm::prefill::one_descriptor_reaches(
            reinterpret_cast<uint64_t>(base), num_total_pages, stride, element_bytes);
    };
    const bool both = reaches(k_base_ptr, batch_stride_k) && reaches(v_base_ptr, batch_stride_v);
    return both ? Mode::BUFFER_LOAD : Mode::GLOBAL_LOAD_LDS;
}
