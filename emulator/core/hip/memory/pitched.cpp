// Memory in rows and slices: pitched allocations, copies and fills of rectangles and boxes.
#include "hip/call.h"
#include "hip/graph/capture.h"
#include "hip/memory/memory.h"

HIP_API hipError_t hipMalloc(void** pointer, size_t bytes);
HIP_API hipError_t hipMemcpyAsync(void* to, const void* from, size_t bytes, hipMemcpyKind kind, hipStream_t stream);

namespace emu {
namespace {
constexpr size_t PITCH = 256; // rows begin at multiples of it

// Pass on what another HIP function answered.
void check(hipError_t error)
{
    if(error != hipSuccess)
        throw HipFailure(error, emu_last_error());
}
} // namespace
} // namespace emu

HIP_API hipError_t hipMallocPitch(void** pointer, size_t* pitch, size_t width, size_t height)
{
    return hip_call("hipMallocPitch", Needs::Device, [&] {
        require(pointer && pitch, hipErrorInvalidValue, "null pointer");
        *pitch = (width + emu::PITCH - 1) / emu::PITCH * emu::PITCH;
        emu::check(hipMalloc(pointer, *pitch * height));
    });
}

HIP_API hipError_t hipMemAllocPitch(hipDeviceptr_t* pointer, size_t* pitch, size_t width, size_t height, unsigned int)
{
    return hipMallocPitch(pointer, pitch, width, height);
}

HIP_API hipError_t hipMalloc3D(hipPitchedPtr* pointer, hipExtent extent)
{
    return hip_call("hipMalloc3D", Needs::Device, [&] {
        require(pointer, hipErrorInvalidValue, "null pointer");
        *pointer       = {nullptr, 0, extent.width, extent.height};
        const size_t y = extent.height * extent.depth;
        emu::check(hipMallocPitch(&pointer->ptr, &pointer->pitch, extent.width, y));
    });
}

// On the default stream (null for calls that wait), or on another one, where it may be captured.
template <typename Params, typename Do>
static hipError_t on_stream(const char* function, const Params& params, const hipStream_t* stream, Do&& now)
{
    return hip_call(function, Needs::Device, [&] {
        if(!stream)
            emu::refuse_synchronous();
        if(!stream || !emu::captured(*stream, [&] { return params; }))
            now(params);
    });
}

static hipError_t copy_on(const char* function, const hipMemcpy3DParms& box, const hipStream_t* stream)
{
    return on_stream(function, box, stream, emu::copy_box);
}

HIP_API hipError_t hipMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                               size_t height, hipMemcpyKind kind)
{
    return copy_on("hipMemcpy2D", emu::rectangle(to, to_pitch, from, from_pitch, width, height, kind), nullptr);
}

HIP_API hipError_t hipMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                                    size_t height, hipMemcpyKind kind, hipStream_t stream)
{
    return copy_on("hipMemcpy2DAsync", emu::rectangle(to, to_pitch, from, from_pitch, width, height, kind), &stream);
}

// One side of hip_Memcpy2D (driver_types.h), and a copy by it.
struct CopySide
{
    size_t x_bytes, y;
    int memory_type; // hipMemoryType
    const void* host;
    void* device;
    void* array;
    size_t pitch;
};
struct hip_Memcpy2D
{
    CopySide from, to;
    size_t width, height;
};
static_assert(sizeof(hip_Memcpy2D) == 128);

static hipError_t copy_by(const char* function, const hip_Memcpy2D* copy, const hipStream_t* stream)
{
    constexpr int HOST = 1, ARRAY = 10;
    if(!copy || copy->from.memory_type == ARRAY || copy->to.memory_type == ARRAY)
        return hip_call(function, Needs::Device, [&] {
            require(copy, hipErrorInvalidValue, "null pointer");
            throw emu::HipFailure(hipErrorNotSupported, "an array: the device has none");
        });
    const auto first = [](const CopySide& side) {
        const auto base = static_cast<const char*>(side.memory_type == HOST ? side.host : side.device);
        return const_cast<char*>(base) + side.y * side.pitch + side.x_bytes;
    };
    return copy_on(function,
                   emu::rectangle(first(copy->to), copy->to.pitch, first(copy->from), copy->from.pitch, copy->width,
                                  copy->height, hipMemcpyDefault),
                   stream);
}

