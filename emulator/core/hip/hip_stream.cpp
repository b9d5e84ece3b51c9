// Streams and events. Everything is done when its call returns, so that a stream is a name and an
// event a moment.
#include "hip/hip_stream.h"

#include "hip/hip_call.h"
#include "run/options.h"

#include <chrono>
#include <mutex>
#include <set>

struct ihipStream_t
{
    unsigned flags;
};

struct ihipEvent_t
{
    bool timing;
    bool recorded;
    std::chrono::steady_clock::time_point moment;
};

namespace emu {
namespace {

// Live handles: a stale or wild one is an error and not a crash.
template <typename Handle>
struct Handles
{
    std::mutex mutex;
    std::set<Handle> live;

    Handle add(Handle handle)
    {
        std::lock_guard lock(mutex);
        live.insert(handle);
        return handle;
    }
    bool has(Handle handle)
    {
        std::lock_guard lock(mutex);
        return live.count(handle) != 0;
    }
    bool remove(Handle handle)
    {
        std::lock_guard lock(mutex);
        return live.erase(handle) != 0;
    }
};

Handles<hipStream_t>& streams()
{
    static auto& only = *new Handles<hipStream_t>;
    return only;
}

Handles<hipEvent_t>& events()
{
    static auto& only = *new Handles<hipEvent_t>;
    return only;
}

ihipEvent_t& event_of(hipEvent_t event)
{
    require(event && events().has(event), hipErrorInvalidHandle, "not a live event");
    return *event;
}

} // namespace

void check_stream(hipStream_t stream)
{
    // Null is the default stream; 1 and 2 are hipStreamLegacy and hipStreamPerThread.
    const auto value = reinterpret_cast<uintptr_t>(stream);
    require(value <= 2 || streams().has(stream), hipErrorInvalidHandle, "not a live stream");
}

} // namespace emu

using emu::check_stream;
using emu::event_of;
using emu::hip_call;
using emu::Needs;
using emu::require;

static hipError_t create_stream(const char* function, hipStream_t* stream, unsigned flags)
{
    return hip_call(function, Needs::Device, [&] {
        require(stream, hipErrorInvalidValue, "null pointer");
        require(flags <= 1, hipErrorInvalidValue, "unknown flags");
        *stream = emu::streams().add(new ihipStream_t{flags});
    });
}

HIP_API hipError_t hipStreamCreate(hipStream_t* stream)
{
    return create_stream("hipStreamCreate", stream, 0);
}

HIP_API hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned int flags)
{
    return create_stream("hipStreamCreateWithFlags", stream, flags);
}

HIP_API hipError_t hipStreamCreateWithPriority(hipStream_t* stream, unsigned int flags, int)
{
    return create_stream("hipStreamCreateWithPriority", stream, flags);
}

HIP_API hipError_t hipStreamDestroy(hipStream_t stream)
{
    return hip_call("hipStreamDestroy", Needs::Nothing, [&] {
        require(emu::streams().remove(stream), hipErrorInvalidHandle, "not a live stream");
        delete stream;
    });
}

static hipError_t on_stream(const char* function, hipStream_t stream)
{
    return hip_call(function, Needs::Device, [&] { check_stream(stream); });
}

HIP_API hipError_t hipStreamSynchronize(hipStream_t stream)
{
    return on_stream("hipStreamSynchronize", stream);
}
HIP_API hipError_t hipStreamQuery(hipStream_t stream)
{
    return on_stream("hipStreamQuery", stream);
}

HIP_API hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned int)
{
    return hip_call("hipStreamWaitEvent", Needs::Device, [&] {
        check_stream(stream);
        event_of(event);
    });
}

HIP_API hipError_t hipStreamGetFlags(hipStream_t stream, unsigned int* flags)
{
    return hip_call("hipStreamGetFlags", Needs::Device, [&] {
        check_stream(stream);
        require(flags, hipErrorInvalidValue, "null pointer");
        *flags = emu::streams().has(stream) ? stream->flags : 0;
    });
}

static hipError_t zero_of_stream(const char* function, hipStream_t stream, int* value)
{
    return hip_call(function, Needs::Device, [&] {
        check_stream(stream);
        require(value, hipErrorInvalidValue, "null pointer");
        *value = 0;
    });
}

