#include "hip/launch/stream_order.h"

#include "hip/call.h"
#include "hip/graph/graph.h"
#include "hip/launch/stream.h"
#include "run/options.h"

#include <algorithm>
#include <bit>
#include <csignal>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <sys/mman.h>
#include <utility>

namespace emu {
namespace {
constexpr size_t MOST_OPERATIONS = 256, MOST_PAGES = 65536; // remembered

// Pages that the host touched too early, until a call reports them: a signal's handler can't.
struct Early
{
    static constexpr size_t ROOM = 16;
    size_t count                 = 0;
    uint64_t addresses[ROOM];
};
Early early;
struct sigaction handler_before;

constexpr int ALLOWED = PROT_READ | PROT_WRITE;

void allow(uint64_t page, int how) { mprotect(reinterpret_cast<void*>(page * PAGE_BYTES), PAGE_BYTES, how); }

struct Streams
{
    std::recursive_mutex mutex;
    uint32_t count = 1; // of numbers; 0 is the default stream's
    Clock host, blocking, all;
    std::vector<uint32_t> ticks; // of the last operations
    unsigned running = 0;
    std::deque<std::shared_ptr<Operation>> open;
    std::set<std::string> reported;
};

Streams& streams()
{
    static Streams& only = *new Streams;
    return only;
}

thread_local std::shared_ptr<Operation> operation;
thread_local ihipStream_t* operation_stream = nullptr;

bool is_on() { return options().stream_order != 0; }

void join(Clock& clock, const Clock& other)
{
    clock.resize(std::max(clock.size(), other.size()));
    for(size_t i = 0; i < other.size(); ++i)
        clock[i] = std::max(clock[i], other[i]);
}

// What follows in the stream is after this.
void reach(ihipStream_t& stream, const Clock& clock)
{
    join(stream.clock, clock);
    join(streams().all, clock);
    if((stream.flags & NON_BLOCKING) == 0 && &stream != &stream_of(nullptr))
        join(streams().blocking, clock);
}

// What a wait for the stream waits for.
Clock reached(ihipStream_t& stream)
{
    Clock clock = stream.clock;
    if(&stream == &stream_of(nullptr))
        join(clock, streams().blocking);
    return clock;
}

std::string name_of(const Operation& one)
{
    return one.name + (one.in_graph      ? " in a graph"
                       : one.stream == 0 ? " on the default stream"
                                         : " on stream " + std::to_string(one.stream));
}

std::string place_text(uint64_t address)
{
    Allocation place;
    if(!find_allocation(address, &place))
        return hex_text(address);
    return hex_text(address) + " (byte " + std::to_string(address - place.base) + " of allocation " +
           std::to_string(place.id) + ")";
}

// Between operations the host must not touch what those write that it has not waited for.
void protect(bool on)
{
    for(const auto& one : streams().open)
        one->protect(on);
}

void report_early()
{
    for(size_t count = std::exchange(early.count, 0), i = 0; i < count; ++i)
        for(const auto& one : streams().open)
            if(one->page_of_host(early.addresses[i] / PAGE_BYTES) &&
               streams().reported.insert(one->name + "\nhost").second)
            {
                report_defect("stream_order", "the host used " + place_text(early.addresses[i]) +
                                                  " without having waited for " + name_of(*one));
                break;
            }
}

void host_waits_for(const Clock& clock)
{
    Streams& all = streams();
    report_early();
    join(all.host, clock);
    for(const auto& one : all.open)
        if(one->seen_by(all.host))
            one->protect(false);
    std::erase_if(all.open, [&](const auto& one) { return one->seen_by(all.host); });
}

void report_conflict(const Operation& now, const Operation& before, uint64_t address)
{
    if(!streams().reported.insert(now.name + "\n" + before.name).second)
        return;
    report_defect("stream_order", name_of(now) + " and " + name_of(before) + " use " + place_text(address) +
                                      ", one of them writes it, and nothing orders the two: no event that the "
                                      "later one waits for, and no wait of the host in between");
}
} // namespace

Operation::Operation(std::string name_, uint32_t stream_, uint32_t tick_, Clock seen_)
    : name(std::move(name_)), stream(stream_), tick(tick_), seen(std::move(seen_))
{}

// Each launch has its arguments, packets and buffers for itself.
Operation::Page& Operation::page_of(uint64_t number)
{
    if(number == last_number_)
        return *last_page_;
    const auto [entry, fresh] = pages_.try_emplace(number);
    if(fresh)
    {
        Allocation place;
        int64_t distance     = 0;
        const uint64_t base  = number * PAGE_BYTES;
        entry->second.counts = nearest(base, &place, &distance) && !place.freed &&
                               (distance == 0 || place.base / PAGE_BYTES == number) &&
                               place.kind != AllocationKind::Heap && pages_.size() <= MOST_PAGES;
        entry->second.is_hosts =
            entry->second.counts && (place.kind == AllocationKind::Host || place.kind == AllocationKind::Managed);
        entry->second.begin = std::max(place.base, base) - base;
        entry->second.end   = std::min(place.base + place.bytes, base + PAGE_BYTES) - base;
    }
    last_number_ = number;
    last_page_   = &entry->second;
    return *last_page_;
}

void Operation::mark(Bits kind, uint64_t address, uint64_t bytes)
{
    while(bytes > 0 && pages_.size() <= MOST_PAGES)
    {
        const uint64_t at = address % PAGE_BYTES, word = at / 64, first = at % 64;
        const uint64_t count = std::min(bytes, 64 - first);
        Page& page           = page_of(address / PAGE_BYTES);
        if(page.counts)
            page.bits[kind][word] |= (count == 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1) << first;
        address += count;
        bytes -= count;
    }
}

void Operation::touch(Access access, uint64_t address, uint64_t bytes, bool changes)
{
    if(access == Access::Load)
        return mark(READ, address, bytes);
    mark(STORED, address, bytes);
    if(changes)
        mark(CHANGED, address, bytes);
}

void Operation::synchronise(Access access, uint64_t address, bool answers)
{
    acquires_ |= access == Access::Load || answers;
    releases_ |= access != Access::Load;
    Allocation place;
    published_ |=
        access == Access::Store || (access == Access::Atomic && find_allocation(address, &place) &&
                                    place.kind != AllocationKind::Device && place.kind != AllocationKind::Code);
}

uint64_t Operation::conflict(const Operation& before) const
{
    if(before.seen_by(seen) || before.published_ || (before.releases_ && acquires_))
        return 0;
    const bool fewer  = pages_.size() < before.pages_.size();
    const auto& small = fewer ? pages_ : before.pages_;
    const auto& large = fewer ? before.pages_ : pages_;
    for(const auto& [number, page] : small)
    {
        const auto other = large.find(number);
        for(size_t i = 0; page.counts && other != large.end() && i < PAGE_BYTES / 64; ++i)
        {
            const auto &now = (fewer ? page : other->second).bits, &earlier = (fewer ? other->second : page).bits;
            const uint64_t both =
                (now[CHANGED][i] & (earlier[READ][i] | earlier[STORED][i])) | (earlier[CHANGED][i] & now[READ][i]);
            if(both != 0)
                return number * PAGE_BYTES + i * 64 + static_cast<uint64_t>(std::countr_zero(both));
        }
    }
    return 0;
}

// All bytes of the allocation there.
bool Operation::Page::covered(Bits kind) const
{
    for(uint64_t at = begin; at < end; ++at)
        if((bits[kind][at / 64] >> at % 64 & 1) == 0)
            return false;
    return true;
}

void Operation::protect(bool on) const
{
    if(published_)
        return;
    for(const auto& [number, page] : pages_)
        if(page.is_hosts && !on)
            allow(number, ALLOWED);
        else if(page.is_hosts && page.forbidden != 0)
            allow(number, page.forbidden == PROT_WRITE ? PROT_READ : PROT_NONE);
}

void Operation::finish()
{
    for(auto& [number, page] : pages_)
        if(page.is_hosts)
            page.forbidden = page.covered(STORED) ? ALLOWED : page.covered(READ) ? PROT_WRITE : 0;
}

bool Operation::page_of_host(uint64_t number) const
{
    const auto page = pages_.find(number);
    return page != pages_.end() && page->second.is_hosts && !published_;
}

namespace {
// The host's access goes on; a fault of another place is the business of the handler before.
void on_fault(int signal, siginfo_t* where, void* context)
{
    const std::lock_guard lock(streams().mutex);
    const auto address = reinterpret_cast<uint64_t>(where->si_addr);
    for(const auto& one : streams().open)
        if(where->si_code == SEGV_ACCERR && one->page_of_host(address / PAGE_BYTES))
        {
            // While another thread's operation runs, it may be that one's.
            if(const size_t at = early.count; streams().running == 0 && at < Early::ROOM)
                early.addresses[early.count++] = address;
            return allow(address / PAGE_BYTES, ALLOWED);
        }
    if(handler_before.sa_flags & SA_SIGINFO)
        return handler_before.sa_sigaction(signal, where, context);
    if(handler_before.sa_handler != SIG_DFL && handler_before.sa_handler != SIG_IGN)
        return handler_before.sa_handler(signal);
    sigaction(SIGSEGV, &handler_before, nullptr); // the access is made again, and ends the process
}

// Whoever has set another handler since then is the one before.
void catch_faults()
{
    struct sigaction now;
    sigaction(SIGSEGV, nullptr, &now);
    if((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_fault)
        return;
    handler_before        = now;
    struct sigaction ours = {};
    ours.sa_sigaction     = on_fault;
    ours.sa_flags         = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    sigemptyset(&ours.sa_mask);
    sigaction(SIGSEGV, &ours, nullptr);
}

// Of an operation that begins on a stream: it has seen itself.
uint32_t next_tick(uint32_t stream, Clock& clock)
{
    std::vector<uint32_t>& ticks = streams().ticks;
    ticks.resize(std::max<size_t>(ticks.size(), stream + 1));
    Clock tick(stream + 1);
    tick[stream] = ++ticks[stream];
    join(clock, tick);
    return tick[stream];
}

// The operation has ended: look for earlier ones in conflict, and remember it.
void remember(const std::shared_ptr<Operation>& now)
{
    Streams& all = streams();
    now->finish();
    for(const auto& before : all.open)
        if(const uint64_t address = now->conflict(*before))
            report_conflict(*now, *before, address);
    all.open.push_back(now);
    size_t pages = 0;
    for(const auto& one : all.open)
        pages += one->page_count();
    for(; all.open.size() > MOST_OPERATIONS || (pages > MOST_PAGES && all.open.size() > 1); all.open.pop_front())
    {
        pages -= all.open.front()->page_count();
        all.open.front()->protect(false);
    }
}
} // namespace

void number_stream(ihipStream_t& stream)
{
    const std::lock_guard lock(streams().mutex);
    stream.number = streams().count++;
}

void begin_operation(ihipStream_t& stream, bool host_waits)
{
    if(!is_on())
        return;
    end_operation();
    Streams& all = streams();
    const std::lock_guard lock(all.mutex);
    report_early();
    protect(false);
    ihipStream_t& legacy = stream_of(nullptr);
    if(stream.number == 0 && &stream != &legacy) // a thread's own
        number_stream(stream);
    const bool blocks = (stream.flags & NON_BLOCKING) == 0;
    join(stream.clock, all.host);
    if(blocks)
        join(stream.clock, &stream == &legacy ? all.blocking : legacy.clock);
    const uint32_t tick = next_tick(stream.number, stream.clock);
    reach(stream, stream.clock);
    operation             = std::make_shared<Operation>(current_function(), stream.number, tick, stream.clock);
    operation->host_waits = host_waits;
    operation_stream      = &stream;
    ++all.running;
}

void end_operation()
{
    if(!operation)
        return;
    const std::shared_ptr<Operation> now = std::move(operation);
    operation.reset();
    Streams& all = streams();
    const std::lock_guard lock(all.mutex);
    --all.running;
    reach(*operation_stream, now->seen);
    remember(now);
    if(now->host_waits)
        host_waits_for(now->seen);
    if(all.running != 0)
        return;
    catch_faults();
    protect(true);
}

void report_host_accesses()
{
    const std::lock_guard lock(streams().mutex);
    report_early();
    protect(false);
}

Operation* current_operation() { return options().stream_order != 0 ? operation.get() : nullptr; }

void wait_for_stream(ihipStream_t& stream)
{
    if(!is_on())
        return;
    end_operation();
    const std::lock_guard lock(streams().mutex);
    host_waits_for(reached(stream));
}

void wait_for_event(const ihipEvent_t& event)
{
    const std::lock_guard lock(streams().mutex);
    host_waits_for(event.clock);
}

void wait_for_device()
{
    if(!is_on())
        return;
    end_operation();
    const std::lock_guard lock(streams().mutex);
    host_waits_for(streams().all);
}

void record_order(ihipEvent_t& event, ihipStream_t& stream)
{
    const std::lock_guard lock(streams().mutex);
    event.clock = reached(stream);
    join(event.clock, streams().host);
}

void wait_in_stream(ihipStream_t& stream, const ihipEvent_t& event)
{
    const std::lock_guard lock(streams().mutex);
    join(stream.clock, event.clock);
}

void order_graph(Clock& graph)
{
    if(!operation)
        return;
    const std::lock_guard lock(streams().mutex);
    join(operation->seen, graph);
    graph = operation->seen;
}

std::shared_ptr<Operation> begin_node(hipGraphNode& node)
{
    const std::shared_ptr<Operation> launch = operation;
    if(!launch)
        return launch;
    const std::lock_guard lock(streams().mutex);
    if(node.stream == 0)
        node.stream = streams().count++;
    Clock seen = launch->seen;
    for(const hipGraphNode* before : node.dependencies)
        join(seen, before->clock);
    const uint32_t tick = next_tick(node.stream, seen);
    operation           = std::make_shared<Operation>(launch->name, node.stream, tick, seen);
    operation->in_graph = true;
    return launch;
}

void end_node(hipGraphNode& node, const std::shared_ptr<Operation>& launch)
{
    if(!launch)
        return;
    const std::lock_guard lock(streams().mutex);
    node.clock = operation->seen;
    launch->host_waits |= operation->host_waits;
    remember(operation);
    operation = launch;
}

void join_nodes(const std::vector<hipGraphNode*>& nodes)
{
    if(!operation)
        return;
    const std::lock_guard lock(streams().mutex);
    for(const hipGraphNode* node : nodes)
        join(operation->seen, node->clock);
}

void record_in_graph(ihipEvent_t& event)
{
    const std::lock_guard lock(streams().mutex);
    event.clock = streams().all;
    if(operation)
        join(event.clock, operation->seen);
}

void wait_in_graph(const ihipEvent_t& event)
{
    const std::lock_guard lock(streams().mutex);
    if(operation)
        join(operation->seen, event.clock);
}
} // namespace emu
