// Batch prefill for gfx950: 256 queries and 8 waves, in two groups of four that take turns.
//
// Each SIMD has a wave of either group. In a turn, which has one tile of keys, a group multiplies
// (scores of the tile, O += V P of the tile before) and makes weights of scores. The groups do so
// in different order, so that a SIMD has one wave for its matrix unit and one for its vector unit.
//
//   turn        t                               t + 1
//   group 0     K Q(t), V P(t-1), weights(t)    K Q(t+1), V P(t), weights(t+1)
//   group 1     weights(t-1), K Q(t), V P(t-1)  weights(t), K Q(t+1), V P(t)
//   memory      K(t+1), V(t), page of t + 3     K(t+2), V(t+1), page of t + 4
//
// One s_barrier ends a turn: all have read what the next turn's loads overwrite, and the loads have
// come. Within a turn no group waits for the other; the products go first (s_setprio), because they
// leave the vector unit free for most of their time. K and V have two buffers each.
#pragma once

#include "ckpm_prefill/problem.hpp"
#include "ckpm_prefill/score_bounds.hpp"
#include "ckpm_prefill_v3/page_stream.hpp"
#include "ckpm_prefill_v3/products.hpp"
#include "ckpm_prefill_v3/softmax.hpp"

namespace ck_tile {

template <typename Problem_>
struct BlockFmhaBatchPrefillV3Pipeline
{
    using Problem = remove_cvref_t<Problem_>;
    using Traits  = typename Problem::Traits;
    using Shape   = typename Problem::BlockFmhaShape;

    static constexpr index_t kBlockSize  = Problem::kBlockSize;
    static constexpr index_t kBlockPerCu = 1; // 8 waves of up to 256 registers
    static constexpr index_t kM0         = Shape::kM0;
    static constexpr index_t kN0         = Shape::kN0;
    static constexpr index_t kN1         = Shape::kN1;
    static constexpr index_t kHeadDim    = Shape::kQKHeaddim;

    static constexpr bool kHasMask    = Problem::FmhaMask::IsMasking;
    static constexpr bool kHasWindow  = kHasMask && Problem::FmhaMask::IsLocal; // any bounds
    static constexpr bool kHasSoftCap = Traits::kHasLogitsSoftCap;
    static constexpr bool kBlockScale =
        Traits::QScaleEnum == BlockAttentionQuantScaleEnum::KV_BLOCKSCALE;

    using Element = typename Problem::KDataType;
    static_assert(std::is_same_v<typename Problem::CacheDataType, Element>, "K and V are as Q");
    static_assert(Problem::kUseTrLoad, "linear V is transposed as it is read from LDS");
    static_assert(kM0 == 256 && kN0 == ckpm::prefill::v3::kTokens && kBlockSize == 512,
                  "8 waves of 32 queries, tiles of 64 keys");
    static constexpr bool kFp8 = std::is_same_v<Element, fp8_t>;
    static_assert((kHeadDim == kN1 && (kN1 == 64 || kN1 == 128)) ||
                      (kHeadDim == 192 && kN1 == 128) || (kFp8 && kHeadDim == 256 && kN1 == 256),
                  "head dims of 64, 128, 192/128 or, in fp8, 256");
    static_assert(!Traits::kHasDropout && !Traits::kHasSink &&
                      Traits::BiasEnum == BlockAttentionBiasEnum::NO_BIAS,
                  "V2 has what V3 has not");
    static constexpr bool kOddBegins = // pages, with odd tiles of a wave's count
        kHasWindow || Traits::kPageBlockSize % (2 * kN0) != 0;
    static_assert(!kBlockScale || Traits::kPageBlockSize >= kN0,
                  "a tile has one scale: it must lie within a page");

