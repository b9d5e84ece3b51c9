// Moving data of 64 lanes between memory and registers, common to LDS, buffer, global and scratch
// instructions.
#pragma once

#include "checks/global_races.h"
#include "checks/twin.h"
#include "isa/fast.h"
#include "isa/operands.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace emu {
// Four rows of 64, enough for the widest access.
struct alignas(64) Rows
{
    uint32_t d[4][LANES];
};

// A guest address, or a byte of LDS. As integers: with a null base and whole addresses as offsets,
// pointer arithmetic would be undefined, and clang makes use of that.
template <typename Byte>
Byte* place(Byte* base, uint64_t offset)
{
    return reinterpret_cast<Byte*>(reinterpret_cast<uintptr_t>(base) + offset);
}

#if defined(__AVX512F__)
// Rows are written as whole vectors: what reads one soon would wait for several narrower stores.
// And the loads are single ones: a gather of eight takes longer than those and their shuffles.

// 16 bytes of one lane, or 8 each of two.
template <typename Offset>
EMU_INLINE __m128i four_dwords(const uint8_t* base, Offset offset)
{
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(place(base, offset)));
}
template <typename Offset>
EMU_INLINE __m128i two_dwords_twice(const uint8_t* base, const Offset* offsets)
{
    const auto* first  = reinterpret_cast<const __m128i*>(place(base, offsets[0]));
    const auto* second = reinterpret_cast<const double*>(place(base, offsets[1]));
    return _mm_castpd_si128(_mm_loadh_pd(_mm_castsi128_pd(_mm_loadl_epi64(first)), second));
}

EMU_INLINE __m512i joined(__m128i a, __m128i b, __m128i c, __m128i d)
{
    const __m256i low  = _mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1),
                  high = _mm256_inserti128_si256(_mm256_castsi128_si256(c), d, 1);
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

// Two dwords for each of 16 lanes.
template <typename Offset>
EMU_INLINE void gather_sixteen(const uint8_t* base, const Offset* offsets, uint32_t* first, uint32_t* second)
{
    const auto pairs = [=](unsigned l) __attribute__((always_inline)) {
        return _mm512_castsi512_ps(joined(two_dwords_twice(base, offsets + l), two_dwords_twice(base, offsets + l + 4),
                                          two_dwords_twice(base, offsets + l + 8),
                                          two_dwords_twice(base, offsets + l + 12)));
    };
    const __m512 x = pairs(0), y = pairs(2);
    _mm512_storeu_ps(first, _mm512_shuffle_ps(x, y, 0x88));
    _mm512_storeu_ps(second, _mm512_shuffle_ps(x, y, 0xdd));
}

// Four dwords for each of 16 lanes, into four rows.
template <typename Offset>
EMU_INLINE void gather_sixteen(const uint8_t* base, const Offset* offsets, uint32_t (*to)[LANES])
{
    const auto lanes = [=](unsigned l) __attribute__((always_inline)) {
        return joined(four_dwords(base, offsets[l]), four_dwords(base, offsets[l + 4]),
                      four_dwords(base, offsets[l + 8]), four_dwords(base, offsets[l + 12]));
    };
    const __m512i a = lanes(0), b = lanes(1), c = lanes(2), d = lanes(3);
    const __m512i ab_low = _mm512_unpacklo_epi32(a, b), ab_high = _mm512_unpackhi_epi32(a, b);
    const __m512i cd_low = _mm512_unpacklo_epi32(c, d), cd_high = _mm512_unpackhi_epi32(c, d);
    _mm512_storeu_si512(to[0], _mm512_unpacklo_epi64(ab_low, cd_low));
    _mm512_storeu_si512(to[1], _mm512_unpackhi_epi64(ab_low, cd_low));
    _mm512_storeu_si512(to[2], _mm512_unpacklo_epi64(ab_high, cd_high));
    _mm512_storeu_si512(to[3], _mm512_unpackhi_epi64(ab_high, cd_high));
}

