// Launching, as generated code asks for it: stream_config, make_kernel, launch_kernel. Nothing
// runs; see core.hpp.
#pragma once

#include "ck_tile/core.hpp"

#include <stdexcept>

namespace ck_tile {

struct stream_config
{
    hipStream_t stream_id_ = nullptr;
    bool time_kernel_      = false;
    int log_level_         = 0;
    int cold_niters_       = 3;
    int nrepeat_           = 10;
    bool is_gpu_timer_     = true;
    bool flush_cache_      = false;
    int rotating_count_    = 1;
};

// A kernel with its grid, ready to be launched.
template <int MinBlockPerCu, typename Arch, typename Kernel, typename Kargs>
struct Launch
{
    dim3 grid, block;
    std::size_t lds_bytes;
    Kargs kargs;

    void operator()(const stream_config& s) const
    {
        Record record;
        record.line("blocks_per_cu", MinBlockPerCu);
        record.line("arch_is_void", std::is_void_v<Arch>);
        record.line(
            "grid",
            std::to_string(grid.x) + "x" + std::to_string(grid.y) + "x" + std::to_string(grid.z));
        record.line("block",
                    std::to_string(block.x) + "x" + std::to_string(block.y) + "x" +
                        std::to_string(block.z));
        record.line("lds_bytes", lds_bytes);
        record.line("stream", s.stream_id_);
        record.line("timed", s.time_kernel_);
        record.line("warmup", s.cold_niters_);
        record.line("repeat", s.nrepeat_);
        Kernel::describe(record);
        kargs.describe(record);
        ckpm_fake_take(record.text());
    }
};

template <int MinBlockPerCu, typename Arch = void, typename Kernel, typename Kargs>
auto make_kernel(Kernel, dim3 grid, dim3 block, std::size_t lds_bytes, Kargs kargs)
{
    return Launch<MinBlockPerCu, Arch, Kernel, Kargs>{grid, block, lds_bytes, kargs};
}

// Like CK's: it throws on a HIP error, and returns 0 or, if timed, a mean time (here 1.5 ms).
template <typename... Callables>
float launch_kernel(const stream_config& s, Callables&&... callables)
{
    (callables(s), ...);
    if(const char* text = ckpm_fake_wanted_exception())
    {
        if(*text == 0)
            throw 1;
        throw std::logic_error(text);
    }
    if(const int status = ckpm_fake_start_kernel())
    {
        (void)hipGetLastError();
        throw std::runtime_error(std::string("HIP Function Failed (x.hpp,1) ") +
                                 hipGetErrorString(static_cast<hipError_t>(status)));
    }
    return s.time_kernel_ ? 1.5f : 0.0f;
}

} // namespace ck_tile
