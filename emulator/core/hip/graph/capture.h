// Stream capture: calls on a captured stream become nodes of a graph instead of being done.
//
// Rules and errors are those of HIP ("Graph management", hipStreamBeginCapture): a call that would
// need the outcome of captured work is refused, and the sequence that it touches becomes invalid.
#pragma once

#include "hip/graph/graph.h"
#include "hip/launch/stream.h"

#include <functional>
#include <set>
#include <thread>

namespace emu {
enum CaptureMode : int
{
    CAPTURE_GLOBAL       = 0, // no thread may make unsafe calls meanwhile
    CAPTURE_THREAD_LOCAL = 1, // this thread may not
    CAPTURE_RELAXED      = 2,
};

enum CaptureStatus : int // hipStreamCaptureStatus
{
    CAPTURE_NONE        = 0,
    CAPTURE_ACTIVE      = 1,
    CAPTURE_INVALIDATED = 2,
};

struct Capture
{
    uint64_t id;
    int mode;
    int status = CAPTURE_ACTIVE;
    std::thread::id thread; // that began it
    ihipStream_t* origin;
    std::set<ihipStream_t*> streams = {}; // that take part
    ihipGraph* graph;
    std::unique_ptr<ihipGraph> own;          // unless it is the caller's
    std::vector<hipGraphNode_t> nodes  = {}; // that capturing made
    std::set<hipGraphNode_t> abandoned = {}; // whose end no call must wait for
};

// If the stream is captured: add a node, and answer true. Throws HipFailure
// (hipErrorStreamCaptureInvalidated) if the sequence is invalid, and what `make` throws.
bool captured(hipStream_t stream, const std::function<NodeParams()>& make);

// Each throws HipFailure and invalidates what is captured:
// - calls that are unsafe in another stream's capture, like allocations
// (hipErrorStreamCaptureUnsupported);
void refuse_while_capturing();
// - calls on the default stream that wait (hipErrorStreamCaptureImplicit);
void refuse_synchronous();
// - waiting for the whole device, or asking for a stream's state
// (hipErrorStreamCaptureUnsupported);
void refuse_any_capture();
void refuse_on_stream(hipStream_t stream);
// - or for that of an event of a captured stream (hipErrorCapturedEvent).
void refuse_on_event(const ihipEvent_t& event);

// True if the stream is captured.
bool record_in_capture(hipStream_t stream, ihipEvent_t& event, unsigned flags);
// A stream that waits for an event of a captured stream is captured from then on. Throws HipFailure
// (hipErrorStreamCaptureIsolation, hipErrorStreamCaptureMerge).
void wait_in_capture(hipStream_t stream, ihipEvent_t& event, unsigned flags);
// The stream is destroyed: what it began ends.
void abandon_capture(ihipStream_t& stream);

void begin_capture(hipStream_t stream, ihipGraph* into, const std::vector<hipGraphNode_t>& after, int mode);
// The graph; the caller's has it. Throws HipFailure (hipErrorIllegalState, ..Unmatched,
// ..WrongThread,
// ..Invalidated, ..Unjoined).
hipGraph_t end_capture(hipStream_t stream);
// Null if the stream takes part in none. Throws HipFailure (hipErrorStreamCaptureImplicit): it is
// the default stream while a blocking one is captured.
std::shared_ptr<Capture> capture_of(hipStream_t stream);
// This thread's mode for unsafe calls; returns the one before.
int exchange_capture_mode(int mode);
} // namespace emu