// Store 16 lanes' two consecutive dwords.
template <typename Offset>
EMU_INLINE void scatter_sixteen(uint8_t* base, const Offset* offsets, __m512i first, __m512i second)
{
    alignas(64) uint64_t both[16];
    _mm512_store_si512(both, _mm512_unpacklo_epi32(first, second));
    _mm512_store_si512(both + 8, _mm512_unpackhi_epi32(first, second));
    for(unsigned l = 0; l < 16; ++l)
        std::memcpy(place(base, offsets[l]), both + (l / 4 * 2 + l % 2 + l / 2 % 2 * 8), 8);
}
#endif

// Read Dwords dwords for each lane from base + offsets[lane].
template <unsigned Dwords, typename Offset>
void gather_all(const uint8_t* base, const Offset* offsets, uint32_t (*to)[LANES])
{
#if defined(__AVX512F__)
    if constexpr(Dwords == 2 || Dwords == 4)
    {
        for(unsigned l = 0; l < LANES; l += 16)
        {
            if constexpr(Dwords == 2)
                gather_sixteen(base, offsets + l, to[0] + l, to[1] + l);
            else
                gather_sixteen(base, offsets + l, reinterpret_cast<uint32_t (*)[LANES]>(to[0] + l));
        }
        return;
    }
#endif
    for(unsigned l = 0; l < LANES; ++l)
    {
        uint32_t data[Dwords];
        std::memcpy(data, place(base, offsets[l]), 4 * Dwords);
        for(unsigned i = 0; i < Dwords; ++i)
            to[i][l] = data[i];
    }
}

// Read Dwords dwords for each lane of `mask` from base + offsets[lane]; other lanes of `to` are
// left alone.
template <unsigned Dwords, typename Offset>
void gather(const uint8_t* base, const Offset* offsets, uint64_t mask, uint32_t (*to)[LANES])
{
#if defined(__AVX512F__)
    constexpr bool WHOLE_ROWS = FAST;
#else
    constexpr bool WHOLE_ROWS = false;
#endif
#if defined(__SSE2__)
    if constexpr(Dwords == 4 && !WHOLE_ROWS)
    {
        if(mask == ALL_LANES)
        {
            for(unsigned l = 0; l < LANES; l += 4)
            {
                __m128i a            = _mm_loadu_si128(reinterpret_cast<const __m128i*>(place(base, offsets[l])));
                __m128i b            = _mm_loadu_si128(reinterpret_cast<const __m128i*>(place(base, offsets[l + 1])));
                __m128i c            = _mm_loadu_si128(reinterpret_cast<const __m128i*>(place(base, offsets[l + 2])));
                __m128i d            = _mm_loadu_si128(reinterpret_cast<const __m128i*>(place(base, offsets[l + 3])));
                const __m128i ab_low = _mm_unpacklo_epi32(a, b), ab_high = _mm_unpackhi_epi32(a, b);
                const __m128i cd_low = _mm_unpacklo_epi32(c, d), cd_high = _mm_unpackhi_epi32(c, d);
                _mm_storeu_si128(reinterpret_cast<__m128i*>(to[0] + l), _mm_unpacklo_epi64(ab_low, cd_low));
                _mm_storeu_si128(reinterpret_cast<__m128i*>(to[1] + l), _mm_unpackhi_epi64(ab_low, cd_low));
                _mm_storeu_si128(reinterpret_cast<__m128i*>(to[2] + l), _mm_unpacklo_epi64(ab_high, cd_high));
                _mm_storeu_si128(reinterpret_cast<__m128i*>(to[3] + l), _mm_unpackhi_epi64(ab_high, cd_high));
            }
            return;
        }
    }
#endif
    if constexpr(Dwords < 4 || WHOLE_ROWS)
        if(FAST && mask == ALL_LANES) [[likely]]
            return gather_all<Dwords>(base, offsets, to);
    for(unsigned l = 0; l < LANES; ++l)
    {
        if(!(mask >> l & 1))
            continue;
        uint32_t data[Dwords];
        std::memcpy(data, place(base, offsets[l]), 4 * Dwords);
        for(unsigned i = 0; i < Dwords; ++i)
            to[i][l] = data[i];
    }
}

