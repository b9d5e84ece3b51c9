// What a kernel needs, and how many of its workgroups a compute unit holds at once.
#include "hip/call.h"
#include "hip/launch/launch.h"

#include <algorithm>

namespace emu {
namespace {
// hipFuncAttributes of HIP 4 to 7.
struct FunctionAttributes
{
    int binary_version, cache_mode;
    size_t constant_bytes, scratch_bytes;
    int dynamic_lds_bytes, max_threads, registers, carveout, ptx_version;
    size_t lds_bytes;
};
static_assert(sizeof(FunctionAttributes) == 56);

// A compute unit of gfx9 (ISA documents, "Vector registers"; LLVM AMDGPU usage, "rsrc1").
constexpr unsigned SIMDS = 4, WAVES_OF_A_SIMD = 8, ROWS_OF_A_SIMD = 512, GRANULE = 8, LANES = 64;
} // namespace

unsigned registers_of(const Kernel& kernel) { return ((kernel.rsrc1 & 63) + 1) * GRANULE; }

int resident_workgroups(const Kernel& kernel, int threads, size_t dynamic_lds)
{
    require(threads > 0 && threads <= 1024, hipErrorInvalidValue, "a workgroup has 1 to 1024 threads");
    const unsigned waves = (static_cast<unsigned>(threads) + LANES - 1) / LANES;
    const unsigned slots = SIMDS * std::min(WAVES_OF_A_SIMD, ROWS_OF_A_SIMD / registers_of(kernel));
    const size_t lds     = kernel.lds_bytes + dynamic_lds;
    const size_t by_lds  = lds ? current_arch().lds_bytes / lds : slots;
    return static_cast<int>(std::min<size_t>(slots / waves, by_lds));
}

namespace {
// The block that fills most of a compute unit: the largest one of several.
void best_block(int* grid, int* block, const Kernel& kernel, size_t dynamic_lds, unsigned threads_limit)
{
    require(grid && block, hipErrorInvalidValue, "null pointer");
    unsigned most = kernel.max_workgroup ? std::min(kernel.max_workgroup, 1024u) : 1024u;
    if(threads_limit)
        most = std::min(most, threads_limit);
    int best = 0, resident = 0;
    for(unsigned threads = most; threads > 0; threads = threads > LANES ? threads - LANES : 0)
    {
        const int held = resident_workgroups(kernel, static_cast<int>(threads), dynamic_lds);
        if(held * static_cast<int>(threads) > best * resident)
        {
            best     = static_cast<int>(threads);
            resident = held;
        }
    }
    *block = best;
    *grid  = resident * current_arch().compute_units;
}
} // namespace
} // namespace emu

HIP_API hipError_t hipFuncGetAttributes(emu::FunctionAttributes* out, const void* function)
{
    return hip_call("hipFuncGetAttributes", Needs::Device, [&] {
        require(out, hipErrorInvalidValue, "null pointer");
        const emu::Kernel& kernel = emu::registered_kernel(function);
        const uint32_t lds        = emu::current_arch().lds_bytes;
        *out                      = {};
        out->binary_version       = 10 * emu::current_arch().major + emu::current_arch().minor;
        out->scratch_bytes        = kernel.scratch_bytes;
        out->dynamic_lds_bytes    = static_cast<int>(lds - std::min(lds, kernel.lds_bytes));
        out->max_threads          = static_cast<int>(kernel.max_workgroup);
        out->registers            = static_cast<int>(emu::registers_of(kernel));
        out->lds_bytes            = kernel.lds_bytes;
    });
}

// The same questions about registered kernels and about modules' functions.
#define OCCUPANCY(prefix, Function, kernel_of)                                                                        \
    HIP_API hipError_t prefix##MaxActiveBlocksPerMultiprocessor(int* blocks, Function function, int threads,          \
                                                                size_t dynamic_lds)                                   \
    {                                                                                                                 \
        return hip_value(#prefix "MaxActiveBlocksPerMultiprocessor", Needs::Device, blocks,                           \
                         [&] { return emu::resident_workgroups(emu::kernel_of(function), threads, dynamic_lds); });   \
    }                                                                                                                 \
    HIP_API hipError_t prefix##MaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, Function function, int threads, \
                                                                         size_t dynamic_lds, unsigned int)            \
    {                                                                                                                 \
        return prefix##MaxActiveBlocksPerMultiprocessor(blocks, function, threads, dynamic_lds);                      \
    }                                                                                                                 \
    HIP_API hipError_t prefix##MaxPotentialBlockSize(int* grid, int* block, Function function, size_t dynamic_lds,    \
                                                     int threads_limit)                                               \
    {                                                                                                                 \
        return hip_call(#prefix "MaxPotentialBlockSize", Needs::Device, [&] {                                         \
            const unsigned most = static_cast<unsigned>(std::max(0, threads_limit));                                  \
            emu::best_block(grid, block, emu::kernel_of(function), dynamic_lds, most);                                \
        });                                                                                                           \
    }
OCCUPANCY(hipOccupancy, const void*, registered_kernel)
OCCUPANCY(hipModuleOccupancy, hipFunction_t, module_kernel)

HIP_API hipError_t hipOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, const void* function, int workgroups,
                                                            int threads)
{
    return hip_value("hipOccupancyAvailableDynamicSMemPerBlock", Needs::Device, bytes, [&]() -> size_t {
        const emu::Kernel& kernel = emu::registered_kernel(function);
        require(workgroups > 0 && emu::resident_workgroups(kernel, threads, 0) >= workgroups, hipErrorInvalidValue,
                "a compute unit does not hold so many workgroups");
        return emu::current_arch().lds_bytes / static_cast<unsigned>(workgroups) - kernel.lds_bytes;
    });
}

HIP_API hipError_t hipModuleOccupancyMaxPotentialBlockSizeWithFlags(int* grid, int* block, hipFunction_t function,
                                                                    size_t dynamic_lds, int threads_limit, unsigned)
{
    return hipModuleOccupancyMaxPotentialBlockSize(grid, block, function, dynamic_lds, threads_limit);
}
