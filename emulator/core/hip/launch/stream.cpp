// Streams and events. Everything is done when its call returns, so that a stream is a name and an
// event a moment.
#include "hip/launch/stream.h"

#include "hip/call.h"
#include "hip/graph/capture.h"
#include "run/options.h"

#include <algorithm>
#include <cstring>

namespace emu {
namespace {
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
} // namespace

ihipStream_t& stream_of(hipStream_t stream)
{
    static ihipStream_t& legacy = *new ihipStream_t;
    thread_local ihipStream_t own;
    const auto value = reinterpret_cast<uintptr_t>(stream);
    if(value == 0 || value == LEGACY_STREAM)
        return legacy;
    if(value == PER_THREAD_STREAM)
        return own;
    require(streams().has(stream), hipErrorInvalidHandle, "not a live stream");
    return *stream;
}

void check_stream(hipStream_t stream) { stream_of(stream); }

bool is_legacy(hipStream_t stream) { return reinterpret_cast<uintptr_t>(stream) <= LEGACY_STREAM; }

ihipEvent_t& event_of(hipEvent_t event)
{
    require(event && events().has(event), hipErrorInvalidHandle, "not a live event");
    return *event;
}

void record_event(hipEvent_t event)
{
    ihipEvent_t& that = event_of(event);
    that.moment       = std::chrono::steady_clock::now();
    that.recorded     = true;
    that.capture      = nullptr;
}
} // namespace emu

using emu::check_stream;
using emu::event_of;

// Of the priorities that hipDeviceGetStreamPriorityRange names; others are the nearest of them.
constexpr int LOWEST_PRIORITY = 1, HIGHEST_PRIORITY = -1;
// Of hipLaunchAttributeID.
constexpr int ACCESS_POLICY_WINDOW = 1, SYNCHRONIZATION_POLICY = 3, PRIORITY = 8;

static hipError_t create_stream(const char* function, hipStream_t* stream, unsigned flags, int priority = 0)
{
    return hip_call(function, Needs::Device, [&] {
        require(stream, hipErrorInvalidValue, "null pointer");
        require(flags <= emu::NON_BLOCKING, hipErrorInvalidValue, "unknown flags");
        priority = std::clamp(priority, HIGHEST_PRIORITY, LOWEST_PRIORITY);
        *stream  = emu::streams().add(new ihipStream_t{flags, priority});
        emu::number_stream(**stream);
    });
}

HIP_API hipError_t hipStreamCreate(hipStream_t* stream) { return create_stream("hipStreamCreate", stream, 0); }

HIP_API hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned int flags)
{
    return create_stream("hipStreamCreateWithFlags", stream, flags);
}

HIP_API hipError_t hipStreamCreateWithPriority(hipStream_t* stream, unsigned int flags, int priority)
{
    return create_stream("hipStreamCreateWithPriority", stream, flags, priority);
}

HIP_API hipError_t hipStreamDestroy(hipStream_t stream)
{
    return hip_call("hipStreamDestroy", Needs::Nothing, [&] {
        require(emu::streams().remove(stream), hipErrorInvalidHandle, "not a live stream");
        emu::abandon_capture(*stream);
        delete stream;
    });
}

static hipError_t on_stream(const char* function, hipStream_t stream)
{
    return hip_call(function, Needs::Device, [&] { emu::refuse_on_stream(stream); });
}

HIP_API hipError_t hipStreamSynchronize(hipStream_t stream) { return on_stream("hipStreamSynchronize", stream); }
HIP_API hipError_t hipStreamQuery(hipStream_t stream) { return on_stream("hipStreamQuery", stream); }

HIP_API hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned int flags)
{
    return hip_call("hipStreamWaitEvent", Needs::Device, [&] { emu::wait_in_capture(stream, event_of(event), flags); });
}

template <typename Value, typename Of>
static hipError_t ask_stream(const char* function, hipStream_t stream, Value* value, Of of)
{
    return hip_call(function, Needs::Device, [&] {
        const ihipStream_t& that = emu::stream_of(stream);
        require(value, hipErrorInvalidValue, "null pointer");
        *value = of(that);
    });
}

HIP_API hipError_t hipStreamGetFlags(hipStream_t stream, unsigned int* flags)
{
    return ask_stream("hipStreamGetFlags", stream, flags, [](const auto& s) { return s.flags; });
}

HIP_API hipError_t hipStreamGetPriority(hipStream_t stream, int* priority)
{
    return ask_stream("hipStreamGetPriority", stream, priority, [](const auto& s) { return s.priority; });
}

HIP_API hipError_t hipStreamGetDevice(hipStream_t stream, int* device)
{
    return ask_stream("hipStreamGetDevice", stream, device, [](const auto&) { return 0; });
}

