// Advice about managed memory. Host and device see the same bytes at the same place here, so that
// advice changes nothing; it is kept for those who ask for it.
#include "hip/call.h"
#include "hip/launch/stream.h"
#include "hip/memory/memory.h"

#include <algorithm>
#include <mutex>
#include <vector>

namespace emu {
namespace {
constexpr int CPU = -1, NOWHERE = -2; // hipCpuDeviceId, hipInvalidDeviceId

// hipMemoryAdvise: each comes in a pair that sets and takes back.
enum Advice : int
{
    SET_READ_MOSTLY   = 1,
    SET_PREFERRED     = 3,
    SET_ACCESSED_BY   = 5,
    UNSET_ACCESSED_BY = 6,
    SET_COARSE        = 100,
    LAST_ADVICE       = 101,
};

// What advice is about; numbers of hipMemRangeAttribute.
enum class Subject : int
{
    ReadMostly   = 1,
    Preferred    = 2,
    AccessedBy   = 3,
    LastPrefetch = 4,
    Coherency    = 100,
};

struct Given
{
    uint64_t begin, end;
    Subject subject;
    int value;
};

struct AllAdvice
{
    std::mutex mutex;
    std::vector<Given> given; // in the order of their making
};

AllAdvice& advice()
{
    static AllAdvice& only = *new AllAdvice;
    return only;
}

void note(const void* pointer, size_t bytes, Subject subject, int value)
{
    const auto begin = reinterpret_cast<uint64_t>(pointer);
    const Given fresh{begin, begin + bytes, subject, value};
    std::lock_guard lock(advice().mutex);
    std::erase_if(advice().given, [&](const Given& old) {
        return old.subject == subject && old.begin >= fresh.begin && old.end <= fresh.end;
    });
    advice().given.push_back(fresh);
}

// What holds for all of a range; `otherwise` if nothing does.
int value_of(const void* pointer, size_t bytes, Subject subject, int otherwise)
{
    const auto begin = reinterpret_cast<uint64_t>(pointer), end = begin + bytes;
    std::lock_guard lock(advice().mutex);
    for(size_t i = advice().given.size(); i-- > 0;)
    {
        const Given& one = advice().given[i];
        if(one.subject != subject || one.end <= begin || one.begin >= end)
            continue;
        return one.begin <= begin && one.end >= end ? one.value : otherwise;
    }
    return otherwise;
}

void check_advised(const void* pointer, size_t bytes, int device)
{
    require(pointer && bytes > 0, hipErrorInvalidValue, "an empty range");
    require(device == 0 || device == CPU, hipErrorInvalidDevice, "neither device 0 nor the host");
    check_range(pointer, bytes, "the range");
}

void advise(const void* pointer, size_t bytes, int what, int device)
{
    const bool known =
        (what >= SET_READ_MOSTLY && what <= UNSET_ACCESSED_BY) || what == SET_COARSE || what == LAST_ADVICE;
    require(known, hipErrorInvalidValue, "unknown advice");
    const bool for_any_device = what <= SET_READ_MOSTLY + 1;
    check_advised(pointer, bytes, for_any_device ? 0 : device);
    if(what >= SET_COARSE)
        return note(pointer, bytes, Subject::Coherency, what == SET_COARSE);
    const bool sets = what % 2 == 1;
    if(for_any_device)
        return note(pointer, bytes, Subject::ReadMostly, sets);
    note(pointer, bytes, what >= SET_ACCESSED_BY ? Subject::AccessedBy : Subject::Preferred, sets ? device : NOWHERE);
}

// One number; of who accesses the range as many as there is room for.
void attribute(int* out, size_t out_bytes, int which, const void* pointer, size_t bytes)
{
    require(out && out_bytes >= sizeof(int) && out_bytes % sizeof(int) == 0, hipErrorInvalidValue,
            "no room for a number");
    require(pointer && bytes > 0, hipErrorInvalidValue, "an empty range");
    check_range(pointer, bytes, "the range");
    const auto subject = static_cast<Subject>(which);
    switch(subject)
    {
        case Subject::ReadMostly:
        case Subject::Coherency: *out = value_of(pointer, bytes, subject, 0); return;
        case Subject::Preferred:
        case Subject::LastPrefetch: *out = value_of(pointer, bytes, subject, NOWHERE); return;
        case Subject::AccessedBy:
            std::fill_n(out, out_bytes / sizeof(int), NOWHERE);
            *out = value_of(pointer, bytes, subject, NOWHERE);
            return;
    }
    throw HipFailure(hipErrorInvalidValue, "no such attribute of a range");
}
} // namespace
} // namespace emu

HIP_API hipError_t hipMemAdvise(const void* pointer, size_t bytes, int what, int device)
{
    return hip_call("hipMemAdvise", Needs::Device, [&] { emu::advise(pointer, bytes, what, device); });
}

HIP_API hipError_t hipMemPrefetchAsync(const void* pointer, size_t bytes, int device, hipStream_t stream)
{
    return hip_call("hipMemPrefetchAsync", Needs::Device, [&] {
        emu::check_stream(stream);
        emu::check_advised(pointer, bytes, device);
        emu::note(pointer, bytes, emu::Subject::LastPrefetch, device);
    });
}

HIP_API hipError_t hipMemRangeGetAttribute(void* out, size_t out_bytes, int which, const void* pointer, size_t bytes)
{
    return hip_call("hipMemRangeGetAttribute", Needs::Device,
                    [&] { emu::attribute(static_cast<int*>(out), out_bytes, which, pointer, bytes); });
}

HIP_API hipError_t hipMemRangeGetAttributes(void** out, size_t* out_bytes, int* which, size_t count,
                                            const void* pointer, size_t bytes)
{
    return hip_call("hipMemRangeGetAttributes", Needs::Device, [&] {
        require(out && out_bytes && which && count > 0, hipErrorInvalidValue, "null pointer");
        for(size_t i = 0; i < count; ++i)
            emu::attribute(static_cast<int*>(out[i]), out_bytes[i], which[i], pointer, bytes);
    });
}

HIP_API hipError_t hipStreamAttachMemAsync(hipStream_t stream, void* pointer, size_t, unsigned)
{
    return hip_call("hipStreamAttachMemAsync", Needs::Device, [&] {
        emu::check_stream(stream);
        require(pointer, hipErrorInvalidValue, "null pointer");
        emu::check_range(pointer, 1, "the range");
    });
}
