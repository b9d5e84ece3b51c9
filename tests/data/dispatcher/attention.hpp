/* What the programs here share: numbers, device memory, attention in double. */
#pragma once

#include "ckpm_dispatcher.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

/* Of hip/hip_runtime_api.h: these programs need no ROCm to be compiled. */
extern "C" {
int hipMalloc(void** place, size_t bytes);
int hipMemcpy(void* to, const void* from, size_t bytes, int kind);
int hipStreamCreate(void** stream);
int hipStreamSynchronize(void* stream);
}

constexpr int TO_DEVICE = 1, TO_HOST = 2;
constexpr int Q = 3, K = 5, V = 7; /* seeds of the tensors */

/* Numbers that bf16 holds exactly. */
inline float value(int index, int seed)
{
    return static_cast<float>((index * 37 + seed) % 33 - 16) / 32;
}

inline uint16_t to_bf16(float number)
{
    uint32_t bits;
    std::memcpy(&bits, &number, sizeof(bits));
    return static_cast<uint16_t>(bits >> 16);
}

inline float from_bf16(uint16_t half)
{
    const uint32_t bits = static_cast<uint32_t>(half) << 16;
    float number;
    std::memcpy(&number, &bits, sizeof(number));
    return number;
}

inline void demand(int status, const char* what)
{
    if(status != 0)
        throw ckpm::Error(what);
}

template <class T>
T* on_device(const std::vector<T>& values)
{
    void* place = nullptr;
    demand(hipMalloc(&place, values.size() * sizeof(T)), "no device memory");
    demand(hipMemcpy(place, values.data(), values.size() * sizeof(T), TO_DEVICE), "no copy");
    return static_cast<T*>(place);
}

inline std::vector<uint16_t> tensor(int count, int seed)
{
    std::vector<uint16_t> values(count);
    for(int index = 0; index < count; ++index)
        values[index] = to_bf16(value(index, seed));
    return values;
}

struct Sizes
{
    int queries, heads, dim;
    std::vector<int> rows; /* of K and V, in the order of the keys; one KV head */
};

/* O of a query and head, by definition. */
inline std::vector<double> expected(const Sizes& sizes, int query, int head, double scale)
{
    const int dim = sizes.dim;
    std::vector<double> output(dim);
    double sum = 0;
    for(const int row : sizes.rows)
    {
        double score = 0;
        for(int at = 0; at < dim; ++at)
            score += static_cast<double>(value((query * sizes.heads + head) * dim + at, Q)) *
                     value(row * dim + at, K);
        const double weight = std::exp(score * scale);
        sum += weight;
        for(int at = 0; at < dim; ++at)
            output[at] += weight * value(row * dim + at, V);
    }
    for(double& one : output)
        one /= sum;
    return output;
}

/* 0 if O [query, head, dim] on the device agrees. Half a step of bf16's 8 bits for numbers under
 * 0.5 is 1e-3; the weights are rounded as well. */
inline int compare(const Sizes& sizes, const void* place, double scale)
{
    const int dim = sizes.dim;
    std::vector<uint16_t> output(static_cast<size_t>(sizes.queries) * sizes.heads * dim);
    demand(hipMemcpy(output.data(), place, output.size() * 2, TO_HOST), "O can't be read");
    double worst = 0;
    for(int query = 0; query < sizes.queries; ++query)
        for(int head = 0; head < sizes.heads; ++head)
        {
            const std::vector<double> row = expected(sizes, query, head, scale);
            for(int at = 0; at < dim; ++at)
            {
                const float ours = from_bf16(output[(query * sizes.heads + head) * dim + at]);
                worst            = std::isnan(ours) ? 1 : std::max(worst, std::abs(row[at] - ours));
            }
        }
    std::printf("largest error %.2g\n", worst);
    return worst < 4e-3 ? 0 : 1;
}

/* The exit code of what a program does with the folders that it is given; an Error's message. */
template <class Abi, class Act>
int run_with(int count, char** words, Act act)
{
    std::setvbuf(stdout, nullptr, _IONBF, 0);
    try
    {
        ckpm::Registry<Abi> registry;
        for(int at = 1; at < count; ++at)
            registry.add(words[at]);
        return act(registry);
    }
    catch(const ckpm::Error& error)
    {
        std::printf("error: %s\n", error.what());
        return 2;
    }
}

template <class Abi>
ckpm::Launched launch(const ckpm::Registry<Abi>& registry,
                      const char* pattern,
                      typename Abi::Problem problem)
{
    const auto [library, kernel] = registry.find(pattern);
    std::printf("kernel %s\n", kernel->name.c_str());
    void* stream = nullptr;
    demand(hipStreamCreate(&stream), "no stream");
    const ckpm::Launched launched = library->launch(problem, stream, kernel);
    demand(hipStreamSynchronize(stream), "the launch failed");
    std::printf("launched %s\n", launched.kernels.at(0).c_str());
    return launched;
}
