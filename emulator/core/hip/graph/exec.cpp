// Graphs instantiated, launched and updated.
#include "hip/call.h"
#include "hip/graph/capture.h"
#include "hip/memory/memory.h"

#include <algorithm>

namespace emu {
namespace {
// hipGraphInstantiateFlagAutoFreeOnLaunch, ..Upload, ..DeviceLaunch, ..UseNodePriority. How it is
// brought to the device and in which order of priorities it runs decides nothing here.
constexpr uint64_t AUTO_FREE = 1, UPLOAD = 2, USE_PRIORITY = 8;

void instantiate(hipGraphExec_t* exec, hipGraph_t graph, uint64_t flags)
{
    require(exec, hipErrorInvalidValue, "null pointer");
    require((flags & ~(AUTO_FREE | UPLOAD | USE_PRIORITY)) == 0, hipErrorInvalidValue,
            "unknown flags, or launches by kernels");
    std::unique_ptr<ihipGraph> copy   = graph_of(graph).copy();
    std::vector<hipGraphNode_t> order = copy->order();
    *exec                             = execs().add(new hipGraphExec{std::move(copy), std::move(order), flags});
}

bool is_live(const void* pointer)
{
    Allocation found;
    const auto address = reinterpret_cast<uint64_t>(pointer);
    return find_allocation(address, &found) && found.base == address;
}

// Memory that the last launch left.
void free_left(const hipGraphExec& exec)
{
    for(const hipGraphNode_t node : exec.order)
        if(const auto* one = std::get_if<AllocateNode>(&node->params); one && is_live(one->address))
            free_memory(one->address, false);
}

void launch_graph(hipGraphExec& exec, hipStream_t stream)
{
    const auto as_child = [&] {
        std::shared_ptr<ihipGraph> graph = exec.graph->copy();
        graph->is_child                  = true;
        return ChildNode{std::move(graph)};
    };
    if(captured(stream, as_child))
        return;
    order_graph(exec.clock);
    if(exec.flags & AUTO_FREE)
        free_left(exec);
    run_nodes(exec.order);
    order_graph(exec.clock);
}

enum class Update : int // hipGraphExecUpdateResult
{
    Success           = 0,
    TopologyChanged   = 2,
    NodeTypeChanged   = 3,
    ParametersChanged = 5,
};

// Positions of what a node waits for in an order of nodes.
std::vector<size_t> places(const hipGraphNode& node, const std::vector<hipGraphNode_t>& order)
{
    std::vector<size_t> all;
    for(const hipGraphNode_t before : node.dependencies)
        all.push_back(static_cast<size_t>(std::ranges::find(order, before) - order.begin()));
    std::ranges::sort(all);
    return all;
}

Update difference(const hipGraphNode& old, const hipGraphNode& fresh)
{
    if(old.params.index() != fresh.params.index())
        return Update::NodeTypeChanged;
    const auto* first  = std::get_if<hipMemcpy3DParms>(&old.params);
    const auto* second = std::get_if<hipMemcpy3DParms>(&fresh.params);
    return first && first->kind != second->kind ? Update::ParametersChanged : Update::Success;
}

hipGraphNode_t original_of(const hipGraphNode& copy, const ihipGraph& graph)
{
    for(const auto& node : graph.nodes)
        if(node->number == copy.origin)
            return node.get();
    return nullptr;
}

// Nothing changes unless all fits. Answers the node that does not, if it is one. (Copies are
// compared: their edges have one order, in whatever order they were made.)
Update update(hipGraphExec& exec, const ihipGraph& graph, hipGraphNode_t* at)
{
    *at              = nullptr;
    const auto copy  = graph.copy();
    const auto fresh = copy->order();
    if(fresh.size() != exec.order.size())
        return Update::TopologyChanged;
    for(size_t i = 0; i < fresh.size(); ++i)
    {
        *at = original_of(*fresh[i], graph);
        if(const Update one = difference(*exec.order[i], *fresh[i]); one != Update::Success)
            return one;
        if(places(*exec.order[i], exec.order) != places(*fresh[i], fresh))
            return Update::TopologyChanged;
    }
    *at = nullptr;
    for(size_t i = 0; i < fresh.size(); ++i)
        exec.order[i]->params = std::move(fresh[i]->params);
    return Update::Success;
}
} // namespace
} // namespace emu

HIP_API hipError_t hipGraphInstantiate(hipGraphExec_t* exec, hipGraph_t graph, hipGraphNode_t*, char* log,
                                       size_t log_bytes)
{
    if(log && log_bytes > 0)
        *log = '\0';
    return hip_call("hipGraphInstantiate", Needs::Device, [&] { emu::instantiate(exec, graph, 0); });
}

HIP_API hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t* exec, hipGraph_t graph, unsigned long long flags)
{
    return hip_call("hipGraphInstantiateWithFlags", Needs::Device, [&] { emu::instantiate(exec, graph, flags); });
}

HIP_API hipError_t hipGraphExecDestroy(hipGraphExec_t exec)
{
    return hip_call("hipGraphExecDestroy", Needs::Nothing, [&] {
        hipGraphExec& that = emu::exec_of(exec);
        emu::execs().remove(&that);
        delete &that;
    });
}

HIP_API hipError_t hipGraphExecGetFlags(hipGraphExec_t exec, unsigned long long* flags)
{
    return hip_value("hipGraphExecGetFlags", Needs::Device, flags, [&] { return emu::exec_of(exec).flags; });
}

// Nothing has to be brought anywhere.
HIP_API hipError_t hipGraphUpload(hipGraphExec_t exec, hipStream_t stream)
{
    return hip_call("hipGraphUpload", Needs::Device, [&] {
        emu::exec_of(exec);
        emu::check_stream(stream);
    });
}

HIP_API hipError_t hipGraphLaunch(hipGraphExec_t exec, hipStream_t stream)
{
    return hip_call("hipGraphLaunch", Needs::Device, [&] { emu::launch_graph(emu::exec_of(exec), stream); });
}

HIP_API hipError_t hipGraphExecUpdate(hipGraphExec_t exec, hipGraph_t graph, hipGraphNode_t* node, int* result)
{
    return hip_call("hipGraphExecUpdate", Needs::Device, [&] {
        require(node && result, hipErrorInvalidValue, "null pointer");
        const emu::Update done = emu::update(emu::exec_of(exec), emu::graph_of(graph), node);
        *result                = static_cast<int>(done);
        require(done == emu::Update::Success, hipErrorGraphExecUpdateFailure,
                "the graph differs from what was instantiated");
    });
}
