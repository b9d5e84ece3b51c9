// What every HIP function does around its own work: refuse after a fault, catch exceptions,
// remember its error.
#pragma once

#include "hip/device_api.h"
#include "hip/launch/stream_order.h"
#include "hip/types.h"
#include "run/fault.h"
#include "standalone/report.h"

#include <exception>
#include <mutex>
#include <new>
#include <string>
#include <utility>

namespace emu {
// Thrown inside a HIP function: becomes its return value, the text goes to emu_last_error().
class HipFailure
{
public:
    HipFailure(hipError_t error, std::string text) : error_(error), text_(std::move(text)) {}
    hipError_t error() const { return error_; }
    const std::string& text() const { return text_; }

private:
    hipError_t error_;
    std::string text_;
};

// Held by what a real device does in order: launches, copies, releases. (A host thread may free
// while another launches.)
std::recursive_mutex& device_mutex();

// What hipGetLastError returns next; NotReady is not an error.
void remember_error(hipError_t error);
hipError_t fault_status(); // hipSuccess if no fault is pending
// The HIP function that the calling thread is in.
const char*& current_function();
// A program that runs by itself chose other devices, by HIP_VISIBLE_DEVICES or CUDA_VISIBLE_DEVICES.
bool device_is_hidden();

enum class Needs
{
    Nothing, // answers after a fault too
    Device,  // refuses after a fault
};

template <typename Body>
hipError_t hip_call(const char* function, Needs needs, Body&& body)
{
    hipError_t error = needs == Needs::Device ? fault_status() : hipSuccess;
    std::string text = "a launch faulted before";
    if(needs == Needs::Device && device_is_hidden()) [[unlikely]]
        error = hipErrorNoDevice;
    const bool lost = error != hipSuccess;
    if(!lost)
    {
        current_function() = function;
        try
        {
            body();
        }
        catch(const HipFailure& failure)
        {
            error = failure.error();
            text  = failure.text();
        }
        catch(const std::bad_alloc&)
        {
            error = hipErrorOutOfMemory;
            text  = "the host is out of memory";
        }
        catch(const std::exception& failure)
        {
            error = hipErrorUnknown;
            text  = failure.what();
        }
    }
    end_operation();
    if(error != hipSuccess)
    {
        set_last_error(std::string(function) + ": " + text);
        remember_error(error);
        if(!lost)
            report_failure(function, error, text);
    }
    return error;
}

inline void require(bool holds, hipError_t error, const char* text)
{
    if(!holds)
        throw HipFailure(error, text);
}

inline void check_device(int device)
{
    require(device == 0 && !device_is_hidden(), hipErrorInvalidDevice, "there is one emulated device, number 0");
}

// A function whose answer goes to `to`.
template <typename T, typename Value>
hipError_t hip_value(const char* function, Needs needs, T* to, Value&& value)
{
    return hip_call(function, needs, [&] {
        require(to, hipErrorInvalidValue, "null pointer");
        *to = value();
    });
}
} // namespace emu

using emu::hip_call;
using emu::hip_value;
using emu::Needs;
using emu::require;
