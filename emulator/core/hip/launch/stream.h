// Streams and events, as far as other calls look into them.
#pragma once

#include "hip/launch/stream_order.h"
#include "hip/types.h"

#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <vector>

namespace emu {
struct Capture;
}

struct ihipStream_t
{
    unsigned flags = 0;
    int priority   = 0;
    // While it is captured: the sequence that it is part of, and what its next node depends on.
    std::shared_ptr<emu::Capture> capture = nullptr;
    std::vector<hipGraphNode_t> last      = {};
    // What its next operation is after (hip/launch/stream_order.h); its number there, 0: the default one.
    emu::Clock clock = {};
    uint32_t number  = 0;
    // Attributes that the program set, by number; they change nothing.
    std::map<int, std::array<char, 64>> attributes = {};
};

struct ihipEvent_t
{
    bool timing;
    bool recorded                                = false;
    std::chrono::steady_clock::time_point moment = {};
    // If it was recorded in a captured stream: the sequence, and the stream's nodes before it.
    std::shared_ptr<emu::Capture> capture = nullptr;
    std::vector<hipGraphNode_t> last      = {};
    emu::Clock clock                      = {}; // what it is after (hip/launch/stream_order.h)
};

namespace emu {
// Flag of hipStreamCreateWithFlags: the stream does not wait for the default one.
constexpr unsigned NON_BLOCKING = 1;

// Throws HipFailure (hipErrorInvalidHandle) for a stream that does not exist.
void check_stream(hipStream_t stream);
// The same, with its state: that of the calling thread for hipStreamPerThread.
ihipStream_t& stream_of(hipStream_t stream);
// Whether it is the default stream, which all threads share.
bool is_legacy(hipStream_t stream);
ihipEvent_t& event_of(hipEvent_t event);
// Note that the event happened now.
void record_event(hipEvent_t event);
} // namespace emu
