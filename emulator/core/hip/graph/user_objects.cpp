// Objects of the program that are destroyed when nothing refers to them any more: neither the
// program, nor a graph, nor what was made of a graph.
#include "hip/call.h"
#include "hip/graph/graph.h"

struct hipUserObject
{
    void* pointer;
    void (*destroy)(void*);
    unsigned count;
};
typedef hipUserObject* hipUserObject_t;

namespace emu {
namespace {
Handles<hipUserObject_t>& objects()
{
    static auto& only = *new Handles<hipUserObject_t>;
    return only;
}

hipUserObject& object_of(hipUserObject_t object)
{
    require(objects().has(object), hipErrorInvalidValue, "no user object");
    return *object;
}
} // namespace

void retain_object(hipUserObject_t object, unsigned count)
{
    std::lock_guard lock(device_mutex());
    object_of(object).count += count;
}

void release_object(hipUserObject_t object, unsigned count)
{
    std::lock_guard lock(device_mutex());
    require(count <= object_of(object).count, hipErrorInvalidValue, "the object has fewer references");
    if((object->count -= count) != 0)
        return;
    objects().remove(object);
    object->destroy(object->pointer);
    delete object;
}
} // namespace emu

HIP_API hipError_t hipUserObjectCreate(hipUserObject_t* object, void* pointer, void (*destroy)(void*), unsigned count,
                                       unsigned flags)
{
    constexpr unsigned NO_SYNCHRONISATION = 1; // hipUserObjectNoDestructorSync, the only flag
    return hip_value("hipUserObjectCreate", Needs::Device, object, [&] {
        require(destroy && count != 0 && flags == NO_SYNCHRONISATION, hipErrorInvalidValue,
                "no destructor, no reference, or unknown flags");
        return emu::objects().add(new hipUserObject{pointer, destroy, count});
    });
}

HIP_API hipError_t hipUserObjectRetain(hipUserObject_t object, unsigned count)
{
    return hip_call("hipUserObjectRetain", Needs::Device, [&] { emu::retain_object(object, count); });
}

HIP_API hipError_t hipUserObjectRelease(hipUserObject_t object, unsigned count)
{
    return hip_call("hipUserObjectRelease", Needs::Device, [&] { emu::release_object(object, count); });
}

HIP_API hipError_t hipGraphRetainUserObject(hipGraph_t graph, hipUserObject_t object, unsigned count, unsigned flags)
{
    constexpr unsigned MOVE = 1; // hipGraphUserObjectMove: the program's references become the graph's
    return hip_call("hipGraphRetainUserObject", Needs::Device, [&] {
        unsigned& held = emu::graph_of(graph).objects[object];
        if(flags != MOVE)
            emu::retain_object(object, count);
        held += count;
    });
}

HIP_API hipError_t hipGraphReleaseUserObject(hipGraph_t graph, hipUserObject_t object, unsigned count)
{
    return hip_call("hipGraphReleaseUserObject", Needs::Device, [&] {
        const auto entry = emu::graph_of(graph).objects.find(object);
        require(entry != graph->objects.end() && count <= entry->second, hipErrorInvalidValue,
                "the graph has fewer references");
        if((entry->second -= count) == 0)
            graph->objects.erase(entry);
        emu::release_object(object, count);
    });
}
