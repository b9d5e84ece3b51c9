// In the place of ROCm's runtime: the emulator's, with the failure that CKPM_TEST_PLANTED names.
// A launch begins it, and the file CKPM_TEST_BROKEN keeps it until somebody deletes the file.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NEXT(name, ...) ((int (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name))
#define TRY(call) (wait_or_fail() ? 999 : (call)) // hipErrorUnknown

typedef struct { unsigned x, y, z; } Size;

static int planted(const char* failure) { return !strcmp(getenv("CKPM_TEST_PLANTED"), failure); }

// Wait for ever if the queue hangs. Return 1 if the device is lost.
static int wait_or_fail(void)
{
    int broken = access(getenv("CKPM_TEST_BROKEN"), F_OK) == 0;
    while(broken && planted("hang")) pause();
    return broken && planted("lost");
}

int hipLaunchKernel(void* kernel, Size grid, Size block, void** arguments, size_t lds, void* stream)
{
    if(planted("hang") || planted("lost")) close(open(getenv("CKPM_TEST_BROKEN"), O_CREAT | O_WRONLY, 0600));
    return TRY(NEXT(hipLaunchKernel, void*, Size, Size, void**, size_t, void*)(kernel, grid, block, arguments, lds, stream));
}

int hipMalloc(void** memory, size_t bytes) { return TRY(NEXT(hipMalloc, void**, size_t)(memory, bytes)); }

int hipDeviceSynchronize(void) { return TRY(NEXT(hipDeviceSynchronize, void)()); }

int hipMemcpy(void* to, const void* from, size_t bytes, int kind)
{
    int failed = TRY(NEXT(hipMemcpy, void*, const void*, size_t, int)(to, from, bytes, kind));
    if(!failed && kind == 2 && bytes > 4 && planted("wrong")) ((char*)to)[1] ^= 0x40; // of the first element
    return failed;
}
