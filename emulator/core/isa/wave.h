// State of a wave, its workgroup and its launch while they run.
#pragma once

#include "checks/pending.h"
#include "isa/fields.h"
#include "isa/microop.h"
#include "memory/memory.h"
#include "run/fault.h"
#include "run/launch.h"
#include "run/options.h"

#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <vector>

namespace emu {
inline constexpr unsigned LANES     = 64;
inline constexpr uint64_t ALL_LANES = ~uint64_t{0};

// Pattern of unwritten registers and LDS: a signalling NaN as f32, NaNs as two f16 or two bf16, and
// far from zero as an integer.
inline constexpr uint32_t POISON = 0x7fb37fb3;

// Upper halves of the generic addresses of LDS and scratch (s_mov_b64 from src_shared_base,
// src_private_base). Both lie above the host's user space, so that no allocation can be mistaken
// for them.
inline constexpr uint32_t SHARED_APERTURE = 0x00010000, PRIVATE_APERTURE = 0x00020000;

enum class Stop : uint32_t
{
    Running,
    End,
    Barrier,
    Turn,     // the others' turn
    Elsewhere // a jump out of what was decoded together: to `next` in `elsewhere`
};

// What the counters count beside instructions, by thread.
// clang-format off
#define EMU_TRAFFIC(X) \
    X(global_load_bytes) X(global_store_bytes) X(scalar_load_bytes) X(scratch_bytes) \
    X(lds_load_bytes) X(lds_store_bytes) X(lds_dma_bytes) X(lds_bank_conflicts) \
    X(barriers) X(workgroups) X(waves) X(early_out_workgroups)
// clang-format on
struct Traffic
{
#define X(name) uint64_t name = 0;
    EMU_TRAFFIC(X)
#undef X
};

struct Wave;
// Executions of each micro-op, by what was decoded together.
using Counts = std::map<const Code*, std::vector<uint64_t>>;

struct LdsShadow;    // races, lds_races.h
class BankConflicts; // banks.h
class GlobalRaces;   // global_races.h
struct GroupOrder;   // of it
class Recorder;      // recorder.h
class HostCalls;     // host_calls.h

struct Workgroup
{
    const Kernel* kernel = nullptr;
    uint8_t* lds         = nullptr;
    uint32_t lds_bytes   = 0;
    uint32_t id[3]       = {};
    LdsShadow* shadow    = nullptr; // null unless a check is on
    BankConflicts* banks = nullptr; // null: not counted
    GlobalRaces* races   = nullptr; // null unless the check is on, and in twins
    GroupOrder* order    = nullptr; // of this workgroup, with `races`
    Recorder* recorder   = nullptr; // null unless this workgroup is recorded
    HostCalls* host      = nullptr; // null outside of launches
    Counts* counts       = nullptr; // as `host`
    Traffic traffic;
    RangeCache ranges;
    SrdChecker srds;
    uint32_t arch    = 950;
    bool srd_range   = false;
    bool late        = false;
    bool aligned     = false; // options alignment and unaligned
    bool unaligned   = false; // option unaligned
    bool barriers    = false; // option barriers
    bool lds_bounds  = true;  // option lds_bounds
    bool doubts      = false; // a twin's (twin.h), with the option uninitialised_memory
    bool late_reads  = false; // options late_loads and late_lds_reads
    bool interleaved = false; // option interleaved
    bool exact_mfma  = false; // sums of MFMA as gfx942 makes them
    bool open_rules  = false; // option open_rules
    uint32_t turn    = 0;     // jumps back after which a wave gives way; 0: 2^32 of them
    std::span<Wave> waves;    // all of it
    // With late reads: those of each byte of LDS that are under way.
    std::vector<uint16_t> lds_reads;
};

struct alignas(64) Wave
{
    uint32_t v[512][LANES]; // v0-v255, a0-a255
    uint32_t s[256];        // by source encoding, inline constants included: a scalar source is one load
    const MicroOp* next = nullptr;
    Workgroup* group    = nullptr;
    Stop stop           = Stop::Running;
    uint32_t jumps_left = 0;                      // back, in this turn
    bool gave_way       = false;                  // at the wait where it goes on (interleaved)
    uint32_t number     = 0;                      // in its workgroup
    uint64_t threads    = 0;                      // lanes that it started with
    uint32_t mode       = 0;                      // the MODE register
    uint32_t mxcsr = 0x1f80, mxcsr_wide = 0x1f80; // MODE for f32, and for f64 and f16
    uint8_t* scratch       = nullptr;
    uint32_t scratch_bytes = 0;       // of a lane
    const Code* code       = nullptr; // that runs
    const Code* elsewhere  = nullptr; // that runs next
    uint64_t text_address  = 0;       // of pc 0 of `code`
    uint64_t* counts       = nullptr; // executions of each micro-op of `code`
    const MicroOp* first   = nullptr; // of `code`
    uint64_t instructions  = 0;
    uint64_t time          = 0;       // what s_memtime answered last
    Wave* twin             = nullptr; // twin.h; null unless the check is on
    bool is_twin           = false;
    uint32_t in_flight     = POISON; // what the target of a load holds until the wait
    bool unseen            = false;  // no check reads it between two instructions
    Pending pending;

    uint64_t pair(unsigned code) const
    {
        uint64_t value;
        std::memcpy(&value, &s[code], 8);
        return value;
    }
    void set_pair(unsigned code, uint64_t value) { std::memcpy(&s[code], &value, 8); }
    uint64_t exec() const { return pair(EXEC); }
};

// Let a wave run this code; of a twin nothing is counted.
void enter(Wave& wave, const Code& code);

// A fault at this micro-op: where is filled in; `fault` has the rest.
Fault located(const Wave& wave, const MicroOp* op, Fault fault);
// Stop the launch there.
[[noreturn]] void raise(const Wave& wave, const MicroOp* op, Fault fault);
// The same of a race by these lanes, of which `fault` has one.
[[noreturn]] void raise_race(const Wave& wave, const MicroOp* op, Fault fault, uint64_t lanes);
[[noreturn]] void raise_unknown(const Wave& wave, const MicroOp* op, const char* what);
[[noreturn]] void raise_named(const Wave& wave, const MicroOp* op, FaultKind kind, const char* what);

// Set the MODE register and what follows from it for the host's floating-point unit.
void set_mode(Wave& wave, uint32_t word);
// MXCSR, the host's MODE, with every exception masked: to nearest, subnormals kept. And its fields.
inline constexpr uint32_t MXCSR_NEAREST = 0x1f80, MXCSR_INPUTS_ARE_ZERO = 0x40, MXCSR_FLUSH = 0x8000;
inline constexpr Field MXCSR_ROUND{13, 2};
// Make the host's floating-point unit follow a wave's MODE while it runs.
inline void load_host_mode(uint32_t mxcsr) { __asm__ volatile("ldmxcsr %0" : : "m"(mxcsr) : "memory"); }
uint32_t host_mode();

// Has the host's floating-point unit in the mode `wanted` while this lives, then again in that of before.
class HostMode
{
public:
    HostMode(uint32_t before, uint32_t wanted) : before_(before), differs_(before != wanted)
    {
        if(differs_) [[unlikely]]
            load_host_mode(wanted);
    }
    ~HostMode()
    {
        if(differs_) [[unlikely]]
            load_host_mode(before_);
    }
    HostMode(const HostMode&)            = delete;
    HostMode& operator=(const HostMode&) = delete;

private:
    uint32_t before_;
    bool differs_;
};

// Inline constants of the scalar file (ISA document, source operand encodings 128-248).
void set_inline_constants(Wave& wave);
} // namespace emu
