#pragma once

#include <cstdio>
#include <cstdlib>
#include <hip/hip_runtime.h>

// End a program with the name of the error, as HIP's samples do.
#define HIP_CHECK(call)                                                       \
    do                                                                        \
    {                                                                         \
        const hipError_t status = (call);                                     \
        if(status != hipSuccess)                                              \
        {                                                                     \
            std::fprintf(stderr, "%s: %s\n", #call, hipGetErrorName(status)); \
            std::exit(3);                                                     \
        }                                                                     \
    } while(false)
