#include "timing/numbers.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>

namespace emu {
namespace {
struct Named
{
    const char* name;
    uint32_t Numbers::* member;
    uint32_t least;
};

constexpr uint32_t MOST = 1u << 30;

constexpr Named NAMED[] = {
    {"issue_cycles", &Numbers::issue_cycles, 1},
    {"vector_cycles", &Numbers::vector_cycles, 1},
    {"transcendental_cycles", &Numbers::transcendental_cycles, 1},
    {"permlane_swap_cycles", &Numbers::permlane_swap_cycles, 1},
    {"packed_cycles", &Numbers::packed_cycles, 1},
    {"vector_result_cycles", &Numbers::vector_result_cycles, 0},
    {"matrix_read_cycles", &Numbers::matrix_read_cycles, 0},
    {"matrix_result_cycles", &Numbers::matrix_result_cycles, 0},
    {"packed_after_matrix", &Numbers::packed_after_matrix, 0},
    {"packed_apart", &Numbers::packed_apart, 0},
    {"branch_cycles", &Numbers::branch_cycles, 1},
    {"barrier_cycles", &Numbers::barrier_cycles, 0},
    {"lds_read_bytes", &Numbers::lds_read_bytes, 1},
    {"lds_write_bytes", &Numbers::lds_write_bytes, 1},
    {"lds_pair_bytes", &Numbers::lds_pair_bytes, 1},
    {"lds_queue", &Numbers::lds_queue, 1},
    {"lds_address_cycles", &Numbers::lds_address_cycles, 0},
    {"lds_return_cycles", &Numbers::lds_return_cycles, 0},
    {"memory_latency", &Numbers::memory_latency, 0},
    {"memory_bytes", &Numbers::memory_bytes, 1},
    {"memory_line_cycles", &Numbers::memory_line_cycles, 0},
    {"memory_in_flight", &Numbers::memory_in_flight, 1},
    {"scalar_memory_latency", &Numbers::scalar_memory_latency, 0},
    {"workgroups", &Numbers::workgroups, 1},
    {"start_offset", &Numbers::start_offset, 0},
    {"timeline_from", &Numbers::timeline_from, 0},
    {"timeline_bin", &Numbers::timeline_bin, 1},
    {"timeline_bins", &Numbers::timeline_bins, 0},
};
} // namespace

Numbers numbers_of(const char* const* names, const uint64_t* values, size_t count)
{
    Numbers numbers{};
    for(size_t i = 0; i < count; ++i)
    {
        const std::string name = names[i];
        const auto named       = std::ranges::find_if(NAMED, [&](const Named& one) { return one.name == name; });
        if(named == std::end(NAMED))
            throw std::invalid_argument("the timing model has no number '" + name + "'");
        if(values[i] < named->least || values[i] > MOST)
            throw std::invalid_argument("the timing model's " + name + " can't be " + std::to_string(values[i]));
        numbers.*(named->member) = static_cast<uint32_t>(values[i]);
    }
    for(const Named& named : NAMED)
    {
        const auto given = [&](const char* name) { return named.name == std::string(name); };
        if(std::none_of(names, names + count, given))
            throw std::invalid_argument(std::string("the timing model needs ") + named.name);
    }
    return numbers;
}
} // namespace emu
