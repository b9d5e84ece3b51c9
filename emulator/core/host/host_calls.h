// What kernels ask of the host while they run: printf, assert, memory, a function of the program.
//
// The device library (ROCm-Device-Libs, ockl) asks in packets of a buffer, whose address is a
// hidden argument. A wave takes a packet off the free stack, writes for each active lane eight
// 64-bit words, puts the packet on the ready stack, adds to a signal, and sends a message
// (s_sendmsg) because the signal has a mailbox. It then waits until the packet's ready flag is
// clear and finds the answer in the first two words of each lane. Here the host serves what is
// ready while the wave sends its message, so that no wave ever waits.
#pragma once

#include "host/messages.h"
#include "host/printf_buffer.h"

#include <cstdint>
#include <mutex>
#include <optional>

namespace emu {
struct Kernel;

// The host's side of one launch. Several threads that run waves may call it at once.
class HostCalls
{
public:
    // Allocates what the kernel's hidden arguments point to. Throws std::runtime_error: no room.
    explicit HostCalls(const Kernel& kernel);
    ~HostCalls();
    HostCalls(const HostCalls&)            = delete;
    HostCalls& operator=(const HostCalls&) = delete;

    // Values of hidden arguments; 0 if the kernel has none of the kind.
    uint64_t buffer() const { return reinterpret_cast<uint64_t>(buffer_); }
    uint64_t printf_buffer() const { return printed_ ? printed_->address() : 0; }
    uint64_t heap() const { return heap_; }

    // Serve every packet that is ready, lane by lane. Throws HostCallError (messages.h): an
    // unknown request.
    void serve();
    // After the launch, faulted or not: write what kernels printed into their buffer.
    void finish();

private:
    struct Buffer;
    void serve_packet(uint64_t packet);

    Buffer* buffer_ = nullptr;
    uint64_t heap_  = 0;
    std::optional<PrintfBuffer> printed_;
    std::mutex mutex_; // of the messages, and of what they write
    Messages messages_;
};
} // namespace emu
