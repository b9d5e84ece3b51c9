// CK computes with the compiler's own __bf16, so HIP's class types for bfloat16 are not needed.
#pragma once

#include "hip/hip_runtime.h"