HIP_API hipError_t hipStreamGetPriority(hipStream_t stream, int* priority)
{
    return zero_of_stream("hipStreamGetPriority", stream, priority);
}

HIP_API hipError_t hipStreamGetDevice(hipStream_t stream, int* device)
{
    return zero_of_stream("hipStreamGetDevice", stream, device);
}

HIP_API hipError_t hipStreamAddCallback(hipStream_t stream,
                                        void (*function)(hipStream_t, hipError_t, void*),
                                        void* argument,
                                        unsigned int)
{
    return hip_call("hipStreamAddCallback", Needs::Device, [&] {
        check_stream(stream);
        require(function, hipErrorInvalidValue, "null function");
        function(stream, hipSuccess, argument);
    });
}

HIP_API hipError_t hipStreamIsCapturing(hipStream_t stream, int* status)
{
    return hip_call("hipStreamIsCapturing", Needs::Device, [&] {
        check_stream(stream);
        require(status, hipErrorInvalidValue, "null pointer");
        *status = 0;
    });
}

HIP_API hipError_t hipExtStreamGetCUMask(hipStream_t stream, uint32_t words, uint32_t* mask)
{
    return hip_call("hipExtStreamGetCUMask", Needs::Device, [&] {
        check_stream(stream);
        require(mask && words > 0, hipErrorInvalidValue, "no room for the mask");
        const auto count = static_cast<uint32_t>(emu::options().cu_count);
        for(uint32_t word = 0; word < words; ++word)
        {
            const uint32_t bits = count > 32 * word ? count - 32 * word : 0;
            mask[word]          = bits >= 32 ? ~0u : (1u << bits) - 1;
        }
    });
}

HIP_API hipError_t hipLaunchHostFunc(hipStream_t stream, void (*function)(void*), void* argument)
{
    return hip_call("hipLaunchHostFunc", Needs::Device, [&] {
        check_stream(stream);
        require(function, hipErrorInvalidValue, "null function");
        function(argument);
    });
}

static hipError_t create_event(const char* function, hipEvent_t* event, unsigned flags)
{
    constexpr unsigned DISABLE_TIMING = 2;
    return hip_call(function, Needs::Device, [&] {
        require(event, hipErrorInvalidValue, "null pointer");
        *event = emu::events().add(new ihipEvent_t{(flags & DISABLE_TIMING) == 0, false, {}});
    });
}

HIP_API hipError_t hipEventCreate(hipEvent_t* event)
{
    return create_event("hipEventCreate", event, 0);
}

HIP_API hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned int flags)
{
    return create_event("hipEventCreateWithFlags", event, flags);
}

HIP_API hipError_t hipEventDestroy(hipEvent_t event)
{
    return hip_call("hipEventDestroy", Needs::Nothing, [&] {
        require(emu::events().remove(event), hipErrorInvalidHandle, "not a live event");
        delete event;
    });
}

HIP_API hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream)
{
    return hip_call("hipEventRecord", Needs::Device, [&] {
        ihipEvent_t& that = event_of(event);
        check_stream(stream);
        that.moment   = std::chrono::steady_clock::now();
        that.recorded = true;
    });
}

HIP_API hipError_t hipEventRecordWithFlags(hipEvent_t event, hipStream_t stream, unsigned int)
{
    return hipEventRecord(event, stream);
}

static hipError_t on_event(const char* function, hipEvent_t event)
{
    return hip_call(function, Needs::Device, [&] { event_of(event); });
}

HIP_API hipError_t hipEventSynchronize(hipEvent_t event)
{
    return on_event("hipEventSynchronize", event);
}
HIP_API hipError_t hipEventQuery(hipEvent_t event) { return on_event("hipEventQuery", event); }

HIP_API hipError_t hipEventElapsedTime(float* milliseconds, hipEvent_t start, hipEvent_t stop)
{
    return hip_call("hipEventElapsedTime", Needs::Device, [&] {
        require(milliseconds, hipErrorInvalidValue, "null pointer");
        const ihipEvent_t& first = event_of(start);
        const ihipEvent_t& last  = event_of(stop);
        require(first.timing && last.timing,
                hipErrorInvalidHandle,
                "an event was created without timing");
        require(
            first.recorded && last.recorded, hipErrorInvalidHandle, "an event was not recorded");
        *milliseconds =
            std::chrono::duration<float, std::milli>(last.moment - first.moment).count();
    });
}
