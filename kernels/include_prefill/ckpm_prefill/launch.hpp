// What a launch hands to its workgroups, where each of them works, and what it reads.
#pragma once

#include "ck_tile/core.hpp"
#include "ck_tile/ops/fmha/block/block_masking.hpp"
#include "ckpm_prefill/load_mode.hpp"
#include "ckpm_prefill/paged_cache.hpp"
#include "ckpm_prefill/score_bounds.hpp"

namespace ck_tile {

// All that a launch hands to its workgroups. Strides count elements.
struct FmhaBatchPrefillKargs
{
    const void* q_ptr;
    const void* k_ptr;
    const void* v_ptr;
    const void* bias_ptr; // elementwise bias or ALiBi slopes
    const void* q_descale_ptr;
    const void* k_descale_ptr;
    const void* v_descale_ptr;
    const void* sink_ptr;
    void* rand_val_ptr;
    void* lse_ptr;
    void* o_ptr;
    const int32_t* seqstart_q_ptr;
    const int32_t* kv_indptr;
    const int32_t* kv_page_indices;
    const int32_t* kv_last_page_lens;
    const int32_t* seqlen_k_ptr;

    index_t hdim_q, hdim_v, nhead_q, nhead_ratio_qk, num_total_pages, batch_stride_block_table;
    index_t stride_q, stride_k, stride_v, stride_bias, stride_randval, stride_o;
    index_t nhead_stride_q, nhead_stride_k, nhead_stride_v, nhead_stride_bias, nhead_stride_randval;
    index_t nhead_stride_lse, nhead_stride_o;
    index_t batch_stride_k, batch_stride_v; // from page to page
    index_t nblock_stride_kv_block_descale, nhead_stride_kv_block_descale;
    index_t window_size_left, window_size_right, mask_type, sink_size;
    float scale_s, logits_soft_cap;

    uint64_t drop_seed, drop_offset; // or the addresses of both
    bool drop_by_pointer, store_randval;
    uint8_t keep_up_to; // of a random byte
    float rp_undrop;

    mdiv page_tokens; // of a page
};

} // namespace ck_tile

namespace ckpm::prefill {

using Kargs = ck_tile::FmhaBatchPrefillKargs;

// Where a workgroup works. Rows are counted in the sequence.
struct Place
{
    index_t batch, head, kv_head, first, seqlen_q, seqlen_k;
    index_t tile_rows;
    long_index_t query_start;
    const int32_t* pages;

