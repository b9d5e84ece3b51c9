// Values that a stream writes to memory, or waits for.
#include "hip/call.h"
#include "hip/graph/capture.h"
#include "hip/memory/memory.h"

#include <cstring>

template <typename T>
static hipError_t write_value(const char* function, hipStream_t stream, void* to, T value)
{
    return hip_call(function, Needs::Device, [&] {
        emu::refuse_on_stream(stream);
        emu::wait_for_device(); // of another stream's value, too
        require(to, hipErrorInvalidValue, "null pointer");
        emu::copy_memory(to, &value, sizeof value, hipMemcpyDefault);
    });
}

// hipStreamWaitValueGte, Eq, And, Nor, as hipStreamWaitValue32 documents them.
template <typename T>
static bool holds(T seen, T value, unsigned condition)
{
    using Signed = std::make_signed_t<T>;
    switch(condition)
    {
        case 0: return static_cast<Signed>(seen - value) >= 0;
        case 1: return seen == value;
        case 2: return (seen & value) != 0;
        case 3: return ~(seen | value) != 0;
        default: throw emu::HipFailure(hipErrorInvalidValue, "no such condition");
    }
}

// All that a stream was given before is done. What waits for a value that a later call writes would
// wait for ever. The emulator refuses such a wait.
template <typename T>
static hipError_t wait_value(const char* function, hipStream_t stream, void* at, T value, unsigned condition, T mask)
{
    bool there             = false;
    const hipError_t error = hip_call(function, Needs::Device, [&] {
        emu::refuse_on_stream(stream);
        emu::wait_for_device();
        require(at, hipErrorInvalidValue, "null pointer");
        T seen;
        emu::copy_memory(&seen, at, sizeof seen, hipMemcpyDefault);
        there = holds(static_cast<T>(seen & mask), value, condition);
    });
    return error == hipSuccess && !there ? emu::report_absent(function) : error;
}

#define VALUES_OF(bits)                                                                                        \
    HIP_API hipError_t hipStreamWriteValue##bits(hipStream_t stream, void* to, uint##bits##_t value, unsigned) \
    {                                                                                                          \
        return write_value("hipStreamWriteValue" #bits, stream, to, value);                                    \
    }                                                                                                          \
    HIP_API hipError_t hipStreamWaitValue##bits(hipStream_t stream, void* at, uint##bits##_t value,            \
                                                unsigned condition, uint##bits##_t mask)                       \
    {                                                                                                          \
        return wait_value("hipStreamWaitValue" #bits, stream, at, value, condition, mask);                     \
    }
VALUES_OF(32)
VALUES_OF(64)
