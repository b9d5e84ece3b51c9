// Buffer instructions: MUBUF (CDNA3 and CDNA4 ISA documents, section "Vector memory buffer
// instructions").
//
// Address of a lane: base + soffset + offset (+ index * stride), where offset is inst_offset +
// voffset, of which 32 bits count. With an index and a stride, the index is checked against
// num_records. Else bytes are: soffset + offset, not wrapping, each dword of a wide access by
// itself. Out of range, loads give 0 and stores are dropped; an unbound resource has nothing in
// range. The resource of a wave's scratch is the only one with swizzle and added thread ids that is
// known; another one stops the launch.
// docs/reference/device-semantics.md names the sources.
#include "checks/lds_races.h"
#include "isa/access.h"
#include "isa/atomics.h"
#include "isa/buffer_access.h"
#include "isa/buffer_fast.h"
#include "isa/fields.h"
#include "isa/registry.h"
#include "timing/recorder.h"

#include <algorithm>
#include <bit>

namespace emu {
namespace {
Resource resource(Wave& w, const MicroOp* op)
{
    scalars_must_be_defined(w, op, op->src[1].code, 4, "the buffer resource");
    const uint32_t* words = &w.s[op->src[1].code - SCALAR];
    if(!srd::is_plain(words)) [[unlikely]]
    {
        if(!srd::is_scratch(words))
            raise_unknown(w, op, "a buffer resource with swizzle or add_tid_enable");
        return {reinterpret_cast<uint64_t>(w.scratch), 0, 0, true};
    }
    if(srd::is_unbound(words) && !(op->control & TYPED)) [[unlikely]]
        return {srd::base(words), 0, srd::stride(words), false};
    if(w.group->srd_range && w.exec() != 0)
    {
        uint64_t unmapped = 0;
        if(!w.group->srds.check(words, &unmapped)) [[unlikely]]
            raise_memory(w, op, Access::Load, NO_LANE, unmapped, 1, FaultKind::SrdRange);
    }
    return {srd::base(words), words[2], srd::stride(words), false};
}

// Lanes whose byte `skip` bytes after their offset is in range.
uint64_t in_range(const Lanes& lanes, unsigned skip)
{
    const Resource& r = lanes.resource;
    uint64_t mask     = 0;
    if(lanes.index == nullptr)
    {
        for(unsigned l = 0; l < LANES; ++l)
            mask |= uint64_t{lanes.offset[l] + skip < r.records} << l;
    }
    else
    {
        for(unsigned l = 0; l < LANES; ++l)
            mask |= uint64_t{lanes.index[l] < r.records} << l;
    }
    return mask & lanes.mask;
}

// Fills in index and offset.
void set_offsets(Wave& w, const MicroOp* op, Lanes& lanes)
{
    scalars_must_be_defined(w, op, op->src[2].code, 1, "the buffer offset");
    const uint32_t common = static_cast<uint32_t>(op->offset);
    const uint32_t* index = op->flags & IDXEN ? w.v[op->src[0].code] : nullptr;
    if(index != nullptr)
        must_be_defined(w, op, op->src[0].code, w.exec(), "the buffer index");
    lanes.index = lanes.resource.stride == 0 ? nullptr : index;
    lanes.resource.step(scalar_value(w, op, op->src[2].code), lanes.index != nullptr);
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
            lanes.offset[l] += uint64_t{index[l]} * lanes.resource.stride;
}

// Stops at the first lane of lanes.whole that is outside the allocations; their hull goes first.
void check(Wave& w, const MicroOp* op, Access access, const Lanes& lanes, unsigned bytes)
{
    const uint64_t base = lanes.resource.base;
    must_be_aligned(w, op, access, base, lanes.offset, lanes.whole, bytes);
    uint64_t low = ~uint64_t{0}, high = 0;
    for(unsigned l = 0; l < LANES; ++l)
    {
        const bool on         = lanes.whole >> l & 1;
        const uint64_t offset = lanes.offset[l];
        low                   = on && offset < low ? offset : low;
        high                  = on && offset > high ? offset : high;
    }
    if(lanes.whole == 0 || w.group->ranges.check(base + low, high - low + bytes))
        return;
    for(unsigned l = 0; l < LANES; ++l)
        if(lanes.whole >> l & 1 && !w.group->ranges.check(base + lanes.offset[l], bytes))
            raise_memory(w, op, access, l, base + lanes.offset[l], bytes);
}

// The lanes of an access to scratch. soffset counts the bytes of all lanes (LLVM AMDGPU usage,
// "Stack pointer").
void aim_scratch(Wave& w, const MicroOp* op, Access access, unsigned bytes, Lanes& lanes)
{
    scalars_must_be_defined(w, op, op->src[2].code, 1, "the buffer offset");
    const uint32_t all = scalar_value(w, op, op->src[2].code);
    if(op->flags & IDXEN || all % (4 * LANES) != 0)
        raise_unknown(w, op, "scratch with an index or a part of a dword of all lanes");
    const uint32_t* voffset = op->flags & OFFEN ? w.v[op->src[0].code] : nullptr;
    if(voffset != nullptr)
        must_be_defined(w, op, op->src[0].code, lanes.mask, "the buffer offset");
    for(unsigned l = 0; l < LANES; ++l)
    {
        const uint64_t within =
            uint64_t{all / LANES} + static_cast<uint32_t>(op->offset) + (voffset == nullptr ? 0 : voffset[l]);
        if(lanes.mask >> l & 1 && within + bytes > w.scratch_bytes)
            raise_memory(w, op, access, l, within, bytes, FaultKind::Scratch);
        lanes.offset[l] = uint64_t{l} * w.scratch_bytes + within;
    }
    lanes.index = nullptr;
    lanes.whole = lanes.mask;
    w.group->traffic.scratch_bytes += bytes * static_cast<uint64_t>(std::popcount(lanes.mask));
}

// The lanes of an access of `bytes` a lane, checked; the range check looks at the byte at `skip`.
void aim(Wave& w, const MicroOp* op, Access access, unsigned bytes, unsigned skip, Lanes& lanes)
{
    lanes.mask     = w.exec();
    lanes.resource = resource(w, op);
    if(lanes.resource.scratch) [[unlikely]]
        return aim_scratch(w, op, access, bytes, lanes);
    set_offsets(w, op, lanes);
    lanes.whole = in_range(lanes, skip);
    check(w, op, access, lanes, bytes);
    if(w.group->recorder != nullptr) [[unlikely]]
        w.group->recorder->touch(lanes.resource.base, lanes.offset, lanes.whole, bytes);
    if(w.group->races != nullptr) [[unlikely]]
        w.group->races->touch(access, lanes.resource.base, lanes.offset, lanes.whole, bytes);
    const uint64_t traffic = bytes * static_cast<uint64_t>(std::popcount(lanes.whole));
    if(access == Access::Load)
        w.group->traffic.global_load_bytes += traffic;
    if(access == Access::Store)
        w.group->traffic.global_store_bytes += traffic;
}

// Lanes that the end of the buffer cuts: calls move(dword, lane, address) for each dword in range.
template <unsigned Dwords, typename Move>
void move_cut(Wave& w, const MicroOp* op, Access access, const Lanes& lanes, Move&& move)
{
    if(lanes.whole == lanes.mask)
        return;
    for(unsigned i = 0; i + 1 < Dwords; ++i)
    {
        const uint64_t part = in_range(lanes, 4 * i + 3) & ~lanes.whole;
        for(unsigned l = 0; l < LANES; ++l)
        {
            if(!(part >> l & 1))
                continue;
            const uint64_t address = lanes.resource.base + lanes.offset[l] + 4 * i;
            if(!w.group->ranges.check(address, 4))
                raise_memory(w, op, access, l, address, 4);
            if(w.group->races != nullptr) [[unlikely]]
                w.group->races->touch(access, address, 4, l);
            move(i, l, address);
        }
    }
}

// Dwords in range of each lane, the rest zero.
template <unsigned Dwords>
void load_rows(Wave& w, const MicroOp* op, Rows& data)
{
    Lanes lanes;
    aim(w, op, Access::Load, 4 * Dwords, 4 * Dwords - 1, lanes);
    if(lanes.whole != ALL_LANES)
        for(unsigned i = 0; i < Dwords; ++i)
            for(unsigned l = 0; l < LANES; ++l)
                data.d[i][l] = 0;
    const auto* base = reinterpret_cast<const uint8_t*>(lanes.resource.base);
    gather<Dwords>(base, lanes.offset, lanes.whole, data.d);
    doubt_unwritten(w, lanes.resource.base, lanes.offset, lanes.whole, 4 * Dwords, data.d);
    move_cut<Dwords>(w, op, Access::Load, lanes, [&](unsigned dword, unsigned lane, uint64_t address) {
        std::memcpy(&data.d[dword][lane], reinterpret_cast<const void*>(address), 4);
    });
}

// Where a load's result goes. To LDS: lanes out of range write zeros, inactive ones nothing.
void put(Wave& w, const MicroOp* op, const Rows& data, unsigned dwords, Part part = Part::Whole)
{
    if(op->flags & TO_LDS)
        load_to_lds(w, op, static_cast<uint32_t>(op->offset), data.d, dwords);
    else
        deliver(w, op, Counter::Vector, data.d, dwords, w.exec(), part);
}

// A load by all lanes of which every byte is in range and mapped.
// False where it is not that, or its lanes have to be looked at one by one to know.
bool aim_whole(Wave& w, const MicroOp* op, unsigned bytes, WholeLoad& aimed)
{
    if(!unwatched(w) || (op->flags & (IDXEN | OFFEN)) != OFFEN)
        return false;
    Resource used = resource(w, op);
    if(used.scratch) [[unlikely]]
        return false;
    used.step(scalar_value(w, op, op->src[2].code));
    aimed.offset = w.v[op->src[0].code];
    uint32_t low = ~0u, high = 0;
    for(unsigned l = 0; l < LANES; ++l)
    {
        low  = std::min(low, aimed.offset[l]);
        high = std::max(high, aimed.offset[l]);
    }
    const uint64_t common = static_cast<uint32_t>(op->offset);
    const uint64_t base   = used.base + common;
    if(common + high + bytes > used.records || !w.group->ranges.check(base + low, high - low + bytes))
        return false;
    aimed.base = reinterpret_cast<const uint8_t*>(base);
    w.group->traffic.global_load_bytes += uint64_t{bytes} * LANES;
    return true;
}

// Straight to LDS, with the loads that follow: between them stands what computes addresses.
template <unsigned Dwords>
const MicroOp* load_lds_run(Wave& w, const MicroOp* op, WholeLoad from)
{
    const Handler handler = op->handler;
    LdsRun<Dwords> run;
    for(;;)
    {
        const uint64_t to = lds_dma_place(w, op, static_cast<uint32_t>(op->offset), Dwords);
        run.add(w.group->lds + to, from);
        ++op;
        if(run.full() || !run_apart(w, op))
            break;
        if(op->handler != handler || !(op->flags & TO_LDS) || !aim_whole(w, op, 4 * Dwords, from))
            break;
        ++w.counts[op - w.first];
    }
    run.land();
    return op;
}

template <unsigned Dwords>
const MicroOp* load_whole(Wave& w, const MicroOp* op, const WholeLoad& from)
{
    if(op->flags & TO_LDS)
        return load_lds_run<Dwords>(w, op, from);
    if constexpr(Dwords == 4)
        prefetch_run(w, op, from.base);
    gather<Dwords>(from.base, from.offset, ALL_LANES, &w.v[op->dst]);
    return advance(op);
}

template <unsigned Dwords>
const MicroOp* load(Wave& w, const MicroOp* op)
{
    WholeLoad whole;
    if(aim_whole(w, op, 4 * Dwords, whole)) [[likely]]
        return load_whole<Dwords>(w, op, whole);
    Rows data;
    load_rows<Dwords>(w, op, data);
    put(w, op, data, Dwords);
    return advance(op);
}

template <Narrow Kind, Part Where>
const MicroOp* load_part(Wave& w, const MicroOp* op)
{
    Lanes lanes;
    Rows data;
    aim(w, op, Access::Load, narrow_bytes(Kind), narrow_bytes(Kind) - 1, lanes);
    const auto* base = reinterpret_cast<const uint8_t*>(lanes.resource.base);
    gather_narrow<Kind>(base, lanes.offset, lanes.whole, data.d[0]);
    doubt_unwritten(w, lanes.resource.base, lanes.offset, lanes.whole, narrow_bytes(Kind), data.d);
    put(w, op, data, 1, Where);
    return advance(op);
}

// A store to scratch is a copy, and no use of what is stored.
void demand_defined(const Wave& w, const MicroOp* op, unsigned row, const Lanes& lanes, uint32_t bits = ~0u)
{
    if(!lanes.resource.scratch)
        must_be_defined(w, op, row, lanes.whole, "what is stored", bits);
}

template <unsigned Dwords>
const MicroOp* store(Wave& w, const MicroOp* op)
{
    Lanes lanes;
    aim(w, op, Access::Store, 4 * Dwords, 4 * Dwords - 1, lanes);
    const uint32_t* rows[Dwords];
    for(unsigned i = 0; i < Dwords; ++i)
    {
        demand_defined(w, op, op->dst + i, lanes);
        rows[i] = w.v[op->dst + i];
    }
    auto* base = reinterpret_cast<uint8_t*>(lanes.resource.base);
    lanes_must_agree_in_memory(w, op, lanes.offset, lanes.whole, 4 * Dwords, rows);
    scatter<Dwords>(base, lanes.offset, lanes.whole, rows);
    move_cut<Dwords>(w, op, Access::Store, lanes, [&](unsigned dword, unsigned lane, uint64_t address) {
        must_be_defined(w, op, op->dst + dword, uint64_t{1} << lane, "what is stored");
        std::memcpy(reinterpret_cast<void*>(address), &rows[dword][lane], 4);
    });
    issue(w, Counter::Vector);
    return advance(op);
}

template <unsigned Bytes, unsigned Shift>
const MicroOp* store_part(Wave& w, const MicroOp* op)
{
    Lanes lanes;
    aim(w, op, Access::Store, Bytes, Bytes - 1, lanes);
    demand_defined(w, op, op->dst, lanes, part_bits(Bytes, Shift));
    auto* base          = reinterpret_cast<uint8_t*>(lanes.resource.base);
    const uint32_t* row = w.v[op->dst];
    lanes_must_agree_in_memory(w, op, lanes.offset, lanes.whole, Bytes, &row, Shift);
    scatter_narrow<Bytes, Shift>(base, lanes.offset, lanes.whole, row);
    if(w.twin != nullptr && !lanes.resource.scratch) [[unlikely]]
        end_marks(w, lanes.whole, lanes.resource.base, lanes.offset, Bytes);
    issue(w, Counter::Vector);
    return advance(op);
}

// A fence: earlier stores get to the other workgroups.
const MicroOp* write_back(Wave& w, const MicroOp* op)
{
    if(w.group->races != nullptr) [[unlikely]]
        w.group->races->write_back(w);
    return advance(op);
}

// What memory held goes to `old`; Data: registers that hold the operands, in units of T; Reads: a swap does not.
template <typename T, unsigned Data, auto ChangeLanes, bool Reads = true>
const MicroOp* change(Wave& w, const MicroOp* op)
{
    constexpr unsigned DWORDS = sizeof(T) / 4;
    Lanes lanes;
    aim(w, op, Access::Atomic, sizeof(T), sizeof(T) - 1, lanes);
    for(unsigned i = 0; i < Data * DWORDS; ++i)
        must_be_defined(w, op, op->dst + i, lanes.whole, "the atomic's operand");
    Rows old   = {};
    auto* base = reinterpret_cast<uint8_t*>(lanes.resource.base);
    if(Reads)
        must_be_written(w, op, lanes.resource.base, lanes.offset, lanes.whole, sizeof(T));
    const HostMode mode(w.mxcsr, MXCSR_NEAREST); // memory follows no MODE
    ChangeLanes(base, lanes.offset, lanes.whole, &w.v[op->dst], old);
    deliver_old(w, op, Counter::Vector, old, DWORDS);
    return advance(op);
}

template <typename T, auto F, bool Reads>
constexpr Handler atomic = change<T, 1, modify_lanes<T, modify<T, F>, uint64_t>, Reads>;
template <typename T>
constexpr Handler compare_swap = change<T, 2, compare_swap_lanes<T, uint64_t>>;

#define ATOMIC(NAME, T, ...) \
    {"buffer_atomic_" NAME, atomic<T, ([](T m, T d) -> T { return static_cast<T>(__VA_ARGS__); }), atomic_reads(NAME)>},

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
    {"buffer_atomic_cmpswap", compare_swap<uint32_t>},
    {"buffer_atomic_cmpswap_x2", compare_swap<uint64_t>},
    {"buffer_wbl2", write_back},
    {"buffer_inv", nothing},
};
} // namespace

std::span<const Entry> buffer_entries() { return ENTRIES; }

void aim_buffer(Wave& w, const MicroOp* op, Access access, unsigned bytes, unsigned skip, Lanes& lanes)
{
    aim(w, op, access, bytes, skip, lanes);
}
} // namespace emu
