// CK computes with the compiler's own _Float16, so HIP's class types for half precision are not
// needed.
#pragma once

#include "hip/hip_runtime.h"
