// Loads that were issued and not yet waited for (option late_loads).
//
// Until then a register holds a pattern. If the pattern is gone when the result lands, something
// wrote to the register that the load writes again: a hazard. Loads of one queue may share one.
//
// The hardware's counters (CDNA3 ISA document, section 4.4): vmcnt counts vector memory operations,
// which return in order; lgkmcnt counts LDS operations, in order among themselves, and scalar
// loads, which return in any order, so that only lgkmcnt(0) covers them. With late loads a result
// lands at the first s_waitcnt that covers it and at no other place. FLAT operations are counted by
// both vmcnt and lgkmcnt, in no order, and done when both have been waited for to 0 (section 10.2.2:
// "the only sensible S_WAITCNT value to use after FLAT instructions is zero").
//
// With the option late_lds_reads, a read of LDS whose bytes are written before its wait brings
// neither the old nor the new ones: by another wave, or by an LDS-DMA of any wave (the wave's own
// ds_write comes after it). Composable Kernel has such reads at barriers, and relies on LDS serving
// them before what comes after the barrier.
//
// So does what ds_write writes: until then other waves find a pattern in these bytes of LDS, and a
// race (lds_races.h). The wave itself reads what it wrote, as LDS serves a wave in order.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

namespace emu {
struct Code;
struct Wave;
struct MicroOp;

enum class Counter : uint8_t
{
    Vector,
    Lds,
    Scalar,
    Flat // vector and LDS, in no order
};

// The bytes of LDS that a read takes: `chunk` bytes at each address, for `spread` lanes from this
// one on.
struct LdsSource
{
    struct Place
    {
        uint32_t address;
        uint8_t lane;
    };
    std::vector<Place> places;
    uint32_t chunk = 0, spread = 1;
};

struct PendingWrite
{
    enum class Target : uint8_t
    {
        Nothing,
        Vector,
        ScalarRegister,
        Lds
    } target       = Target::Nothing;
    uint32_t index = 0;              // row, scalar code
    uint64_t lanes = 0;              // vector: lanes; LDS: lanes that wrote
    std::vector<uint32_t> data;      // rows of 64, scalars, or bytes of LDS in dwords
    std::vector<uint32_t> keep;      // vector: bits of each row that the load does not write (d16)
    std::vector<uint32_t> addresses; // LDS: byte address of each chunk
    uint32_t chunk    = 0;           // LDS: bytes of a chunk
    const MicroOp* op = nullptr;     // registers: the load,
    const Code* code  = nullptr;     // which may be of another function than its wait
    LdsSource source;                // of a read of LDS
    uint64_t number = 0;             // of the wave's operations, from 0
    // FLAT: whether vmcnt(0) has passed, and the number of the first operation after lgkmcnt(0).
    static constexpr uint64_t NEVER = UINT64_MAX;
    bool vm_zero                    = false;
    uint64_t lds_done               = NEVER;
};

struct Pending
{
    std::deque<PendingWrite> vector, lds;
    std::vector<PendingWrite> scalar, flat;
    uint64_t issued = 0; // operations so far

    void clear()
    {
        vector.clear();
        lds.clear();
        scalar.clear();
        flat.clear();
    }
};

// Operations that only count: stores, LDS writes.
void issue(Wave& wave, Counter counter);
void issue(Wave& wave, Counter counter, PendingWrite write);
// Around a wave's own reads of LDS: its pending writes are there, and are not again.
void show_own_writes(Wave& wave);
void hide_own_writes(Wave& wave);
// Let them land for good, and stay counted: before what modifies LDS.
void finish_own_writes(Wave& wave);
// Before bytes of LDS are written: reads under way that take them bring nothing useful, or with the
// option lds_races are faults.
enum class Writer
{
    Wave,
    LdsDma
};
void spoil_reads(Wave& wave, const MicroOp* op, unsigned lane, uint32_t address, uint32_t bytes, Writer writer);
// s_waitcnt: let everything land but the newest `vm` vector and `lgkm` LDS and scalar operations.
void wait(Wave& wave, const MicroOp* op, uint32_t vm, uint32_t lgkm);
// Whether it has anything to land.
bool outstanding(const Pending& pending, uint32_t vm, uint32_t lgkm);
} // namespace emu
