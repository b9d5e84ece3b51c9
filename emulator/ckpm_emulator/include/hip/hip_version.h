// The HIP release whose ABI these headers follow: struct layouts and symbol names of
// libamdhip64.so.7. Code may test it to choose between language features, so it names a release
// with the same clang generation.
#pragma once

#define HIP_VERSION_MAJOR 7
#define HIP_VERSION_MINOR 1
#define HIP_VERSION_PATCH 0
#define HIP_VERSION (HIP_VERSION_MAJOR * 10000000 + HIP_VERSION_MINOR * 100000 + HIP_VERSION_PATCH)
