// Device memory: which addresses a kernel may touch, and where allocations are put.
//
// A guest address is the host address. Allocations are private NORESERVE mappings in address ranges
// of our own, so a 6 GB pool costs only the pages touched, and wide unmapped gaps lie between them:
// an access that escaped the checks below would end in SIGSEGV, never in another allocation's data.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace emu {
constexpr uint64_t PAGE_BYTES = 4096;

enum class AllocationKind : uint32_t
{
    Device,     // hipMalloc
    Host,       // hipHostMalloc
    Managed,    // hipMallocManaged
    Registered, // memory of somebody else that kernels may touch (hipHostRegister)
    Code,       // a code object's segments
    Internal,   // what a launch needs: kernel arguments, dispatch packet
    Heap,       // what kernels allocate themselves (host/device_heap.h)
};
const char* allocation_kind_name(AllocationKind);

struct Allocation
{
    uint64_t base       = 0;
    uint64_t bytes      = 0; // as asked for; mapped are whole pages
    uint32_t id         = 0; // counts up from 1 (code: from 2^20); see restart_addresses()
    AllocationKind kind = AllocationKind::Device;
    bool freed          = false; // only in what nearest() answers
    std::string label;           // what a test calls it, for messages
};

// ---- Where allocations are put. Everything is a function of the calls made: two runs get the same
// addresses.
enum class Placement : uint32_t
{
    Default,  // ascending, 2 MiB aligned, a guard after each
    Low,      // below 4 GiB
    High,     // near the top of the 47-bit address space, bit 31 of the address set
    Crossing, // the middle of the allocation on a multiple of 4 GiB: the first free one at or above
              // `base`
    Fixed,    // at `base`: for the next allocation alone, afterwards Default
};
void set_placement(Placement, uint64_t base);
// Unmapped space after an allocation of Default and High placement; default 4 GiB.
void set_guard(uint64_t bytes);

enum class Granularity : uint32_t
{
    Byte, // an access must lie in the bytes asked for
    Page, // ... in the 4 KiB pages they touch: what hardware can notice
};
void set_granularity(Granularity);
Granularity granularity();

// Fill fresh allocations with 0xff bytes (NaN in every float format but the FNUZ ones, page id -1),
// at no cost in memory until written. Else they are zero.
void set_poison(bool);

// Fill them with marks instead, by which loads can tell what was never written: NaNs too, in f32,
// f16 and bf16, another one in each dword of a page.
void set_marks(bool);
constexpr uint32_t fresh_mark(uint64_t address)
{
    const auto mixed = static_cast<uint32_t>(address % PAGE_BYTES / 4 + 1) * 0x9e3779b1u;
    const auto half  = [](uint32_t bits) { return 0x7f81 + bits % 126 + (bits & 0x8000); };
    return half(mixed >> 16) << 16 | half(mixed & 0xffff);
}
// Whether it is a mark, or the poison of registers, LDS and scratch (isa/wave.h), by its value.
constexpr bool looks_unwritten(uint32_t value)
{
    const auto is_half = [](uint32_t half) { return (half & 0x7fff) >= 0x7f81 && (half & 0x7fff) < 0x7f81 + 126; };
    return is_half(value >> 16) && is_half(value & 0xffff);
}
// Of the dword that holds the address.
inline bool never_written(uint64_t address)
{
    const uint64_t dword = address & ~uint64_t{3};
    return *reinterpret_cast<const uint32_t*>(dword) == fresh_mark(dword);
}

// ---- Allocating.
// Null if address space or the device memory set by set_capacity is full, or bytes is 0.
void* allocate(size_t bytes, AllocationKind kind = AllocationKind::Device, const char* label = "");
// Make [address, address + bytes) accessible to kernels without owning it. False if it overlaps
// another allocation.
bool import_range(const void* address, size_t bytes, AllocationKind kind, const char* label = "");
// Release an allocation or an imported range by its first byte. False if there is none that starts
// there.
bool release(const void* address);
void release_all(); // every allocation of any kind: hipDeviceReset
// Ids and default places begin again (after what is still allocated), and freed allocations are
// forgotten: what follows gets the same ids and addresses, whatever this process did before.
void restart_addresses();
// Write `value` to a part of an allocation. Whole pages of zeros are given back instead of written.
void fill(void* address, int value, size_t bytes);

