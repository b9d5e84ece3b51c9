#include "memory/mapping.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace emu {
namespace {
constexpr uint64_t KIB = 1024, MIB = 1024 * KIB, GIB = 1024 * MIB;

// Where Linux on x86-64 puts nothing of its own: programs lie at 0x55.. (or 0x400000), libraries
// and threads at 0x7e.. up.
// The heap of a position-dependent Python lies below LOW_BEGIN.
constexpr uint64_t LOW_BEGIN = 1 * GIB, LOW_END = 4 * GIB;
constexpr uint64_t DEFAULT_BEGIN = 0x1000'7ae0'0000, DEFAULT_END = 0x5000'0000'0000;
constexpr uint64_t CODE_BEGIN = DEFAULT_END, CODE_END = 0x5800'0000'0000;
constexpr uint64_t CROSSING_BEGIN = 0x6000'0000'0000;
constexpr uint64_t HIGH_END       = 0x7c00'0000'0000;
// 47 bits: a GPU's 48th is a bit that user space does not have.
constexpr uint64_t SPACE_END = 0x7fff'ffff'f000;
constexpr int PROTECTION     = PROT_READ | PROT_WRITE;

// A file of 0xff bytes or of marks in memory, mapped privately again and again: poison that costs
// nothing until written.
int poison_file(uint64_t bytes, bool marks)
{
    static int files[2]      = {-1, -1};
    static uint64_t sizes[2] = {0, 0};
    int& file                = files[marks];
    uint64_t& size           = sizes[marks];
    if(file < 0)
        file = memfd_create("emulator-poison", MFD_CLOEXEC);
    std::vector<uint32_t> block(size < bytes ? 16 * KIB : 0, ~0u);
    if(marks)
        for(size_t i = 0; i < block.size(); ++i)
            block[i] = fresh_mark(4 * i);
    while(file >= 0 && size < bytes)
    {
        if(pwrite(file, block.data(), 64 * KIB, static_cast<off_t>(size)) != static_cast<ssize_t>(64 * KIB))
            return -1;
        size += 64 * KIB;
    }
    return file;
}

bool poison_pages(uint64_t begin, uint64_t end, bool marks)
{
    // At most about a thousand mappings an allocation: a process may have 65530.
    const uint64_t block = std::max(2 * MIB, ((end - begin) / 1024 + 2 * MIB) / (2 * MIB) * (2 * MIB));
    const uint64_t piece = std::min(block, end - begin);
    const int file       = poison_file((piece + 64 * KIB - 1) / (64 * KIB) * (64 * KIB), marks);
    if(file < 0)
        return false;
    for(uint64_t at = begin; at < end; at += piece)
    {
        const uint64_t bytes = std::min(piece, end - at);
        if(mmap(reinterpret_cast<void*>(at), bytes, PROTECTION, MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED, file, 0) ==
           MAP_FAILED)
            return false;
    }
    return true;
}

// A huge page saves the host most of its walks of page tables where a kernel reads scattered rows.
// But with one, a touched byte costs 2 MiB: large allocations, which may be touched here and there,
// do without. The core without its short ways (isa/fast.h) leaves the choice to the host, as before
// there were any.
void choose_pages([[maybe_unused]] void* begin, [[maybe_unused]] uint64_t bytes)
{
#ifndef EMU_PLAIN
    constexpr uint64_t MOST = 256 * MIB;
    madvise(begin, bytes, bytes <= MOST ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
#endif
}

// Map the pages of [base, base + bytes) if all of them are free in this process.
bool map_at(uint64_t base, const PlacementRequest& request)
{
    const uint64_t begin = page_floor(base), end = page_ceil(base + request.bytes);
    void* const wanted = reinterpret_cast<void*>(begin);
    void* const got =
        mmap(wanted, end - begin, PROTECTION, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if(got == MAP_FAILED)
        return false;
    // A kernel before 4.17 takes the address as a hint.
    if(got != wanted || (request.poison && !poison_pages(begin, end, request.marks)))
    {
        munmap(got, end - begin);
        return false;
    }
    choose_pages(got, end - begin);
    return true;
}

// The first address >= from with the alignment and remainder wanted.
uint64_t align_up(uint64_t from, uint64_t alignment, uint64_t remainder)
{
    const uint64_t base = from / alignment * alignment + remainder;
    return base >= from ? base : base + alignment;
}

struct Search
{
    uint64_t from, to, alignment, remainder, guard;
};

uint64_t ascend(const Search& search, const PlacementRequest& request, const Occupied& occupied)
{
    uint64_t base = align_up(search.from, search.alignment, search.remainder);
    while(base < search.to && request.bytes <= search.to - base)
    {
        const uint64_t begin = base - std::min(base, search.guard), end = base + request.bytes + search.guard;
        if(const uint64_t behind = occupied(begin, end))
        {
            base = align_up(std::max(base + 1, behind + search.guard), search.alignment, search.remainder);
            continue;
        }
        if(map_at(base, request))
            return base;
        base = align_up(base + std::max<uint64_t>(search.alignment, 64 * MIB), search.alignment, search.remainder);
    }
    return 0;
}

// Where default places of a region are looked for next. Addresses come back late, so that a use
// after free faults.
struct Region
{
    const uint64_t begin, end;
    uint64_t cursor = begin;
};
Region default_region{DEFAULT_BEGIN, DEFAULT_END}, code_region{CODE_BEGIN, CODE_END};

uint64_t place_default(const PlacementRequest& request, uint64_t stagger, const Occupied& occupied)
{
    Region& region = request.code ? code_region : default_region;
    Search search{region.cursor, region.end, 2 * MIB, stagger, request.guard};
    uint64_t base = ascend(search, request, occupied);
    if(base == 0)
    {
        search.from = region.begin;
        base        = ascend(search, request, occupied);
    }
    if(base != 0)
        region.cursor = page_ceil(base + request.bytes) + request.guard;
    return base;
}

uint64_t place_high(const PlacementRequest& request, uint64_t stagger, const Occupied& occupied)
{
    const uint64_t step = 4 * GIB;
    for(uint64_t line = (HIGH_END - page_ceil(request.bytes)) / step * step; line > CROSSING_BEGIN; line -= step)
    {
        const uint64_t base  = line + 2 * GIB + stagger;
        const uint64_t guard = std::min(request.guard, 1 * GIB); // neighbours are 4 GiB apart
        if(occupied(base - guard, base + request.bytes + guard) == 0 && map_at(base, request))
            return base;
    }
    return 0;
}

uint64_t place_crossing(const PlacementRequest& request, const Occupied& occupied)
{
    const uint64_t step = 4 * GIB;
    const uint64_t unit = request.bytes > 2 * PAGE_BYTES ? PAGE_BYTES : 16;
    const uint64_t half = std::max(unit, request.bytes / 2 / unit * unit);
    const uint64_t line = align_up(std::max(request.base ? request.base : CROSSING_BEGIN, half + 64 * KIB), step, 0);
    const Search search{line - half, SPACE_END, step, (step - half % step) % step, 64 * KIB};
    return ascend(search, request, occupied);
}
} // namespace

std::string foreign_memory(uint64_t address)
{
    constexpr uint64_t NULL_END = 4 * MIB; // where a program begins that lies at a fixed address
    if(address < NULL_END)
        return address == 0 ? "a null pointer"
                            : "a null pointer and " + std::to_string(address) + (address == 1 ? " byte" : " bytes");
    if(address >= DEFAULT_BEGIN && address < DEFAULT_END)
        return "";
    std::ifstream maps("/proc/self/maps"); // begin-end rwxp offset device inode name
    for(std::string line; std::getline(maps, line);)
    {
        unsigned long long begin = 0, end = 0;
        char readable = 0;
        int name      = 0;
        if(std::sscanf(line.c_str(), "%llx-%llx %c%*s %*s %*s %*s %n", &begin, &end, &readable, &name) == 3 &&
           address >= begin && address < end)
            return readable != 'r' ? ""
                                   : "a pointer of the host, to memory that the device can't reach" +
                                         (line.size() > static_cast<size_t>(name) ? ": " + line.substr(name) : "");
    }
    return "";
}

uint64_t map_memory(const PlacementRequest& request, const Occupied& occupied)
{
    // Small allocations of a GPU are 4 KiB aligned; if all were better aligned, an `or` in place of
    // an `add` would do.
    const uint64_t stagger = request.bytes < 2 * MIB ? request.number % 512 * PAGE_BYTES : 0;
    if(request.bytes == 0 || request.bytes > SPACE_END)
        return 0;
    switch(request.placement)
    {
        case Placement::Default: return place_default(request, stagger, occupied);
        case Placement::Low:
        {
            const uint64_t alignment = request.bytes < 2 * MIB ? 64 * KIB : 2 * MIB;
            return ascend({LOW_BEGIN, LOW_END, alignment, 0, std::min(request.guard, 64 * KIB)}, request, occupied);
        }
        case Placement::High: return place_high(request, stagger, occupied);
        case Placement::Crossing: return place_crossing(request, occupied);
        case Placement::Fixed:
            if(request.base == 0 || request.base > SPACE_END || request.bytes > SPACE_END - request.base ||
               occupied(page_floor(request.base), page_ceil(request.base + request.bytes)) != 0)
                return 0;
            return map_at(request.base, request) ? request.base : 0;
    }
    return 0;
}

void restart_mapping() { default_region.cursor = default_region.begin; }

void unmap_memory(uint64_t base, uint64_t bytes)
{
    const uint64_t begin = page_floor(base);
    munmap(reinterpret_cast<void*>(begin), page_ceil(base + bytes) - begin);
}

bool drop_pages(uint64_t begin, uint64_t end)
{
    // Mapping anew and not MADV_DONTNEED: that would bring poison back.
    void* const got = mmap(reinterpret_cast<void*>(begin), end - begin, PROTECTION,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    if(got == MAP_FAILED)
        return false;
    choose_pages(got, end - begin);
    return true;
}
} // namespace emu