    using ScoreMask                        = ckpm::prefill::ScoreBounds<kHasMask, false>;
    static constexpr index_t kElementBytes = sizeof(Element);
    using Layout = std::conditional_t<Traits::kKVMemoryLayout ==
                                          BlockAttentionKVCacheMemoryLayoutEnum::LINEAR_LAYOUT,
                                      ckpm::prefill::v3::LinearLayout<kElementBytes>,
                                      ckpm::prefill::v3::VectorizedLayout<kElementBytes>>;
    using Stream = ckpm::prefill::v3::
        PageStream<Traits::kPageBlockSize, kHeadDim * kElementBytes, kN1 * kElementBytes, Layout>;
    // Steps of Q, 64 bytes each, that are in LDS: with fewer there, kernels spill.
    static constexpr bool kFewRegisters =
        kHasWindow || (kHasSoftCap && Traits::kStoreLSE && Traits::kPageBlockSize == 1);
    static constexpr index_t kLdsSteps = kFp8                          ? (kN1 == 256 ? 4 : 0)
                                         : kHeadDim == 192             ? 3
                                         : kN1 == 128 && kFewRegisters ? 4
                                                                       : 0;
    using Products   = ckpm::prefill::v3::Products<Element, kHeadDim, kN1, Layout, kLdsSteps>;
    using Queries    = typename Products::Queries;
    using Arithmetic = typename Products::Arithmetic;
    using Floats16   = ckpm::prefill::v3::Floats16;
    using LdsByte    = ckpm::prefill::v3::LdsByte;

    template <index_t kRowBytes>
    static constexpr index_t kTileBytes =
        ckpm::prefill::v3::kParts<kRowBytes> * ckpm::prefill::v3::kPartBytes;
    static constexpr index_t kKBytes     = kTileBytes<kHeadDim * kElementBytes>;
    static constexpr index_t kVBytes     = kTileBytes<kN1 * kElementBytes>;
    static constexpr index_t kTilesBytes = 2 * (kKBytes + kVBytes); // before each wave's Q
    CK_TILE_DEVICE static constexpr index_t GetSmemSize()
    {
        return kTilesBytes + kBlockSize / get_warp_size() * Queries::kLdsBytes;
    }

    // What a workgroup needs to know besides Q
    struct Arguments
    {
        ckpm::prefill::CacheView k, v;
        ScoreMask mask;
        index_t first, last;   // queries of the workgroup
        float scale;           // of raw scores into base 2, Q's and K's descales included
        float soft_cap;        // in base 2
        float soft_cap_rcp;    // of raw scores into what the cap's tanh takes
        const float* k_scales; // block scales of the head in page 0, page_scales floats a page
        const float* v_scales;
        index_t page_scales;
    };

    // O before its rows are divided by the sums: of query lane % 32 and 32 columns each, half of
    // them in either half of the wave
    using Out = Floats16[Products::kColumnBlocks];
    struct Result
    {
        Out out;
        ckpm::prefill::v3::WeightSum sum;
        float v_scale; // of `out`
    };

    CK_TILE_DEVICE Result operator()(const Queries& q, const Arguments& args, char* lds) const
    {
        const auto tiles = ckpm::prefill::key_tiles<kN0>(args.mask, args.first, args.last);
        Wave wave(args, q, lds, tiles.window_start / kN0);
        if(tiles.count() > 0)
        {
            if(wave.index < 4)
                wave.template run<0>(tiles.count());
            else
                wave.template run<1>(tiles.count());
        }
        return wave.result();
    }

private:
    struct Scales
    {
        float k, v;
    };

    struct Wave
    {
        CK_TILE_DEVICE
        Wave(const Arguments& given, const Queries& queries, char* memory, index_t before_window)
            : args(given),
              q(queries),
              before(before_window),
              index(__builtin_amdgcn_readfirstlane(threadIdx.x / get_warp_size())),
              lane(threadIdx.x % get_warp_size()),
              first(given.first + index * 32),
              row(first + lane % 32),
              lds((LdsByte*)memory),
              reads(lane),
              ones(lane),
              stream(given.k, given.v, index, lane)
        {
            for(auto& part : out)
                part = Floats16{};
            weights = typename Products::Weights{};
            ones.settle();
        }

        CK_TILE_DEVICE Result result() const
        {
            Result made{{}, {softmax.shift, sum}, v_scale};
            for(index_t i = 0; i < Products::kColumnBlocks; ++i)
                made.out[i] = out[i];
            return made;
        }

        // The place in the sequence of a tile. A wave counts tiles from the first one that a query
        // of the workgroup sees.
        CK_TILE_DEVICE index_t place_of(index_t tile) const
        {
            if constexpr(kHasWindow)
                return before + tile;
            else
                return tile;
        }

