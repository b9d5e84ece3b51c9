#include "standalone/filter.h"

#include "run/fault.h"

#include <cstdint>
#include <sstream>
#include <utility>

namespace emu {
namespace {
// What a launch can do without; addresses outside of allocations are faults of the device.
constexpr std::pair<const char*, int64_t Options::*> CHECKS[] = {
    {"poison", &Options::poison},
    {"late_loads", &Options::late_loads},
    {"lds_races", &Options::lds_races},
    {"uninitialised", &Options::uninitialised},
    {"uninitialised_memory", &Options::uninitialised_memory},
    {"alignment", &Options::alignment},
    {"unaligned", &Options::unaligned},
    {"barriers", &Options::barriers},
    {"late_lds_reads", &Options::late_lds_reads},
    {"global_races", &Options::global_races},
    {"stream_order", &Options::stream_order},
    {"lds_bounds", &Options::lds_bounds},
    {"open_rules", &Options::open_rules},
};

// Of the launches of kernels that are chosen by name.
bool is_chosen(const std::string& names)
{
    static int64_t launches = 0;
    const Options& now      = options();
    if(names.find(now.checked_kernel) == std::string::npos)
        return false;
    const int64_t number = launches++ - now.launch_skip;
    return number >= 0 && (now.launch_count == 0 || number < now.launch_count);
}
} // namespace

LaunchChecks::LaunchChecks(const std::string& kernel)
{
    const Options& now = options();
    if(now.checked_kernel.empty() && now.launch_skip == 0 && now.launch_count == 0 && now.suppressions.empty())
        return;
    const std::string names   = kernel + "\n" + readable_name(kernel);
    const bool chosen         = is_chosen(names);
    const bool unknown_counts = chosen && !is_suppressed("uninitialised", names);
    for(const auto& [name, member] : CHECKS)
    {
        const bool stays = chosen && !is_suppressed(name, names) &&
                           (member != &Options::uninitialised_memory || unknown_counts); // stands on another
        if(stays || options().*member == 0)
            continue;
        options().*member = 0;
        off_.push_back(member);
    }
}

LaunchChecks::~LaunchChecks()
{
    for(const auto member : off_)
        options().*member = 1;
}

bool is_suppressed(const std::string& check, const std::string& text)
{
    std::istringstream lines(options().suppressions);
    for(std::string line; std::getline(lines, line, ';');)
    {
        const size_t blank = line.find(' ');
        if(line.substr(0, blank) == check &&
           (blank == std::string::npos || text.find(line.substr(blank + 1)) != std::string::npos))
            return true;
    }
    return false;
}
} // namespace emu
