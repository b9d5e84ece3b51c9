#include "hip/graph/graph.h"

#include "hip/call.h"
#include "hip/launch/launch.h"
#include "hip/launch/stream.h"
#include "hip/memory/memory.h"

#include <algorithm>
#include <atomic>

namespace emu {
namespace {
uint64_t next_number()
{
    static std::atomic<uint64_t> last = 0;
    return ++last;
}

void run(const KernelNode& node) { run_kernel(node); }
void run(const hipMemcpy3DParms& box) { copy_box(box); }
void run(const hipMemsetParams& rows) { fill_rows(rows); }
void run(const hipHostNodeParams& host) { host.fn(host.userData); }
void run(const ChildNode& child) { run_nodes(child.graph->order()); }
void run(const EmptyNode&) {}
void run(const EventWaitNode& node) { wait_in_graph(event_of(node.event)); }
void run(const EventRecordNode& node)
{
    record_event(node.event);
    record_in_graph(event_of(node.event));
}
void run(const AllocateNode& node) { allocate_again(node.address, node.bytes); }
void run(const FreeNode& node) { free_memory(node.address, false); }

template <typename Node>
void erase(std::vector<Node>& from, Node what)
{
    from.erase(std::remove(from.begin(), from.end(), what), from.end());
}

NodeParams copied(const NodeParams& params)
{
    const auto* child = std::get_if<ChildNode>(&params);
    if(!child)
        return params;
    std::shared_ptr<ihipGraph> graph = child->graph->copy();
    graph->is_child                  = true;
    return ChildNode{std::move(graph)};
}
} // namespace

int type_of(const NodeParams& params)
{
    // In the variant's order.
    constexpr int TYPES[] = {0, 1, 2, 3, 4, 5, 6, 7, 10, 11};
    static_assert(std::size(TYPES) == std::variant_size_v<NodeParams>);
    return TYPES[params.index()];
}

Handles<hipGraph_t>& graphs()
{
    static auto& only = *new Handles<hipGraph_t>;
    return only;
}
Handles<hipGraphNode_t>& nodes()
{
    static auto& only = *new Handles<hipGraphNode_t>;
    return only;
}
Handles<hipGraphExec_t>& execs()
{
    static auto& only = *new Handles<hipGraphExec_t>;
    return only;
}

ihipGraph& graph_of(hipGraph_t graph)
{
    require(graph && graphs().has(graph), hipErrorInvalidValue, "not a live graph");
    return *graph;
}

hipGraphNode& node_of(hipGraphNode_t node)
{
    require(node && nodes().has(node), hipErrorInvalidValue, "not a node of a live graph");
    return *node;
}

hipGraphExec& exec_of(hipGraphExec_t exec)
{
    require(exec && execs().has(exec), hipErrorInvalidValue, "not a live executable graph");
    return *exec;
}

hipGraphNode& copied_node(const ihipGraph& copy, const hipGraphNode& original)
{
    for(const auto& node : copy.nodes)
        if(node->origin == original.number)
            return *node;
    throw HipFailure(hipErrorInvalidValue, "the node is not of the graph that was copied");
}

bool has_edge(const hipGraphNode& from, const hipGraphNode& to)
{
    return std::ranges::find(to.dependencies, &from) != to.dependencies.end();
}

void add_edge(hipGraphNode& from, hipGraphNode& to)
{
    from.dependents.push_back(&to);
    to.dependencies.push_back(&from);
}

void run_nodes(const std::vector<hipGraphNode_t>& order)
{
    for(const hipGraphNode_t node : order)
    {
        const auto launch = begin_node(*node);
        if(node->enabled)
            std::visit([](const auto& params) { run(params); }, node->params);
        end_node(*node, launch);
    }
    join_nodes(order);
}
} // namespace emu

using emu::HipFailure;

hipGraphNode::hipGraphNode(ihipGraph& owner, emu::NodeParams what)
    : graph(&owner), number(emu::next_number()), origin(number), params(std::move(what))
{
    emu::nodes().add(this);
}

hipGraphNode::~hipGraphNode() { emu::nodes().remove(this); }

ihipGraph::ihipGraph() { emu::graphs().add(this); }
ihipGraph::~ihipGraph()
{
    emu::graphs().remove(this);
    for(const auto& [object, count] : objects)
        emu::release_object(object, count);
}

hipGraphNode& ihipGraph::add(emu::NodeParams params, const hipGraphNode_t* dependencies, size_t count)
{
    require(count == 0 || dependencies, hipErrorInvalidValue, "null dependencies");
    std::vector<hipGraphNode_t> before;
    for(size_t i = 0; i < count; ++i)
    {
        hipGraphNode& one = emu::node_of(dependencies[i]);
        require(one.graph == this, hipErrorInvalidValue, "a dependency is of another graph");
        require(std::ranges::find(before, &one) == before.end(), hipErrorInvalidValue, "a dependency is named twice");
        before.push_back(&one);
    }
    nodes.push_back(std::make_unique<hipGraphNode>(*this, std::move(params)));
    for(const hipGraphNode_t one : before)
        emu::add_edge(*one, *nodes.back());
    return *nodes.back();
}

std::unique_ptr<ihipGraph> ihipGraph::copy() const
{
    auto made = std::make_unique<ihipGraph>();
    std::map<const hipGraphNode*, hipGraphNode*> copies;
    for(const auto& node : nodes)
    {
        hipGraphNode& one  = made->add(emu::copied(node->params), nullptr, 0);
        one.origin         = node->number;
        one.enabled        = node->enabled;
        copies[node.get()] = &one;
    }
    for(const auto& node : nodes)
        for(const hipGraphNode_t before : node->dependencies)
            emu::add_edge(*copies.at(before), *copies.at(node.get()));
    for(const auto& [object, count] : objects)
        emu::retain_object(object, count);
    made->objects = objects;
    return made;
}

std::vector<hipGraphNode_t> ihipGraph::order() const
{
    std::vector<hipGraphNode_t> done;
    std::map<hipGraphNode_t, size_t> waits;
    for(const auto& node : nodes)
    {
        waits[node.get()] = node->dependencies.size();
        if(node->dependencies.empty())
            done.push_back(node.get());
    }
    for(size_t i = 0; i < done.size(); ++i)
        for(const hipGraphNode_t next : done[i]->dependents)
            if(--waits[next] == 0)
                done.push_back(next);
    require(done.size() == nodes.size(), hipErrorInvalidValue, "the graph has a cycle");
    return done;
}

void ihipGraph::remove(hipGraphNode_t node)
{
    for(const hipGraphNode_t before : node->dependencies)
        emu::erase(before->dependents, node);
    for(const hipGraphNode_t next : node->dependents)
        emu::erase(next->dependencies, node);
    std::erase_if(nodes, [&](const auto& one) { return one.get() == node; });
}
