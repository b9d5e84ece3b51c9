// HIP language and runtime for the embedded toolchain: what a full ROCm gives, reduced to what
// attention kernels use.
#pragma once

#include "hip/detail/device_functions.h"
#include "hip/detail/device_math.h"
#include "hip/detail/qualifiers.h"
#include "hip/detail/vectors.h"
#include "hip/hip_runtime_api.h"
#include "hip/hip_version.h"

// Not used here: ROCm's header brings these along, and sources have come to rely on it.
#include <algorithm>
#include <assert.h>
#include <sstream>
#include <string>
