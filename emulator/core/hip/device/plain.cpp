// Functions of HIP's interface whose answer is a value and no error code.
#include "hip/types.h"

HIP_API hipError_t hipStreamGetDevice(hipStream_t stream, int* device);

// The device of a stream; -1 for other handles.
HIP_API int hipGetStreamDeviceId(hipStream_t stream)
{
    int device = -1;
    (void)hipStreamGetDevice(stream, &device);
    return device;
}

// hip/driver_types.h: bits of x, y, z, w, and signed 0, unsigned 1, float 2, none 3. There are no
// textures, so nothing here reads one.
struct hipChannelFormatDesc
{
    int x, y, z, w;
    int kind;
};

HIP_API hipChannelFormatDesc hipCreateChannelDesc(int x, int y, int z, int w, int kind) { return {x, y, z, w, kind}; }
