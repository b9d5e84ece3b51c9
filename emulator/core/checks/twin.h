// Uninitialised reads (option uninitialised): each wave runs twice in lockstep, the second time as
// its twin, which started with other contents than POISON in the registers, LDS and scratch that
// were never written. What both compute alike does not depend on them.
//
// Copying, selecting away or masking out what was never written is not a mistake, and compilers do
// it. A mistake is a use: values that differ between wave and twin in an address, in data that
// global memory gets, in a resource, in EXEC or MODE, or in where execution goes. The fault names
// the instruction that uses the value. Results of loads that were not waited for (option
// late_loads) differ too, so that they are found in the same way.
//
// With the option uninitialised_memory the twin finds other values in device memory that was never
// written, too. It is told by its content (memory.h, set_marks), dword by dword.
//
// What comparisons decide with such values is open (undecided.h), and so is what a shuffle
// (ds_bpermute) takes from a lane that is off, where the hardware gives 0.
//
// Not found: a value of which both patterns make the same in arithmetic, and what an atomic reads.
#pragma once

#include "isa/wave.h"

namespace emu {
// What a twin holds where its wave holds POISON: finite numbers of both signs in every format, no
// two alike.
constexpr uint32_t twin_poison(uint32_t place)
{
    uint32_t mixed = (place + 1) * 0x9e3779b1u;
    mixed ^= mixed >> 15;
    mixed *= 0x85ebca77u;
    mixed ^= mixed >> 13;
    return (mixed & 0x807f807f) | 0x48004800;
}

// Registers as assembly has them: of a row, of a scalar code.
std::string name_of_row(unsigned row);
std::string name_of_scalar(unsigned code);

// Execute one micro-op on a wave and its twin. Throws LaunchFault where they part.
const MicroOp* step_both(Wave& wave, const MicroOp* op);

[[noreturn]] void raise_uninitialised(const Wave& wave, const MicroOp* op, unsigned lane, const std::string& what);
void compare_lanes(const Wave& wave, const MicroOp* op, unsigned row, uint64_t mask, uint32_t bits, const char* what);
void compare_scalars(const Wave& wave, const MicroOp* op, uint16_t code, unsigned count, const char* what);
// Of a store from `row` on. Padding of a copied structure may be unknown: a dword that was never
// written, after a known dword in the same 8 or 16 bytes. After the store that place is as
// unwritten as what was copied.
void compare_stored(const Wave& wave, const MicroOp* op, unsigned row, unsigned dwords, uint64_t mask,
                    const uint64_t* addresses);
// After a store of less than a dword: the dword no longer is its mark, even if the stored bytes are the mark's.
void end_marks(const Wave& wave, uint64_t mask, uint64_t base, const uint64_t* offsets, unsigned bytes);
void unwrite_padding(const Wave& wave, unsigned row, unsigned dwords, uint64_t mask, const uint64_t* addresses);

// Handlers call these where a value takes effect, before they act on it. `bits` of each lane's
// dword count.
inline void must_be_defined(const Wave& wave, const MicroOp* op, unsigned row, uint64_t mask, const char* what,
                            uint32_t bits = ~0u)
{
    if(wave.twin != nullptr) [[unlikely]]
        compare_lanes(wave, op, row, mask, bits, what);
}
inline void scalars_must_be_defined(const Wave& wave, const MicroOp* op, uint16_t code, unsigned count,
                                    const char* what)
{
    if(wave.twin != nullptr) [[unlikely]]
        compare_scalars(wave, op, code, count, what);
}
} // namespace emu