void set_capacity(uint64_t bytes); // of Device and Managed allocations together
uint64_t capacity();
uint64_t bytes_in_use();

// ---- Asking. Changes with every allocation, release and change of granularity: caches compare it.
extern std::atomic<uint64_t> memory_epoch;

struct Range
{
    uint64_t begin = 0, end = 0;
};

// The caller's cache of one or a few ranges that were mapped; one for each thread that runs waves.
// check() is what the interpreter calls for each access, or once for the hull of all its lanes'
// addresses.
class RangeCache
{
public:
    bool check(uint64_t address, uint64_t bytes)
    {
        const uint64_t now = memory_epoch.load(std::memory_order_relaxed);
        if(now == epoch_)
        {
            for(const Range& range : ranges_)
                if(address >= range.begin && address < range.end && bytes <= range.end - address)
                    return true;
        }
        return refill(address, bytes, now);
    }

private:
    bool refill(uint64_t address, uint64_t bytes, uint64_t now);

    static constexpr size_t COUNT = 4; // K, V, page table, output
    Range ranges_[COUNT];
    uint64_t epoch_ = 0;
    uint32_t next_  = 0;
};

// Is [address, address + bytes) inside one allocation, at the granularity set? (A thread-local
// RangeCache.)
bool mapped(uint64_t address, uint64_t bytes);
// The allocation whose bytes (not pages) hold the address; false if none does.
bool find_allocation(uint64_t address, Allocation* found);
// The allocation, live or recently freed, nearest to the address; false if there was never one.
// `distance` is 0 if the address is inside (then it is freed), negative if the address lies below
// it, else the distance from its last byte.
bool nearest(uint64_t address, Allocation* found, int64_t* distance);
std::vector<Allocation> allocations(); // live ones, ascending
// What an address outside of all allocations is, for people: a null pointer, or memory of the host.
// "": neither.
std::string foreign_memory(uint64_t address);
// Why nothing that begins at the address can be freed, for people: "which ..".
std::string why_not_freed(uint64_t address);

// ---- CDNA4: a buffer instruction faults if the range of its resource touches an unmapped 4 KiB
// page, even if the addressed bytes are mapped. A resource that states no size (srd::NO_SIZE) has
// no range to judge: what its lanes address is checked as every access is. One checker for each
// thread; verdicts are cached by resource and epoch.
struct SrdRange
{
    uint64_t base  = 0;
    uint64_t bytes = 0; // num_records, times the stride if that is not 0
};
SrdRange srd_range(const uint32_t words[4]);

class SrdChecker
{
public:
    // True if every page of the resource's range is mapped. Otherwise `unmapped` gets the first
    // address that is not.
    bool check(const uint32_t srd[4], uint64_t* unmapped)
    {
        const uint64_t now = memory_epoch.load(std::memory_order_relaxed);
        Entry& entry       = entries_[(srd[0] >> 12 ^ srd[0] >> 5 ^ srd[2] >> 6 ^ srd[2]) % COUNT];
        if(entry.epoch == now && entry.word0 == srd[0] && entry.word1 == srd[1] && entry.word2 == srd[2])
            return true; // only good ones are kept: a bad one ends the launch
        return verify(srd, entry, now, unmapped);
    }

private:
    struct Entry
    {
        uint64_t epoch = 0;
        uint32_t word0 = 0, word1 = 0, word2 = 0;
    };
    bool verify(const uint32_t srd[4], Entry& entry, uint64_t now, uint64_t* unmapped);

    static constexpr size_t COUNT = 16;
    Entry entries_[COUNT];
};
// The same without a cache: every 4 KiB page that the range touches holds bytes of an allocation.
bool pages_mapped(uint64_t base, uint64_t bytes, uint64_t* unmapped);
} // namespace emu
