/* Forward in batch mode: 5 queries over 70 keys, two query heads on one KV head, compared with
 * attention in double. Dispatch chooses; the kernel is a declared one. main(folder...) */
#include "attention.hpp"

CKPM_KERNEL_SET(forward,
                "aiter",
                "family=fwd dtype=bf16 mode=batch hdim_q=64 pad=psskddv pipeline=qr_async "
                "trload=false logits=false bias=no mask=no lse=false dropout=false skip=false "
                "qscale=no");

static int run(const ckpm::Registry<ckpm::Forward>& registry)
{
    registry.demand(forward);
    const int keys = 70;
    Sizes sizes{5, 2, 64, {}};
    for(int token = 0; token < keys; ++token)
        sizes.rows.push_back(token);
    const int queries = sizes.queries * sizes.heads * sizes.dim;

    ckpm_fwd_problem problem = ckpm::Library<ckpm::Forward>::problem();
    std::strcpy(problem.data_type, "bf16");
    problem.q        = on_device(tensor(queries, Q));
    problem.k        = on_device(tensor(keys * sizes.dim, K));
    problem.v        = on_device(tensor(keys * sizes.dim, V));
    problem.o        = on_device(std::vector<uint16_t>(queries, 0x7fff));
    problem.batch    = 1;
    problem.seqlen_q = problem.max_seqlen_q = sizes.queries;
    problem.seqlen_k                        = keys;
    problem.hdim_q = problem.hdim_v = sizes.dim;
    problem.nhead_q                 = sizes.heads;
    problem.nhead_k                 = 1;
    problem.stride_q = problem.stride_o = sizes.heads * sizes.dim;
    problem.nhead_stride_q = problem.nhead_stride_o = sizes.dim;
    problem.stride_k = problem.stride_v = sizes.dim;
    problem.nhead_stride_k = problem.nhead_stride_v = sizes.dim;
    problem.batch_stride_q = problem.batch_stride_o = queries;
    problem.batch_stride_k = problem.batch_stride_v = keys * sizes.dim;
    problem.nhead_stride_lse = problem.batch_stride_lse = sizes.queries;
    problem.window_left = problem.window_right = -1;
    problem.is_v_rowmajor                      = 1;
    problem.scale_s                            = 1 / std::sqrt(static_cast<float>(sizes.dim));
    problem.scale_p = problem.scale_o = 1;

    launch(registry, forward.patterns[0].c_str(), problem);
    return compare(sizes, problem.o, problem.scale_s);
}

int main(int count, char** words) { return run_with<ckpm::Forward>(count, words, run); }
