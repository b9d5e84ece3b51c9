// What the units, the dispatch and the harness of one library of backward kernels know of each
// other. Internal: not exported.
#pragma once

#include "fmha_bwd.hpp"

namespace ckpm {

// The name of every kernel of the library, ended by null.
extern const char* const kernel_names[];
extern const int kernel_count;

// Called by each kernel's host function before it launches: `name` is what dispatch chose for the
// stage (0 dot_do_o, 1 dq_dk_dv, 2 convert_dq).
void note_selected(const char* name, int stage);

} // namespace ckpm
