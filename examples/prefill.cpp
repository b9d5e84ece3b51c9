/* Batch prefill from C++: a query of one head over 37 keys in pages whose order is reversed.
 * main(library's folder, file): cpp.py writes q, k, v in bf16 into the file and reads O from it. */
#include "ckpm_dispatcher.hpp"

#include <cmath>
#include <cstdio>
#include <cstring>

CKPM_KERNEL_SET(prefill,
                "aiter",
                "family=batch_prefill dtype=bf16 mode=group hdim_q=128 tile.bm0=64 logits=false "
                "bias=no mask=no lse=false dropout=false");
extern "C" int hipMalloc(void**, size_t), hipMemcpy(void*, const void*, size_t, int);
constexpr int KEYS = 37, DIM = 128, TO_DEVICE = 1, TO_HOST = 2;

template <class T>
T* upload(const std::vector<T>& values)
{
    void* memory       = nullptr;
    const size_t bytes = values.size() * sizeof(T);
    if(hipMalloc(&memory, bytes) || hipMemcpy(memory, values.data(), bytes, TO_DEVICE))
        throw ckpm::Error("no memory on the device");
    return static_cast<T*>(memory);
}

int main(int, char** arguments)
{
    std::FILE* file = std::fopen(arguments[2], "r+b");
    std::vector<uint16_t> q(DIM), k(KEYS * DIM), v(KEYS * DIM), o(DIM);
    for(auto* part : {&q, &k, &v})
        if(!file || std::fread(part->data(), 2, part->size(), file) != part->size())
            return 2;
    std::vector<int32_t> pages(KEYS + 256); /* CK of aiter reads beyond the list's end */
    for(int key = 0; key < KEYS; ++key)
        pages[key] = KEYS - 1 - key;

    ckpm::Registry<ckpm::BatchPrefill> registry;
    registry.add(arguments[1]);
    const auto [library, kernel] = registry.find(prefill.patterns[0].c_str());

    ckpm_problem p = library->problem();
    std::strcpy(p.data_type, "bf16");
    p.q = upload(q), p.k = upload(k), p.v = upload(v), p.o = upload(o);
    p.seqstart_q = upload<int32_t>({0, 1}), p.kv_indptr = upload<int32_t>({0, KEYS});
    p.kv_page_indices = upload(pages);
    p.batch = p.seqlen_q = p.max_seqlen_q = p.nhead_q = p.nhead_k = p.page_size = 1;
    p.seqlen_k = p.num_total_pages = KEYS, p.hdim_q = p.hdim_v = DIM;
    p.stride_q = p.stride_o = p.stride_k = p.stride_v = p.nhead_stride_q = p.nhead_stride_o = DIM;
    p.nhead_stride_k = p.nhead_stride_v = p.batch_stride_k = p.batch_stride_v = DIM;
    p.window_left = p.window_right = -1, p.is_group_mode = p.is_v_rowmajor = 1;
    p.scale_s = 1 / std::sqrt(float(DIM)), p.scale_p = p.scale_o = 1;
    std::printf("kernel  %s\n", library->launch(p, nullptr, kernel).kernels.at(0).c_str());
    std::fflush(stdout);
    const bool copied = hipMemcpy(o.data(), p.o, 2 * o.size(), TO_HOST) == 0;
    const bool kept   = std::fwrite(o.data(), 2, o.size(), file) == o.size();
    return std::fclose(file) == 0 && copied && kept ? 0 : 1;
}
