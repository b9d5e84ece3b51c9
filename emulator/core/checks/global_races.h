// Races in device memory (option global_races): a store by one wave and a load or store by another
// wave of the same launch, with nothing that orders the two. A store of the value that is there
// already is none.
//
// A barrier orders the waves of a workgroup. Else two accesses are in order if the workgroup of the
// first one released after it (an atomic, or a coherent store: sc0, sc1, glc), and that of the
// second one acquired later, before its own (an atomic with a result, or a coherent load). The
// addresses of the two do not matter, and neither does who took part in between: all that really
// orders is found, and some more. So a race may be missed, but what is reported is one. Atomics of
// LDS do the same within a workgroup.
//
// A coherent store alone is a flag, and orders what other workgroups see up to the last fence
// (buffer_wbl2) alone. gfx90a's fences cannot be told from waits, nor its atomic stores from others:
// there every store of a flag is a release, and atomics beside ordinary accesses are not looked at.
#pragma once

#include "hip/launch/stream_order.h"
#include "run/fault.h"

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

namespace emu {
struct Wave;
struct MicroOp;
struct Code;

// Numbers of accesses: up to which ones a workgroup released, ascending, and acquired.
struct Order
{
    std::vector<uint32_t> releases;
    uint32_t acquired = 0;
};

struct GroupOrder
{
    uint32_t id[3];
    uint32_t barriers     = 0;
    uint32_t written_back = 0; // up to which access
    Order device, lds;         // of other workgroups, and of the waves of this one
};

// Of a launch under the check: whether a store is an ordinary one, not volatile or atomic, which on gfx90a look alike.
bool is_plain_store(const Wave& wave, const MicroOp* op);

// Those of a launch, which runs on one host thread. An operation gets to see the accesses, too.
class GlobalRaces
{
public:
    GlobalRaces(bool judges, Operation* operation) : judges_(judges), operation_(operation) {}
    bool judges() const { return judges_; }
    GroupOrder* start(const uint32_t id[3]);
    // An access of the instruction that runs now, before it happens: `bytes` at base +
    // offsets[lane] for the lanes of `mask`, or of a whole wave.
    void touch(Access access, uint64_t base, const uint64_t* offsets, uint64_t mask, unsigned bytes);
    void touch(Access access, uint64_t address, unsigned bytes, uint32_t lane = NO_LANE);
    // The instruction has failed: it made no access.
    void forget() { touched_.clear(); }
    // After the instruction. Throws LaunchFault if an access of it is a race.
    void judge(const Wave& wave, const MicroOp* op);
    // An atomic that may be of LDS.
    void order_by_lds(const Wave& wave, const MicroOp* op);
    void write_back(const Wave& wave); // its caches: a fence

private:
    struct Touch
    {
        Access access;
        uint32_t lane;
        uint64_t address;
        unsigned bytes;
        uint8_t before[16]; // of what a store writes over
    };
    // An access by an instruction; its number is its place in records_, plus 1.
    struct Record
    {
        const GroupOrder* group;
        const MicroOp* op;
        const Code* code;
        uint32_t barriers, wave;
        Access access;
    };
    // Numbers, 0: none. The last store, and the last load since then with the last one by another
    // wave.
    struct Cell
    {
        uint32_t store = 0, load = 0, other_load = 0, atomic = 0;
        bool repeated = false; // by the last store, which changed nothing
    };
    // A cell for each dword, or for each byte once an access wants less.
    struct Page
    {
        std::vector<Cell> cells;
        unsigned step = 4;
    };
    struct Now
    {
        const Wave& wave;
        const MicroOp* op;
        uint32_t number;
    };

    template <typename Visit>
    void visit(const Touch& touch, Visit&& each);
    void load(const Now& now, const Touch& touch);
    void change(const Now& now, const Touch& touch);
    void order(const Wave& wave, const MicroOp* op, Access access, uint32_t number);
    Now record(const Wave& wave, const MicroOp* op, Access access);
    void store(const Now& now, const Touch& touch);
    void publish(const Touch& touch);
    void compare(const Now& now, const Touch& touch, uint64_t address, uint32_t before);
    bool same_wave(uint32_t one, uint32_t other) const;
    bool is_ordered(uint32_t before, uint32_t now) const;
    Page* page_of(uint64_t address);
    bool has_room(uint64_t bytes);

    void tell_operation(const std::vector<Touch>& touched, const MicroOp* op);

    const bool judges_;
    Operation* const operation_;
    std::deque<GroupOrder> groups_;
    std::deque<Record> records_;
    std::vector<Touch> touched_;
    std::unordered_map<uint64_t, Page> pages_;
    std::optional<Fault> race_; // of the instruction that ran, the first of
    uint64_t racing_ = 0;       // these lanes
    uint64_t used_   = 0;
    bool full_       = false;
};
} // namespace emu
