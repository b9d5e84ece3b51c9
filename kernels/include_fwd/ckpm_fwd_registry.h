// What the units, the dispatch and the harness of one library of fwd know of each other. Internal:
// not exported.
#pragma once

#include "fmha_fwd.hpp"

namespace ckpm {

// The name of every kernel of the library, ended by null: in dispatch order, those of a second
// stage last.
extern const char* const kernel_names[];
extern const int kernel_count;

// Called by each kernel's host function before it launches: `name` is what dispatch chose for the
// stage (0, or 1 for the combine stage of split-KV).
void note_selected(const char* name, int stage = 0);

} // namespace ckpm
