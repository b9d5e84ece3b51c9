// Buffer instructions: MUBUF (CDNA3 and CDNA4 ISA documents, section "Vector memory buffer
// instructions").
//
// Address of a lane: base + soffset + inst_offset + voffset (+ index * stride). Raw buffers (stride
// 0) are checked against num_records without 32-bit wrap, each dword of a wide access by itself;
// structured ones by index. Out of range, loads give 0 and stores are dropped. Swizzled buffers and
// added thread ids stop the launch: nothing here uses them.
#include "checks/checks.h"
#include "isa/access.h"
#include "isa/atomics.h"
#include "isa/registry.h"

#include <bit>

namespace emu {

namespace {

struct Resource
{
    uint64_t base;
    uint64_t records; // bytes, or elements if stride is not 0
    uint32_t stride;
};

Resource resource(Wave& w, const MicroOp* op)
{
    scalars_must_be_defined(w, op, op->src[1].code, 4, "the buffer resource");
    const uint32_t* srd = &w.s[op->src[1].code - SCALAR];
    if(srd[1] >> 31 || srd[3] >> 23 & 1)
        raise_unknown(w, op, "a buffer resource with swizzle or add_tid_enable");
    if(w.group->srd_range)
    {
        uint64_t unmapped = 0;
        if(!w.group->srds.check(srd, &unmapped)) [[unlikely]]
        {
            Fault fault;
            fault.kind    = FaultKind::SrdRange;
            fault.access  = Access::Load;
            fault.address = unmapped;
            fault.bytes   = 1;
            raise(w, op, std::move(fault));
        }
    }
    return {srd[0] | uint64_t{srd[1] & 0xffff} << 32, srd[2], srd[1] >> 16 & 0x3fff};
}

// Where each lane goes, relative to base, and how many of its leading bytes are in range (in whole
// elements).
struct alignas(64) Lanes
{
    uint64_t offset[LANES];
    uint64_t whole = 0; // lanes with every element in range
};

// Lanes whose element at `skip` bytes behind their offset is in range.
uint64_t in_range(const Resource& r, const Lanes& lanes, unsigned skip, const uint32_t* index)
{
    uint64_t mask = 0;
    if(r.stride == 0 && index == nullptr)
    {
        for(unsigned l = 0; l < LANES; ++l)
            mask |= uint64_t{lanes.offset[l] + skip < r.records} << l;
    }
    else
    {
        for(unsigned l = 0; l < LANES; ++l)
            mask |= uint64_t{(index == nullptr ? 0 : index[l]) < r.records} << l;
    }
    return mask;
}

const uint32_t* offsets_of(Wave& w, const MicroOp* op, const Resource& r, Lanes& lanes)
{
    scalars_must_be_defined(w, op, op->src[2].code, 1, "the buffer offset");
    const uint64_t common = static_cast<uint64_t>(static_cast<uint32_t>(op->offset)) +
                            scalar_value(w, op, op->src[2].code);
    const uint32_t* index = op->flags & IDXEN ? w.v[op->src[0].code] : nullptr;
    if(index != nullptr)
        must_be_defined(w, op, op->src[0].code, w.exec(), "the buffer index");
    if(op->flags & OFFEN)
    {
        must_be_defined(w, op, op->src[0].code + (index != nullptr), w.exec(), "the buffer offset");
        const uint32_t* voffset = w.v[op->src[0].code + (index != nullptr)];
        for(unsigned l = 0; l < LANES; ++l)
            lanes.offset[l] = common + voffset[l];
    }
    else
    {
        for(unsigned l = 0; l < LANES; ++l)
            lanes.offset[l] = common;
    }
    if(index != nullptr)
        for(unsigned l = 0; l < LANES; ++l)
            lanes.offset[l] += uint64_t{index[l]} * r.stride;
    return index;
}

// Hull check of the lanes of `mask`; stops at the first lane outside.
void check(Wave& w,
           const MicroOp* op,
           Access access,
           const Resource& r,
           const Lanes& lanes,
           uint64_t mask,
           unsigned bytes)
{
    uint64_t low = ~uint64_t{0}, high = 0;
    for(unsigned l = 0; l < LANES; ++l)
    {
        const bool on         = mask >> l & 1;
        const uint64_t offset = lanes.offset[l];
        low                   = on && offset < low ? offset : low;
        high                  = on && offset > high ? offset : high;
    }
    if(mask == 0 || w.group->ranges.check(r.base + low, high - low + bytes))
        return;
    for(unsigned l = 0; l < LANES; ++l)
        if(mask >> l & 1 && !w.group->ranges.check(r.base + lanes.offset[l], bytes))
            raise_memory(w, op, access, l, r.base + lanes.offset[l], bytes);
}

// Dwords in range of each lane, the rest zero.
template <unsigned Dwords>
void load_rows(Wave& w, const MicroOp* op, Rows& data, uint64_t mask)
{
    const Resource r = resource(w, op);
    Lanes lanes;
    const uint32_t* index = offsets_of(w, op, r, lanes);
    const uint64_t whole  = in_range(r, lanes, 4 * (Dwords - 1), index) & mask;
    const auto* base      = reinterpret_cast<const uint8_t*>(r.base);
    check(w, op, Access::Load, r, lanes, whole, 4 * Dwords);
    w.group->traffic.global_load_bytes += 4 * Dwords * static_cast<uint64_t>(std::popcount(whole));
    if(whole == ALL_LANES)
    {
        gather<Dwords>(base, lanes.offset, whole, data.d);
        return;
    }
    for(unsigned i = 0; i < Dwords; ++i)
        for(unsigned l = 0; l < LANES; ++l)
            data.d[i][l] = 0;
    gather<Dwords>(base, lanes.offset, whole, data.d);
    if(Dwords == 1)
        return;
    // Lanes that the end of the buffer cuts: dword by dword.
    for(unsigned i = 0; i + 1 < Dwords; ++i)
    {
        const uint64_t part = in_range(r, lanes, 4 * i, index) & mask & ~whole;
        for(unsigned l = 0; l < LANES; ++l)
        {
            if(!(part >> l & 1))
                continue;
            const uint64_t address = r.base + lanes.offset[l] + 4 * i;
            if(!w.group->ranges.check(address, 4))
                raise_memory(w, op, Access::Load, l, address, 4);
            std::memcpy(&data.d[i][l], reinterpret_cast<const void*>(address), 4);
        }
    }
}

// LDS-DMA: lane l's data go to M0 + inst_offset + l * bytes; lanes out of range write zeros,
// inactive ones nothing.
void to_lds(
    Wave& w, const MicroOp* op, const uint32_t (*data)[LANES], unsigned dwords, uint64_t mask)
{
    const unsigned bytes = 4 * dwords;
    scalars_must_be_defined(w, op, SCALAR + M0, 1, "the LDS address");
    const uint64_t base = uint64_t{w.s[M0]} + static_cast<uint32_t>(op->offset);
    PendingWrite write;
    if(mask != 0 && base + LANES * bytes > w.group->lds_bytes)
        raise_memory(w, op, Access::Store, NO_LANE, base, uint64_t{LANES} * bytes, FaultKind::Lds);
    w.group->traffic.lds_dma_bytes += bytes * static_cast<uint64_t>(std::popcount(mask));
    if(w.group->shadow != nullptr)
        for(unsigned l = 0; l < LANES; ++l)
            if(mask >> l & 1)
                check_lds(w, op, l, static_cast<uint32_t>(base) + l * bytes, bytes, LdsUse::Write);
    if(!w.group->late)
    {
        for(unsigned l = 0; l < LANES; ++l)
        {
            if(!(mask >> l & 1))
                continue;
            uint32_t values[4];
            for(unsigned i = 0; i < dwords; ++i)
                values[i] = data[i][l];
            std::memcpy(w.group->lds + base + l * bytes, values, bytes);
        }
        return;
    }
    write.target = PendingWrite::Target::Lds;
    write.lanes  = mask;
    write.chunk  = bytes;
    for(unsigned l = 0; l < LANES; ++l)
    {
        if(!(mask >> l & 1))
            continue;
        write.addresses.push_back(static_cast<uint32_t>(base) + l * bytes);
        for(unsigned i = 0; i < dwords; ++i)
            write.data.push_back(data[i][l]);
    }
    issue(w, Counter::Vector, std::move(write));
}

template <unsigned Dwords>
const MicroOp* load(Wave& w, const MicroOp* op)
{
    const uint64_t mask = w.exec();
    Rows data;
    load_rows<Dwords>(w, op, data, mask);
    if(op->flags & TO_LDS)
        to_lds(w, op, data.d, Dwords, mask);
    else
        deliver(w, op, Counter::Vector, data.d, Dwords, mask);
    return advance(op);
}

template <Narrow Kind, Part Where>
const MicroOp* load_part(Wave& w, const MicroOp* op)
{
    const uint64_t mask = w.exec();
    const Resource r    = resource(w, op);
    Lanes lanes;
    const uint32_t* index = offsets_of(w, op, r, lanes);
    const uint64_t inside = in_range(r, lanes, narrow_bytes(Kind) - 1, index) & mask;
    check(w, op, Access::Load, r, lanes, inside, narrow_bytes(Kind));
    w.group->traffic.global_load_bytes +=
        narrow_bytes(Kind) * static_cast<uint64_t>(std::popcount(inside));
    Rows data;
    for(unsigned l = 0; l < LANES; ++l)
        data.d[0][l] =
            inside >> l & 1
                ? load_narrow(Kind, reinterpret_cast<const uint8_t*>(r.base + lanes.offset[l]))
                : 0;
    if(op->flags & TO_LDS)
        to_lds(w, op, data.d, 1, mask);
    else
        deliver(w, op, Counter::Vector, data.d, 1, mask, Where);
    return advance(op);
}

template <unsigned Dwords>
const MicroOp* store(Wave& w, const MicroOp* op)
{
    const uint64_t mask = w.exec();
    const Resource r    = resource(w, op);
    Lanes lanes;
    const uint32_t* index = offsets_of(w, op, r, lanes);
    const uint64_t whole  = in_range(r, lanes, 4 * (Dwords - 1), index) & mask;
    check(w, op, Access::Store, r, lanes, whole, 4 * Dwords);
    w.group->traffic.global_store_bytes += 4 * Dwords * static_cast<uint64_t>(std::popcount(whole));
    const uint32_t* rows[Dwords];
    for(unsigned i = 0; i < Dwords; ++i)
    {
        must_be_defined(w, op, op->dst + i, whole, "what is stored");
        rows[i] = w.v[op->dst + i];
    }
    scatter<Dwords>(reinterpret_cast<uint8_t*>(r.base), lanes.offset, whole, rows);
    for(unsigned i = 0; i + 1 < Dwords; ++i)
    {
        const uint64_t part = in_range(r, lanes, 4 * i, index) & mask & ~whole;
        for(unsigned l = 0; l < LANES; ++l)
        {
            if(!(part >> l & 1))
                continue;
            const uint64_t address = r.base + lanes.offset[l] + 4 * i;
            if(!w.group->ranges.check(address, 4))
                raise_memory(w, op, Access::Store, l, address, 4);
            must_be_defined(w, op, op->dst + i, uint64_t{1} << l, "what is stored");
            std::memcpy(reinterpret_cast<void*>(address), &rows[i][l], 4);
        }
    }
    issue(w, Counter::Vector);
    return advance(op);
}

template <unsigned Bytes, unsigned Shift>
const MicroOp* store_part(Wave& w, const MicroOp* op)
{
    const uint64_t mask = w.exec();
    const Resource r    = resource(w, op);
    Lanes lanes;
    const uint32_t* index = offsets_of(w, op, r, lanes);
    const uint64_t inside = in_range(r, lanes, Bytes - 1, index) & mask;
    check(w, op, Access::Store, r, lanes, inside, Bytes);
    must_be_defined(w, op, op->dst, inside, "what is stored", ((1u << 8 * Bytes) - 1) << Shift);
    w.group->traffic.global_store_bytes += Bytes * static_cast<uint64_t>(std::popcount(inside));
    const uint32_t* row = w.v[op->dst];
    for(unsigned l = 0; l < LANES; ++l)
    {
        const uint32_t value = row[l] >> Shift;
        if(inside >> l & 1)
            std::memcpy(reinterpret_cast<void*>(r.base + lanes.offset[l]), &value, Bytes);
    }
    issue(w, Counter::Vector);
    return advance(op);
}

template <typename T, auto F>
const MicroOp* atomic(Wave& w, const MicroOp* op)
{
    constexpr unsigned DWORDS = sizeof(T) / 4;
    const uint64_t mask       = w.exec();
    const Resource r          = resource(w, op);
    Lanes lanes;
    const uint32_t* index = offsets_of(w, op, r, lanes);
    const uint64_t inside = in_range(r, lanes, sizeof(T) - 1, index) & mask;
    check(w, op, Access::Atomic, r, lanes, inside, sizeof(T));
    for(unsigned i = 0; i < DWORDS; ++i)
        must_be_defined(w, op, op->dst + i, inside, "the atomic's operand");
    Rows old = {};
    for(unsigned l = 0; l < LANES; ++l)
    {
        if(!(inside >> l & 1))
            continue;
        uint32_t bits[DWORDS];
        for(unsigned i = 0; i < DWORDS; ++i)
            bits[i] = w.v[op->dst + i][l];
        T operand;
        std::memcpy(&operand, bits, sizeof(T));
        const T before = modify<T, F>(reinterpret_cast<void*>(r.base + lanes.offset[l]), operand);
        std::memcpy(bits, &before, sizeof(T));
        for(unsigned i = 0; i < DWORDS; ++i)
            old.d[i][l] = bits[i];
    }
    if(op->flags & RETURN)
        deliver(w, op, Counter::Vector, old.d, DWORDS, mask);
    else
        issue(w, Counter::Vector);
    return advance(op);
}

const MicroOp* nothing(Wave&, const MicroOp* op) { return advance(op); }

#define ATOMIC(NAME, T, ...) \
    {"buffer_atomic_" NAME, atomic<T, ([](T m, T d) -> T { return static_cast<T>(__VA_ARGS__); })>},

constexpr Entry ENTRIES[] = {
    // clang-format off
    EMU_ATOMICS(ATOMIC)
    // clang-format on
    {"buffer_load_dword", load<1>},
    {"buffer_load_dwordx2", load<2>},
    {"buffer_load_dwordx3", load<3>},
    {"buffer_load_dwordx4", load<4>},
    {"buffer_load_ubyte", load_part<Narrow::Unsigned8, Part::Whole>},
    {"buffer_load_sbyte", load_part<Narrow::Signed8, Part::Whole>},
    {"buffer_load_ushort", load_part<Narrow::Unsigned16, Part::Whole>},
    {"buffer_load_sshort", load_part<Narrow::Signed16, Part::Whole>},
    {"buffer_load_ubyte_d16", load_part<Narrow::Unsigned8, Part::Low>},
    {"buffer_load_ubyte_d16_hi", load_part<Narrow::Unsigned8, Part::High>},
    {"buffer_load_sbyte_d16", load_part<Narrow::Signed8, Part::Low>},
    {"buffer_load_sbyte_d16_hi", load_part<Narrow::Signed8, Part::High>},
    {"buffer_load_short_d16", load_part<Narrow::Unsigned16, Part::Low>},
    {"buffer_load_short_d16_hi", load_part<Narrow::Unsigned16, Part::High>},
    {"buffer_store_dword", store<1>},
    {"buffer_store_dwordx2", store<2>},
    {"buffer_store_dwordx3", store<3>},
    {"buffer_store_dwordx4", store<4>},
    {"buffer_store_byte", store_part<1, 0>},
    {"buffer_store_short", store_part<2, 0>},
    {"buffer_store_byte_d16_hi", store_part<1, 16>},
    {"buffer_store_short_d16_hi", store_part<2, 16>},
    {"buffer_wbl2", nothing},
    {"buffer_inv", nothing},
};

} // namespace

std::span<const Entry> buffer_entries() { return ENTRIES; }

} // namespace emu