template <unsigned Dwords, typename Offset>
void scatter(uint8_t* base, const Offset* offsets, uint64_t mask, const uint32_t* const* from)
{
    if(FAST && mask == ALL_LANES) [[likely]]
    {
#if defined(__AVX512F__)
        if constexpr(Dwords == 2)
        {
            // Of lanes with the same address the last one's value stays, as in the loop.
            for(unsigned l = 0; l < LANES; l += 16)
                scatter_sixteen(base, offsets + l, _mm512_loadu_si512(from[0] + l), _mm512_loadu_si512(from[1] + l));
            return;
        }
#endif
        for(unsigned l = 0; l < LANES; ++l)
        {
            uint32_t data[Dwords];
            for(unsigned i = 0; i < Dwords; ++i)
                data[i] = from[i][l];
            std::memcpy(place(base, offsets[l]), data, 4 * Dwords);
        }
        return;
    }
    for(unsigned l = 0; l < LANES; ++l)
    {
        if(!(mask >> l & 1))
            continue;
        uint32_t data[Dwords];
        for(unsigned i = 0; i < Dwords; ++i)
            data[i] = from[i][l];
        std::memcpy(place(base, offsets[l]), data, 4 * Dwords);
    }
}

// How narrow loads fill a register.
enum class Narrow
{
    Unsigned8,
    Signed8,
    Unsigned16,
    Signed16
};

constexpr unsigned narrow_bytes(Narrow kind) { return kind == Narrow::Unsigned8 || kind == Narrow::Signed8 ? 1 : 2; }

inline uint32_t load_narrow(Narrow kind, const uint8_t* from)
{
    uint16_t half;
    switch(kind)
    {
        case Narrow::Unsigned8: return *from;
        case Narrow::Signed8: return static_cast<uint32_t>(static_cast<int8_t>(*from));
        default: break;
    }
    std::memcpy(&half, from, 2);
    return kind == Narrow::Unsigned16 ? half : static_cast<uint32_t>(static_cast<int16_t>(half));
}

// The same for each lane of `mask`, zero in the others.
template <Narrow Kind, typename Offset>
void gather_narrow(const uint8_t* base, const Offset* offsets, uint64_t mask, uint32_t* to)
{
    for(unsigned l = 0; l < LANES; ++l)
        to[l] = mask >> l & 1 ? load_narrow(Kind, place(base, offsets[l])) : 0;
}

// Store `Bytes` bytes of each lane's dword from bit `Shift` on.
template <unsigned Bytes, unsigned Shift, typename Offset>
void scatter_narrow(uint8_t* base, const Offset* offsets, uint64_t mask, const uint32_t* from)
{
    for(unsigned l = 0; l < LANES; ++l)
    {
        const uint32_t value = from[l] >> Shift;
        if(mask >> l & 1)
            std::memcpy(place(base, offsets[l]), &value, Bytes);
    }
}

// The bits of a dword that scatter_narrow stores.
constexpr uint32_t part_bits(unsigned bytes, unsigned shift) { return ((1u << 8 * bytes) - 1) << shift; }

// Which part of the destination a narrow load writes.
enum class Part
{
    Whole,
    Low,
    High
};

// A load's result for `count` registers from op->dst on, to be queued.
inline PendingWrite pending_load(const MicroOp* op, const uint32_t (*data)[LANES], unsigned count, uint64_t mask,
                                 Part part)
{
    PendingWrite write;
    write.target = PendingWrite::Target::Vector;
    write.index  = op->dst;
    write.op     = op;
    write.lanes  = mask;
    write.data.assign(&data[0][0], &data[0][0] + count * LANES);
    if(part != Part::Whole)
    {
        write.keep = {part == Part::Low ? 0xffff0000u : 0x0000ffffu};
        if(part == Part::High)
            for(uint32_t& value : write.data)
                value <<= 16;
    }
    return write;
}

// Land a load's result in `count` registers from op->dst on, or queue it (late loads).
inline void deliver(Wave& w, const MicroOp* op, Counter counter, const uint32_t (*data)[LANES], unsigned count,
                    uint64_t mask, Part part = Part::Whole)
{
    if(!w.group->late && part == Part::Whole) [[likely]]
    {
        for(unsigned i = 0; i < count; ++i)
            store_row(w.v[op->dst + i], data[i], mask);
        return;
    }
    issue(w, counter, pending_load(op, data, count, mask, part));
}

