// Settings of the emulated device: one global, changed through emu_set_option (hip/device_api.h) between
// launches.
#pragma once

#include <cstdint>
#include <string>

namespace emu {
struct Options
{
    int64_t arch        = 950; // 90a is 910
    int64_t cu_count    = 256;
    int64_t threads     = 1; // host threads that run workgroups
    int64_t granularity = 1; // of the check of addresses: 1 byte-exact, 4096 pages
    // Fault if any page of a buffer's range is unmapped; -1: on for gfx950 only.
    int64_t srd_range_rule = -1;
    int64_t poison         = 0; // registers, LDS and scratch start as NaN patterns
    int64_t late_loads     = 0; // asynchronous results land at the s_waitcnt that covers them
    int64_t lds_races      = 0; // report unordered LDS accesses of two waves between barriers
    // Report uses of registers, LDS and scratch that was never written (twin.h, lds_races.h).
    int64_t uninitialised = 0;
    // With it: of device memory, too (memory.h, set_marks).
    int64_t uninitialised_memory = 0;
    int64_t leaks                = 0; // report what a program has not freed when it ends
    int64_t heap                 = 0; // check what kernels and the host free, and malloc()'s ends (device_heap.h)
    int64_t alignment            = 0; // report misaligned atomics and scalar loads
    int64_t unaligned            = 0; // all accesses that are not aligned to their size, at most 4
    int64_t barriers             = 0; // report barriers in divergent control flow, and different ones
    // With late_loads: reads of LDS under way are spoilt by what writes over them (pending.h).
    int64_t late_lds_reads = 0;
    // A wave that waits for memory lets the others go on before the results land.
    int64_t interleaved = 0;
    // Report unordered accesses of two waves to device memory (global_races.h): on one host thread.
    int64_t global_races = 0;
    // Report operations of two streams that use the same bytes in no order (stream_order.h).
    int64_t stream_order = 0;
    // A read outside of the workgroup's LDS is a fault; 0: it is reported once, and reads zero.
    int64_t lds_bounds       = 1;
    int64_t wave_order       = 0; // 0 forward, 1 backward, 2 and up: seed of a shuffle
    int64_t max_instructions = 0; // of one wave; 0: no limit. A wave that exceeds it is a fault
    // Trace of one wave: written instructions go to trace_file unless that is empty.
    std::string trace_kernel;
    std::string trace_file;
    int64_t trace_workgroup = 0; // linear index
    int64_t trace_wave      = 0;
    // Record what the waves of a workgroup execute, for the timing model (timing/recorder.h).
    std::string record_kernel;
    int64_t record_workgroup = -1; // linear index; -1: none; -2: that of the most instructions
    int64_t record_only      = 0;  // run no other workgroup
    // Sums of MFMA as gfx942 makes them (ops/matrix.cpp); for that arch alone, and much slower.
    int64_t exact_mfma = 0;
    // Report instructions on whose results sources disagree.
    int64_t open_rules = 0;
    // Which launches are checked (filter.h): of kernels with this in their name, and of those all
    // but the first ones, or some.
    std::string checked_kernel;
    int64_t launch_skip = 0, launch_count = 0; // 0: all
    std::string suppressions;                  // "check part of a name;.."

    bool srd_range() const { return srd_range_rule < 0 ? arch == 950 : srd_range_rule != 0; }
};

Options& options();
} // namespace emu
