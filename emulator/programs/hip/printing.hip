// printf in kernels, by the first argument: `host` and `device` print the same formats on the host
// and on the device, with the results of printf; `lanes` prints a line in each odd thread of 3
// workgroups; `strings` prints strings of the given lengths; `odd` has formats that differ from the
// host's.
#include "check.h"
#include "device_library.h"

#include <cmath>
#include <cstring>
#include <limits>

struct Values
{
    int n, width, precision;
    unsigned u;
    long long big;
    size_t size;
    short small;
    signed char tiny;
    double x, huge, least, infinite, none, minus;
    float f;
    const char* text;
    void* pointer;
};

#define PRINT(...) total += printf(__VA_ARGS__)

__host__ __device__ void print_all(const Values& v)
{
    int total = 0;
    PRINT("no arguments, 100%%\n");
    PRINT("");
    PRINT("%d %i %5d|%-5d|%05d %+d % d\n", v.n, -v.n, v.n, v.n, v.n, v.n, v.n);
    PRINT("%u %o %x %X %#x %#o %08x %c%c\n", v.u, v.u, v.u, v.u, v.u, v.u, v.u, v.n, v.n + 1);
    PRINT("%hhd %hd %ld %lld %llu %zu %jx\n",
          v.tiny,
          v.small,
          long(v.big),
          v.big,
          v.big,
          v.size,
          v.big);
    PRINT("%hhu %hx %hho\n", v.n * 7, v.n * 1000, v.n * 9);
    PRINT("%f %.3f %10.2f|%-10.2f|%+.1f %.0f %#.0f\n", v.x, v.x, v.x, v.x, v.x, v.x, v.x);
    PRINT("%e %E %g %G %a %A %.2e %.10g\n", v.x, v.x, v.huge, v.huge, v.x, v.x, v.huge, v.x);
    PRINT("%f %F %e %g %g %g\n", v.infinite, v.infinite, v.none, v.minus, v.least, v.f);
    PRINT("%s|%10s|%-10s|%.3s|%10.2s|%s\n", v.text, v.text, v.text, v.text, v.text, "literal");
    PRINT("%s after %s before %d\n",
          "",
          "a literal of more than fifty-six bytes, so of two packets",
          v.n);
    PRINT("%*d|%-*d|%.*f|%*.*f|%.*s|\n",
          v.width,
          v.n,
          v.width,
          v.n,
          v.precision,
          v.x,
          v.width,
          v.precision,
          v.x,
          v.precision,
          v.text);
    PRINT("%p %p %16p\n", v.pointer, static_cast<void*>(nullptr), v.pointer);
    PRINT(
        "%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d\n", 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    PRINT("%s%d%s%d%s%f\n", "a", v.n, "bc", v.n, "def", v.x);
    printf("%d bytes\n", total);
}

__global__ void print_values(Values values) { print_all(values); }

__global__ void print_lanes()
{
    if(threadIdx.x % 2 == 0)
        return;
    const int bytes = printf("workgroup %u thread %u\n", blockIdx.x, threadIdx.x);
    if(threadIdx.x % 4 == 1)
        printf("%d bytes for %u of %u\n", bytes, threadIdx.x, blockIdx.x);
}

__global__ void print_strings(const char* text, const int* lengths)
{
    // Each string ends where the text ends.
    printf("%d:%s:%d\n", lengths[threadIdx.x], text - lengths[threadIdx.x], threadIdx.x);
}

__global__ void print_odd(const char* format, int* place)
{
    printf("null %s.\n", static_cast<const char*>(nullptr));
    printf("count %n%d\n", place, 5);
    printf(format, 6, 7);
}

static void strings(int count, char** words)
{
    constexpr int MOST = 10000;
    char* text;
    int* lengths;
    HIP_CHECK(hipMallocManaged(reinterpret_cast<void**>(&text), MOST + 1, 1));
    HIP_CHECK(hipMallocManaged(reinterpret_cast<void**>(&lengths), count * sizeof(int), 1));
    for(int i = 0; i < MOST; ++i)
        text[i] = static_cast<char>('a' + (MOST - i) % 26);
    text[MOST] = 0;
    for(int i = 0; i < count; ++i)
        lengths[i] = std::atoi(words[i]);
    print_strings<<<dim3(1), dim3(count)>>>(text + MOST, lengths);
}

static void odd()
{
    constexpr char FORMAT[] = "by address %d, %d\n";
    char* format;
    int* place;
    HIP_CHECK(hipMallocManaged(reinterpret_cast<void**>(&format), sizeof FORMAT, 1));
    HIP_CHECK(hipMallocManaged(reinterpret_cast<void**>(&place), sizeof *place, 1));
    std::memcpy(format, FORMAT, sizeof FORMAT);
    *place = 77;
    print_odd<<<dim3(1), dim3(1)>>>(format, place);
    HIP_CHECK(hipDeviceSynchronize());
    std::printf("%d\n", *place);
}

static Values values(const char* text)
{
    const double infinite = std::numeric_limits<double>::infinity();
    return {65,
            9,
            3,
            0xbeef,
            -1234567890123456789,
            9876543210,
            -12345,
            -7,
            1.0 / 3,
            6.02214076e23,
            5e-324,
            infinite,
            std::nan(""),
            -0.0,
            0.1f,
            text,
            reinterpret_cast<void*>(0x7f00deadbeef)};
}

int main(int count, char** words)
{
    const char* const mode = words[1];
    char* text;
    HIP_CHECK(hipMallocManaged(reinterpret_cast<void**>(&text), 16, 1));
    std::strcpy(text, "a string");
    if(std::strcmp(mode, "host") == 0)
        print_all(values(text));
    else if(std::strcmp(mode, "device") == 0)
        print_values<<<dim3(1), dim3(1)>>>(values(text));
    else if(std::strcmp(mode, "lanes") == 0)
        print_lanes<<<dim3(3), dim3(130)>>>();
    else if(std::strcmp(mode, "strings") == 0)
        strings(count - 2, words + 2);
    else
        odd();
    HIP_CHECK(hipDeviceSynchronize());
    std::printf("end\n");
    return 0;
}
