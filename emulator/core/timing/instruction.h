// What the timing model needs to know of a micro-op, worked out once for all its executions.
#pragma once

#include "isa/microop.h"
#include "timing/numbers.h"

#include <cstdint>
#include <string>
#include <vector>

namespace emu {
// Where an instruction is executed, and what decides when.
enum class Unit : uint8_t
{
    Vector,
    Matrix,
    Lds,
    Memory,
    Scalar,
    ScalarMemory,
    Branch,
    Wait,
    Barrier,
    Idle, // s_nop, s_sleep, s_setprio and their kin: only the wave itself
    End
};

// Registers of the vector file in a row.
struct RegisterRange
{
    uint16_t first;
    uint16_t count;
};

struct Instruction
{
    Unit unit              = Unit::Idle;
    bool packed            = false; // never runs beside an MFMA
    bool load              = false; // memory: counts against memory_in_flight
    bool to_lds            = false;
    bool write             = false; // LDS: a write
    bool flat              = false; // counted by vmcnt and lgkmcnt
    bool transcendental    = false;
    int8_t priority        = -1;    // s_setprio
    uint8_t reads          = 0;     // of `read`
    uint16_t port_cycles   = 0;     // of the vector port
    uint16_t matrix_cycles = 0;     // of the matrix unit
    uint32_t slot_cycles   = 0;     // of the wave, if nothing stalls it
    uint8_t vmcnt = 0, lgkmcnt = 0; // s_waitcnt
    RegisterRange read[4];
    RegisterRange result{0, 0}; // that this instruction itself writes: VALU and MFMA
    RegisterRange addend{0, 0}; // MFMA
};

std::vector<Instruction> instructions_of(const std::vector<MicroOp>& ops, const std::vector<std::string>& text,
                                         const Numbers& numbers);
} // namespace emu
