#include "memory/memory.h"

#include "isa/fields.h"
#include "memory/mapping.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <shared_mutex>

namespace emu {
std::atomic<uint64_t> memory_epoch{1}; // caches start with 0

namespace {
struct Entry
{
    Allocation allocation;
    bool owned;
};

// Code objects are loaded when first used: numbers and places of their own keep those of buffers
// from depending on when that was.
constexpr uint32_t FIRST_CODE_ID = 1u << 20;

struct Book
{
    std::shared_mutex mutex;
    std::map<uint64_t, Entry> live; // by base
    std::deque<Allocation> freed;   // the latest
    uint32_t next_id        = 1;
    uint32_t next_code_id   = FIRST_CODE_ID;
    Placement placement     = Placement::Default;
    uint64_t placement_base = 0;
    uint64_t guard          = 4ull << 30;
    uint64_t capacity       = 288ull << 30;
    uint64_t in_use         = 0;
    bool poison             = false;
    bool marks              = false;
    std::atomic<Granularity> granularity{Granularity::Byte};
};

// Never destroyed: libraries free their memory in destructors that may run later than ours.
Book& book()
{
    static Book& only = *new Book;
    return only;
}

constexpr size_t FREED_REMEMBERED = 256;

void changed() { memory_epoch.fetch_add(1, std::memory_order_relaxed); }

bool counts(AllocationKind kind)
{
    return kind == AllocationKind::Device || kind == AllocationKind::Managed || kind == AllocationKind::Heap;
}

uint64_t end_of(const Allocation& allocation) { return allocation.base + allocation.bytes; }

// The last entry that begins at or below the address.
const Entry* entry_below(const Book& all, uint64_t address)
{
    auto found = all.live.upper_bound(address);
    return found == all.live.begin() ? nullptr : &std::prev(found)->second;
}

// The end of the first entry that overlaps [begin, end), 0 if none does. Entries never overlap, so
// ends ascend with bases.
uint64_t occupied(const Book& all, uint64_t begin, uint64_t end)
{
    if(const Entry* below = entry_below(all, begin); below && end_of(below->allocation) > begin)
        return end_of(below->allocation);
    const auto next = all.live.lower_bound(begin);
    return next != all.live.end() && next->first < end ? end_of(next->second.allocation) : 0;
}

// The run of mapped pages around an address: neighbours without an unmapped page between them count
// as one.
Range page_run(const Book& all, uint64_t address)
{
    // The first that begins after the address's page.
    auto next = all.live.upper_bound(address | (PAGE_BYTES - 1));
    if(next == all.live.begin())
        return {};
    auto first  = std::prev(next);
    Range range = {page_floor(first->first), page_ceil(end_of(first->second.allocation))};
    if(address >= range.end)
        return {};
    for(; next != all.live.end() && page_floor(next->first) <= range.end; ++next)
        range.end = page_ceil(end_of(next->second.allocation));
    while(first != all.live.begin())
    {
        --first;
        if(page_ceil(end_of(first->second.allocation)) < range.begin)
            break;
        range.begin = page_floor(first->first);
    }
    return range;
}

Range range_around(const Book& all, uint64_t address)
{
    if(all.granularity.load(std::memory_order_relaxed) == Granularity::Page)
        return page_run(all, address);
    const Entry* below = entry_below(all, address);
    if(!below || address >= end_of(below->allocation))
        return {};
    return {below->allocation.base, end_of(below->allocation)};
}

bool covers(const Range& range, uint64_t address, uint64_t bytes)
{
    return address >= range.begin && address < range.end && bytes <= range.end - address;
}

uint32_t& id_counter(Book& all, AllocationKind kind)
{
    return kind == AllocationKind::Code ? all.next_code_id : all.next_id;
}

void forget(Book& all, std::map<uint64_t, Entry>::iterator entry)
{
    Allocation& allocation = entry->second.allocation;
    if(entry->second.owned)
        unmap_memory(allocation.base, allocation.bytes);
    if(counts(allocation.kind))
        all.in_use -= allocation.bytes;
    if(allocation.kind != AllocationKind::Internal)
    {
        allocation.freed = true;
        all.freed.push_front(std::move(allocation));
        if(all.freed.size() > FREED_REMEMBERED)
            all.freed.pop_back();
    }
    all.live.erase(entry);
    changed();
}

int64_t distance_to(const Allocation& allocation, uint64_t address)
{
    if(address < allocation.base)
        return -static_cast<int64_t>(allocation.base - address);
    return address < end_of(allocation) ? 0 : static_cast<int64_t>(address - end_of(allocation) + 1);
}
} // namespace

const char* allocation_kind_name(AllocationKind kind)
{
    static const char* const names[] = {"device", "host", "managed", "registered", "code", "internal", "heap"};
    return names[static_cast<size_t>(kind)];
}

void set_placement(Placement placement, uint64_t base)
{
    std::unique_lock lock(book().mutex);
    book().placement      = placement;
    book().placement_base = base;
}

void set_guard(uint64_t bytes)
{
    std::unique_lock lock(book().mutex);
    book().guard = page_ceil(std::clamp<uint64_t>(bytes, PAGE_BYTES, 64ull << 30));
}

void set_granularity(Granularity granularity)
{
    book().granularity = granularity;
    changed();
}

Granularity granularity() { return book().granularity; }

void set_poison(bool poison)
{
    std::unique_lock lock(book().mutex);
    book().poison = poison;
}

void set_marks(bool marks)
{
    std::unique_lock lock(book().mutex);
    book().marks = marks;
}

void* allocate(size_t bytes, AllocationKind kind, const char* label)
{
    Book& all = book();
    std::unique_lock lock(all.mutex);
    PlacementRequest request;
    // What a launch needs for itself lies where it always does, whatever a test chose for its
    // pools; so do slabs of the kernels' heap, which begin at multiples of their 2 MiB.
    const bool ours = kind == AllocationKind::Internal || kind == AllocationKind::Code || kind == AllocationKind::Heap;
    request.placement = ours ? Placement::Default : all.placement;
    request.base      = all.placement_base;
    request.guard     = all.guard;
    request.bytes     = bytes;
    request.number    = id_counter(all, kind);
    request.code      = kind == AllocationKind::Code;
    request.poison    = (all.poison || all.marks) && !ours;
    request.marks     = all.marks;
    if(counts(kind) && bytes > all.capacity - std::min(all.capacity, all.in_use))
        return nullptr;
    const uint64_t base =
        map_memory(request, [&all](uint64_t begin, uint64_t end) { return occupied(all, begin, end); });
    if(!ours && all.placement == Placement::Fixed)
        all.placement = Placement::Default;
    if(base == 0)
        return nullptr;
    all.live[base] = {{base, bytes, id_counter(all, kind)++, kind, false, label}, true};
    if(counts(kind))
        all.in_use += bytes;
    changed();
    return reinterpret_cast<void*>(base);
}

bool import_range(const void* address, size_t bytes, AllocationKind kind, const char* label)
{
    Book& all           = book();
    const uint64_t base = reinterpret_cast<uint64_t>(address);
    std::unique_lock lock(all.mutex);
    if(base == 0 || bytes == 0 || bytes > ~base || occupied(all, base, base + bytes) != 0)
        return false;
    all.live[base] = {{base, bytes, id_counter(all, kind)++, kind, false, label}, false};
    if(counts(kind))
        all.in_use += bytes;
    changed();
    return true;
}

bool release(const void* address)
{
    Book& all = book();
    std::unique_lock lock(all.mutex);
    const auto entry = all.live.find(reinterpret_cast<uint64_t>(address));
    if(entry == all.live.end())
        return false;
    forget(all, entry);
    return true;
}

void release_all()
{
    Book& all = book();
    std::unique_lock lock(all.mutex);
    for(auto entry = all.live.begin(); entry != all.live.end();)
    {
        const auto next           = std::next(entry);
        const AllocationKind kind = entry->second.allocation.kind;
        if(kind != AllocationKind::Code && kind != AllocationKind::Internal)
            forget(all, entry);
        entry = next;
    }
}

void restart_addresses()
{
    Book& all = book();
    std::unique_lock lock(all.mutex);
    all.next_id = 1;
    for(const auto& [base, entry] : all.live)
        if(entry.allocation.kind != AllocationKind::Code)
            all.next_id = std::max(all.next_id, entry.allocation.id + 1);
    all.freed.clear();
    restart_mapping();
}

void fill(void* address, int value, size_t bytes)
{
    constexpr uint64_t WORTH = 64 * 1024; // below, writing is cheaper than changing the mapping
    Book& all                = book();
    const uint64_t begin = reinterpret_cast<uint64_t>(address), end = begin + bytes;
    const uint64_t first = page_ceil(begin), last = page_floor(end);
    bool owned = false;
    {
        std::shared_lock lock(all.mutex);
        const Entry* entry = entry_below(all, begin);
        owned              = entry && entry->owned && end <= end_of(entry->allocation);
    }
    if((value & 0xff) == 0 && owned && first < last && last - first >= WORTH && drop_pages(first, last))
    {
        std::memset(address, 0, first - begin);
        std::memset(reinterpret_cast<void*>(last), 0, end - last);
        return;
    }
    std::memset(address, value, bytes);
}

void set_capacity(uint64_t bytes)
{
    std::unique_lock lock(book().mutex);
    book().capacity = bytes;
}

uint64_t capacity()
{
    std::shared_lock lock(book().mutex);
    return book().capacity;
}

uint64_t bytes_in_use()
{
    std::shared_lock lock(book().mutex);
    return book().in_use;
}

bool RangeCache::refill(uint64_t address, uint64_t bytes, uint64_t now)
{
    if(epoch_ != now)
    {
        for(Range& range : ranges_)
            range = {};
        epoch_ = now;
    }
    std::shared_lock lock(book().mutex);
    const Range range = range_around(book(), address);
    if(!covers(range, address, bytes))
        return false;
    ranges_[next_++ % COUNT] = range;
    return true;
}

bool mapped(uint64_t address, uint64_t bytes)
{
    thread_local RangeCache cache;
    return cache.check(address, bytes);
}

bool find_allocation(uint64_t address, Allocation* found)
{
    std::shared_lock lock(book().mutex);
    const Entry* below = entry_below(book(), address);
    if(!below || address >= end_of(below->allocation))
        return false;
    *found = below->allocation;
    return true;
}

bool nearest(uint64_t address, Allocation* found, int64_t* distance)
{
    const Book& all = book();
    std::shared_lock lock(book().mutex);
    const Allocation* best = nullptr;
    const auto consider    = [&](const Allocation& candidate) {
        if(candidate.kind == AllocationKind::Internal)
            return;
        const int64_t away = distance_to(candidate, address);
        if(!best || std::abs(away) < std::abs(*distance))
        {
            best      = &candidate;
            *distance = away;
        }
    };
    auto above = all.live.upper_bound(address);
    for(auto entry = above; entry != all.live.end(); ++entry)
    {
        // past internal ones
        consider(entry->second.allocation);
        if(best)
            break;
    }
    for(auto entry = above; entry != all.live.begin();)
    {
        consider((--entry)->second.allocation);
        if(entry->second.allocation.kind != AllocationKind::Internal)
            break;
    }
    for(const Allocation& candidate : all.freed) // a live one wins at equal distance
        consider(candidate);
    if(!best)
        return false;
    *found = *best;
    return true;
}

std::string why_not_freed(uint64_t address)
{
    Allocation found;
    int64_t distance = 0;
    if(const std::string foreign = foreign_memory(address); !foreign.empty())
        return "which is " + foreign;
    if(!nearest(address, &found, &distance) || distance != 0)
        return "which is not the start of an allocation";
    const std::string name = "allocation " + std::to_string(found.id) + " (" + allocation_kind_name(found.kind) + ", " +
                             std::to_string(found.bytes) + " bytes)";
    if(found.base != address)
        return "which lies " + std::to_string(address - found.base) + " bytes inside " + name;
    return (found.freed ? "which was freed before: " : "which is memory of another kind: ") + name;
}

std::vector<Allocation> allocations()
{
    std::shared_lock lock(book().mutex);
    std::vector<Allocation> all;
    all.reserve(book().live.size());
    for(const auto& [base, entry] : book().live)
        all.push_back(entry.allocation);
    return all;
}

SrdRange srd_range(const uint32_t words[4])
{
    const uint64_t stride = srd::stride(words);
    return {srd::base(words), stride ? words[2] * stride : words[2]};
}

bool pages_mapped(uint64_t base, uint64_t bytes, uint64_t* unmapped)
{
    if(bytes == 0)
        return true;
    std::shared_lock lock(book().mutex);
    const Range run = page_run(book(), base);
    if(covers(run, base, bytes))
        return true;
    *unmapped = run.end > base ? run.end : base;
    return false;
}

bool SrdChecker::verify(const uint32_t srd[4], Entry& entry, uint64_t now, uint64_t* unmapped)
{
    const SrdRange range = srd_range(srd);
    if(srd::has_size(srd) && !pages_mapped(range.base, range.bytes, unmapped))
        return false;
    entry = {now, srd[0], srd[1], srd[2]};
    return true;
}
} // namespace emu
