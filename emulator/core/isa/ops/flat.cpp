// FLAT, GLOBAL and SCRATCH instructions (CDNA3 ISA document, section "Flat memory instructions").
//
// A lane's scratch is a run of bytes of its own; offset 0 of a lane is its first byte. Flat
// addresses of the shared and the private aperture reach LDS and scratch.
#include "checks/lds_races.h"
#include "isa/atomics.h"
#include "isa/lds_access.h"
#include "isa/registry.h"
#include "timing/recorder.h"

#include <bit>

namespace emu {
namespace {
enum class Segment
{
    Flat,
    Global,
    Scratch
};

struct alignas(64) Addresses
{
    uint64_t d[LANES];
};

uint64_t scratch_address(Wave& w, const MicroOp* op, Access access, unsigned lane, uint64_t offset, unsigned bytes)
{
    if(offset > w.scratch_bytes || w.scratch_bytes - offset < bytes)
        raise_memory(w, op, access, lane, offset, bytes, FaultKind::Scratch);
    return reinterpret_cast<uint64_t>(w.scratch) + uint64_t{lane} * w.scratch_bytes + offset;
}

// SCRATCH: vaddr and saddr are 32-bit offsets into the lane's scratch.
void resolve_scratch(Wave& w, const MicroOp* op, Access access, unsigned bytes, uint64_t mask, Addresses& out)
{
    const uint16_t scalar  = op->src[1].code;
    const uint32_t base    = scalar == NONE ? 0 : w.s[scalar - SCALAR];
    const uint32_t* vector = op->flags & NO_ADDRESS ? nullptr : w.v[op->src[0].code];
    for(unsigned l = 0; l < LANES; ++l)
    {
        if(!(mask >> l & 1))
            continue;
        const uint32_t at = base + (vector == nullptr ? 0 : vector[l]) + static_cast<uint32_t>(op->offset);
        out.d[l]          = scratch_address(w, op, access, l, at, bytes);
    }
    w.group->traffic.scratch_bytes += bytes * static_cast<uint64_t>(std::popcount(mask));
}

// Addresses as the instruction states them: a scalar base and 32 bits a lane, or 64 bits a lane.
void add_addresses(Wave& w, const MicroOp* op, uint64_t mask, Addresses& out)
{
    const auto offset     = static_cast<uint64_t>(int64_t{op->offset});
    const uint16_t scalar = op->src[1].code;
    const uint32_t* low   = w.v[op->src[0].code];
    if(scalar != NONE)
    {
        const uint64_t base = w.pair(scalar - SCALAR) + offset;
        for(unsigned l = 0; l < LANES; ++l)
            out.d[l] = base + low[l];
    }
    else
    {
        must_be_defined(w, op, op->src[0].code + 1u, mask, "the address");
        const uint32_t* high = w.v[op->src[0].code + 1];
        for(unsigned l = 0; l < LANES; ++l)
            out.d[l] = (uint64_t{high[l]} << 32 | low[l]) + offset;
    }
}

// FLAT: replaces addresses in the apertures by the host's. Returns the other lanes.
uint64_t resolve_apertures(Wave& w, const MicroOp* op, Access access, unsigned bytes, uint64_t mask, Addresses& out)
{
    const LdsUse use = access == Access::Load ? LdsUse::Read : access == Access::Store ? LdsUse::Write : LdsUse::Atomic;
    uint64_t global  = mask;
    for(unsigned l = 0; l < LANES; ++l)
    {
        const auto aperture = static_cast<uint32_t>(out.d[l] >> 32);
        const auto within   = static_cast<uint32_t>(out.d[l]);
        if(!(mask >> l & 1) || (aperture != SHARED_APERTURE && aperture != PRIVATE_APERTURE))
            continue;
        global &= ~(uint64_t{1} << l);
        if(aperture == PRIVATE_APERTURE)
        {
            out.d[l] = scratch_address(w, op, access, l, within, bytes);
            continue;
        }
        if(within > w.group->lds_bytes || w.group->lds_bytes - within < bytes)
            raise_memory(w, op, access, l, within, bytes, FaultKind::Lds);
        finish_own_writes(w); // LDS serves a wave in order
        watch_lds(w, op, l, within, bytes, use);
        out.d[l] = reinterpret_cast<uint64_t>(w.group->lds) + within;
    }
    if(access != Access::Store) // else when it is known what is written
        end_watch(w, op);
    return global;
}

// What lanes of a FLAT store write to LDS.
template <Segment S>
void judge_lds_store(const Wave& w, const MicroOp* op, const Addresses& at, uint64_t mask, unsigned bytes,
                     const uint32_t* const* rows, unsigned shift = 0)
{
    if(S != Segment::Flat || w.group->shadow == nullptr) [[likely]]
        return;
    Offsets within;
    uint64_t lanes = 0;
    for(unsigned l = 0; l < LANES; ++l)
        if(const uint64_t from = at.d[l] - reinterpret_cast<uint64_t>(w.group->lds);
           mask >> l & 1 && from < w.group->lds_bytes)
        {
            within.d[l] = static_cast<uint32_t>(from);
            lanes |= uint64_t{1} << l;
        }
    lanes_must_agree_in_lds(w, op, within, lanes, bytes, rows, shift);
}

// Host addresses of the lanes of `mask`, all checked. Returns the lanes that go to global memory.
template <Segment S>
uint64_t resolve(Wave& w, const MicroOp* op, Access access, unsigned bytes, uint64_t mask, Addresses& out)
{
    const uint16_t scalar = op->src[1].code;
    if(scalar != NONE)
        scalars_must_be_defined(w, op, scalar, S == Segment::Scratch ? 1 : 2, "the address");
    if(!(op->flags & NO_ADDRESS))
        must_be_defined(w, op, op->src[0].code, mask, "the address");
    if constexpr(S == Segment::Scratch)
    {
        resolve_scratch(w, op, access, bytes, mask, out);
        return 0;
    }
    add_addresses(w, op, mask, out);
    uint64_t global = mask;
    if constexpr(S == Segment::Flat)
    {
        must_be_aligned(w, op, access, 0, out.d, mask, bytes); // of LDS and scratch, too
        global = resolve_apertures(w, op, access, bytes, mask, out);
    }
    check_lanes(w, op, access, out.d, global, bytes);
    if(w.group->recorder != nullptr) [[unlikely]]
        w.group->recorder->touch(0, out.d, global, bytes);
    if(w.group->races != nullptr) [[unlikely]]
        w.group->races->touch(access, 0, out.d, global, bytes);
    const uint64_t traffic = bytes * static_cast<uint64_t>(std::popcount(mask));
    (access == Access::Load ? w.group->traffic.global_load_bytes : w.group->traffic.global_store_bytes) += traffic;
    return global;
}

// A lane of FLAT may go to LDS: it is counted as both.
template <Segment S>
constexpr Counter COUNTER = S == Segment::Flat ? Counter::Flat : Counter::Vector;

// ToLds: to LDS, a byte or a short of each lane as a dword.
template <Segment S, unsigned Dwords, bool ToLds = false>
const MicroOp* load(Wave& w, const MicroOp* op)
{
    const uint64_t mask = w.exec();
    Addresses at;
    Rows data;
    const uint64_t global = resolve<S>(w, op, Access::Load, 4 * Dwords, mask, at);
    gather<Dwords>(static_cast<const uint8_t*>(nullptr), at.d, mask, data.d);
    doubt_unwritten(w, 0, at.d, global, 4 * Dwords, data.d);
    if constexpr(ToLds)
        load_to_lds(w, op, op->offset, data.d, Dwords);
    else
        deliver(w, op, COUNTER<S>, data.d, Dwords, mask);
    return advance(op);
}

template <Segment S, Narrow Kind, Part Where, bool ToLds = false>
const MicroOp* load_part(Wave& w, const MicroOp* op)
{
    const uint64_t mask = w.exec();
    Addresses at;
    Rows data;
    const uint64_t global = resolve<S>(w, op, Access::Load, narrow_bytes(Kind), mask, at);
    gather_narrow<Kind>(static_cast<const uint8_t*>(nullptr), at.d, mask, data.d[0]);
    doubt_unwritten(w, 0, at.d, global, narrow_bytes(Kind), data.d);
    if constexpr(ToLds)
        load_to_lds(w, op, op->offset, data.d, 1);
    else
        deliver(w, op, COUNTER<S>, data.d, 1, mask, Where);
    return advance(op);
}

template <Segment S, unsigned Dwords>
const MicroOp* store(Wave& w, const MicroOp* op)
{
    const uint64_t mask = w.exec();
    Addresses at;
    const uint64_t global = resolve<S>(w, op, Access::Store, 4 * Dwords, mask, at);
    const uint32_t* rows[Dwords];
    for(unsigned i = 0; i < Dwords; ++i)
        rows[i] = w.v[op->src[2].code + i];
    if(w.twin != nullptr) [[unlikely]]
        compare_stored(w, op, op->src[2].code, Dwords, global, at.d);
    judge_lds_store<S>(w, op, at, mask & ~global, 4 * Dwords, rows);
    lanes_must_agree_in_memory(w, op, at.d, mask, 4 * Dwords, rows);
    scatter<Dwords>(static_cast<uint8_t*>(nullptr), at.d, mask, rows);
    if(w.twin != nullptr) [[unlikely]]
        unwrite_padding(w, op->src[2].code, Dwords, global, at.d);
    issue(w, COUNTER<S>);
    return advance(op);
}

template <Segment S, unsigned Bytes, unsigned Shift>
const MicroOp* store_part(Wave& w, const MicroOp* op)
{
    const uint64_t mask = w.exec();
    Addresses at;
    const uint64_t global = resolve<S>(w, op, Access::Store, Bytes, mask, at);
    const uint16_t data   = op->src[2].code;
    must_be_defined(w, op, data, global, "what is stored", part_bits(Bytes, Shift));
    const uint32_t* row = w.v[data];
    judge_lds_store<S>(w, op, at, mask & ~global, Bytes, &row, Shift);
    lanes_must_agree_in_memory(w, op, at.d, mask, Bytes, &row, Shift);
    scatter_narrow<Bytes, Shift>(static_cast<uint8_t*>(nullptr), at.d, mask, row);
    if(w.twin != nullptr) [[unlikely]]
        end_marks(w, global, 0, at.d, Bytes);
    issue(w, COUNTER<S>);
    return advance(op);
}

// What memory held goes to `old`; Data: registers that hold the operands, in units of T; Reads: a swap does not.
template <Segment S, typename T, unsigned Data, auto ChangeLanes, bool Reads = true>
const MicroOp* change(Wave& w, const MicroOp* op)
{
    constexpr unsigned DWORDS = sizeof(T) / 4;
    const uint64_t mask       = w.exec();
    const uint16_t data       = op->src[2].code;
    Addresses at;
    const uint64_t global = resolve<S>(w, op, Access::Atomic, sizeof(T), mask, at);
    for(unsigned i = 0; i < Data * DWORDS; ++i)
        must_be_defined(w, op, data + i, global, "the atomic's operand");
    if(Reads)
        must_be_written(w, op, 0, at.d, global, sizeof(T));
    Rows old = {};
    const HostMode mode(w.mxcsr, MXCSR_NEAREST); // memory follows no MODE
    ChangeLanes(nullptr, at.d, mask, &w.v[data], old);
    deliver_old(w, op, COUNTER<S>, old, DWORDS);
    return advance(op);
}

template <Segment S, typename T, auto F, bool Reads>
constexpr Handler atomic = change<S, T, 1, modify_lanes<T, modify<T, F>, uint64_t>, Reads>;
// The data are the new value, then the one compared with.
template <Segment S, typename T>
constexpr Handler compare_swap = change<S, T, 2, compare_swap_lanes<T, uint64_t>>;

#define ATOMIC_IN(SEGMENT, PREFIX, NAME, T, ...) \
    {PREFIX NAME,                                \
     atomic<Segment::SEGMENT, T, ([](T m, T d) -> T { return static_cast<T>(__VA_ARGS__); }), atomic_reads(NAME)>},
#define FLAT_ATOMIC(NAME, T, ...)   ATOMIC_IN(Flat, "flat_atomic_", NAME, T, __VA_ARGS__)
#define GLOBAL_ATOMIC(NAME, T, ...) ATOMIC_IN(Global, "global_atomic_", NAME, T, __VA_ARGS__)

#define SEGMENT(PREFIX, S)                                                                                        \
    {PREFIX "load_dword", load<S, 1>}, {PREFIX "load_dwordx2", load<S, 2>}, {PREFIX "load_dwordx3", load<S, 3>},  \
        {PREFIX "load_dwordx4", load<S, 4>}, {PREFIX "load_ubyte", load_part<S, Narrow::Unsigned8, Part::Whole>}, \
        {PREFIX "load_sbyte", load_part<S, Narrow::Signed8, Part::Whole>},                                        \
        {PREFIX "load_ushort", load_part<S, Narrow::Unsigned16, Part::Whole>},                                    \
        {PREFIX "load_sshort", load_part<S, Narrow::Signed16, Part::Whole>},                                      \
        {PREFIX "load_ubyte_d16", load_part<S, Narrow::Unsigned8, Part::Low>},                                    \
        {PREFIX "load_ubyte_d16_hi", load_part<S, Narrow::Unsigned8, Part::High>},                                \
        {PREFIX "load_sbyte_d16", load_part<S, Narrow::Signed8, Part::Low>},                                      \
        {PREFIX "load_sbyte_d16_hi", load_part<S, Narrow::Signed8, Part::High>},                                  \
        {PREFIX "load_short_d16", load_part<S, Narrow::Unsigned16, Part::Low>},                                   \
        {PREFIX "load_short_d16_hi", load_part<S, Narrow::Unsigned16, Part::High>},                               \
        {PREFIX "store_dword", store<S, 1>}, {PREFIX "store_dwordx2", store<S, 2>},                               \
        {PREFIX "store_dwordx3", store<S, 3>}, {PREFIX "store_dwordx4", store<S, 4>},                             \
        {PREFIX "store_byte", store_part<S, 1, 0>}, {PREFIX "store_short", store_part<S, 2, 0>},                  \
        {PREFIX "store_byte_d16_hi", store_part<S, 1, 16>}, {PREFIX "store_short_d16_hi", store_part<S, 2, 16>},

constexpr Entry ENTRIES[] = {
    // clang-format off
    SEGMENT("flat_", Segment::Flat)
    SEGMENT("global_", Segment::Global)
    SEGMENT("scratch_", Segment::Scratch)
    EMU_ATOMICS(FLAT_ATOMIC)
    EMU_ATOMICS(GLOBAL_ATOMIC)
    // clang-format on
    {"global_load_lds_dword", load<Segment::Global, 1, true>},
    {"global_load_lds_dwordx3", load<Segment::Global, 3, true>},
    {"global_load_lds_dwordx4", load<Segment::Global, 4, true>},
    {"global_load_lds_ubyte", load_part<Segment::Global, Narrow::Unsigned8, Part::Whole, true>},
    {"global_load_lds_sbyte", load_part<Segment::Global, Narrow::Signed8, Part::Whole, true>},
    {"global_load_lds_ushort", load_part<Segment::Global, Narrow::Unsigned16, Part::Whole, true>},
    {"global_load_lds_sshort", load_part<Segment::Global, Narrow::Signed16, Part::Whole, true>},
    {"scratch_load_lds_dword", load<Segment::Scratch, 1, true>},
    {"scratch_load_lds_ubyte", load_part<Segment::Scratch, Narrow::Unsigned8, Part::Whole, true>},
    {"scratch_load_lds_sbyte", load_part<Segment::Scratch, Narrow::Signed8, Part::Whole, true>},
    {"scratch_load_lds_ushort", load_part<Segment::Scratch, Narrow::Unsigned16, Part::Whole, true>},
    {"scratch_load_lds_sshort", load_part<Segment::Scratch, Narrow::Signed16, Part::Whole, true>},
    {"flat_atomic_cmpswap", compare_swap<Segment::Flat, uint32_t>},
    {"flat_atomic_cmpswap_x2", compare_swap<Segment::Flat, uint64_t>},
    {"global_atomic_cmpswap", compare_swap<Segment::Global, uint32_t>},
    {"global_atomic_cmpswap_x2", compare_swap<Segment::Global, uint64_t>},
};
} // namespace

std::span<const Entry> flat_entries() { return ENTRIES; }
} // namespace emu
