/* One sequence of 5 queries over 37 keys, two query heads on one KV head, in pages of one token
 * whose order is reversed; compared with attention in double. main(folder...) */
#include "ckpm_dispatcher.hpp"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

/* Of hip/hip_runtime_api.h: this program needs no ROCm to be compiled. */
extern "C" {
int hipMalloc(void** place, size_t bytes);
int hipMemcpy(void* to, const void* from, size_t bytes, int kind);
int hipStreamCreate(void** stream);
int hipStreamSynchronize(void* stream);
}

CKPM_KERNEL_SET(prefill,
                "aiter",
                "family=batch_prefill dtype=bf16 mode=group hdim_q=128 tile.bm0=64 "
                "logits=false bias=no mask=no lse=false dropout=false qscale=no");

namespace {

constexpr int TO_DEVICE = 1, TO_HOST = 2;
constexpr int QUERIES = 5, KEYS = 37, HEADS = 2, DIM = 128;

/* Numbers that bf16 holds exactly. */
float value(int index, int seed) { return static_cast<float>((index * 37 + seed) % 33 - 16) / 32; }

uint16_t to_bf16(float number)
{
    uint32_t bits;
    std::memcpy(&bits, &number, sizeof(bits));
    return static_cast<uint16_t>(bits >> 16);
}

float from_bf16(uint16_t half)
{
    const uint32_t bits = static_cast<uint32_t>(half) << 16;
    float number;
    std::memcpy(&number, &bits, sizeof(number));
    return number;
}

template <class T>
T* on_device(const std::vector<T>& values)
{
    void* place = nullptr;
    if(hipMalloc(&place, values.size() * sizeof(T)) != 0 ||
       hipMemcpy(place, values.data(), values.size() * sizeof(T), TO_DEVICE) != 0)
        throw ckpm::Error("no device memory");
    return static_cast<T*>(place);
}

std::vector<uint16_t> tensor(int count, int seed)
{
    std::vector<uint16_t> values(count);
    for(int index = 0; index < count; ++index)
        values[index] = to_bf16(value(index, seed));
    return values;
}

/* O of a query and head by definition; key `token` lies in page KEYS - 1 - token. */
std::vector<double> expected(int query, int head, double scale)
{
    std::vector<double> weights(KEYS), row(DIM);
    double sum = 0;
    for(int token = 0; token < KEYS; ++token)
    {
        double score = 0;
        for(int at = 0; at < DIM; ++at)
            score += static_cast<double>(value((query * HEADS + head) * DIM + at, 3)) *
                     value((KEYS - 1 - token) * DIM + at, 5);
        sum += weights[token] = std::exp(score * scale);
    }
    for(int token = 0; token < KEYS; ++token)
        for(int at = 0; at < DIM; ++at)
            row[at] += weights[token] / sum * value((KEYS - 1 - token) * DIM + at, 7);
    return row;
}

int compare(const std::vector<uint16_t>& output, double scale)
{
    double worst = 0;
    for(int query = 0; query < QUERIES; ++query)
        for(int head = 0; head < HEADS; ++head)
        {
            const std::vector<double> row = expected(query, head, scale);
            for(int at = 0; at < DIM; ++at)
                worst = std::max(
                    worst,
                    std::abs(row[at] - from_bf16(output[(query * HEADS + head) * DIM + at])));
        }
    std::printf("largest error %.2g\n", worst);
    return worst < 4e-3 ? 0 : 1; /* bf16 has 8 bits: half a step of O, whose size is under 0.5, */
} /* and as much again for the weights                           */

int run(const ckpm::Registry<ckpm::BatchPrefill>& registry)
{
    registry.demand(prefill);
    const auto [library, kernel] = registry.find(prefill.patterns[0]);
    std::printf("kernel %s\n", kernel->name.c_str());

    /* CK of aiter reads up to a tile beyond the list's end: its callers leave room there. */
    std::vector<int32_t> pages(KEYS + 256);
    for(int token = 0; token < KEYS; ++token)
        pages[token] = KEYS - 1 - token;
    std::vector<uint16_t> output(QUERIES * HEADS * DIM, 0x7fff);

    ckpm_problem problem = library->problem();
    std::strcpy(problem.data_type, "bf16");
    problem.q               = on_device(tensor(QUERIES * HEADS * DIM, 3));
    problem.k               = on_device(tensor(KEYS * DIM, 5));
    problem.v               = on_device(tensor(KEYS * DIM, 7));
    problem.o               = on_device(output);
    problem.seqstart_q      = on_device(std::vector<int32_t>{0, QUERIES});
    problem.kv_indptr       = on_device(std::vector<int32_t>{0, KEYS});
    problem.kv_page_indices = on_device(pages);
    problem.seqlen_q        = QUERIES;
    problem.seqlen_k        = KEYS;
    problem.max_seqlen_q    = QUERIES;
    problem.batch           = 1;
    problem.hdim_q = problem.hdim_v = DIM;
    problem.nhead_q                 = HEADS;
    problem.nhead_k                 = 1;
    problem.num_total_pages         = KEYS;
    problem.page_size               = 1;
    problem.stride_q = problem.stride_o = HEADS * DIM;
    problem.nhead_stride_q = problem.nhead_stride_o = DIM;
    problem.stride_k = problem.stride_v = DIM;
    problem.nhead_stride_k = problem.nhead_stride_v = DIM;
    problem.batch_stride_k = problem.batch_stride_v = DIM;
    problem.window_left = problem.window_right = -1;
    problem.is_group_mode = problem.is_v_rowmajor = 1;
    problem.scale_s                               = 1 / std::sqrt(static_cast<float>(DIM));
    problem.scale_p = problem.scale_o = 1;

    void* stream = nullptr;
    if(hipStreamCreate(&stream) != 0)
        throw ckpm::Error("no stream");
    const ckpm::Launched launched = library->launch(problem, stream, kernel);
    if(hipStreamSynchronize(stream) != 0)
        throw ckpm::Error("the launch failed");
    std::printf("launched %s\n", launched.kernels.at(0).c_str());
    if(hipMemcpy(output.data(), problem.o, output.size() * 2, TO_HOST) != 0)
        throw ckpm::Error("O can't be read");
    return compare(output, problem.scale_s);
}

} // namespace

int main(int count, char** words)
{
    std::setvbuf(stdout, nullptr, _IONBF, 0);
    try
    {
        ckpm::Registry<ckpm::BatchPrefill> registry;
        for(int at = 1; at < count; ++at)
            registry.add(words[at]);
        return run(registry);
    }
    catch(const ckpm::Error& error)
    {
        std::printf("error: %s\n", error.what());
        return 2;
    }
}