// An access to memory that is not there; raise_memory stops at it.
inline Fault outside(const Wave& w, Access access, unsigned lane, uint64_t address, uint64_t bytes, FaultKind kind)
{
    std::string detail;
    const bool lds = kind == FaultKind::Lds;
    if(lds || kind == FaultKind::Scratch)
        detail = "bytes " + std::to_string(address) + " to " + std::to_string(address + bytes - 1) + " of the " +
                 std::to_string(lds ? w.group->lds_bytes : w.scratch_bytes) +
                 (lds ? " bytes of LDS that the workgroup has" : " bytes of scratch that a lane has");
    return fault_of(kind, access, lane, address, bytes, std::move(detail));
}
[[noreturn]] inline void raise_memory(const Wave& w, const MicroOp* op, Access access, unsigned lane, uint64_t address,
                                      uint64_t bytes, FaultKind kind = FaultKind::Memory)
{
    raise(w, op, outside(w, access, lane, address, bytes, kind));
}

// The `bytes` of each lane of EXEC, at `base` + lane * `stride`, lie in the workgroup's LDS, or the launch stops.
void lanes_must_fit_lds(const Wave& w, const MicroOp* op, Access access, uint32_t base, unsigned stride,
                        unsigned bytes);
// LDS-DMA of the lanes of EXEC: lane l's dwords go to M0 + offset + l * 4 * dwords, of three dwords
// to l * 16 (CDNA3 and CDNA4 ISA documents, "Memory buffer load to LDS").
void load_to_lds(Wave& w, const MicroOp* op, int32_t offset, const uint32_t (*data)[LANES], unsigned dwords);
// Where lane 0's dwords go, checked and counted for all lanes of EXEC, and how far apart lanes are.
uint32_t lds_dma_place(Wave& w, const MicroOp* op, int32_t offset, unsigned dwords);
constexpr unsigned lds_dma_stride(unsigned dwords) { return dwords == 3 ? 16 : 4 * dwords; } // a fourth is left alone

// What an atomic ends with: with RETURN the old values go to the destination.
inline void deliver_old(Wave& w, const MicroOp* op, Counter counter, const Rows& old, unsigned dwords)
{
    if(op->flags & RETURN)
        deliver(w, op, counter, old.d, dwords, w.exec());
    else
        issue(w, counter);
    if(w.group->races != nullptr && counter != Counter::Vector) [[unlikely]]
        w.group->races->order_by_lds(w, op);
}

// Stop at the first lane of `mask` whose address is not a multiple of what it moves at once: a
// byte, a short or a dword, of LDS up to `most` bytes, of an atomic all (option alignment).
[[noreturn]] void raise_misaligned(const Wave& w, const MicroOp* op, Access access, unsigned lane, uint64_t address,
                                   uint64_t bytes, uint64_t step);
template <typename Offset>
void must_be_aligned(const Wave& w, const MicroOp* op, Access access, uint64_t base, const Offset* offsets,
                     uint64_t mask, unsigned bytes, unsigned most = 4)
{
    if(!w.group->aligned || (access != Access::Atomic && !w.group->unaligned)) [[likely]]
        return;
    const uint64_t step = access == Access::Atomic ? bytes : std::min(bytes & -bytes, most);
    for(unsigned l = 0; l < LANES; ++l)
        if(mask >> l & 1 && (base + offsets[l]) % step != 0)
            raise_misaligned(w, op, access, l, base + offsets[l], bytes, step);
}

