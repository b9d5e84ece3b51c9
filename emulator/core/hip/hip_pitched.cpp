// Memory in rows: pitched allocations, copies and fills of rectangles; and advice about memory.
#include "hip/hip_call.h"
#include "hip/hip_stream.h"

HIP_API hipError_t hipMalloc(void** pointer, size_t bytes);
HIP_API hipError_t hipMemcpy(void* to, const void* from, size_t bytes, hipMemcpyKind kind);
HIP_API hipError_t hipMemset(void* to, int value, size_t bytes);

namespace emu {
namespace {

constexpr size_t PITCH = 256; // rows begin at multiples of it

// Pass on what another HIP function answered.
void check(hipError_t error)
{
    if(error != hipSuccess)
        throw HipFailure(error, emu_last_error());
}

unsigned char* row(void* start, size_t pitch, size_t number)
{
    return static_cast<unsigned char*>(start) + pitch * number;
}

void copy_rows(void* to,
               size_t to_pitch,
               const void* from,
               size_t from_pitch,
               size_t width,
               size_t height,
               hipMemcpyKind kind)
{
    require(width <= to_pitch && width <= from_pitch,
            hipErrorInvalidValue,
            "the rows are wider than their pitch");
    if(width == 0)
        return;
    for(size_t y = 0; y < height; ++y)
        check(hipMemcpy(
            row(to, to_pitch, y), row(const_cast<void*>(from), from_pitch, y), width, kind));
}

} // namespace
} // namespace emu

using emu::check_stream;
using emu::hip_call;
using emu::Needs;
using emu::require;

HIP_API hipError_t hipMallocPitch(void** pointer, size_t* pitch, size_t width, size_t height)
{
    return hip_call("hipMallocPitch", Needs::Device, [&] {
        require(pointer && pitch, hipErrorInvalidValue, "null pointer");
        *pitch = (width + emu::PITCH - 1) / emu::PITCH * emu::PITCH;
        emu::check(hipMalloc(pointer, *pitch * height));
    });
}

HIP_API hipError_t
hipMemAllocPitch(hipDeviceptr_t* pointer, size_t* pitch, size_t width, size_t height, unsigned int)
{
    return hipMallocPitch(pointer, pitch, width, height);
}

HIP_API hipError_t hipMemcpy2D(void* to,
                               size_t to_pitch,
                               const void* from,
                               size_t from_pitch,
                               size_t width,
                               size_t height,
                               hipMemcpyKind kind)
{
    return hip_call("hipMemcpy2D", Needs::Device, [&] {
        emu::copy_rows(to, to_pitch, from, from_pitch, width, height, kind);
    });
}

HIP_API hipError_t hipMemcpy2DAsync(void* to,
                                    size_t to_pitch,
                                    const void* from,
                                    size_t from_pitch,
                                    size_t width,
                                    size_t height,
                                    hipMemcpyKind kind,
                                    hipStream_t stream)
{
    return hip_call("hipMemcpy2DAsync", Needs::Device, [&] {
        check_stream(stream);
        emu::copy_rows(to, to_pitch, from, from_pitch, width, height, kind);
    });
}

static hipError_t set_rows(const char* function,
                           void* to,
                           size_t pitch,
                           int value,
                           size_t width,
                           size_t height,
                           hipStream_t stream)
{
    return hip_call(function, Needs::Device, [&] {
        check_stream(stream);
        require(width <= pitch, hipErrorInvalidValue, "the rows are wider than their pitch");
        for(size_t y = 0; width > 0 && y < height; ++y)
            emu::check(hipMemset(emu::row(to, pitch, y), value, width));
    });
}

HIP_API hipError_t hipMemset2D(void* to, size_t pitch, int value, size_t width, size_t height)
{
    return set_rows("hipMemset2D", to, pitch, value, width, height, nullptr);
}

HIP_API hipError_t
hipMemset2DAsync(void* to, size_t pitch, int value, size_t width, size_t height, hipStream_t stream)
{
    return set_rows("hipMemset2DAsync", to, pitch, value, width, height, stream);
}

static hipError_t copy_between(const char* function,
                               void* to,
                               int to_device,
                               const void* from,
                               int from_device,
                               size_t bytes,
                               hipStream_t stream)
{
    return hip_call(function, Needs::Device, [&] {
        check_stream(stream);
        require(to_device == 0 && from_device == 0,
                hipErrorInvalidDevice,
                "there is one emulated device, number 0");
        emu::check(hipMemcpy(to, from, bytes, hipMemcpyDeviceToDevice));
    });
}

HIP_API hipError_t
hipMemcpyPeer(void* to, int to_device, const void* from, int from_device, size_t bytes)
{
    return copy_between("hipMemcpyPeer", to, to_device, from, from_device, bytes, nullptr);
}

HIP_API hipError_t hipMemcpyPeerAsync(
    void* to, int to_device, const void* from, int from_device, size_t bytes, hipStream_t stream)
{
    return copy_between("hipMemcpyPeerAsync", to, to_device, from, from_device, bytes, stream);
}

// Where memory lies is the same for host and device here.
HIP_API hipError_t hipMemAdvise(const void* pointer, size_t, int, int)
{
    return hip_call("hipMemAdvise", Needs::Device, [&] {
        require(pointer, hipErrorInvalidValue, "null pointer");
    });
}

HIP_API hipError_t hipMemPrefetchAsync(const void* pointer, size_t, int, hipStream_t stream)
{
    return hip_call("hipMemPrefetchAsync", Needs::Device, [&] {
        check_stream(stream);
        require(pointer, hipErrorInvalidValue, "null pointer");
    });
}

HIP_API hipError_t hipHostGetFlags(unsigned int* flags, void* pointer)
{
    return hip_call("hipHostGetFlags", Needs::Device, [&] {
        require(flags && pointer, hipErrorInvalidValue, "null pointer");
        *flags = 0;
    });
}
