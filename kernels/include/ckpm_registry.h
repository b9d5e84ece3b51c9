// What the units, the dispatch and the harness of one library know of each other. Internal: not
// exported.
#pragma once

#include "fmha_fwd.hpp"

namespace ckpm {

using LaunchFunction = float (*)(const ck_tile::stream_config&, fmha_batch_prefill_args);

struct KernelEntry
{
    const char* name;
    LaunchFunction launch;
};

// Every kernel of the library in dispatch order, ended by a null name.
extern const KernelEntry kernel_table[];
extern const int kernel_count;

// Called by each kernel's host function before it launches: `name` is what dispatch chose.
void note_selected(const char* name);

} // namespace ckpm
