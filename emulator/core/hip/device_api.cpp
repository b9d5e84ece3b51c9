// Options by name.
#include "hip/device_api.h"

#include "isa/arch.h"
#include "memory/memory.h"
#include "run/options.h"

#include <cstring>

namespace emu {
namespace {
struct Field
{
    const char* name;
    int64_t Options::* member;
    int64_t least, most;
};

constexpr int64_t ANY = INT64_MAX;
const Field FIELDS[]  = {
    {"arch", &Options::arch, 0, ANY},
    {"cu_count", &Options::cu_count, 1, 4096},
    {"threads", &Options::threads, 1, 1024},
    {"granularity", &Options::granularity, 1, 4096},
    {"srd_range_rule", &Options::srd_range_rule, -1, 1},
    {"poison", &Options::poison, 0, 1},
    {"late_loads", &Options::late_loads, 0, 1},
    {"lds_races", &Options::lds_races, 0, 1},
    {"uninitialised", &Options::uninitialised, 0, 1},
    {"alignment", &Options::alignment, 0, 1},
    {"unaligned", &Options::unaligned, 0, 1},
    {"leaks", &Options::leaks, 0, 1},
    {"heap", &Options::heap, 0, 1},
    {"barriers", &Options::barriers, 0, 1},
    {"late_lds_reads", &Options::late_lds_reads, 0, 1},
    {"interleaved", &Options::interleaved, 0, 1},
    {"global_races", &Options::global_races, 0, 1},
    {"stream_order", &Options::stream_order, 0, 1},
    {"lds_bounds", &Options::lds_bounds, 0, 1},
    {"exact_mfma", &Options::exact_mfma, 0, 1},
    {"open_rules", &Options::open_rules, 0, 1},
    {"launch_skip", &Options::launch_skip, 0, ANY},
    {"launch_count", &Options::launch_count, 0, ANY},
    {"wave_order", &Options::wave_order, 0, ANY},
    {"max_instructions", &Options::max_instructions, 0, ANY},
    {"trace_workgroup", &Options::trace_workgroup, 0, ANY},
    {"trace_wave", &Options::trace_wave, 0, ANY},
    {"record_workgroup", &Options::record_workgroup, -2, ANY},
    {"record_only", &Options::record_only, 0, 1},
};

const std::pair<const char*, std::string Options::*> TEXTS[] = {{"trace_kernel", &Options::trace_kernel},
                                                                {"trace_file", &Options::trace_file},
                                                                {"record_kernel", &Options::record_kernel},
                                                                {"checked_kernel", &Options::checked_kernel},
                                                                {"suppressions", &Options::suppressions}};

const Field* find_field(const char* name)
{
    for(const Field& field : FIELDS)
        if(std::strcmp(field.name, name) == 0)
            return &field;
    return nullptr;
}

int refuse(std::string why)
{
    set_last_error(std::move(why));
    return 1;
}

// Options of memory.cpp: it keeps them itself.
bool set_memory_option(const std::string& name, int64_t value)
{
    if(name == "capacity")
        set_capacity(static_cast<uint64_t>(value));
    else if(name == "guard")
        set_guard(static_cast<uint64_t>(value));
    else if(name == "uninitialised_memory")
    {
        set_marks(value != 0);
        options().uninitialised_memory = value != 0;
    }
    else if(name == "poison_memory")
        set_poison(value != 0);
    else
        return false;
    return true;
}
} // namespace
} // namespace emu

int emu_set_option(const char* name, int64_t value)
{
    const std::string shown = std::string(name) + " = " + std::to_string(value);
    if(value >= 0 && emu::set_memory_option(name, value))
        return 0;
    const emu::Field* field = emu::find_field(name);
    if(!field)
        return emu::refuse("no such option: " + shown);
    if(value < field->least || value > field->most)
        return emu::refuse("out of range: " + shown);
    if(field->member == &emu::Options::granularity)
    {
        if(value != 1 && value != 4096)
            return emu::refuse("granularity is 1 or 4096: " + shown);
        emu::set_granularity(value == 1 ? emu::Granularity::Byte : emu::Granularity::Page);
    }
    if(field->member == &emu::Options::arch)
    {
        const emu::Arch* arch = emu::find_arch(value);
        if(!arch)
            return emu::refuse("unknown arch: " + shown);
        emu::set_capacity(arch->memory);
        emu::options().cu_count = arch->compute_units;
    }
    emu::options().*(field->member) = value;
    return 0;
}

int emu_get_option(const char* name, int64_t* value)
{
    const emu::Field* field = emu::find_field(name);
    if(!field)
        return emu::refuse(std::string("no such option: ") + name);
    *value = emu::options().*(field->member);
    return 0;
}

int emu_set_text_option(const char* name, const char* value)
{
    for(const auto& [known, member] : emu::TEXTS)
        if(std::strcmp(name, known) == 0)
        {
            emu::options().*member = value;
            return 0;
        }
    return emu::refuse(std::string("no such option: ") + name);
}
