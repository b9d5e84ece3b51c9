// A comparison, a minimum or maximum, or a test for zero of a value that was never written may give
// either result (twin.h). The twin takes the other result than its wave, so the two differ where the
// result is used.
//
// Bytes that differ between wave and twin are unknown, of masks of lanes bits. Integers are known to
// lie in between; a float with an unknown bit is unknown.
#pragma once

#include "isa/wave.h"

namespace emu {
// Before an instruction: what it leaves open. Lanes or, of a scalar instruction, SCC as bit 0.
struct Undecided
{
    enum class Result : uint8_t
    {
        None,
        Lanes, // bits of a scalar pair
        Exec,  // and of EXEC
        Scc,
        NotZero, // SCC, of the scalar result
        Vcc,     // where this jumps
        Row,     // dwords of a row
        Scalar   // a scalar register
    } result       = Result::None;
    uint64_t lanes = 0;
    uint32_t other[LANES]; // Row, Scalar: what the lanes may have instead of `known`
    uint32_t known[LANES];
};
void find_undecided(const Wave& wave, const Wave& twin, const MicroOp* op, Undecided& open);
// After it, in the twin. False: a jump depends on it.
bool part_twin(const Wave& wave, Wave& twin, const MicroOp* op, const Undecided& open);
} // namespace emu
