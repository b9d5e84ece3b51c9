// Processes and threads that use the device, by the first argument: `before` forks before the
// parent uses it, `after` forks later, `again` starts this program as a child, `threads` launches
// from several threads.
#include "check.h"

#include <cstring>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

__global__ void multiply(int* x, int factor) { x[blockIdx.x * blockDim.x + threadIdx.x] *= factor; }

// The sum of 128 times `start` times `factor`; the device memory if asked for.
static int use_device(int start, int factor, int** keep = nullptr)
{
    constexpr int N = 128;
    int host[N], *x, sum = 0;
    for(int& one : host)
        one = start;
    HIP_CHECK(hipMalloc(&x, sizeof host));
    HIP_CHECK(hipMemcpy(x, host, sizeof host, hipMemcpyHostToDevice));
    multiply<<<dim3(2), dim3(64)>>>(x, factor);
    HIP_CHECK(hipMemcpy(host, x, sizeof host, hipMemcpyDeviceToHost));
    for(const int one : host)
        sum += one;
    if(keep)
        *keep = x;
    else
        HIP_CHECK(hipFree(x));
    return sum;
}

template <typename Child>
static void in_child(Child child)
{
    std::fflush(stdout);
    const pid_t pid = fork();
    if(pid == 0)
    {
        child();
        std::exit(0);
    }
    int status;
    if(waitpid(pid, &status, 0) != pid || status != 0)
        std::exit(4);
}

int main(int, char** words)
{
    const char* what = words[1];
    if(std::strcmp(what, "before") == 0)
    {
        in_child([] { std::printf("child %d\n", use_device(2, 3)); });
        std::printf("parent %d\n", use_device(5, 7));
    }
    if(std::strcmp(what, "after") == 0)
    {
        int *x, first;
        std::printf("parent %d\n", use_device(5, 7, &x));
        in_child([x] {
            std::printf("child %d\n", use_device(2, 3));
            multiply<<<dim3(2), dim3(64)>>>(x, 1000); // its own copy
            HIP_CHECK(hipDeviceSynchronize());
            HIP_CHECK(hipFree(x));
        });
        HIP_CHECK(hipMemcpy(&first, x, sizeof first, hipMemcpyDeviceToHost));
        HIP_CHECK(hipFree(x));
        std::printf("parent %d\n", first);
    }
    if(std::strcmp(what, "again") == 0)
    {
        std::printf("parent %d\n", use_device(5, 7));
        in_child([words] {
            execl(words[0], words[0], "child", nullptr);
            std::exit(5);
        });
    }
    if(std::strcmp(what, "child") == 0)
        std::printf("child %d\n", use_device(2, 3));
    if(std::strcmp(what, "threads") == 0)
    {
        constexpr int THREADS = 6;
        int sums[THREADS];
        std::vector<std::thread> threads;
        for(int i = 0; i < THREADS; ++i)
            threads.emplace_back([i, &sums] { sums[i] = use_device(i, 11); });
        for(std::thread& thread : threads)
            thread.join();
        for(const int sum : sums)
            std::printf("%d\n", sum);
    }
    return 0;
}
