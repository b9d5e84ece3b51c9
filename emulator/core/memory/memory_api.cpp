// Memory over ctypes: placement, and what the property tests compare with a model.
#include "hip/call.h"
#include "hip/device_api.h"
#include "memory/memory.h"
#include "run/fault.h"

int emu_set_placement(uint32_t placement, uint64_t base)
{
    if(placement > static_cast<uint32_t>(emu::Placement::Fixed))
    {
        emu::set_last_error("no such placement: " + std::to_string(placement));
        return 1;
    }
    emu::set_placement(static_cast<emu::Placement>(placement), base);
    return 0;
}

void* emu_allocate(size_t bytes, uint32_t kind, const char* label)
{
    if(kind > static_cast<uint32_t>(emu::AllocationKind::Managed))
    {
        emu::set_last_error("no such kind of allocation: " + std::to_string(kind));
        return nullptr;
    }
    void* const got = emu::allocate(bytes, static_cast<emu::AllocationKind>(kind), label);
    if(!got)
        emu::set_last_error("no room for " + std::to_string(bytes) + " bytes at the placement asked for (" +
                            std::to_string(emu::bytes_in_use()) + " of " + std::to_string(emu::capacity()) +
                            " in use)");
    return got;
}

int emu_release(uint64_t address)
{
    std::lock_guard lock(emu::device_mutex()); // not under a running launch
    return emu::release(reinterpret_cast<void*>(address)) ? 0 : 1;
}

void emu_restart_addresses(void) { emu::restart_addresses(); }

int emu_mapped(uint64_t address, uint64_t bytes) { return emu::mapped(address, bytes); }

int emu_srd_mapped(const uint32_t* srd, uint64_t* unmapped)
{
    thread_local emu::SrdChecker checker;
    return checker.check(srd, unmapped);
}

int emu_nearest(uint64_t address, uint64_t* base, uint64_t* bytes, int64_t* distance, uint32_t* freed)
{
    emu::Allocation found;
    if(!emu::nearest(address, &found, distance))
        return 1;
    *base  = found.base;
    *bytes = found.bytes;
    *freed = found.freed;
    return 0;
}

size_t emu_allocations_json(char* text, size_t bytes)
{
    std::string out;
    for(const emu::Allocation& a : emu::allocations())
        out += (out.empty() ? "" : ", ") + ("{\"id\": " + std::to_string(a.id)) +
               ", \"base\": " + std::to_string(a.base) + ", \"bytes\": " + std::to_string(a.bytes) +
               ", \"kind\": " + emu::json_string(emu::allocation_kind_name(a.kind)) +
               ", \"label\": " + emu::json_string(a.label) + "}";
    return emu::answer_text("[" + out + "]", text, bytes);
}