HIP_API hipError_t hipMemcpyParam2D(const hip_Memcpy2D* copy) { return copy_by("hipMemcpyParam2D", copy, nullptr); }

HIP_API hipError_t hipDrvMemcpy2DUnaligned(const hip_Memcpy2D* copy)
{
    return copy_by("hipDrvMemcpy2DUnaligned", copy, nullptr);
}

HIP_API hipError_t hipMemcpyParam2DAsync(const hip_Memcpy2D* copy, hipStream_t stream)
{
    return copy_by("hipMemcpyParam2DAsync", copy, &stream);
}

HIP_API hipError_t hipMemcpy3D(const hipMemcpy3DParms* box)
{
    return box ? copy_on("hipMemcpy3D", *box, nullptr) : hipErrorInvalidValue;
}

HIP_API hipError_t hipMemcpy3DAsync(const hipMemcpy3DParms* box, hipStream_t stream)
{
    return box ? copy_on("hipMemcpy3DAsync", *box, &stream) : hipErrorInvalidValue;
}

static hipError_t fill_on(const char* function, const hipMemsetParams& rows, const hipStream_t* stream)
{
    return on_stream(function, rows, stream, [](const hipMemsetParams& all) {
        if(all.width > 0 && all.height > 0)
            emu::fill_rows(all);
    });
}

// One byte in each place of a rectangle.
static hipMemsetParams bytes_in(void* to, size_t pitch, int value, size_t width, size_t height)
{
    return {to, 1, height, pitch, static_cast<uint8_t>(value), width};
}

HIP_API hipError_t hipMemset2D(void* to, size_t pitch, int value, size_t width, size_t height)
{
    return fill_on("hipMemset2D", bytes_in(to, pitch, value, width, height), nullptr);
}

HIP_API hipError_t hipMemset2DAsync(void* to, size_t pitch, int value, size_t width, size_t height, hipStream_t stream)
{
    return fill_on("hipMemset2DAsync", bytes_in(to, pitch, value, width, height), &stream);
}

// Slices lie ysize rows apart: rows of one kind when whole slices are meant.
static hipError_t fill_slices(const char* function, const hipPitchedPtr& to, int value, hipExtent extent,
                              const hipStream_t* stream)
{
    if(extent.depth > 1 && extent.height != to.ysize)
        return hip_call(function, Needs::Device,
                        [] { throw emu::HipFailure(hipErrorNotSupported, "slices that are not filled whole"); });
    const size_t rows = extent.height * extent.depth;
    return fill_on(function, bytes_in(to.ptr, to.pitch, value, extent.width, rows), stream);
}

HIP_API hipError_t hipMemset3D(hipPitchedPtr to, int value, hipExtent extent)
{
    return fill_slices("hipMemset3D", to, value, extent, nullptr);
}

HIP_API hipError_t hipMemset3DAsync(hipPitchedPtr to, int value, hipExtent extent, hipStream_t stream)
{
    return fill_slices("hipMemset3DAsync", to, value, extent, &stream);
}

static hipError_t copy_between(const char* function, void* to, int to_device, const void* from, int from_device,
                               size_t bytes, hipStream_t stream)
{
    return hip_call(function, Needs::Device, [&] {
        emu::check_device(to_device);
        emu::check_device(from_device);
        emu::check(hipMemcpyAsync(to, from, bytes, hipMemcpyDeviceToDevice, stream));
    });
}

HIP_API hipError_t hipMemcpyPeer(void* to, int to_device, const void* from, int from_device, size_t bytes)
{
    return copy_between("hipMemcpyPeer", to, to_device, from, from_device, bytes, nullptr);
}

HIP_API hipError_t hipMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, size_t bytes,
                                      hipStream_t stream)
{
    return copy_between("hipMemcpyPeerAsync", to, to_device, from, from_device, bytes, stream);
}

HIP_API hipError_t hipHostGetFlags(unsigned int* flags, void* pointer)
{
    return hip_call("hipHostGetFlags", Needs::Device, [&] {
        require(flags && pointer, hipErrorInvalidValue, "null pointer");
        *flags = 0;
    });
}
