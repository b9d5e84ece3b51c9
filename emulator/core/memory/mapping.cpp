#include "memory/mapping.h"

#include <algorithm>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

namespace emu {
namespace {

constexpr uint64_t KiB = 1024, MiB = 1024 * KiB, GiB = 1024 * MiB;

// Where Linux on x86-64 puts nothing of its own: programs lie at 0x55.. (or 0x400000), libraries
// and threads at 0x7e.. up.
constexpr uint64_t low_begin     = 1 * GiB,
                   low_end       = 4 * GiB; // the heap of a position-dependent Python lies below
constexpr uint64_t default_begin = 0x1000'7ae0'0000, default_end = 0x5000'0000'0000;
constexpr uint64_t crossing_begin = 0x6000'0000'0000;
constexpr uint64_t high_end       = 0x7c00'0000'0000;
constexpr uint64_t space_end =
    0x7fff'ffff'f000; // 47 bits: a GPU's 48th is a bit that user space does not have
constexpr int protection = PROT_READ | PROT_WRITE;

// A file of 0xff bytes in memory, mapped privately again and again: poison that costs nothing until
// written.
int poison_file(uint64_t bytes)
{
    static int file      = -1;
    static uint64_t size = 0;
    if(file < 0)
        file = memfd_create("emulator-poison", MFD_CLOEXEC);
    static const auto* block = [] {
        static unsigned char filled[64 * KiB];
        std::memset(filled, 0xff, sizeof filled);
        return filled;
    }();
    while(file >= 0 && size < bytes)
    {
        if(pwrite(file, block, 64 * KiB, static_cast<off_t>(size)) !=
           static_cast<ssize_t>(64 * KiB))
            return -1;
        size += 64 * KiB;
    }
    return file;
}

bool poison_pages(uint64_t begin, uint64_t end)
{
    // At most about a thousand mappings an allocation: a process may have 65530.
    const uint64_t block =
        std::max(2 * MiB, ((end - begin) / 1024 + 2 * MiB) / (2 * MiB) * (2 * MiB));
    const uint64_t piece = std::min(block, end - begin);
    const int file       = poison_file((piece + 64 * KiB - 1) / (64 * KiB) * (64 * KiB));
    if(file < 0)
        return false;
    for(uint64_t at = begin; at < end; at += piece)
    {
        const uint64_t bytes = std::min(piece, end - at);
        if(mmap(reinterpret_cast<void*>(at),
                bytes,
                protection,
                MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED,
                file,
                0) == MAP_FAILED)
            return false;
    }
    return true;
}

// Map the pages of [base, base + bytes) if all of them are free in this process.
bool map_at(uint64_t base, const PlacementRequest& request)
{
    const uint64_t begin = page_floor(base), end = page_ceil(base + request.bytes);
    void* const wanted = reinterpret_cast<void*>(begin);
    void* const got    = mmap(wanted,
                              end - begin,
                              protection,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE,
                              -1,
                              0);
    if(got == MAP_FAILED)
        return false;
    if(got != wanted || (request.poison && !poison_pages(begin, end)))
    { // a kernel before 4.17 takes it as a hint
        munmap(got, end - begin);
        return false;
    }
    // A huge page would make one touched byte cost 2 MiB.
    madvise(got, end - begin, MADV_NOHUGEPAGE);
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
        const uint64_t begin = base - std::min(base, search.guard),
                       end   = base + request.bytes + search.guard;
        if(const uint64_t behind = occupied(begin, end))
        {
            base = align_up(
                std::max(base + 1, behind + search.guard), search.alignment, search.remainder);
            continue;
        }
        if(map_at(base, request))
            return base;
        base = align_up(base + std::max<uint64_t>(search.alignment, 64 * MiB),
                        search.alignment,
                        search.remainder);
    }
    return 0;
}

uint64_t place_default(const PlacementRequest& request, uint64_t stagger, const Occupied& occupied)
{
    // Addresses come back late, so that a use after free faults.
    static uint64_t cursor = default_begin;
    Search search{cursor, default_end, 2 * MiB, stagger, request.guard};
    uint64_t base = ascend(search, request, occupied);
    if(base == 0)
    {
        search.from = default_begin;
        base        = ascend(search, request, occupied);
    }
    if(base != 0)
        cursor = page_ceil(base + request.bytes) + request.guard;
    return base;
}

uint64_t place_high(const PlacementRequest& request, uint64_t stagger, const Occupied& occupied)
{
    const uint64_t step = 4 * GiB;
    for(uint64_t line = (high_end - page_ceil(request.bytes)) / step * step; line > crossing_begin;
        line -= step)
    {
        const uint64_t base  = line + 2 * GiB + stagger;
        const uint64_t guard = std::min(request.guard, 1 * GiB); // neighbours are 4 GiB apart
        if(occupied(base - guard, base + request.bytes + guard) == 0 && map_at(base, request))
            return base;
    }
    return 0;
}

uint64_t place_crossing(const PlacementRequest& request, const Occupied& occupied)
{
    const uint64_t step = 4 * GiB;
    const uint64_t unit = request.bytes > 2 * page_bytes ? page_bytes : 16;
    const uint64_t half = std::max(unit, request.bytes / 2 / unit * unit);
    const uint64_t line =
        align_up(std::max(request.base ? request.base : crossing_begin, half + 64 * KiB), step, 0);
    const Search search{line - half, space_end, step, (step - half % step) % step, 64 * KiB};
    return ascend(search, request, occupied);
}

} // namespace

uint64_t map_memory(const PlacementRequest& request, const Occupied& occupied)
{
    // Small allocations of a GPU are 4 KiB aligned; if all were better aligned, an `or` in place of
    // an `add` would do.
    const uint64_t stagger = request.bytes < 2 * MiB ? request.number % 512 * page_bytes : 0;
    if(request.bytes == 0 || request.bytes > space_end)
        return 0;
    switch(request.placement)
    {
        case Placement::Default: return place_default(request, stagger, occupied);
        case Placement::Low:
        {
            const uint64_t alignment = request.bytes < 2 * MiB ? 64 * KiB : 2 * MiB;
            return ascend({low_begin, low_end, alignment, 0, std::min(request.guard, 64 * KiB)},
                          request,
                          occupied);
        }
        case Placement::High: return place_high(request, stagger, occupied);
        case Placement::Crossing: return place_crossing(request, occupied);
        case Placement::Fixed:
            if(request.base == 0 || request.base > space_end ||
               request.bytes > space_end - request.base ||
               occupied(page_floor(request.base), page_ceil(request.base + request.bytes)) != 0)
                return 0;
            return map_at(request.base, request) ? request.base : 0;
    }
    return 0;
}

void unmap_memory(uint64_t base, uint64_t bytes)
{
    const uint64_t begin = page_floor(base);
    munmap(reinterpret_cast<void*>(begin), page_ceil(base + bytes) - begin);
}

bool drop_pages(uint64_t begin, uint64_t end)
{
    // Mapping anew and not MADV_DONTNEED: that would bring poison back.
    void* const got = mmap(reinterpret_cast<void*>(begin),
                           end - begin,
                           protection,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
                           -1,
                           0);
    if(got == MAP_FAILED)
        return false;
    madvise(got, end - begin, MADV_NOHUGEPAGE);
    return true;
}

} // namespace emu
