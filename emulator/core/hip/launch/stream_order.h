// Order between streams (option stream_order): an operation of one stream, a launch or a copy, writes
// bytes that an operation of another stream reads or writes, and nothing orders the two.
//
// Operations are ordered by their stream; by an event that was recorded in one stream and waited for in
// another; by the default stream, unless a stream does not block; and by the host, which has waited for
// one before it issued the other (hipDeviceSynchronize, a copy that waits, a query). Each stream, each
// event and the host has a clock: up to which operation of each stream it has seen.
//
// What may order two operations counts, so that no correct program is reported: allocations wait for the
// device, and all of the host's threads are one. A launch that stores coherently, or that makes atomics of
// memory of the host, or with a fence, may have told the host: it is before whatever follows. One that makes atomics is
// before a later one that does. A kernel's stores of the value that is there already do not conflict with others;
// copies and fills do. Memory of a pool is written when it is allocated and when it is freed.
// Remembered are the last operations that the host has not waited for.
//
// The host must not touch what such an operation writes, or write what it reads: of memory that both
// have, pages that the operation covers are protected meanwhile, and a fault of the host's is a report.
#pragma once

#include "memory/memory.h"
#include "run/fault.h"

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

struct hipGraphNode;
struct ihipStream_t;
struct ihipEvent_t;

namespace emu {
// Numbers of operations by number of stream.
using Clock = std::vector<uint32_t>;

class Operation
{
public:
    Operation(std::string name, uint32_t stream, uint32_t tick, Clock seen);
    // Bytes that it reads or writes. `changes`: a store writes another value than was there.
    void touch(Access access, uint64_t address, uint64_t bytes, bool changes);
    // A coherent access or an atomic.
    void synchronise(Access access, uint64_t address, bool answers);
    // The first byte in which it conflicts with an earlier one; 0: none, or they are in order.
    uint64_t conflict(const Operation& before) const;
    bool seen_by(const Clock& clock) const { return stream < clock.size() && clock[stream] >= tick; }
    size_t page_count() const { return pages_.size(); }
    // No more accesses follow.
    void finish();
    // What it stored may be known elsewhere.
    void publish() { published_ = true; }
    // Protect the pages that the host must not touch, or allow them again.
    void protect(bool on) const;
    bool page_of_host(uint64_t number) const; // one that it may have protected

    std::string name;
    uint32_t stream, tick;
    Clock seen; // up to what it is after, itself included
    bool host_waits = false, in_graph = false;

private:
    enum Bits
    {
        READ,
        STORED,
        CHANGED,
        KINDS
    };
    struct Page
    {
        bool counts = false, is_hosts = false;
        int forbidden  = 0;                   // to the host until it has waited
        uint64_t begin = 0, end = PAGE_BYTES; // of the allocation's bytes
        bool covered(Bits kind) const;
        uint64_t bits[KINDS][PAGE_BYTES / 64];
    };
    Page& page_of(uint64_t number);
    void mark(Bits kind, uint64_t address, uint64_t bytes);

    std::unordered_map<uint64_t, Page> pages_;
    uint64_t last_number_ = ~uint64_t{0};
    Page* last_page_      = nullptr;
    bool acquires_ = false, releases_ = false, published_ = false;
};

// The stream is new.
void number_stream(ihipStream_t& stream);
// An operation of the calling thread begins on a stream, and ends. With `host_waits`, its call returns
// when it is done.
void begin_operation(ihipStream_t& stream, bool host_waits = false);
void end_operation();
// Before the process ends: what the host did last.
void report_host_accesses();
// The calling thread's; null unless the check is on.
Operation* current_operation();

// The host waits: for a stream, an event, everything.
void wait_for_stream(ihipStream_t& stream);
void wait_for_event(const ihipEvent_t& event);
void wait_for_device();
void record_order(ihipEvent_t& event, ihipStream_t& stream);
void wait_in_stream(ihipStream_t& stream, const ihipEvent_t& event);
// Launches of one executable graph are in order; an event of a graph's node is after everything.
void order_graph(Clock& graph);
// A node of the graph that the calling thread launches is an operation after the nodes that it depends on; what
// begin_node answers is the launch. What follows the launch is after all nodes.
std::shared_ptr<Operation> begin_node(hipGraphNode& node);
void end_node(hipGraphNode& node, const std::shared_ptr<Operation>& launch);
void join_nodes(const std::vector<hipGraphNode*>& nodes);
void record_in_graph(ihipEvent_t& event);
void wait_in_graph(const ihipEvent_t& event);
} // namespace emu
