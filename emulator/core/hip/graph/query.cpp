// What a graph has: nodes, roots, edges; where a node's copy is.
#include "hip/call.h"
#include "hip/graph/graph.h"

#include <fstream>
#include <iterator>

namespace emu {
namespace {
// HIP's manner of answering a list: how many there are, or as many as the caller has room for; room
// that is left gets nulls.
void answer(const std::vector<hipGraphNode_t>& all, hipGraphNode_t* room, size_t* count)
{
    require(count, hipErrorInvalidValue, "null pointer");
    if(room)
        for(size_t i = 0; i < *count; ++i)
            room[i] = i < all.size() ? all[i] : nullptr;
    if(!room || *count > all.size())
        *count = all.size();
}
} // namespace
} // namespace emu

using emu::graph_of;
using emu::node_of;

// In the order of NodeParams.
static constexpr const char* TYPES[] = {"kernel", "copy",       "fill",         "host",     "graph",
                                        "empty",  "event wait", "event record", "allocate", "free"};
static_assert(std::size(TYPES) == std::variant_size_v<emu::NodeParams>);

HIP_API hipError_t hipGraphGetNodes(hipGraph_t graph, hipGraphNode_t* nodes, size_t* count)
{
    return hip_call("hipGraphGetNodes", Needs::Device, [&] { emu::answer(graph_of(graph).order(), nodes, count); });
}

HIP_API hipError_t hipGraphGetRootNodes(hipGraph_t graph, hipGraphNode_t* nodes, size_t* count)
{
    return hip_call("hipGraphGetRootNodes", Needs::Device, [&] {
        std::vector<hipGraphNode_t> roots;
        for(const auto& node : graph_of(graph).nodes)
            if(node->dependencies.empty())
                roots.push_back(node.get());
        emu::answer(roots, nodes, count);
    });
}

HIP_API hipError_t hipGraphGetEdges(hipGraph_t graph, hipGraphNode_t* from, hipGraphNode_t* to, size_t* count)
{
    return hip_call("hipGraphGetEdges", Needs::Device, [&] {
        require(count && !from == !to, hipErrorInvalidValue, "null pointer");
        std::vector<hipGraphNode_t> starts, ends;
        for(const auto& node : graph_of(graph).nodes)
            for(const hipGraphNode_t next : node->dependents)
            {
                starts.push_back(node.get());
                ends.push_back(next);
            }
        size_t room = *count;
        emu::answer(starts, from, &room);
        emu::answer(ends, to, count);
    });
}

#define NEIGHBOURS(name, member)                                                                         \
    HIP_API hipError_t name(hipGraphNode_t node, hipGraphNode_t* nodes, size_t* count)                   \
    {                                                                                                    \
        return hip_call(#name, Needs::Device, [&] { emu::answer(node_of(node).member, nodes, count); }); \
    }
NEIGHBOURS(hipGraphNodeGetDependencies, dependencies)
NEIGHBOURS(hipGraphNodeGetDependentNodes, dependents)

HIP_API hipError_t hipGraphNodeGetType(hipGraphNode_t node, int* type)
{
    return hip_value("hipGraphNodeGetType", Needs::Device, type, [&] { return emu::type_of(node_of(node).params); });
}

HIP_API hipError_t hipGraphDebugDotPrint(hipGraph_t graph, const char* path, unsigned)
{
    return hip_call("hipGraphDebugDotPrint", Needs::Device, [&] {
        require(path, hipErrorInvalidValue, "null pointer");
        std::ofstream file(path);
        file << "digraph graph_1 {\n";
        for(const auto& node : graph_of(graph).nodes)
            file << "  node_" << node->number << " [label=\"" << node->number << ": " << TYPES[node->params.index()]
                 << "\"];\n";
        for(const auto& node : graph->nodes)
            for(const hipGraphNode_t next : node->dependents)
                file << "  node_" << node->number << " -> node_" << next->number << ";\n";
        file << "}\n";
        file.flush();
        require(file.good(), hipErrorInvalidValue, "the file can't be written");
    });
}

HIP_API hipError_t hipGraphClone(hipGraph_t* clone, hipGraph_t graph)
{
    return hip_value("hipGraphClone", Needs::Device, clone, [&] { return graph_of(graph).copy().release(); });
}

HIP_API hipError_t hipGraphNodeFindInClone(hipGraphNode_t* found, hipGraphNode_t original, hipGraph_t clone)
{
    return hip_value("hipGraphNodeFindInClone", Needs::Device, found,
                     [&] { return &emu::copied_node(graph_of(clone), node_of(original)); });
}

HIP_API hipError_t hipGraphChildGraphNodeGetGraph(hipGraphNode_t node, hipGraph_t* graph)
{
    return hip_call("hipGraphChildGraphNodeGetGraph", Needs::Device, [&] {
        const auto* child = std::get_if<emu::ChildNode>(&node_of(node).params);
        require(child && graph, hipErrorInvalidValue, "no child graph, or a null pointer");
        *graph = child->graph.get();
    });
}
