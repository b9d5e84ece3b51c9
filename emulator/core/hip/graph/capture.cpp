#include "hip/graph/capture.h"

#include "hip/call.h"

#include <algorithm>
#include <atomic>

namespace emu {
namespace {
constexpr unsigned EXTERNAL = 1; // hipEventRecordExternal, hipEventWaitExternal

struct Captures
{
    std::recursive_mutex mutex; // of all captures, and of what streams and events say of them
    std::set<std::shared_ptr<Capture>> active;
    uint64_t next_id = 1;
};

Captures& captures()
{
    static Captures& only = *new Captures;
    return only;
}

thread_local int thread_mode = CAPTURE_GLOBAL;

template <typename Condition>
void refuse_if(Condition condition, hipError_t error, const char* why)
{
    std::lock_guard lock(captures().mutex);
    bool refused = false;
    for(const auto& capture : captures().active)
    {
        if(!condition(*capture))
            continue;
        capture->status = CAPTURE_INVALIDATED;
        refused         = true;
    }
    require(!refused, error, why);
}

// Null unless the stream takes part in a capture that is valid.
Capture* valid_capture(const ihipStream_t& stream)
{
    if(!stream.capture)
        return nullptr;
    require(stream.capture->status == CAPTURE_ACTIVE, hipErrorStreamCaptureInvalidated,
            "an earlier call made the capture invalid");
    return stream.capture.get();
}

void add_node(ihipStream_t& stream, Capture& capture, NodeParams params)
{
    hipGraphNode& made = capture.graph->add(std::move(params), stream.last.data(), stream.last.size());
    capture.nodes.push_back(&made);
    stream.last = {&made};
}

void join(std::vector<hipGraphNode_t>& last, const std::vector<hipGraphNode_t>& more)
{
    for(const hipGraphNode_t node : more)
        if(std::ranges::find(last, node) == last.end())
            last.push_back(node);
}

void finish(const std::shared_ptr<Capture>& capture)
{
    capture->status = CAPTURE_NONE;
    for(ihipStream_t* stream : capture->streams)
    {
        stream->capture = nullptr;
        stream->last.clear();
    }
    captures().active.erase(capture);
}

// Whether each captured node comes before where the origin stream ended.
bool all_joined(const Capture& capture)
{
    std::set<hipGraphNode_t> reached = capture.abandoned;
    std::vector<hipGraphNode_t> open = capture.origin->last;
    open.insert(open.end(), reached.begin(), reached.end());
    while(!open.empty())
    {
        const hipGraphNode_t node = open.back();
        open.pop_back();
        reached.insert(node);
        for(const hipGraphNode_t before : node->dependencies)
            if(!reached.count(before))
                open.push_back(before);
    }
    return std::ranges::all_of(capture.nodes, [&](hipGraphNode_t node) { return reached.count(node) != 0; });
}
} // namespace

bool captured(hipStream_t handle, const std::function<NodeParams()>& make)
{
    std::lock_guard lock(captures().mutex);
    ihipStream_t& stream = stream_of(handle);
    Capture* capture     = valid_capture(stream);
    if(!capture)
    {
        begin_operation(stream);
        return false;
    }
    add_node(stream, *capture, make());
    return true;
}

void refuse_while_capturing()
{
    wait_for_device();
    if(thread_mode == CAPTURE_RELAXED)
        return;
    const auto self = std::this_thread::get_id();
    refuse_if(
        [&](const Capture& one) {
            const bool mine = one.mode != CAPTURE_RELAXED && one.thread == self;
            return mine || (one.mode == CAPTURE_GLOBAL && thread_mode == CAPTURE_GLOBAL);
        },
        hipErrorStreamCaptureUnsupported, "an unsafe call while a stream is captured");
}

void refuse_synchronous()
{
    refuse_if([](const Capture&) { return true; }, hipErrorStreamCaptureImplicit,
              "a call on the default stream that waits, while a stream is captured");
    begin_operation(stream_of(nullptr), true);
}

void refuse_any_capture()
{
    refuse_if([](const Capture&) { return true; }, hipErrorStreamCaptureUnsupported,
              "waiting for the device while a stream is captured");
    wait_for_device();
}

void refuse_on_stream(hipStream_t handle)
{
    std::lock_guard lock(captures().mutex);
    const std::shared_ptr<Capture> mine = stream_of(handle).capture;
    refuse_if([&](const Capture& one) { return &one == mine.get(); }, hipErrorStreamCaptureUnsupported,
              "the stream is captured");
    wait_for_stream(stream_of(handle));
}

void refuse_on_event(const ihipEvent_t& event)
{
    refuse_if([&](const Capture& one) { return &one == event.capture.get(); }, hipErrorCapturedEvent,
              "the event is one of a captured stream");
    wait_for_event(event);
}

bool record_in_capture(hipStream_t handle, ihipEvent_t& event, unsigned flags)
{
    std::lock_guard lock(captures().mutex);
    ihipStream_t& stream = stream_of(handle);
    Capture* capture     = valid_capture(stream);
    if(!capture)
    {
        record_order(event, stream);
        return false;
    }
    if(flags == EXTERNAL)
    {
        add_node(stream, *capture, EventRecordNode{&event});
        return true;
    }
    event.capture = stream.capture;
    event.last    = stream.last;
    return true;
}

void wait_in_capture(hipStream_t handle, ihipEvent_t& event, unsigned flags)
{
    std::lock_guard lock(captures().mutex);
    ihipStream_t& stream = stream_of(handle);
    Capture* capture     = valid_capture(stream);
    if(capture && flags == EXTERNAL)
        return add_node(stream, *capture, EventWaitNode{&event});
    const bool joins = event.capture && event.capture->status == CAPTURE_ACTIVE;
    if(capture && !joins)
    {
        capture->status = CAPTURE_INVALIDATED;
        throw HipFailure(hipErrorStreamCaptureIsolation, "the event was recorded outside the capture");
    }
    if(!joins)
        return wait_in_stream(stream, event);
    if(capture && capture != event.capture.get())
    {
        capture->status = event.capture->status = CAPTURE_INVALIDATED;
        throw HipFailure(hipErrorStreamCaptureMerge, "the event is one of another capture");
    }
    if(is_legacy(handle))
    {
        event.capture->status = CAPTURE_INVALIDATED;
        throw HipFailure(hipErrorStreamCaptureImplicit, "the default stream can't be captured");
    }
    stream.capture = event.capture;
    stream.capture->streams.insert(&stream);
    join(stream.last, event.last);
}

void abandon_capture(ihipStream_t& stream)
{
    std::lock_guard lock(captures().mutex);
    const std::shared_ptr<Capture> capture = stream.capture;
    if(!capture)
        return;
    capture->streams.erase(&stream);
    if(capture->origin == &stream)
        finish(capture);
}

void begin_capture(hipStream_t handle, ihipGraph* into, const std::vector<hipGraphNode_t>& after, int mode)
{
    std::lock_guard lock(captures().mutex);
    require(!is_legacy(handle), hipErrorStreamCaptureUnsupported, "the default stream can't be captured");
    require(mode >= CAPTURE_GLOBAL && mode <= CAPTURE_RELAXED, hipErrorInvalidValue, "no such mode of capture");
    ihipStream_t& stream = stream_of(handle);
    require(!stream.capture, hipErrorIllegalState, "the stream is captured already");
    auto own  = into ? nullptr : std::make_unique<ihipGraph>();
    auto made = std::make_shared<Capture>(Capture{.id     = captures().next_id++,
                                                  .mode   = mode,
                                                  .thread = std::this_thread::get_id(),
                                                  .origin = &stream,
                                                  .graph  = into ? into : own.get(),
                                                  .own    = std::move(own)});
    made->streams.insert(&stream);
    stream.capture = made;
    stream.last    = after;
    captures().active.insert(made);
}

hipGraph_t end_capture(hipStream_t handle)
{
    std::lock_guard lock(captures().mutex);
    ihipStream_t& stream                   = stream_of(handle);
    const std::shared_ptr<Capture> capture = stream.capture;
    require(capture != nullptr, hipErrorIllegalState, "the stream is not captured");
    require(capture->origin == &stream, hipErrorStreamCaptureUnmatched, "the capture began in another stream");
    require(capture->mode == CAPTURE_RELAXED || capture->thread == std::this_thread::get_id(),
            hipErrorStreamCaptureWrongThread, "another thread began the capture");
    const bool valid  = capture->status == CAPTURE_ACTIVE;
    const bool joined = valid && all_joined(*capture);
    finish(capture);
    require(valid, hipErrorStreamCaptureInvalidated, "an earlier call made the capture invalid");
    require(joined, hipErrorStreamCaptureUnjoined, "a stream that took part was not joined");
    capture->own.release(); // the caller's from here on
    return capture->graph;
}

std::shared_ptr<Capture> capture_of(hipStream_t handle)
{
    std::lock_guard lock(captures().mutex);
    if(is_legacy(handle))
        for(const auto& one : captures().active)
            require(one->origin->flags & NON_BLOCKING, hipErrorStreamCaptureImplicit,
                    "asked of the default stream while a blocking one is captured");
    return stream_of(handle).capture;
}

int exchange_capture_mode(int mode)
{
    require(mode >= CAPTURE_GLOBAL && mode <= CAPTURE_RELAXED, hipErrorInvalidValue, "no such mode of capture");
    return std::exchange(thread_mode, mode);
}
} // namespace emu
