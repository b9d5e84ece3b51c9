// Buffer loads by all lanes that nothing watches (fast.h), of which every byte is in range and
// mapped. Rows of K and V lie scattered over more memory than the host's caches hold: what counts
// is how many of them the host fetches at a time.
#pragma once

#include "isa/access.h"
#include "run/program.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace emu {
// Lane l's bytes are at base + offset[l].
struct WholeLoad
{
    const uint8_t* base;
    const uint32_t* offset;
};

// The host's caches get what all lanes of a load want; neighbours of four mostly share a line.
inline void prefetch(const WholeLoad& load)
{
    for(unsigned l = 0; l < LANES; l += 4)
        __builtin_prefetch(place(load.base, load.offset[l]));
}

// The same for the next loads of a run of them, so that not every one waits for its own. Their
// addresses may change until then, so that this is a guess.
inline void prefetch_run(const Wave& w, const MicroOp* op, const uint8_t* base)
{
    constexpr int MOST = 7;
    if(op - w.first < 2 || op[-1].handler == op->handler || op[-2].handler == op->handler)
        return;
    const MicroOp* const last = &w.code->ops.back();
    for(const MicroOp* next = op + 1; next <= std::min(op + MOST, last); ++next)
        if(next->handler == op->handler && next->src[1].code == op->src[1].code && next->flags == op->flags)
            prefetch({base, w.v[next->src[0].code]});
        else if(static_cast<Kind>(next->kind) != Kind::Other) // s_nop
            return;
}

// Loads straight to LDS that follow one another: they are fetched together and land together, in
// their order.
template <unsigned Dwords>
class LdsRun
{
public:
    bool full() const { return count_ == MOST; }
    void add(uint8_t* to, const WholeLoad& from)
    {
        prefetch(from);
        Load& load = loads_[count_++];
        load.to    = to;
        load.base  = from.base;
        std::memcpy(load.offset, from.offset, sizeof load.offset);
    }
    void land() const
    {
        for(unsigned i = 0; i < count_; ++i)
            for(unsigned l = 0; l < LANES; ++l)
                std::memcpy(loads_[i].to + l * lds_dma_stride(Dwords), place(loads_[i].base, loads_[i].offset[l]),
                            4 * Dwords);
    }

private:
    static constexpr unsigned MOST = 4;
    struct Load
    {
        alignas(64) uint32_t offset[LANES];
        const uint8_t* base;
        uint8_t* to;
    };
    Load loads_[MOST];
    unsigned count_ = 0;
};

// Run instructions that have nothing to do with memory or LDS, from `op` on; `op` becomes the next
// one. False: there is none, or the wave is looked at after each instruction.
inline bool run_apart(Wave& w, const MicroOp*& op)
{
    constexpr int MOST = 8; // else what was fetched might leave the caches again
    for(int i = 0; w.unseen && i < MOST; ++i)
    {
        const auto kind = static_cast<Kind>(op->kind);
        if(kind != Kind::Valu && kind != Kind::Salu && kind != Kind::Wait)
            return true;
        ++w.counts[op - w.first];
        op = op->handler(w, op);
        if(op == nullptr)
            return false;
    }
    return w.unseen;
}
} // namespace emu