// Lanes of one store that write different values to the same bytes (options lds_races, global_races):
// which of them stays there?
[[noreturn]] void raise_lanes_race(const Wave& w, const MicroOp* op, unsigned lane, uint64_t address, unsigned other);
template <typename Offset>
void lanes_must_agree(const Wave& w, const MicroOp* op, const Offset* offsets, uint64_t mask, unsigned bytes,
                      const uint32_t* const* rows, unsigned shift = 0)
{
    if(std::has_single_bit(mask))
        return;
    const auto byte_of = [=](unsigned lane, uint64_t at) {
        const uint64_t i = at - offsets[lane];
        return rows[i / 4][lane] >> (shift + 8 * (i % 4)) & 0xff;
    };
    std::array<uint8_t, LANES> order; // of their addresses
    unsigned count = 0;
    for(unsigned l = 0; l < LANES; ++l)
        if(mask >> l & 1)
            order[count++] = static_cast<uint8_t>(l);
    std::ranges::stable_sort(order.begin(), order.begin() + count, {}, [=](uint8_t l) { return offsets[l]; });
    for(unsigned i = 1; i < count; ++i)
        for(unsigned j = i; j-- > 0 && offsets[order[i]] - offsets[order[j]] < bytes;)
            for(uint64_t at = offsets[order[i]]; at < offsets[order[j]] + uint64_t{bytes}; ++at)
                if(byte_of(order[i], at) != byte_of(order[j], at))
                    raise_lanes_race(w, op, order[i], at, order[j]);
}

// The lanes of an ordinary store to device memory, after its addresses.
template <typename Offset>
void lanes_must_agree_in_memory(const Wave& w, const MicroOp* op, const Offset* offsets, uint64_t mask, unsigned bytes,
                                const uint32_t* const* rows, unsigned shift = 0)
{
    if(w.group->races != nullptr && is_plain_store(w, op)) [[unlikely]]
        lanes_must_agree(w, op, offsets, mask, bytes, rows, shift);
}

// A twin (twin.h) gets other values of device memory that was never written.
constexpr uint32_t DOUBT = 0x48484848;
template <typename Offset>
void doubt_unwritten(const Wave& w, uint64_t base, const Offset* offsets, uint64_t mask, unsigned bytes,
                     uint32_t (*data)[LANES])
{
    if(!w.group->doubts) [[likely]]
        return;
    const uint32_t bits = bytes < 4 ? DOUBT >> 8 * (4 - bytes) : DOUBT;
    for(unsigned l = 0; l < LANES; ++l)
        for(unsigned i = 0; 4 * i < bytes; ++i)
            if(mask >> l & 1 && never_written(base + offsets[l] + 4 * i))
                data[i][l] ^= bits;
}

// What an atomic leaves depends on what it finds in device memory.
template <typename Offset>
void must_be_written(const Wave& w, const MicroOp* op, uint64_t base, const Offset* offsets, uint64_t mask,
                     unsigned bytes)
{
    if(w.twin == nullptr || !w.twin->group->doubts) [[likely]]
        return;
    for(unsigned l = 0; l < LANES; ++l)
        if(mask >> l & 1 && (never_written(base + offsets[l]) || never_written(base + offsets[l] + bytes - 1)))
            raise_uninitialised(w, op, l, "what this atomic changes depends on");
}

// Check the accesses of all lanes of `mask`, first their hull, then each.
inline void check_lanes(Wave& w, const MicroOp* op, Access access, const uint64_t* addresses, uint64_t mask,
                        unsigned bytes)
{
    must_be_aligned(w, op, access, 0, addresses, mask, bytes);
    uint64_t low = ~uint64_t{0}, high = 0;
    if(mask == ALL_LANES)
    {
        for(unsigned l = 0; l < LANES; ++l)
        {
            low  = addresses[l] < low ? addresses[l] : low;
            high = addresses[l] > high ? addresses[l] : high;
        }
    }
    else
    {
        for(unsigned l = 0; l < LANES; ++l)
        {
            if(!(mask >> l & 1))
                continue;
            low  = addresses[l] < low ? addresses[l] : low;
            high = addresses[l] > high ? addresses[l] : high;
        }
    }
    if(mask == 0 || (high + bytes > high && w.group->ranges.check(low, high - low + bytes)))
        return;
    for(unsigned l = 0; l < LANES; ++l)
        if(mask >> l & 1 && !w.group->ranges.check(addresses[l], bytes))
            raise_memory(w, op, access, l, addresses[l], bytes);
}
} // namespace emu
