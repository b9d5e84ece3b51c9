#include "host/host_calls.h"

#include "host/device_heap.h"
#include "isa/wave.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <stdexcept>
#include <string>

namespace emu {
namespace {
// A wave holds at most one packet, and no other wave of its host thread runs meanwhile: one for
// each thread that the option allows.
constexpr uint64_t PACKETS = 1024;
constexpr unsigned WORDS   = 8; // of a lane

struct Header
{
    uint64_t next, active; // EXEC
    uint32_t service, control;
};
constexpr uint32_t READY = 1; // of Header::control

struct Payload
{
    uint64_t lanes[LANES][WORDS];
};

// amd_signal_t (HSA runtime, amd_hsa_signal.h).
struct Signal
{
    int64_t kind, value;
    uint64_t mailbox;
    uint32_t event, reserved0;
    uint64_t started, ended, queue, reserved1;
};
static_assert(sizeof(Signal) == 64);

enum Service : uint32_t
{
    FUNCTION_CALL = 1,
    PRINTF        = 2,
    MEMORY        = 3,
};

// A function of the program itself: answers in two words what it is given in seven.
void call_function(uint64_t* words)
{
    uint64_t answer[2] = {};
    reinterpret_cast<void (*)(uint64_t*, const uint64_t*)>(words[0])(answer, words + 1);
    std::copy_n(answer, 2, words);
}
} // namespace

// The first six words are the device library's; it reads no further.
struct HostCalls::Buffer
{
    Header* headers;
    Payload* payloads;
    Signal* doorbell;
    uint64_t free, ready; // stacks: the low bits of an entry are its packet, those above a count
    uint64_t mask;        // of the packet's bits
    uint64_t mail;
    Signal signal;
    Header header[PACKETS];
    Payload payload[PACKETS];
};

HostCalls::HostCalls(const Kernel& kernel)
{
    if(kernel.has(HiddenKind::HeapV1))
        heap_ = device_heap();
    if(kernel.has(HiddenKind::PrintfBuffer))
        printed_.emplace(kernel.program->formats);
    if(!kernel.has(HiddenKind::HostcallBuffer))
        return;
    buffer_ = static_cast<Buffer*>(allocate(sizeof(Buffer), AllocationKind::Internal, "packets of host calls"));
    if(buffer_ == nullptr)
        throw std::runtime_error("no room for packets of host calls");
    buffer_->headers  = buffer_->header;
    buffer_->payloads = buffer_->payload;
    buffer_->doorbell = &buffer_->signal;
    buffer_->signal   = {.kind      = 1, // of users
                         .value     = 0,
                         .mailbox   = reinterpret_cast<uint64_t>(&buffer_->mail),
                         .event     = 1,
                         .reserved0 = 0,
                         .started   = 0,
                         .ended     = 0,
                         .queue     = 0,
                         .reserved1 = 0};
    buffer_->mask     = PACKETS - 1;
    buffer_->ready    = 0;
    // An entry is never 0, which ends a stack: packet 0 has a count.
    for(uint64_t i = 0; i < PACKETS; ++i)
        buffer_->header[i].next = i == 0 ? 0 : i == 1 ? PACKETS : i - 1;
    buffer_->free = PACKETS - 1;
}

HostCalls::~HostCalls()
{
    if(buffer_ != nullptr)
        release(buffer_);
}

void HostCalls::serve()
{
    if(buffer_ == nullptr)
        return;
    const HostMode plain(host_mode(), MXCSR_NEAREST); // the program's own arithmetic
    const std::lock_guard lock(mutex_);
    uint64_t entry = std::atomic_ref(buffer_->ready).exchange(0, std::memory_order_acquire);
    for(uint64_t served = 0; entry != 0; ++served)
    {
        if(served == PACKETS)
            throw HostCallError("the stack of packets for the host has no end");
        // After the service the packet belongs to its wave again.
        const uint64_t next = buffer_->header[entry & (PACKETS - 1)].next;
        serve_packet(entry & (PACKETS - 1));
        entry = next;
    }
}

void HostCalls::serve_packet(uint64_t packet)
{
    Header& header = buffer_->header[packet];
    for(uint64_t active = header.active; active != 0; active &= active - 1)
    {
        uint64_t* const words = buffer_->payload[packet].lanes[std::countr_zero(active)];
        switch(header.service)
        {
            case FUNCTION_CALL: call_function(words); break;
            case PRINTF: messages_.take(words); break;
            case MEMORY: words[0] = serve_memory(words[0], words[1]); break;
            default:
                throw HostCallError("the kernel asks the host for service " + std::to_string(header.service) +
                                    ", which the emulator lacks");
        }
    }
    std::atomic_ref(header.control).fetch_and(~READY, std::memory_order_release);
}

void HostCalls::finish()
{
    if(printed_)
        printed_->write();
}
} // namespace emu