        // The first tile that is not before the window of any of the wave's queries
        CK_TILE_DEVICE index_t left_whole() const
        {
            const index_t end = max(args.mask.left_end(first + 31), 0);
            return integer_divide_ceil(end, kN0) - before;
        }

        // Tiles that no bound cuts have a loop of their own, which has two of them a pass. An odd
        // one is left to the loops of those that are cut.
        template <index_t kGroup>
        CK_TILE_DEVICE void run(index_t tiles)
        {
            const index_t whole = min(args.mask.right_end(first) / kN0 - place_of(0), tiles);
            begin();
            if constexpr(kGroup == 0)
            {
                issue(0, 0);
                multiply_first();
                prepare(1);
                weigh<0, true>(0);
                consume();
                finish();
                index_t tile = cut_left<0>(1, tiles);
                for(; tile + 1 < whole; tile += 2)
                    turns<0>(tile);
                for(; tile < tiles; ++tile)
                    turn<0, true>(tile, tile % 2);
            }
            else
            {
                issue(0, 0);
                multiply_first();
                prepare(1);
                consume();
                finish();
                index_t tile = cut_left<1>(1, tiles);
                for(; tile < min(whole, tiles - 1); tile += 2)
                    turns<1>(tile);
                for(; tile < tiles; ++tile)
                    turn<1, true>(tile, tile % 2);
                weigh<1, true>(tiles - 1);
            }
            add_up();
            multiply_v<true>(tiles - 1, (tiles - 1) % 2);
        }

        // Takes the tiles that a window's left bound cuts, up to an odd one: group 1 weighs the
        // tile before.
        template <index_t kGroup>
        CK_TILE_DEVICE index_t cut_left(index_t tile, [[maybe_unused]] index_t tiles)
        {
            if constexpr(kHasWindow)
            {
                const index_t end = min((left_whole() + kGroup) | 1, tiles);
                for(; tile < end; ++tile)
                    turn<kGroup, true>(tile, tile % 2);
            }
            return tile;
        }

        // Two at once, so that the buffers' addresses are constants
        template <index_t kGroup>
        CK_TILE_DEVICE void turns(index_t tile)
        {
            // tile is odd; group 1 weighs the tile before
            turn<kGroup, false, kGroup == 1 || kOddBegins>(tile, 1);
            turn<kGroup, false, kGroup == 0 || kOddBegins>(tile + 1, 0);
        }

        template <index_t kGroup, bool kBounded, bool kBegins = true>
        CK_TILE_DEVICE void turn(index_t tile, index_t buffer)
        {
            issue(tile, buffer);
            if constexpr(kGroup == 0)
                multiply(tile, buffer);
            else
                weigh<1, kBounded, kBegins>(tile - 1);
            __builtin_amdgcn_sched_barrier(0);
            if constexpr(kGroup == 0)
            {
                // LLVM looks one wait state too short for readers of these products
                // (llvm-project#222040)
                asm volatile("s_nop 0");
                __builtin_amdgcn_sched_barrier(0);
                weigh<0, kBounded, kBegins>(tile);
            }
            else
                multiply(tile, buffer);
            consume();
            finish();
        }

        CK_TILE_DEVICE static void barrier()
        {
            __builtin_amdgcn_sched_barrier(0);
            __builtin_amdgcn_s_barrier();
            __builtin_amdgcn_sched_barrier(0);
        }

        // K of tile 0, and the pages of tiles 0 to 2
        CK_TILE_DEVICE void begin()
        {
            int32_t near[3];
            for(index_t i = 0; i < 3; ++i)
                near[i] = stream.lookup(stream.entry(place_of(i)));
            asm volatile("s_waitcnt vmcnt(0)"
                         : "+v"(near[0]), "+v"(near[1]), "+v"(near[2])::"memory");
            const int32_t first_page = Stream::settled(near[0]);
            v_page                   = Stream::settled(near[1]);
            k_page                   = Stream::settled(near[2]);
            load_scales(first_page);
            stream.load(stream.k_source(place_of(0), first_page), k_buffer(0));
            k_source = stream.k_source(place_of(1), v_page);
            v_source = stream.v_source(place_of(0), first_page);
            finish();
            take_scales<0>();
            ahead = loaded;
        }

