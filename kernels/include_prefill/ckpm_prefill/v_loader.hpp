// V of a tile of keys, stage by stage, from the cache through registers to LDS as [head dim, key].
#pragma once

#include "ckpm_prefill/cached_type.hpp"
#include "ckpm_prefill/lds_tile.hpp"
#include "ckpm_prefill/paged_cache.hpp"

#include <type_traits>

namespace ckpm::prefill {

// Bytes i, i + 1, ... of the words a and b as one word: v_perm_b32, where bytes 0 to 3 are b's.
template <uint32_t kSelector>
CK_TILE_DEVICE uint32_t pick_bytes(uint32_t a, uint32_t b)
{
    return __builtin_amdgcn_perm(a, b, kSelector);
}

// Four tokens of 4 / sizeof(T) columns each, as columns of four tokens. Words in token order.
template <typename T>
struct FourTokens;

template <>
struct FourTokens<uint16_t>
{
    using Column = ck_tile::uint32x2_t;
    template <index_t kColumn>
    CK_TILE_DEVICE static Column column(uint32_t t0, uint32_t t1, uint32_t t2, uint32_t t3)
    {
        constexpr uint32_t half = kColumn == 0 ? 0x05040100u : 0x07060302u;
        return Column{pick_bytes<half>(t1, t0), pick_bytes<half>(t3, t2)};
    }
};

template <>
struct FourTokens<uint8_t>
{
    using Column = uint32_t;
    template <index_t kColumn>
    CK_TILE_DEVICE static Column column(uint32_t t0, uint32_t t1, uint32_t t2, uint32_t t3)
    {
        // byte kColumn of two tokens in the low half, then both halves together
        constexpr uint32_t two = 0x0c0c0400u + 0x0101u * kColumn;
        return pick_bytes<0x05040100u>(pick_bytes<two>(t3, t2), pick_bytes<two>(t1, t0));
    }
};

// `Cached` is V's type in the cache, T in LDS.
template <typename T,
          typename Cached,
          index_t kN0,
          index_t kHeadDim,
          index_t kPageSize,
          LoadPath kPath,
          bool kVectorized,
          index_t kBlockSize>
struct VLoader
{
    using Lds    = LdsTile<T, kHeadDim>;
    using Reader = CacheReader<kPath, kPageSize>;
    using Chunk  = CachedChunk<T, Cached>;
    using Bits   = std::conditional_t<sizeof(T) == 1, uint8_t, uint16_t>;

    static constexpr index_t kVector = Lds::kVector;
    static constexpr index_t kTokens = Lds::kColumns; // of a stage
    static constexpr index_t kStages = kN0 / kTokens;
    static constexpr index_t kReads  = 4; // of a thread: four tokens, or four chunks of tokens
    static_assert(kReads * kBlockSize * CHUNK_BYTES == STAGE_BYTES && kN0 % kTokens == 0);
    static_assert(!kVectorized || Reader::kStep % kVector == 0,
                  "a chunk of tokens lies in one page");

    // Linear: four lanes along a row of 64 bytes, then along groups of four tokens, so that the
    // columns that a wave stores lie in different banks. Vectorized: lanes along head dim.
    static constexpr index_t kLanesAlong = 4;
    static constexpr index_t kGroups     = kTokens / kReads;
    static constexpr bool kGroupInPage   = Reader::kStep >= kReads;
    static constexpr index_t kLookups    = kPath == LoadPath::PAGE_DESCRIPTOR ? 1
                                           : kVectorized                      ? kReads
                                           : kGroupInPage                     ? 1
                                                                              : kReads;
    static constexpr index_t kIds = kPath == LoadPath::PAGE_DESCRIPTOR ? 1 : kLookups * kStages;

    CK_TILE_DEVICE VLoader(const CacheView& view) : view_(view)
    {
        const index_t thread = ck_tile::get_thread_local_1d_id();
        if constexpr(kVectorized)
        {
            column_ = thread % kHeadDim;
            group_  = thread / kHeadDim;
        }
        else
        {
            column_ = thread % kLanesAlong + thread / (kLanesAlong * kGroups) * kLanesAlong;
            group_  = thread / kLanesAlong % kGroups;
        }
    }

    // Reads the page ids of all stages of the tile that starts at `start`.
    CK_TILE_DEVICE void lookup(index_t start)
    {
        start_ = start;
        ck_tile::static_for<0, kIds, 1>{}([&](auto i) {
            constexpr bool one = kPath == LoadPath::PAGE_DESCRIPTOR;
            const index_t key  = one ? start : token(i.value / kLookups, i.value % kLookups);
            pages_[i.value]    = Reader::lookup(view_, key);
        });
    }

    template <index_t kStage>
    CK_TILE_DEVICE void read()
    {
        if constexpr(kStage == 0)
            reader_.enter(view_, pages_[0], live_bytes());
        ck_tile::static_for<0, kReads, 1>{}([&](auto i) {
            constexpr index_t id =
                kIds == 1 ? 0 : kStage * kLookups + (kLookups == 1 ? 0 : i.value);
            const index_t slot = Reader::slot_of(view_, token(kStage, i.value));
            staged_[i.value]   = reader_.template read<typename Chunk::Bits>(
                Reader::place(view_, pages_[id], offset(slot)));
        });
        staged_first_ = start_ + kStage * kTokens;
    }

