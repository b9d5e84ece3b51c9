// Addresses in LDS, checked and counted, and its atomics.
#pragma once

#include "checks/checks.h"
#include "isa/access.h"
#include "isa/atomics.h"

#include <algorithm>
#include <bit>

namespace emu {

struct alignas(64) Offsets
{
    uint32_t d[LANES];
};

// Byte addresses of all lanes, checked against the workgroup's LDS.
inline void lds_addresses(Wave& w,
                          const MicroOp* op,
                          uint32_t offset,
                          unsigned bytes,
                          uint64_t mask,
                          LdsUse use,
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
    if(mask != 0 && (most > size || size - most < bytes)) [[unlikely]]
    {
        for(unsigned l = 0; l < LANES; ++l)
            if(mask >> l & 1 && (out.d[l] > size || size - out.d[l] < bytes))
                raise_memory(w,
                             op,
                             use == LdsUse::Read ? Access::Load : Access::Store,
                             l,
                             out.d[l],
                             bytes,
                             FaultKind::Lds);
    }
    if(w.group->shadow != nullptr) [[unlikely]]
        for(unsigned l = 0; l < LANES; ++l)
            if(mask >> l & 1)
                check_lds(w, op, l, out.d[l], bytes, use);
    if(w.group->banks != nullptr)
        w.group->traffic.lds_bank_conflicts += w.group->banks->of(op, out.d, mask, bytes, use);
    const uint64_t traffic = static_cast<uint64_t>(std::popcount(mask)) * bytes;
    (use == LdsUse::Read ? w.group->traffic.lds_load_bytes : w.group->traffic.lds_store_bytes) +=
        traffic;
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
    lds_addresses(w, op, static_cast<uint32_t>(op->offset), sizeof(T), mask, LdsUse::Write, at);
    modify_lanes<T, modify_lds<T, F>>(w.group->lds, at.d, mask, &w.v[op->src[1].code], old);
    deliver_old(w, op, Counter::Lds, old, sizeof(T) / 4);
    return advance(op);
}

} // namespace emu
