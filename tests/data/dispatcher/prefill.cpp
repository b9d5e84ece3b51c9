/* Batch prefill: one sequence of 5 queries over 37 keys, two query heads on one KV head, in pages
 * of one token whose order is reversed; compared with attention in double. main(folder...) */
#include "attention.hpp"

CKPM_KERNEL_SET(prefill,
                "aiter",
                "family=batch_prefill dtype=bf16 mode=group hdim_q=128 tile.bm0=64 "
                "logits=false bias=no mask=no lse=false dropout=false qscale=no");

static int run(const ckpm::Registry<ckpm::BatchPrefill>& registry)
{
    registry.demand(prefill);
    const int keys = 37;
    Sizes sizes{5, 2, 128, {}};
    for(int token = 0; token < keys; ++token)
        sizes.rows.push_back(keys - 1 - token);
    std::vector<int32_t> pages(sizes.rows.begin(), sizes.rows.end());
    pages.resize(keys + 256); /* CK of aiter reads beyond the list's end: its callers leave room */
    const int queries = sizes.queries * sizes.heads * sizes.dim;

    ckpm_problem problem = ckpm::Library<ckpm::BatchPrefill>::problem();
    std::strcpy(problem.data_type, "bf16");
    problem.q               = on_device(tensor(queries, Q));
    problem.k               = on_device(tensor(keys * sizes.dim, K));
    problem.v               = on_device(tensor(keys * sizes.dim, V));
    problem.o               = on_device(std::vector<uint16_t>(queries, 0x7fff));
    problem.seqstart_q      = on_device(std::vector<int32_t>{0, sizes.queries});
    problem.kv_indptr       = on_device(std::vector<int32_t>{0, keys});
    problem.kv_page_indices = on_device(pages);
    problem.batch           = 1;
    problem.seqlen_q = problem.max_seqlen_q = sizes.queries;
    problem.seqlen_k = problem.num_total_pages = keys;
    problem.hdim_q = problem.hdim_v = sizes.dim;
    problem.nhead_q                 = sizes.heads;
    problem.nhead_k = problem.page_size = 1;
    problem.stride_q = problem.stride_o = sizes.heads * sizes.dim;
    problem.nhead_stride_q = problem.nhead_stride_o = sizes.dim;
    problem.stride_k = problem.stride_v = sizes.dim;
    problem.nhead_stride_k = problem.nhead_stride_v = sizes.dim;
    problem.batch_stride_k = problem.batch_stride_v = sizes.dim;
    problem.window_left = problem.window_right = -1;
    problem.is_group_mode = problem.is_v_rowmajor = 1;
    problem.scale_s                               = 1 / std::sqrt(static_cast<float>(sizes.dim));
    problem.scale_p = problem.scale_o = 1;

    launch(registry, prefill.patterns[0].c_str(), problem);
    return compare(sizes, problem.o, problem.scale_s);
}

int main(int count, char** words) { return run_with<ckpm::BatchPrefill>(count, words, run); }
