// Moving data of 64 lanes between memory and registers, common to LDS, buffer, global and scratch
// instructions.
#pragma once

#include "checks/twin.h"
#include "isa/fast.h"
#include "isa/operands.h"

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

// Read Dwords dwords for each lane from base + offsets[lane].
template <unsigned Dwords, typename Offset>
void gather_all(const uint8_t* base, const Offset* offsets, uint32_t (*to)[LANES])
{
#if defined(__AVX512F__)
    if constexpr(Dwords == 2)
    {
        const __m512i even =
            _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
        const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
        const auto eight  = [&](unsigned l) {
            if constexpr(sizeof(Offset) == 4)
                return _mm512_i32gather_epi64(
                    _mm256_loadu_si256(reinterpret_cast<const __m256i*>(offsets + l)), base, 1);
            else
                return _mm512_i64gather_epi64(_mm512_loadu_si512(offsets + l), base, 1);
        };
        for(unsigned l = 0; l < LANES; l += 16)
        {
            const __m512i first = eight(l), second = eight(l + 8);
            _mm512_storeu_si512(to[0] + l, _mm512_permutex2var_epi32(first, even, second));
            _mm512_storeu_si512(to[1] + l, _mm512_permutex2var_epi32(first, odd, second));
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
#if defined(__SSE2__)
    if constexpr(Dwords == 4)
    {
        if(mask == ALL_LANES)
        {
            for(unsigned l = 0; l < LANES; l += 4)
            {
                __m128i a =
                    _mm_loadu_si128(reinterpret_cast<const __m128i*>(place(base, offsets[l])));
                __m128i b =
                    _mm_loadu_si128(reinterpret_cast<const __m128i*>(place(base, offsets[l + 1])));
                __m128i c =
                    _mm_loadu_si128(reinterpret_cast<const __m128i*>(place(base, offsets[l + 2])));
                __m128i d =
                    _mm_loadu_si128(reinterpret_cast<const __m128i*>(place(base, offsets[l + 3])));
                const __m128i ab_low = _mm_unpacklo_epi32(a, b), ab_high = _mm_unpackhi_epi32(a, b);
                const __m128i cd_low = _mm_unpacklo_epi32(c, d), cd_high = _mm_unpackhi_epi32(c, d);
                _mm_storeu_si128(reinterpret_cast<__m128i*>(to[0] + l),
                                 _mm_unpacklo_epi64(ab_low, cd_low));
                _mm_storeu_si128(reinterpret_cast<__m128i*>(to[1] + l),
                                 _mm_unpackhi_epi64(ab_low, cd_low));
                _mm_storeu_si128(reinterpret_cast<__m128i*>(to[2] + l),
                                 _mm_unpacklo_epi64(ab_high, cd_high));
                _mm_storeu_si128(reinterpret_cast<__m128i*>(to[3] + l),
                                 _mm_unpackhi_epi64(ab_high, cd_high));
            }
            return;
        }
    }
#endif
    if constexpr(Dwords < 4)
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
        if constexpr(Dwords == 2 && sizeof(Offset) == 4)
        {
            // Of lanes with the same address the last one's value stays, as in the loop.
            const __m512i low =
                _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
            const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
            for(unsigned l = 0; l < LANES; l += 16)
            {
                const __m512i x  = _mm512_loadu_si512(from[0] + l),
                              y  = _mm512_loadu_si512(from[1] + l);
                const __m512i at = _mm512_loadu_si512(offsets + l);
                _mm512_i32scatter_epi64(
                    base, _mm512_castsi512_si256(at), _mm512_permutex2var_epi32(x, low, y), 1);
                _mm512_i32scatter_epi64(base,
                                        _mm512_extracti64x4_epi64(at, 1),
                                        _mm512_permutex2var_epi32(x, high, y),
                                        1);
            }
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

constexpr unsigned narrow_bytes(Narrow kind)
{
    return kind == Narrow::Unsigned8 || kind == Narrow::Signed8 ? 1 : 2;
}

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
constexpr uint32_t part_bits(unsigned bytes, unsigned shift)
{
    return ((1u << 8 * bytes) - 1) << shift;
}

// Which part of the destination a narrow load writes.
enum class Part
{
    Whole,
    Low,
    High
};

// Land a load's result in `count` registers from op->dst on, or queue it (late loads).
inline void deliver(Wave& w,
                    const MicroOp* op,
                    Counter counter,
                    const uint32_t (*data)[LANES],
                    unsigned count,
                    uint64_t mask,
                    Part part = Part::Whole)
{
    if(!w.group->late && part == Part::Whole) [[likely]]
    {
        for(unsigned i = 0; i < count; ++i)
            store_row(w.v[op->dst + i], data[i], mask);
        return;
    }
    PendingWrite write;
    write.target = PendingWrite::Target::Vector;
    write.index  = op->dst;
    write.lanes  = mask;
    write.data.assign(&data[0][0], &data[0][0] + count * LANES);
    if(part != Part::Whole)
    {
        write.keep = {part == Part::Low ? 0xffff0000u : 0x0000ffffu};
        if(part == Part::High)
            for(uint32_t& value : write.data)
                value <<= 16;
    }
    issue(w, counter, std::move(write));
}

// Stop at an access to memory that is not there.
[[noreturn]] inline void raise_memory(const Wave& w,
                                      const MicroOp* op,
                                      Access access,
                                      unsigned lane,
                                      uint64_t address,
                                      uint64_t bytes,
                                      FaultKind kind = FaultKind::Memory)
{
    Fault fault;
    fault.kind     = kind;
    fault.access   = access;
    fault.lane     = lane;
    fault.address  = address;
    fault.bytes    = bytes;
    const bool lds = kind == FaultKind::Lds;
    if(lds || kind == FaultKind::Scratch)
        fault.detail =
            "bytes " + std::to_string(address) + " to " + std::to_string(address + bytes - 1) +
            " of the " + std::to_string(lds ? w.group->lds_bytes : w.scratch_bytes) +
            (lds ? " bytes of LDS that the workgroup has" : " bytes of scratch that a lane has");
    raise(w, op, std::move(fault));
}

// LDS-DMA of the lanes of EXEC: lane l's dwords go to M0 + offset + l * 4 * dwords, of three dwords
// to l * 16 (CDNA3 and CDNA4 ISA documents, "Memory buffer load to LDS").
void load_to_lds(
    Wave& w, const MicroOp* op, int64_t offset, const uint32_t (*data)[LANES], unsigned dwords);
// Where lane 0's dwords go, checked and counted for all lanes of EXEC, and how far apart lanes are.
uint64_t lds_dma_place(Wave& w, const MicroOp* op, int64_t offset, unsigned dwords);
constexpr unsigned lds_dma_stride(unsigned dwords)
{
    return dwords == 3 ? 16 : 4 * dwords;
} // a fourth is left alone

// Whether a buffer store of two waves writes the same, for the probe (probe.h). Throws LaunchFault
// where it would.
bool stores_alike(Wave& one, Wave& other, const MicroOp* op);

// What an atomic ends with: with RETURN the old values go to the destination.
inline void deliver_old(
    Wave& w, const MicroOp* op, Counter counter, const Rows& old, unsigned dwords)
{
    if(op->flags & RETURN)
        deliver(w, op, counter, old.d, dwords, w.exec());
    else
        issue(w, counter);
}

// Check the accesses of all lanes of `mask`, first their hull, then each.
inline void check_lanes(Wave& w,
                        const MicroOp* op,
                        Access access,
                        const uint64_t* addresses,
                        uint64_t mask,
                        unsigned bytes)
{
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
