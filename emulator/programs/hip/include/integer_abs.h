// For the embedded toolchain alone, before every other header: abs of integers in device code,
// which ROCm's headers have and kernels' headers don't.
#pragma once

#include <cstdlib>
#include <hip/hip_runtime.h>

__device__ inline int abs(int x) { return x < 0 ? -x : x; }
__device__ inline long abs(long x) { return x < 0 ? -x : x; }

namespace std {

using ::abs; // once more: the C++ library took what it saw when it was first included

}
