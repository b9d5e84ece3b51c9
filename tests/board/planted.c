// In the place of ROCm's runtime: the emulator's, with the failure that CKPM_TEST_PLANTED names.
// A launch begins it, and the file CKPM_TEST_BROKEN keeps it until somebody deletes the file.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int planted(const char* failure)
{
    const char* name = getenv("CKPM_TEST_PLANTED");
    return name && !strcmp(name, failure);
}

static int broken(void) { return access(getenv("CKPM_TEST_BROKEN"), F_OK) == 0; }

// Waits for ever if the queue hangs. Returns hipErrorUnknown if the device is lost.
static int wait_or_fail(void)
{
    while(broken() && planted("hang"))
        pause();
    return broken() && planted("lost") ? 999 : 0;
}

#define NEXT(name, ...) ((int (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name))

typedef struct
{
    unsigned x, y, z;
} Size;

int hipLaunchKernel(void* kernel, Size grid, Size block, void** arguments, size_t lds, void* stream)
{
    if(planted("hang") || planted("lost"))
        close(open(getenv("CKPM_TEST_BROKEN"), O_CREAT | O_WRONLY, 0600));
    int failed = wait_or_fail();
    return failed ? failed
                  : NEXT(hipLaunchKernel, void*, Size, Size, void**, size_t, void*)(
                        kernel, grid, block, arguments, lds, stream);
}

int hipMalloc(void** memory, size_t bytes)
{
    int failed = wait_or_fail();
    return failed ? failed : NEXT(hipMalloc, void**, size_t)(memory, bytes);
}

int hipDeviceSynchronize(void)
{
    int failed = wait_or_fail();
    return failed ? failed : NEXT(hipDeviceSynchronize, void)();
}

int hipMemcpy(void* to, const void* from, size_t bytes, int kind)
{
    int failed = wait_or_fail();
    failed     = failed ? failed : NEXT(hipMemcpy, void*, const void*, size_t, int)(to, from, bytes, kind);
    if(!failed && kind == 2 && bytes > 4 && planted("wrong"))
        ((unsigned char*)to)[1] ^= 0x40; // of the first element
    return failed;
}
