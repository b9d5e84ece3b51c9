// In the place of ROCm's runtime: the emulator's, with the failure that CKPM_TEST_PLANTED names.
// A launch begins it, and the file CKPM_TEST_BROKEN keeps it until somebody deletes the file.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NEXT(name, ...) ((int (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name))
#define TRY(call) (wait_or_fail() ? wait_or_fail() : (call))

typedef struct { unsigned x, y, z; } Size;

static __thread int device; // as in ROCm, each thread has its own

static int planted(const char* failure) { return !strcmp(getenv("CKPM_TEST_PLANTED"), failure); }

// With two boards the emulated one is the second; with "stuck" no thread can choose it.
static int second(void) { return planted("second") || planted("stuck"); }

// Wait for ever if the queue hangs. Return hipErrorUnknown if the device is lost, hipErrorInvalidDevice for another board.
static int wait_or_fail(void)
{
    int broken = access(getenv("CKPM_TEST_BROKEN"), F_OK) == 0;
    while(broken && planted("hang")) pause();
    return broken && planted("lost") ? 999 : device != second() ? 101 : 0;
}

int hipGetDeviceCount(int* count)
{
    int failed = NEXT(hipGetDeviceCount, int*)(count);
    *count += second();
    return failed;
}

int hipSetDevice(int number)
{
    device = planted("stuck") ? 0 : number;
    return number > second() ? 101 : 0;
}

int hipGetDevice(int* number)
{
    *number = device;
    return 0;
}

int hipGetDevicePropertiesR0600(char* properties, int number)
{
    int failed = NEXT(hipGetDevicePropertiesR0600, char*, int)(properties, 0);
    if(number < second()) *(size_t*)(properties + 288) = 1; // totalGlobalMem
    if(number < second()) strcpy(properties + 1160, "gfx942"); // gcnArchName
    return failed;
}

int hipDeviceGetPCIBusId(char* text, int size, int number)
{
    return number < second() ? 101 : NEXT(hipDeviceGetPCIBusId, char*, int, int)(text, size, 0);
}

int hipLaunchKernel(void* kernel, Size grid, Size block, void** arguments, size_t lds, void* stream)
{
    if(planted("hang") || planted("lost")) close(open(getenv("CKPM_TEST_BROKEN"), O_CREAT | O_WRONLY, 0600));
    if(planted("killed")) kill(getppid(), SIGKILL); // the step, whose worker this is
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
