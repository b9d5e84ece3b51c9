// Addresses in LDS, checked and counted, and its atomics.
#pragma once

#include "checks/lds_races.h"
#include "isa/access.h"
#include "isa/atomics.h"

#include <algorithm>
#include <bit>

namespace emu {
struct alignas(64) Offsets
{
    uint32_t d[LANES];
};

inline Access access_of(LdsUse use)
{
    return use == LdsUse::Read ? Access::Load : use == LdsUse::Write ? Access::Store : Access::Atomic;
}

// A lane's use of bytes of LDS, for the checks.
inline void watch_lds(Wave& w, const MicroOp* op, unsigned lane, uint32_t address, uint32_t bytes, LdsUse use)
{
    if(w.group->shadow != nullptr) [[unlikely]]
        check_lds(w, op, lane, address, bytes, use);
    if(w.group->late_reads && use != LdsUse::Read) [[unlikely]]
        spoil_reads(w, op, lane, address, bytes, Writer::Wave);
}
// After all lanes.
inline void end_watch(const Wave& w, const MicroOp* op)
{
    if(w.group->shadow != nullptr) [[unlikely]]
        report_lds_race(w, op);
}

// The lanes of `mask` whose bytes lie in the workgroup's LDS. Throws LaunchFault where one does
// not, except for reads without the option lds_bounds, of which the first of a kernel is reported:
// they read zero (CDNA3 ISA document, "LDS access").
uint64_t lanes_in_lds(Wave& w, const MicroOp* op, const uint32_t* addresses, unsigned bytes, uint64_t mask, LdsUse use);

// Byte addresses of all lanes. Returns the lanes of `mask` that lie in the workgroup's LDS.
inline uint64_t lds_addresses(Wave& w, const MicroOp* op, uint32_t offset, unsigned bytes, uint64_t mask, LdsUse use,
                              Offsets& out)
{
    must_be_defined(w, op, op->src[0].code, mask, "the LDS address");
    const uint32_t* base = w.v[op->src[0].code];
    uint32_t most        = 0;
    for(unsigned l = 0; l < LANES; ++l)
        out.d[l] = base[l] + offset;
    if(mask == ALL_LANES)
        for(unsigned l = 0; l < LANES; ++l)
            most = std::max(most, out.d[l]);
    else
        for(unsigned l = 0; l < LANES; ++l)
            if(mask >> l & 1)
                most = std::max(most, out.d[l]);
    const uint32_t size = w.group->lds_bytes;
    uint64_t within     = mask;
    if(mask != 0 && (most > size || size - most < bytes)) [[unlikely]]
        within = lanes_in_lds(w, op, out.d, bytes, mask, use);
    // Compilers choose 8 and 16 bytes at once if they may rely on the alignment (LLVM, SIISelLowering.cpp).
    must_be_aligned(w, op, access_of(use), 0, out.d, within, bytes, 16);
    if(w.group->shadow != nullptr || w.group->late_reads) [[unlikely]]
    {
        for(unsigned l = 0; l < LANES; ++l)
            if(within >> l & 1)
                watch_lds(w, op, l, out.d[l], bytes, use);
        if(use != LdsUse::Write) // else when it is known what is written
            end_watch(w, op);
    }
    if(w.group->banks != nullptr)
        w.group->traffic.lds_bank_conflicts += w.group->banks->of(op, out.d, mask, bytes, use);
    const uint64_t traffic = static_cast<uint64_t>(std::popcount(mask)) * bytes;
    (use == LdsUse::Read ? w.group->traffic.lds_load_bytes : w.group->traffic.lds_store_bytes) += traffic;
    return within;
}

// Whether the lanes of `mask` write to LDS what is there.
inline bool is_there(const Wave& w, const Offsets& at, uint64_t mask, unsigned bytes, const uint32_t* const* rows,
                     unsigned shift)
{
    for(unsigned l = 0; l < LANES; ++l)
        for(unsigned i = 0; mask >> l & 1 && i < bytes; ++i)
            if(w.group->lds[at.d[l] + i] != static_cast<uint8_t>(rows[i / 4][l] >> (shift + 8 * (i % 4))))
                return false;
    return true;
}

// What the lanes of `mask` write to LDS, after lds_addresses. Waves that write the same are in no race.
inline void lanes_must_agree_in_lds(const Wave& w, const MicroOp* op, const Offsets& at, uint64_t mask, unsigned bytes,
                                    const uint32_t* const* rows, unsigned shift = 0)
{
    LdsShadow* shadow = w.group->shadow;
    if(shadow == nullptr) [[likely]]
        return;
    if(shadow->race && shadow->written_over && is_there(w, at, shadow->racing, bytes, rows, shift))
    {
        shadow->forget();
    }
    report_lds_race(w, op);
    lanes_must_agree(w, op, at.d, mask, bytes, rows, shift);
}

// The bytes that a read takes, of lanes of `mask`: kept with late reads alone.
inline void take(const Wave& w, LdsSource& source, const Offsets& at, unsigned bytes, uint64_t mask)
{
    if(!w.group->late_reads) [[likely]]
        return;
    source.chunk = bytes;
    for(uint32_t l = 0; l < LANES; ++l)
        if(mask >> l & 1)
            source.places.push_back({at.d[l], static_cast<uint8_t>(l)});
}

// Land what a read of LDS brought, or queue it with the bytes that it reads (late loads).
inline void deliver_read(Wave& w, const MicroOp* op, const uint32_t (*data)[LANES], unsigned count, uint64_t mask,
                         LdsSource source, Part part = Part::Whole)
{
    if(!w.group->late) [[likely]]
        return deliver(w, op, Counter::Lds, data, count, mask, part);
    PendingWrite write = pending_load(op, data, count, mask, part);
    write.source       = std::move(source);
    issue(w, Counter::Lds, std::move(write));
}

// A wave's own reads see what it wrote, whether it waited for that or not: while this lives.
class OwnWrites
{
public:
    explicit OwnWrites(Wave& wave) : wave_(wave)
    {
        if(wave_.group->late) [[unlikely]]
            show_own_writes(wave_);
    }
    ~OwnWrites()
    {
        if(wave_.group->late) [[unlikely]]
            hide_own_writes(wave_);
    }
    OwnWrites(const OwnWrites&)            = delete;
    OwnWrites& operator=(const OwnWrites&) = delete;

private:
    Wave& wave_;
};

// *address = F(*address, operand). No other thread has this LDS, and it need not be aligned.
template <typename T, auto F>
T modify_lds(void* address, T operand)
{
    T before;
    std::memcpy(&before, address, sizeof(T));
    const T after = F(before, operand);
    std::memcpy(address, &after, sizeof(T));
    return before;
}

// LDS = F(LDS, data), lane by lane in ascending order; with RETURN the old value goes to the
// destination.
template <typename T, auto F>
const MicroOp* lds_atomic(Wave& w, const MicroOp* op)
{
    const uint64_t mask = w.exec();
    Offsets at;
    Rows old;
    finish_own_writes(w);
    lds_addresses(w, op, static_cast<uint32_t>(op->offset), sizeof(T), mask, LdsUse::Atomic, at);
    // LDS rounds to nearest; MODE decides on subnormals, but of f64.
    const HostMode mode(w.mxcsr, std::is_same_v<T, double> ? MXCSR_NEAREST : w.mxcsr & ~MXCSR_ROUND.mask());
    modify_lanes<T, modify_lds<T, F>>(w.group->lds, at.d, mask, &w.v[op->src[1].code], old);
    deliver_old(w, op, Counter::Lds, old, sizeof(T) / 4);
    return advance(op);
}
} // namespace emu
