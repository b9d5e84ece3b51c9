// Running one kernel launch.
#pragma once

#include "run/program.h"

#include <cstddef>
#include <cstdint>

namespace emu {
// Whether all workgroups of a launch are there from the start (a cooperative launch). In any other
// they run one after the other on a host thread; those that wait for others run in turns in the
// end.
enum class Together
{
    No,
    Yes
};

struct Dim3
{
    uint32_t x = 1, y = 1, z = 1;
};

// Run all workgroups of a launch on options().threads host threads and return when they are done.
// The device holds `resident` of them at once: more never wait for each other.
//
// `explicit_arguments` are the kernel's explicit arguments laid out as in its kernarg segment (see
// Kernel::arguments); hidden arguments and the dispatch packet are filled in here. A kernel with a
// stack of unknown depth has at least `dynamic_stack` bytes of scratch in each lane. Counters are
// added to counters.h's. Throws LaunchFault (fault.h) when a wave faults, meets an unknown
// instruction or a check fails; std::invalid_argument when the launch is impossible: block larger
// than the kernel's bound, more LDS than the arch has, too few argument bytes.
void launch(const Kernel& kernel, Dim3 grid_in_workgroups, Dim3 block, uint32_t dynamic_lds,
            const void* explicit_arguments, size_t bytes, uint32_t dynamic_stack, uint64_t resident, Together together);
} // namespace emu