    CK_TILE_DEVICE void write(char* lds)
    {
        if constexpr(kVectorized)
            write_chunks(lds);
        else
            write_columns(lds);
    }

private:
    static constexpr index_t kColumnsOfWord = 4 / sizeof(T);

    CK_TILE_DEVICE index_t token(index_t stage, index_t i) const
    {
        const index_t in_stage =
            kVectorized ? (group_ + i * (kBlockSize / kHeadDim)) * kVector : group_ * kReads + i;
        return ck_tile::min(start_ + stage * kTokens + in_stage, view_.last_token);
    }

    // In its page, of the chunk that holds `slot`. Columns past the head dim are its last ones
    // again: they are stored nowhere.
    CK_TILE_DEVICE index_t offset(index_t slot) const
    {
        if constexpr(kVectorized)
        {
            const index_t dims   = view_.row_bytes / static_cast<index_t>(sizeof(Cached));
            const index_t column = ck_tile::min(column_, dims - 1);
            const index_t chunk  = slot / kVector;
            if constexpr(Chunk::kWidens)
                return (chunk / Chunk::kInVector * dims + column) * CHUNK_BYTES +
                       chunk % Chunk::kInVector * Chunk::kBytes;
            return (chunk * dims + column) * CHUNK_BYTES;
        }
        const index_t chunk = ck_tile::min(column_, view_.row_bytes / Chunk::kBytes - 1);
        return slot * view_.token_bytes + chunk * Chunk::kBytes;
    }

    CK_TILE_DEVICE index_t live_bytes() const
    {
        if constexpr(kVectorized)
            return view_.head_bytes;
        const index_t page_end = (start_ & ~(kPageSize - 1)) + kPageSize - 1;
        const index_t last     = Reader::slot_of(view_, ck_tile::min(page_end, view_.last_token));
        return last * view_.token_bytes + view_.row_bytes;
    }

    CK_TILE_DEVICE void write_columns(char* lds) const
    {
        using Four              = FourTokens<Bits>;
        constexpr index_t bytes = kReads * sizeof(T); // of a column's four tokens
        const index_t within    = group_ * bytes;
        const index_t place =
            Lds::offset(column_ * kVector, within / CHUNK_BYTES) + within % CHUNK_BYTES;
        const int32x4_t tokens[] = {Chunk::widen(staged_[0]),
                                    Chunk::widen(staged_[1]),
                                    Chunk::widen(staged_[2]),
                                    Chunk::widen(staged_[3])};
        ck_tile::static_for<0, 4, 1>{}([&](auto word) {
            ck_tile::static_for<0, kColumnsOfWord, 1>{}([&](auto column) {
                const auto four = Four::template column<column.value>(tokens[0][word.value],
                                                                      tokens[1][word.value],
                                                                      tokens[2][word.value],
                                                                      tokens[3][word.value]);
                store_lds(lds, place + (word * kColumnsOfWord + column) * CHUNK_BYTES, four);
            });
        });
    }

    // Slots of a chunk after the sequence's last token hold anything, NaN included: 0 times that
    // is not 0.
    CK_TILE_DEVICE void write_chunks(char* lds)
    {
        if(staged_first_ + kTokens > view_.last_token + 1)
        {
            ck_tile::static_for<0, kReads, 1>{}([&](auto i) {
                const index_t in_stage = (group_ + i.value * (kBlockSize / kHeadDim)) * kVector;
                const index_t read     = ck_tile::min(staged_first_ + in_stage, view_.last_token);
                const index_t live     = view_.last_token % kVector + 1; // of the last chunk
                if(read / kVector == view_.last_token / kVector)
                    keep_first(staged_[i.value], live);
            });
        }
        ck_tile::static_for<0, kReads, 1>{}([&](auto i) {
            store_lds(lds,
                      Lds::offset(column_, group_ + i.value * (kBlockSize / kHeadDim)),
                      Chunk::widen(staged_[i.value]));
        });
    }

    // Zeroes all but the first `live` of the vector's tokens.
    CK_TILE_DEVICE static void keep_first(typename Chunk::Bits& vector, index_t live)
    {
        constexpr index_t in_word = 4 / sizeof(Cached);
        ck_tile::static_for<0, Chunk::kBytes / 4, 1>{}([&](auto word) {
            const index_t left = live - word.value * in_word; // of this word
            const uint32_t some =
                (uint32_t{1} << (static_cast<uint32_t>(left) * 8 * sizeof(Cached) & 31)) - 1;
            const uint32_t kept = left >= in_word ? ~uint32_t{0} : left <= 0 ? 0 : some;
            vector[word.value] =
                static_cast<int32_t>(static_cast<uint32_t>(vector[word.value]) & kept);
        });
    }

    const CacheView& view_;
    index_t column_, group_;
    index_t start_        = 0;
    index_t staged_first_ = 0; // token of the stage that is in registers
    int32_t pages_[kIds];
    typename Chunk::Bits staged_[kReads];
    Reader reader_;
};

} // namespace ckpm::prefill
