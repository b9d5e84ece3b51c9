#include "hip/call.h"
#include "standalone/settings.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace emu {
namespace {
struct ErrorRow
{
    hipError_t error;
    const char* name;
    const char* text;
};
const ErrorRow ERROR_ROWS[] = {
#define X(name, number, text) {name, #name, text},
    EMU_HIP_ERRORS(X)
#undef X
};

const ErrorRow& row(hipError_t error)
{
    for(const ErrorRow& candidate : ERROR_ROWS)
        if(candidate.error == error)
            return candidate;
    return row(hipErrorUnknown);
}

thread_local hipError_t remembered = hipSuccess;
} // namespace

std::recursive_mutex& device_mutex()
{
    static std::recursive_mutex& only = *new std::recursive_mutex;
    return only;
}

const char*& current_function()
{
    thread_local const char* function = "";
    return function;
}

void remember_error(hipError_t error)
{
    if(error != hipErrorNotReady)
        remembered = error;
}

hipError_t fault_status()
{
    Fault fault;
    if(fault_pending.load(std::memory_order_acquire) == 0 || !last_fault(&fault))
        return hipSuccess;
    return static_cast<hipError_t>(fault_error(fault.kind));
}

// ROCm reads the list up to the first number that no device has (clr, parseRequestedDeviceList): -1, 1, or
// a word.
bool device_is_hidden()
{
    static const bool hidden = [] {
        const char* text = std::getenv("HIP_VISIBLE_DEVICES");
        if(!text || !*text)
            text = std::getenv("CUDA_VISIBLE_DEVICES");
        const std::string first = std::string(text ? text : "").substr(0, text ? std::strcspn(text, ",") : 0);
        return settings().standalone && text && *text &&
               (first.empty() || first.find_first_not_of('0') != std::string::npos);
    }();
    return hidden;
}
} // namespace emu

HIP_API const char* hipGetErrorName(hipError_t error) { return emu::row(error).name; }
HIP_API const char* hipGetErrorString(hipError_t error) { return emu::row(error).text; }

HIP_API hipError_t hipPeekAtLastError(void)
{
    const hipError_t sticky = emu::fault_status();
    return sticky != hipSuccess ? sticky : emu::remembered;
}

HIP_API hipError_t hipGetLastError(void)
{
    const hipError_t error = hipPeekAtLastError(); // a fault's error is not cleared here
    emu::remembered        = hipSuccess;
    return error;
}

HIP_API hipError_t hipExtGetLastError(void) { return hipGetLastError(); }
