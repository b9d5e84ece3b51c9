#include "checks/banks.h"

#include <algorithm>
#include <bit>
#include <span>

namespace emu {
namespace {
constexpr unsigned MOST_BANKS = 64;

// Lanes first to last, both included.
constexpr uint64_t lanes(unsigned first, unsigned last)
{
    return (~uint64_t{0} >> (63 - last)) & (~uint64_t{0} << first);
}

constexpr uint64_t WAVE[]     = {lanes(0, 63)};
constexpr uint64_t HALVES[]   = {lanes(0, 31), lanes(32, 63)};
constexpr uint64_t QUARTERS[] = {lanes(0, 15), lanes(16, 31), lanes(32, 47), lanes(48, 63)};
constexpr uint64_t EIGHTHS[]  = {lanes(0, 7),   lanes(8, 15),  lanes(16, 23), lanes(24, 31),
                                 lanes(32, 39), lanes(40, 47), lanes(48, 55), lanes(56, 63)};
// 128-bit reads of MI200 and MI300, and of MI350.
constexpr uint64_t WIDE_32[] = {lanes(0, 3) | lanes(20, 23),   lanes(32, 35) | lanes(52, 55),
                                lanes(4, 7) | lanes(16, 19),   lanes(36, 39) | lanes(48, 51),
                                lanes(8, 11) | lanes(28, 31),  lanes(40, 43) | lanes(60, 63),
                                lanes(12, 15) | lanes(24, 27), lanes(44, 47) | lanes(56, 59)};
constexpr uint64_t WIDE_64[] = {
    lanes(0, 3) | lanes(12, 15) | lanes(20, 27), lanes(32, 35) | lanes(44, 47) | lanes(52, 59),
    lanes(4, 11) | lanes(16, 19) | lanes(28, 31), lanes(36, 43) | lanes(48, 51) | lanes(60, 63)};

std::span<const uint64_t> phases(unsigned banks, unsigned bytes, LdsUse use)
{
    if(use == LdsUse::Read && banks == 64)
    {
        if(bytes <= 4)
            return WAVE;
        if(bytes <= 8)
            return HALVES;
        return WIDE_64;
    }
    if(bytes <= 4)
        return HALVES;
    if(bytes <= 8)
        return QUARTERS;
    if(use == LdsUse::Read)
        return WIDE_32;
    return EIGHTHS;
}

// Cycles that serve the lanes of one phase.
uint32_t cycles(const uint32_t* addresses, uint64_t waiting, unsigned bytes, unsigned banks)
{
    uint32_t passes = 0;
    for(; waiting != 0; ++passes)
    {
        uint64_t taken = 0; // banks in use in this cycle, and by which dword
        std::array<uint32_t, MOST_BANKS> dword_of;
        for(uint64_t rest = waiting; rest != 0; rest &= rest - 1)
        {
            const auto lane      = static_cast<unsigned>(std::countr_zero(rest));
            const uint32_t first = addresses[lane] / 4, last = (addresses[lane] + bytes - 1) / 4;
            bool free = true;
            for(uint32_t dword = first; dword <= last; ++dword)
                free &= !(taken >> dword % banks & 1) || dword_of[dword % banks] == dword;
            if(!free)
                continue;
            for(uint32_t dword = first; dword <= last; ++dword)
            {
                taken |= uint64_t{1} << dword % banks;
                dword_of[dword % banks] = dword;
            }
            waiting &= ~(uint64_t{1} << lane);
        }
    }
    return passes;
}
} // namespace

BankConflicts::BankConflicts(uint32_t arch) : banks_(arch == 950 ? 64 : 32), known_(KNOWN) {}

uint32_t BankConflicts::count(const uint32_t* addresses, uint64_t mask, unsigned bytes, LdsUse use) const
{
    uint32_t conflicts = 0;
    for(const uint64_t phase : phases(banks_, bytes, use))
        if(phase & mask)
            conflicts += cycles(addresses, phase & mask, bytes, banks_) - 1;
    return conflicts;
}

uint32_t BankConflicts::remember(const MicroOp* op, const uint32_t* addresses, uint64_t mask, unsigned bytes,
                                 LdsUse use)
{
    if(mask == 0)
        return 0;
    Known& known = known_[place_of(op)];
    known.op     = op;
    known.mask   = mask;
    known.within = addresses[0] % 4;
    for(unsigned l = 0; l < 64; ++l)
        known.relative[l] = addresses[l] - addresses[0];
    known.conflicts = count(addresses, mask, bytes, use);
    return known.conflicts;
}
} // namespace emu
