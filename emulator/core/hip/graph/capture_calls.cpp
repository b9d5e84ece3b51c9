// Calls that begin, end and ask about stream capture (capture.h).
#include "hip/call.h"
#include "hip/graph/capture.h"

#include <algorithm>

HIP_API hipError_t hipStreamBeginCapture(hipStream_t stream, int mode)
{
    return hip_call("hipStreamBeginCapture", Needs::Device, [&] { emu::begin_capture(stream, nullptr, {}, mode); });
}

HIP_API hipError_t hipStreamBeginCaptureToGraph(hipStream_t stream, hipGraph_t graph,
                                                const hipGraphNode_t* dependencies, const void* edge_data, size_t count,
                                                int mode)
{
    return hip_call("hipStreamBeginCaptureToGraph", Needs::Device, [&] {
        require(!edge_data, hipErrorNotSupported, "data of edges");
        ihipGraph& into = emu::graph_of(graph);
        require(count == 0 || dependencies, hipErrorInvalidValue, "null dependencies");
        std::vector<hipGraphNode_t> after(dependencies, dependencies + count);
        for(const hipGraphNode_t node : after)
            require(emu::node_of(node).graph == &into, hipErrorInvalidValue, "a dependency is of another graph");
        emu::begin_capture(stream, &into, after, mode);
    });
}

HIP_API hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t* graph)
{
    return hip_call("hipStreamEndCapture", Needs::Device, [&] {
        require(graph, hipErrorInvalidValue, "null pointer");
        *graph = nullptr;
        *graph = emu::end_capture(stream);
    });
}

HIP_API hipError_t hipStreamIsCapturing(hipStream_t stream, int* status)
{
    return hip_call("hipStreamIsCapturing", Needs::Device, [&] {
        require(status, hipErrorInvalidValue, "null pointer");
        const auto capture = emu::capture_of(stream);
        *status            = capture ? capture->status : emu::CAPTURE_NONE;
    });
}

HIP_API hipError_t hipStreamGetCaptureInfo_v2(hipStream_t stream, int* status, unsigned long long* id,
                                              hipGraph_t* graph, const hipGraphNode_t** dependencies, size_t* count)
{
    return hip_call("hipStreamGetCaptureInfo_v2", Needs::Device, [&] {
        require(status, hipErrorInvalidValue, "null pointer");
        const auto capture = emu::capture_of(stream);
        *status            = capture ? capture->status : emu::CAPTURE_NONE;
        if(*status != emu::CAPTURE_ACTIVE)
            return;
        const ihipStream_t& that = emu::stream_of(stream);
        if(id)
            *id = capture->id;
        if(graph)
            *graph = capture->graph;
        if(dependencies)
            *dependencies = that.last.data();
        if(count)
            *count = that.last.size();
    });
}

HIP_API hipError_t hipStreamGetCaptureInfo(hipStream_t stream, int* status, unsigned long long* id)
{
    return hipStreamGetCaptureInfo_v2(stream, status, id, nullptr, nullptr, nullptr);
}

HIP_API hipError_t hipStreamUpdateCaptureDependencies(hipStream_t stream, hipGraphNode_t* dependencies, size_t count,
                                                      unsigned flags)
{
    constexpr unsigned ADD = 0, SET = 1;
    return hip_call("hipStreamUpdateCaptureDependencies", Needs::Device, [&] {
        const auto capture = emu::capture_of(stream);
        require(capture && capture->status == emu::CAPTURE_ACTIVE, hipErrorIllegalState, "the stream is not captured");
        require((count == 0 || dependencies) && (flags == ADD || flags == SET), hipErrorInvalidValue,
                "no dependencies, or unknown flags");
        std::vector<hipGraphNode_t> given(dependencies, dependencies + count);
        for(const hipGraphNode_t node : given)
            require(emu::node_of(node).graph == capture->graph, hipErrorInvalidValue,
                    "a dependency is of another graph");
        std::vector<hipGraphNode_t>& last = emu::stream_of(stream).last;
        if(flags == SET)
            capture->abandoned.insert(last.begin(), last.end());
        else
            given.insert(given.begin(), last.begin(), last.end());
        last.clear();
        for(const hipGraphNode_t node : given)
            if(std::ranges::find(last, node) == last.end())
                last.push_back(node);
    });
}

HIP_API hipError_t hipThreadExchangeStreamCaptureMode(int* mode)
{
    return hip_call("hipThreadExchangeStreamCaptureMode", Needs::Nothing, [&] {
        require(mode, hipErrorInvalidValue, "null pointer");
        *mode = emu::exchange_capture_mode(*mode);
    });
}
