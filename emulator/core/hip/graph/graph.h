// Graphs: nodes with what they do and what they wait for, their order, copies, and running them.
//
// A node is named by its address, as in HIP. Addresses are looked up before they are followed, so
// that a node or graph that is gone is an error of the call.
#pragma once

#include "hip/launch/stream_order.h"
#include "hip/types.h"

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <variant>
#include <vector>

// Layouts and numbers of HIP 6 and 7 (hip_runtime_api.h, driver_types.h).
struct hipPos
{
    size_t x, y, z;
};
struct hipExtent
{
    size_t width, height, depth;
};
struct hipPitchedPtr
{
    void* ptr;
    size_t pitch, xsize, ysize;
};
struct hipMemcpy3DParms
{
    void* srcArray;
    hipPos srcPos;
    hipPitchedPtr srcPtr;
    void* dstArray;
    hipPos dstPos;
    hipPitchedPtr dstPtr;
    hipExtent extent;
    hipMemcpyKind kind;
};
static_assert(sizeof(hipMemcpy3DParms) == 160);
struct hipMemsetParams
{
    void* dst;
    unsigned elementSize;
    size_t height, pitch;
    unsigned value;
    size_t width;
};
static_assert(sizeof(hipMemsetParams) == 48);
struct hipHostNodeParams
{
    void (*fn)(void*);
    void* userData;
};
struct hipKernelNodeParams
{
    dim3 blockDim;
    void** extra;
    void* func;
    dim3 gridDim;
    void** kernelParams;
    unsigned sharedMemBytes;
};
static_assert(sizeof(hipKernelNodeParams) == 64);

namespace emu {
// A launch. The arguments are copied when the node is made.
struct KernelNode
{
    const void* function; // of registered_kernel or module_kernel
    dim3 grid, block;
    uint32_t dynamic_lds;
    bool cooperative;
    std::vector<unsigned char> arguments;
};
struct EmptyNode
{};
struct EventWaitNode
{
    hipEvent_t event;
};
struct EventRecordNode
{
    hipEvent_t event;
};
struct ChildNode
{
    std::shared_ptr<ihipGraph> graph;
};
// Memory of a node keeps its address; it is there from the node's turn until it is freed.
struct AllocateNode
{
    void* address;
    size_t bytes;
};
struct FreeNode
{
    void* address;
};

using NodeParams = std::variant<KernelNode, hipMemcpy3DParms, hipMemsetParams, hipHostNodeParams, ChildNode, EmptyNode,
                                EventWaitNode, EventRecordNode, AllocateNode, FreeNode>;

// hipGraphNodeType.
int type_of(const NodeParams& params);

// Addresses of live objects of a kind.
template <typename Handle>
struct Handles
{
    std::mutex mutex;
    std::set<Handle> live;

    Handle add(Handle handle)
    {
        std::lock_guard lock(mutex);
        live.insert(handle);
        return handle;
    }
    bool has(Handle handle)
    {
        std::lock_guard lock(mutex);
        return live.count(handle) != 0;
    }
    bool remove(Handle handle)
    {
        std::lock_guard lock(mutex);
        return live.erase(handle) != 0;
    }
};
} // namespace emu

struct hipUserObject;

namespace emu {
// Throw HipFailure (hipErrorInvalidValue).
void retain_object(hipUserObject* object, unsigned count);
void release_object(hipUserObject* object, unsigned count);
} // namespace emu

struct hipGraphNode
{
    hipGraphNode(ihipGraph& owner, emu::NodeParams what);
    ~hipGraphNode();
    hipGraphNode(const hipGraphNode&)            = delete;
    hipGraphNode& operator=(const hipGraphNode&) = delete;

    ihipGraph* graph;
    uint64_t number; // in the order of their making; never given twice
    uint64_t origin; // number of the node that this one was copied from
    emu::NodeParams params;
    bool enabled = true;
    std::vector<hipGraphNode_t> dependencies, dependents;
    std::vector<void*> argument_pointers = {}; // what hipGraphKernelNodeGetParams shows
    // As a stream with one operation at each launch (hip/launch/stream_order.h); 0: not launched yet.
    uint32_t stream  = 0;
    emu::Clock clock = {};
};

struct ihipGraph
{
    ihipGraph();
    ~ihipGraph();
    ihipGraph(const ihipGraph&)            = delete;
    ihipGraph& operator=(const ihipGraph&) = delete;

    // Throws HipFailure (hipErrorInvalidValue): a dependency is not of this graph, or named twice.
    hipGraphNode& add(emu::NodeParams params, const hipGraphNode_t* dependencies, size_t count);
    // Child graphs too. The copies' origins are the numbers of this graph's nodes.
    std::unique_ptr<ihipGraph> copy() const;
    // Each node after those that it depends on, else as they were added. Throws HipFailure
    // (hipErrorInvalidValue): there is a cycle.
    std::vector<hipGraphNode_t> order() const;
    void remove(hipGraphNode_t node);

    std::vector<std::unique_ptr<hipGraphNode>> nodes;
    bool is_child = false; // of a node, and destroyed with it
    // References to objects of the program (user_objects.cpp).
    std::map<hipUserObject*, unsigned> objects;
};

struct hipGraphExec
{
    std::unique_ptr<ihipGraph> graph;
    std::vector<hipGraphNode_t> order;
    uint64_t flags;
    emu::Clock clock = {}; // of its last launch
};

namespace emu {
Handles<hipGraph_t>& graphs();
Handles<hipGraphNode_t>& nodes();
Handles<hipGraphExec_t>& execs();

// Throw HipFailure (hipErrorInvalidValue) for what does not exist.
ihipGraph& graph_of(hipGraph_t graph);
hipGraphNode& node_of(hipGraphNode_t node);
hipGraphExec& exec_of(hipGraphExec_t exec);
// The copy of a graph's node in an executable or a clone of the graph.
hipGraphNode& copied_node(const ihipGraph& copy, const hipGraphNode& original);
bool has_edge(const hipGraphNode& from, const hipGraphNode& to);
void add_edge(hipGraphNode& from, hipGraphNode& to);

// Run the nodes one after the other. Throws what they do.
void run_nodes(const std::vector<hipGraphNode_t>& order);

// Copies and fills of boxes, which runs and graphs share (hip/memory/box.cpp). Throw HipFailure.
void copy_box(const hipMemcpy3DParms& box);
void fill_rows(const hipMemsetParams& rows);
hipMemcpy3DParms line(void* to, const void* from, size_t bytes, hipMemcpyKind kind);
hipMemcpy3DParms rectangle(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                           hipMemcpyKind kind);
} // namespace emu
