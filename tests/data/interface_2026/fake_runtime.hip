// A HIP runtime for one thread that owns no device: the calls that a library's host side makes,
// under a test's control.
//
// It is linked into the library under test, whose version script then keeps its HIP names inside:
// other libraries of the process keep theirs. What the test calls is named ckpm_fake_*, for that
// the version script exports.
#include "hip/hip_runtime_api.h"

#include <string>

namespace {

int compute_units       = 256;
std::string device_name = "gfx950";
hipError_t device_error = hipSuccess; // of asking for the device
hipError_t launch_error = hipSuccess; // of launching
hipError_t last_error   = hipSuccess;
bool throws             = false;
std::string exception_text;
std::string last_record;
int launches = 0;

hipError_t ended(hipError_t status)
{
    if(status != hipSuccess)
        last_error = status;
    return status;
}

} // namespace

extern "C" {
hipError_t hipGetDevice(int* device)
{
    *device = 3;
    return ended(device_error);
}
hipError_t hipGetDevicePropertiesR0600(hipDeviceProp_tR0600* properties, int device)
{
    if(device != 3)
        return ended(hipErrorInvalidDevice);
    *properties                     = {};
    properties->multiProcessorCount = compute_units;
    return hipSuccess;
}
const char* hipGetErrorString(hipError_t error)
{
    return error == hipErrorNoDevice ? "no device" : "some error";
}
hipError_t hipPeekAtLastError(void) { return last_error; }
hipError_t hipGetLastError(void)
{
    const hipError_t status = last_error;
    last_error              = hipSuccess;
    return status;
}

// Called by the interface's launch_kernel.
void ckpm_fake_take(const char* record)
{
    last_record = record;
    ++launches;
}
const char* ckpm_fake_wanted_exception(void) { return throws ? exception_text.c_str() : nullptr; }
int ckpm_fake_start_kernel(void) { return ended(launch_error); }

// Called by the test.
void ckpm_fake_set(int cus, int of_device, int of_launch, int stale, const char* exception)
{
    compute_units  = cus;
    device_error   = static_cast<hipError_t>(of_device);
    launch_error   = static_cast<hipError_t>(of_launch);
    last_error     = static_cast<hipError_t>(stale);
    throws         = exception != nullptr;
    exception_text = throws ? exception : "";
    last_record.clear();
    launches = 0;
}
void ckpm_fake_set_device(const char* name) { device_name = name; }
const char* ckpm_fake_device(void) { return device_name.c_str(); }
const char* ckpm_fake_record(void) { return last_record.c_str(); }
int ckpm_fake_launches(void) { return launches; }
}
