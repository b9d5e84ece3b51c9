// Numbers of the timing model: cycles, widths and depths of one compute unit. Their values and
// sources are in reports/timing/machine.yaml.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace emu {
struct Numbers
{
    uint32_t issue_cycles; // from one instruction of a wave to its next
    // How long an instruction keeps a SIMD's vector port.
    uint32_t vector_cycles, transcendental_cycles, permlane_swap_cycles, packed_cycles;
    uint32_t vector_result_cycles;  // from a vector instruction's issue until another reads its result
    uint32_t matrix_read_cycles;    // an MFMA keeps the vector port while it reads its factors
    uint32_t matrix_result_cycles;  // from the end of its passes until its result can be read
    uint32_t packed_after_matrix;   // from the end of a wave's MFMA until its packed instruction
    uint32_t packed_apart;          // 0: packed instructions run beside MFMAs of other waves
    uint32_t branch_cycles;         // a branch that is taken
    uint32_t barrier_cycles;        // from the last wave's arrival until all go on
    uint32_t lds_read_bytes;        // a cycle and compute unit
    uint32_t lds_write_bytes;       // the same
    uint32_t lds_pair_bytes;        // a cycle between LDS and a pair of SIMDs
    uint32_t lds_queue;             // instructions that wait for LDS, a pair of SIMDs
    uint32_t lds_address_cycles;    // until LDS has the addresses
    uint32_t lds_return_cycles;     // from the end of the service until the data are there
    uint32_t memory_latency;        // of a vector load or store
    uint32_t memory_bytes;          // a cycle, through the vector L1
    uint32_t memory_line_cycles;    // that a cache line takes there, however little of it is wanted
    uint32_t memory_in_flight;      // bytes of loads that a compute unit has under way
    uint32_t scalar_memory_latency; // of a scalar load
    // The request.
    uint32_t workgroups;                                 // copies of the recorded one, resident together
    uint32_t start_offset;                               // cycles from the start of one copy to the start of the next
    uint32_t timeline_from, timeline_bin, timeline_bins; // cycles of the first bin and of each
};

// Of SIMDs; wave w of a workgroup runs on SIMD w % SIMDS.
inline constexpr unsigned SIMDS = 4;

// The numbers by their names. Throws std::invalid_argument: one is missing, unknown or 0 where that
// makes no sense.
Numbers numbers_of(const char* const* names, const uint64_t* values, size_t count);
} // namespace emu
