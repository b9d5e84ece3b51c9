#pragma once

#include <cstdio>
#include <cstdlib>
#include <hip/hip_runtime.h>

// Ends a program with the failure's name, as samples of HIP do.
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
