// LDS instructions: DS (CDNA3 and CDNA4 ISA documents, section "Data share operations").
#include "checks/banks.h"
#include "isa/access.h"
#include "isa/lds_access.h"
#include "isa/registry.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>

namespace emu {
namespace {
// LDS reads by all lanes that nothing watches (isa/fast.h): read Dwords dwords a lane at each of
// Count offsets, straight into the destination. False, with nothing done: a lane is outside of LDS,
// or the offsets cut dwords, so that they could conflict in other banks.
template <unsigned Dwords, size_t Count>
bool read_lds_fast(Wave& w, const MicroOp* op, const std::array<uint32_t, Count>& offsets)
{
    constexpr unsigned BYTES = 4 * Dwords;
    const uint32_t* address  = w.v[op->src[0].code];
    uint32_t most = 0, shifts = 0, furthest = 0;
    for(unsigned l = 0; l < LANES; ++l)
        most = std::max(most, address[l]);
    for(const uint32_t offset : offsets)
    {
        furthest = std::max(furthest, offset);
        shifts |= offset;
    }
    if(shifts % 4 != 0 || uint64_t{most} + furthest + BYTES > w.group->lds_bytes)
        return false;
    // Whole dwords more on every lane's address turn the banks, no more.
    if(w.group->banks != nullptr)
        w.group->traffic.lds_bank_conflicts += Count * w.group->banks->of(op, address, ALL_LANES, BYTES, LdsUse::Read);
    w.group->traffic.lds_load_bytes += uint64_t{Count} * BYTES * LANES;
    Row kept;
    if(Count > 1 && op->src[0].code - op->dst < int{Count * Dwords} && op->src[0].code >= op->dst)
    {
        std::copy_n(address, LANES, kept.d);
        address = kept.d;
    }
    for(unsigned i = 0; i < Count; ++i)
        gather<Dwords>(w.group->lds + offsets[i], address, ALL_LANES, &w.v[op->dst + Dwords * i]);
    return true;
}

template <unsigned Dwords>
void read_rows(Wave& w, const MicroOp* op, uint32_t offset, uint64_t mask, uint32_t (*to)[LANES], LdsSource& source)
{
    Offsets at;
    const uint64_t within = lds_addresses(w, op, offset, 4 * Dwords, mask, LdsUse::Read, at);
    take(w, source, at, 4 * Dwords, within);
    if(within != mask) [[unlikely]]
        for(unsigned i = 0; i < Dwords; ++i)
            std::fill_n(to[i], LANES, 0);
    const OwnWrites shown(w);
    gather<Dwords>(w.group->lds, at.d, within, to);
}

template <unsigned Dwords>
void write_rows(Wave& w, const MicroOp* op, uint32_t offset, uint64_t mask, const uint32_t (*from)[LANES])
{
    Offsets at;
    lds_addresses(w, op, offset, 4 * Dwords, mask, LdsUse::Write, at);
    const uint32_t* rows[Dwords];
    for(unsigned i = 0; i < Dwords; ++i)
        rows[i] = from[i];
    lanes_must_agree_in_lds(w, op, at, mask, 4 * Dwords, rows);
    scatter<Dwords>(w.group->lds, at.d, mask, rows);
}

// What a lane writes: `bytes` bytes of its registers from `row` on, from bit `shift` on.
struct Written
{
    uint32_t offset;
    unsigned row, bytes, shift;
};

// With late loads: they land at the wait.
void write_later(Wave& w, const MicroOp* op, std::span<const Written> parts)
{
    const uint64_t mask = w.exec();
    PendingWrite write;
    write.target = PendingWrite::Target::Lds;
    for(const Written& part : parts)
    {
        Offsets at;
        lds_addresses(w, op, part.offset, part.bytes, mask, LdsUse::Write, at);
        write.chunk = part.bytes;
        const uint32_t* rows[4];
        for(unsigned i = 0; 4 * i < part.bytes; ++i)
            rows[i] = w.v[part.row + i];
        lanes_must_agree_in_lds(w, op, at, mask, part.bytes, rows, part.shift);
        for(unsigned l = 0; l < LANES; ++l)
        {
            if(!(mask >> l & 1))
                continue;
            write.addresses.push_back(at.d[l]);
            for(unsigned i = 0; 4 * i < part.bytes; ++i)
                write.data.push_back(w.v[part.row + i][l] >> part.shift);
        }
    }
    issue(w, Counter::Lds, std::move(write));
}

// Count addresses: op->offset, and op->literal if there are two.
template <unsigned Count>
std::array<uint32_t, Count> offsets_of(const MicroOp* op)
{
    if constexpr(Count == 1)
        return {static_cast<uint32_t>(op->offset)};
    else
        return {static_cast<uint32_t>(op->offset), op->literal};
}

template <unsigned Dwords, unsigned Count = 1>
const MicroOp* read(Wave& w, const MicroOp* op)
{
    const auto offsets = offsets_of<Count>(op);
    if(unwatched(w) && read_lds_fast<Dwords>(w, op, offsets)) [[likely]]
        return advance(op);
    const uint64_t mask = w.exec();
    Rows data;
    LdsSource source;
    for(unsigned i = 0; i < Count; ++i)
        read_rows<Dwords>(w, op, offsets[i], mask, data.d + Dwords * i, source);
    deliver_read(w, op, data.d, Count * Dwords, mask, std::move(source));
    return advance(op);
}

template <unsigned Dwords, unsigned Count = 1>
const MicroOp* write(Wave& w, const MicroOp* op)
{
    const auto offsets = offsets_of<Count>(op);
    std::array<Written, Count> parts;
    for(unsigned i = 0; i < Count; ++i)
        parts[i] = {offsets[i], op->src[1 + i].code, 4 * Dwords, 0};
    if(w.group->late) [[unlikely]]
        write_later(w, op, parts);
    else
        for(const Written& part : parts)
            write_rows<Dwords>(w, op, part.offset, w.exec(), &w.v[part.row]);
    return advance(op);
}

template <Narrow Kind, Part Where>
const MicroOp* read_narrow(Wave& w, const MicroOp* op)
{
    const uint64_t mask = w.exec();
    Offsets at;
    Rows data;
    const uint64_t within =
        lds_addresses(w, op, static_cast<uint32_t>(op->offset), narrow_bytes(Kind), mask, LdsUse::Read, at);
    LdsSource source;
    take(w, source, at, narrow_bytes(Kind), within);
    {
        const OwnWrites shown(w);
        gather_narrow<Kind>(w.group->lds, at.d, within, data.d[0]);
    }
    deliver_read(w, op, data.d, 1, mask, std::move(source), Where);
    return advance(op);
}

template <unsigned Bytes, unsigned Shift>
const MicroOp* write_narrow(Wave& w, const MicroOp* op)
{
    const auto offset   = static_cast<uint32_t>(op->offset);
    const uint64_t mask = w.exec();
    if(w.group->late) [[unlikely]]
    {
        write_later(w, op, std::array{Written{offset, op->src[1].code, Bytes, Shift}});
        return advance(op);
    }
    Offsets at;
    lds_addresses(w, op, offset, Bytes, mask, LdsUse::Write, at);
    const uint32_t* row = w.v[op->src[1].code];
    lanes_must_agree_in_lds(w, op, at, mask, Bytes, &row, Shift);
    scatter_narrow<Bytes, Shift>(w.group->lds, at.d, mask, row);
    return advance(op);
}

// Lane l gets the value of lane address / 4; 0 from a lane with EXEC off. HIP has no value for it
// then (__shfl), so that a twin gets another one.
const MicroOp* ds_bpermute_b32(Wave& w, const MicroOp* op)
{
    const uint64_t mask     = w.exec();
    const uint32_t *address = w.v[op->src[0].code], *data = w.v[op->src[1].code];
    const uint32_t nothing = w.is_twin ? w.in_flight : 0;
    Rows out;
    for(unsigned l = 0; l < LANES; ++l)
    {
        const unsigned from = (address[l] + static_cast<uint32_t>(op->offset)) >> 2 & 63;
        out.d[0][l]         = mask >> from & 1 ? data[from] : nothing;
    }
    deliver(w, op, Counter::Lds, out.d, 1, mask);
    return advance(op);
}

// Lane l sends its value to lane address / 4; the highest sender wins, lanes that received
// nothing get 0.
const MicroOp* ds_permute_b32(Wave& w, const MicroOp* op)
{
    const uint64_t mask     = w.exec();
    const uint32_t *address = w.v[op->src[0].code], *data = w.v[op->src[1].code];
    Rows out = {};
    for(unsigned l = 0; l < LANES; ++l)
        if(mask >> l & 1)
            out.d[0][(address[l] + static_cast<uint32_t>(op->offset)) >> 2 & 63] = data[l];
    deliver(w, op, Counter::Lds, out.d, 1, mask);
    return advance(op);
}

// A permutation of quads, or and, or, xor masks within 32 lanes.
const MicroOp* ds_swizzle_b32(Wave& w, const MicroOp* op)
{
    const uint64_t mask  = w.exec();
    const uint32_t* data = w.v[op->src[0].code];
    const auto pattern   = static_cast<uint32_t>(op->offset);
    Rows out;
    for(unsigned l = 0; l < LANES; ++l)
    {
        unsigned from;
        if(swizzle::QUADS.of(pattern))
            from = (l & ~3u) | (pattern >> 2 * (l & 3) & 3);
        else
            from = (l & 32) | ((((l & 31) & swizzle::AND_MASK.of(pattern)) | swizzle::OR_MASK.of(pattern)) ^
                               swizzle::XOR_MASK.of(pattern));
        out.d[0][l] = mask >> from & 1 ? data[from] : 0;
    }
    deliver(w, op, Counter::Lds, out.d, 1, mask);
    return advance(op);
}

// CDNA4 transposing reads. Each group of 16 lanes reads a matrix of 16 columns, row by row, 64 bits
// a lane; lane j of the group gets column j. With values of Bits bits a lane holds 64 / Bits of a
// row, so that a row takes Bits / 4 lanes.
template <unsigned Bits>
const MicroOp* read_transposed(Wave& w, const MicroOp* op)
{
    constexpr unsigned PER_LANE = 64 / Bits, LANES_A_ROW = 16 / PER_LANE;
    const uint64_t mask = w.exec();
    Offsets at;
    Rows data = {}, out = {};
    const uint64_t within = lds_addresses(w, op, static_cast<uint32_t>(op->offset), 8, mask, LdsUse::Read, at);
    LdsSource source{{}, 0, 16};
    take(w, source, at, 8, within);
    {
        const OwnWrites shown(w);
        gather<2>(w.group->lds, at.d, within, data.d);
    }
    for(unsigned l = 0; l < LANES; ++l)
    {
        const unsigned group = l & ~15u, column = l & 15;
        uint64_t result = 0;
        for(unsigned row = 0; row < PER_LANE; ++row)
        {
            const unsigned from  = group + row * LANES_A_ROW + column / PER_LANE;
            const uint64_t value = uint64_t{data.d[1][from]} << 32 | data.d[0][from];
            result |= (value >> Bits * (column % PER_LANE) & ((uint64_t{1} << Bits) - 1)) << Bits * row;
        }
        out.d[0][l] = static_cast<uint32_t>(result);
        out.d[1][l] = static_cast<uint32_t>(result >> 32);
    }
    deliver_read(w, op, out.d, 2, mask, std::move(source));
    return advance(op);
}

#define ATOMIC(NAME, T, ...) {"ds_" NAME, lds_atomic<T, ([](T m, T d) -> T { return static_cast<T>(__VA_ARGS__); })>}

constexpr Entry ENTRIES[] = {
    {"ds_read_b32", read<1>},
    {"ds_read_b64", read<2>},
    {"ds_read_b96", read<3>},
    {"ds_read_b128", read<4>},
    {"ds_read2_b32", read<1, 2>},
    {"ds_read2_b64", read<2, 2>},
    {"ds_read_u8", read_narrow<Narrow::Unsigned8, Part::Whole>},
    {"ds_read_i8", read_narrow<Narrow::Signed8, Part::Whole>},
    {"ds_read_u16", read_narrow<Narrow::Unsigned16, Part::Whole>},
    {"ds_read_i16", read_narrow<Narrow::Signed16, Part::Whole>},
    {"ds_read_u8_d16", read_narrow<Narrow::Unsigned8, Part::Low>},
    {"ds_read_u8_d16_hi", read_narrow<Narrow::Unsigned8, Part::High>},
    {"ds_read_i8_d16", read_narrow<Narrow::Signed8, Part::Low>},
    {"ds_read_i8_d16_hi", read_narrow<Narrow::Signed8, Part::High>},
    {"ds_read_u16_d16", read_narrow<Narrow::Unsigned16, Part::Low>},
    {"ds_read_u16_d16_hi", read_narrow<Narrow::Unsigned16, Part::High>},
    {"ds_write_b32", write<1>},
    {"ds_write_b64", write<2>},
    {"ds_write_b96", write<3>},
    {"ds_write_b128", write<4>},
    {"ds_write2_b32", write<1, 2>},
    {"ds_write2_b64", write<2, 2>},
    {"ds_write_b8", write_narrow<1, 0>},
    {"ds_write_b16", write_narrow<2, 0>},
    {"ds_write_b8_d16_hi", write_narrow<1, 16>},
    {"ds_write_b16_d16_hi", write_narrow<2, 16>},
    {"ds_bpermute_b32", ds_bpermute_b32},
    {"ds_permute_b32", ds_permute_b32},
    {"ds_swizzle_b32", ds_swizzle_b32},
    {"ds_read_b64_tr_b16", read_transposed<16>},
    {"ds_read_b64_tr_b8", read_transposed<8>},
    {"ds_read_b64_tr_b4", read_transposed<4>},
    ATOMIC("add_u32", uint32_t, m + d),
    ATOMIC("sub_u32", uint32_t, m - d),
    ATOMIC("rsub_u32", uint32_t, d - m),
    ATOMIC("inc_u32", uint32_t, m >= d ? 0 : m + 1),
    ATOMIC("dec_u32", uint32_t, m == 0 || m > d ? d : m - 1),
    ATOMIC("min_u32", uint32_t, std::min(m, d)),
    ATOMIC("max_u32", uint32_t, std::max(m, d)),
    ATOMIC("min_i32", int32_t, std::min(m, d)),
    ATOMIC("max_i32", int32_t, std::max(m, d)),
    ATOMIC("and_b32", uint32_t, (m & d)),
    ATOMIC("or_b32", uint32_t, m | d),
    ATOMIC("xor_b32", uint32_t, m ^ d),
    ATOMIC("wrxchg_b32", uint32_t, (void(m), d)),
    ATOMIC("add_f32", float, m + d),
    ATOMIC("min_f32", float, std::fmin(m, d)),
    ATOMIC("max_f32", float, std::fmax(m, d)),
    ATOMIC("add_u64", uint64_t, m + d),
    ATOMIC("and_b64", uint64_t, (m & d)),
    ATOMIC("or_b64", uint64_t, m | d),
    ATOMIC("xor_b64", uint64_t, m ^ d),
    ATOMIC("wrxchg_b64", uint64_t, (void(m), d)),
    ATOMIC("add_f64", double, m + d),
};
} // namespace

std::span<const Entry> lds_entries() { return ENTRIES; }
} // namespace emu