        // For issue(tile), while the wave multiplies
        CK_TILE_DEVICE void prepare(index_t tile)
        {
            k_source = stream.k_source(place_of(tile + 1), k_page);
            v_source = stream.v_source(place_of(tile), v_page);
            Stream::settle(k_source);
            Stream::settle(v_source);
        }

        CK_TILE_DEVICE void issue(index_t tile, index_t buffer)
        {
            looked_up = stream.lookup(stream.entry(place_of(tile + 3)));
            load_scales(v_page);
            stream.load(k_source, k_buffer(1 - buffer));
            stream.load(v_source, v_buffer(buffer));
            __builtin_amdgcn_sched_barrier(0);
        }

        CK_TILE_DEVICE void consume()
        {
            asm volatile("s_waitcnt vmcnt(%1)"
                         : "+v"(looked_up)
                         : "n"(Stream::kLoadsInFlight)
                         : "memory");
            take_scales<Stream::kLoadsInFlight>();
            v_page  = k_page;
            k_page  = Stream::settled(looked_up);
            current = ahead;
            ahead   = loaded;
        }

        CK_TILE_DEVICE static void finish()
        {
            __builtin_amdgcn_sched_barrier(0);
            ckpm::prefill::v3::wait_for_all_but<0>();
            barrier();
        }

        CK_TILE_DEVICE void load_scales([[maybe_unused]] int32_t page)
        {
            if constexpr(kBlockScale)
            {
                const auto at = static_cast<long_index_t>(page) * args.page_scales;
                loaded.k      = ckpm::prefill::v3::load_scale(args.k_scales + at);
                loaded.v      = ckpm::prefill::v3::load_scale(args.v_scales + at);
            }
        }

        // No use of what was loaded may move before the wait.
        template <int kInFlight>
        CK_TILE_DEVICE void take_scales()
        {
            if constexpr(kBlockScale)
                asm volatile("s_waitcnt vmcnt(%2)"
                             : "+v"(loaded.k), "+v"(loaded.v)
                             : "n"(kInFlight)
                             : "memory");
        }

        CK_TILE_DEVICE LdsByte* k_buffer(index_t buffer) const { return lds + buffer * kKBytes; }
        CK_TILE_DEVICE LdsByte* v_buffer(index_t buffer) const
        {
            return lds + 2 * kKBytes + buffer * kVBytes;
        }

        CK_TILE_DEVICE void multiply_first()
        {
            typename Products::KRows k;
            Products::read_k(k, k_buffer(0), reads);
            Products::multiply_k(scores, q, k, k_buffer(0), reads);
        }

        // While K comes from LDS, the weights are added up.
        CK_TILE_DEVICE void multiply(index_t tile, index_t buffer)
        {
            __builtin_amdgcn_s_setprio(1);
            __builtin_amdgcn_sched_barrier(0);
            typename Products::KRows k;
            Products::read_k(k, k_buffer(buffer), reads);
            __builtin_amdgcn_sched_barrier(0);
            add_up();
            Products::multiply_k(scores, q, k, k_buffer(buffer), reads);
            multiply_v<false>(tile - 1, 1 - buffer);
            prepare(tile + 1);
            Products::in_turn();
            __builtin_amdgcn_sched_barrier(0);
            __builtin_amdgcn_s_setprio(0);
        }

        template <bool kLast>
        CK_TILE_DEVICE void multiply_v(index_t tile, index_t buffer)
        {
            const index_t live = args.v.last_token + 1 - place_of(tile) * kN0;
            Products::template multiply_v<kLast>(out, weights, v_buffer(buffer), reads, live);
        }

        CK_TILE_DEVICE float sum_of_weights() const
        {
            if constexpr(kFp8 && kLdsSteps > 0)
            {
                index_t own = lane;
                asm volatile("" : "+v"(own)); // else the ones stay in eight registers
                return typename Arithmetic::Ones(own).sum_of(weights);
            }
            else
                return ones.sum_of(weights);
        }