HIP_API hipError_t hipStreamGetId(hipStream_t stream, unsigned long long* id)
{
    return ask_stream("hipStreamGetId", stream, id,
                      [](const auto& s) { return reinterpret_cast<unsigned long long>(&s); });
}

// Those of streams among hipLaunchAttributeID; the value is a union.
static void check_attribute(int attribute, const void* value)
{
    require(value, hipErrorInvalidValue, "null pointer");
    require(attribute == ACCESS_POLICY_WINDOW || attribute == SYNCHRONIZATION_POLICY || attribute == PRIORITY,
            hipErrorInvalidValue, "no attribute of a stream");
}

HIP_API hipError_t hipStreamSetAttribute(hipStream_t stream, int attribute, const std::array<char, 64>* value)
{
    return hip_call("hipStreamSetAttribute", Needs::Device, [&] {
        ihipStream_t& that = emu::stream_of(stream);
        check_attribute(attribute, value);
        that.attributes[attribute] = *value;
    });
}

HIP_API hipError_t hipStreamGetAttribute(hipStream_t stream, int attribute, std::array<char, 64>* value)
{
    return hip_call("hipStreamGetAttribute", Needs::Device, [&] {
        const ihipStream_t& that = emu::stream_of(stream);
        check_attribute(attribute, value);
        *value         = {};
        const auto set = that.attributes.find(attribute);
        if(set != that.attributes.end())
            *value = set->second;
        else if(attribute == PRIORITY)
            std::memcpy(value, &that.priority, sizeof that.priority);
    });
}

HIP_API hipError_t hipStreamCopyAttributes(hipStream_t to, hipStream_t from)
{
    return hip_call("hipStreamCopyAttributes", Needs::Device,
                    [&] { emu::stream_of(to).attributes = emu::stream_of(from).attributes; });
}

HIP_API hipError_t hipStreamAddCallback(hipStream_t stream, void (*function)(hipStream_t, hipError_t, void*),
                                        void* argument, unsigned int)
{
    return hip_call("hipStreamAddCallback", Needs::Device, [&] {
        emu::refuse_on_stream(stream);
        require(function, hipErrorInvalidValue, "null function");
        function(stream, hipSuccess, argument);
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
        require(function, hipErrorInvalidValue, "null function");
        if(emu::captured(stream, [&] { return hipHostNodeParams{function, argument}; }))
            return;
        function(argument);
        emu::wait_for_stream(emu::stream_of(stream));
    });
}

static hipError_t create_event(const char* function, hipEvent_t* event, unsigned flags)
{
    constexpr unsigned DISABLE_TIMING = 2;
    return hip_call(function, Needs::Device, [&] {
        require(event, hipErrorInvalidValue, "null pointer");
        *event = emu::events().add(new ihipEvent_t{(flags & DISABLE_TIMING) == 0});
    });
}

HIP_API hipError_t hipEventCreate(hipEvent_t* event) { return create_event("hipEventCreate", event, 0); }

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

static hipError_t record(const char* function, hipEvent_t event, hipStream_t stream, unsigned flags)
{
    return hip_call(function, Needs::Device, [&] {
        if(!emu::record_in_capture(stream, event_of(event), flags))
            emu::record_event(event);
    });
}

HIP_API hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream)
{
    return record("hipEventRecord", event, stream, 0);
}

HIP_API hipError_t hipEventRecordWithFlags(hipEvent_t event, hipStream_t stream, unsigned int flags)
{
    return record("hipEventRecordWithFlags", event, stream, flags);
}

static hipError_t on_event(const char* function, hipEvent_t event)
{
    return hip_call(function, Needs::Device, [&] { emu::refuse_on_event(event_of(event)); });
}

HIP_API hipError_t hipEventSynchronize(hipEvent_t event) { return on_event("hipEventSynchronize", event); }
HIP_API hipError_t hipEventQuery(hipEvent_t event) { return on_event("hipEventQuery", event); }

HIP_API hipError_t hipEventElapsedTime(float* milliseconds, hipEvent_t start, hipEvent_t stop)
{
    return hip_call("hipEventElapsedTime", Needs::Device, [&] {
        require(milliseconds, hipErrorInvalidValue, "null pointer");
        const ihipEvent_t& first = event_of(start);
        const ihipEvent_t& last  = event_of(stop);
        require(first.timing && last.timing, hipErrorInvalidHandle, "an event was created without timing");
        require(first.recorded && last.recorded, hipErrorInvalidHandle, "an event was not recorded");
        *milliseconds = std::chrono::duration<float, std::milli>(last.moment - first.moment).count();
    });
}