    CK_TILE_DEVICE index_t rows() const { return ck_tile::min(tile_rows, seqlen_q - first); }
    CK_TILE_DEVICE long_index_t token() const { return query_start + first; }
};

template <typename Traits>
CK_TILE_DEVICE index_t tokens_of_page(const Kargs& kargs)
{
    if constexpr(Traits::kPageBlockSize == ANY_PAGE)
        return static_cast<index_t>(kargs.page_tokens.get());
    else
        return Traits::kPageBlockSize;
}

template <typename Traits>
CK_TILE_DEVICE Place place_of_workgroup(
    const Kargs& kargs, index_t tile_rows, uint32_t tile, uint32_t head, uint32_t batch)
{
    using Table = ck_tile::BlockAttentionKVCacheLookupTableEnum;
    Place at;
    at.tile_rows   = tile_rows;
    at.first       = tile * tile_rows;
    at.head        = head;
    at.batch       = batch;
    at.kv_head     = at.head / kargs.nhead_ratio_qk;
    at.query_start = kargs.seqstart_q_ptr[at.batch];
    at.seqlen_q    = kargs.seqstart_q_ptr[at.batch + 1] - kargs.seqstart_q_ptr[at.batch];
    if constexpr(Traits::kKVLookupTable == Table::SGLANG_PAGE_TABLE_1D)
    {
        const index_t begin = kargs.kv_indptr[at.batch];
        const index_t count = kargs.kv_indptr[at.batch + 1] - begin;
        at.pages            = kargs.kv_page_indices + begin;
        at.seqlen_k         = count;
        if constexpr(Traits::kPageBlockSize != 1)
            at.seqlen_k = count > 0 ? (count - 1) * tokens_of_page<Traits>(kargs) +
                                          kargs.kv_last_page_lens[at.batch]
                                    : 0;
    }
    else
    {
        at.pages    = kargs.kv_page_indices +
                      static_cast<long_index_t>(at.batch) * kargs.batch_stride_block_table;
        at.seqlen_k = kargs.seqlen_k_ptr[at.batch];
    }
    return at;
}

// One of the pools as a workgroup sees it. Element is K's and V's type, strides count elements.
template <typename Traits, typename Element>
CK_TILE_DEVICE CacheView cache_view(const Kargs& kargs,
                                    const Place& at,
                                    const void* pool,
                                    index_t page_stride,
                                    index_t token_stride,
                                    index_t head_stride,
                                    index_t hdim)
{
    constexpr index_t bytes   = sizeof(Element);
    const index_t page        = tokens_of_page<Traits>(kargs);
    constexpr bool vectorized = Traits::kKVMemoryLayout ==
                                ck_tile::BlockAttentionKVCacheMemoryLayoutEnum::VECTORIZED_LAYOUT;
    CacheView view;
    view.base  = reinterpret_cast<const char*>(static_cast<const Element*>(pool) +
                                               static_cast<long_index_t>(at.kv_head) * head_stride);
    view.pages = at.pages;
    view.page_bytes  = static_cast<uint32_t>(page_stride) * bytes;
    view.token_bytes = page == 1 ? 0 : token_stride * bytes;
    view.row_bytes   = hdim * bytes;
    view.head_bytes =
        vectorized ? page * view.row_bytes : (page - 1) * view.token_bytes + view.row_bytes;
    view.num_pages  = kargs.num_total_pages;
    view.last_token = at.seqlen_k - 1;
    if constexpr(Traits::kPageBlockSize == ANY_PAGE)
        view.page_tokens = kargs.page_tokens;
    return view;
}

template <typename Traits, typename Element>
CK_TILE_DEVICE CacheView k_view(const Kargs& kargs, const Place& at)
{
    return cache_view<Traits, Element>(kargs,
                                       at,
                                       kargs.k_ptr,
                                       kargs.batch_stride_k,
                                       kargs.stride_k,
                                       kargs.nhead_stride_k,
                                       kargs.hdim_q);
}

template <typename Traits, typename Element>
CK_TILE_DEVICE CacheView v_view(const Kargs& kargs, const Place& at)
{
    return cache_view<Traits, Element>(kargs,
                                       at,
                                       kargs.v_ptr,
                                       kargs.batch_stride_v,
                                       kargs.stride_v,
                                       kargs.nhead_stride_v,
                                       kargs.hdim_v);
}

template <typename ScoreMask>
CK_TILE_DEVICE ScoreMask mask_of(const Kargs& kargs, const Place& at)
{
    using ck_tile::number;
    ScoreMask mask{0, 0, at.seqlen_q, at.seqlen_k, kargs.sink_size};
    if constexpr(ScoreMask::kMasks)
    {
        const auto corner = ck_tile::make_generic_attention_mask_coordinates_from_lr_window(
            kargs.window_size_left,
            kargs.window_size_right,
            at.seqlen_q,
            at.seqlen_k,
            kargs.mask_type ==
                static_cast<index_t>(ck_tile::GenericAttentionMaskEnum::MASK_FROM_TOP_LEFT));
        mask.y = corner.at(number<0>{});
        mask.x = corner.at(number<1>{});
    }
    return mask;
}

// Of K or V: the block scales of a KV head, page 0 first.
CK_TILE_DEVICE const float* block_scales(const Kargs& kargs, const Place& at, const void* scales)
{
    return static_cast<const float*>(scales) +
           static_cast<long_index_t>(at.kv_head) * kargs.nhead_stride_kv_block_descale;
}

// Of K or V: one scale for all, and beside a Q of 16 bits one for a KV head or, without a stride,
// for all.
template <bool kMixed>
CK_TILE_DEVICE float tensor_scale(const Kargs& kargs, const Place& at, const void* scales)
{
    if constexpr(kMixed)
        return *block_scales(kargs, at, scales);
    else
        return *static_cast<const float*>(scales);
}

// What raw scores are multiplied with besides scale_s. Block scales come tile by tile. A Q of 16
// bits (kMixed) has no scale.
template <typename Traits, bool kMixed = false>
CK_TILE_DEVICE float qk_descale(const Kargs& kargs, const Place& at)
{
    using Scale = ck_tile::BlockAttentionQuantScaleEnum;
    float by    = 1.f;
    if constexpr(Traits::QScaleEnum != Scale::NO_SCALE && !kMixed)
        by *= *static_cast<const float*>(kargs.q_descale_ptr);
    if constexpr(Traits::QScaleEnum == Scale::PERTENSOR)
        by *= tensor_scale<kMixed>(kargs, at, kargs.k_descale_ptr);
    return by;
}

template <typename Traits, bool kMixed = false>
CK_TILE_DEVICE float v_descale(const Kargs& kargs, const Place& at)
{
    if constexpr(Traits::QScaleEnum == ck_tile::BlockAttentionQuantScaleEnum::PERTENSOR)
        return tensor_scale<kMixed>(kargs, at, kargs.v_descale_ptr);
    else
        return 1.f;
}

} // namespace ckpm::prefill