        // Before the products with the weights. A sum that is too large has a weight of a score
        // that has run ahead: the weights are made again.
        CK_TILE_DEVICE void add_up()
        {
            float of_tile = sum_of_weights();
            if(__builtin_amdgcn_ballot_w64(Arithmetic::is_too_much(of_tile)) != 0)
            {
                float scale = weighed_by;
                asm("" : "+v"(scale)); // else products with it are kept for here, not fused
                const float by = softmax.follow(scores, scale);
                softmax.weigh(scores, scale, weights);
                sum *= by;
                rescale(by);
                of_tile = sum_of_weights();
            }
            sum += of_tile;
        }

        // kBegins: a page may begin with the tile
        template <index_t kGroup, bool kBounded, bool kBegins = true>
        CK_TILE_DEVICE void weigh(index_t tile)
        {
            const Scales own = kGroup == 0 ? ahead : current; // group 1 is one turn later
            if constexpr(kBlockScale && kBegins)
            {
                // `out` is kept in units of the tile's scale of V; a page whose scale is 0 counts
                // as nearly 0
                const float fresh = max(own.v, 1e-20f);
                if(__builtin_amdgcn_ballot_w64(fresh != v_scale) != 0)
                    rescale(v_scale * __builtin_amdgcn_rcpf(fresh));
                v_scale = fresh;
            }
            float scale = args.scale * own.k;
            if constexpr(kHasSoftCap)
            {
                const float inner = args.soft_cap_rcp * own.k;
                each_score([&](float score, index_t) {
                    return args.soft_cap * tanh_fast<float>(score * inner);
                });
                scale = 1.f;
            }
            if constexpr(kBounded)
            {
                constexpr float hidden = -numeric<float>::infinity();
                const index_t end =
                    args.mask.right_end(row) - place_of(tile) * kN0 - lane / 32 * Layout::kHalfKeys;
                if constexpr(kHasWindow)
                {
                    // one comparison for both bounds
                    const index_t seen = args.mask.right_end(row) - args.mask.left_end(row);
                    index_t from       = end - seen;
                    const auto count   = static_cast<uint32_t>(max(seen, 0));
                    asm("" : "+v"(from)); // else the loop keeps 32 of its differences
                    each_score([&](float score, index_t key) {
                        return static_cast<uint32_t>(key - from) < count ? score : hidden;
                    });
                }
                else
                    each_score(
                        [&](float score, index_t key) { return key < end ? score : hidden; });
            }
            // a scale of 0 would make NaN of a masked score
            scale      = max(scale, numeric<float>::min());
            weighed_by = scale;
            softmax.weigh(scores, scale, weights);
            // else they are rounded after the rare case's branch, with both kinds of O in registers
            if constexpr(!kFp8 && kHeadDim == 192)
                asm("" : "+v"(weights.bits));
        }

        CK_TILE_DEVICE void rescale(float by)
        {
#pragma unroll
            for(index_t i = 0; i < 16 * Products::kColumnBlocks; ++i)
            {
                float o = out[i / 16][i % 16] * by;
                asm("" : "+v"(o)); // else two of them are packed
                out[i / 16][i % 16] = o;
            }
        }

        template <typename F>
        CK_TILE_DEVICE void each_score(F&& f)
        {
#pragma unroll
            for(index_t i = 0; i < 32; ++i)
                scores[i / 16][i % 16] =
                    f(scores[i / 16][i % 16], i / 16 * 32 + Layout::key_of(i % 16));
        }

        const Arguments& args;
        const Queries& q;
        index_t before; // tiles before the workgroup's first one
        index_t index, lane;
        index_t first, row; // queries: the wave's first one, and the lane's
        LdsByte* lds;
        typename Products::Reads reads;
        Stream stream;

        Floats16 scores[2];
        Out out;
        typename Arithmetic::Ones ones;
        float sum = 0.f;  // of weights
        float weighed_by; // the scale of the scores that became `weights`
        typename Products::Weights weights;
        ckpm::prefill::v3::RunningSoftmax<Arithmetic> softmax;
        float v_scale = 1.f; // of `out`

        // of the next loads, and the pages of the loads after them
        typename Stream::KSource k_source;
        typename Stream::VSource v_source;
        int32_t k_page, v_page;

        int32_t looked_up; // the page after k_page, once it has come

        // of the last tile but one whose K has come, of the last one, and of that whose K is on its
        // way
        Scales current{1.f, 1.f}, ahead{1.f, 1.f}, loaded{1.f, 1.f};
    };
};

} // namespace ck_tile
