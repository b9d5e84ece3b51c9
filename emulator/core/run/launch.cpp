#include "run/launch.h"

#include "checks/global_races.h"
#include "host/host_calls.h"
#include "isa/fields.h"
#include "isa/wave.h"
#include "run/workers.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <stdexcept>

namespace emu {
namespace {
// AQL kernel dispatch packet (HSA runtime specification, section 2.9.6).
struct DispatchPacket
{
    uint16_t header, setup, workgroup[3], reserved0;
    uint32_t grid[3], private_bytes, group_bytes;
    uint64_t kernel_object, kernarg_address, reserved2, completion;
};
static_assert(sizeof(DispatchPacket) == 64);

// What the device library's grid barrier counts in (hidden argument hidden_multigrid_sync_arg; the
// layout is one between ROCm's runtime and its device library).
struct GridSync
{
    uint64_t other_devices = 0;
    uint32_t grid = 0, grids = 0; // of a launch on several devices
    uint64_t threads_before = 0, threads = 0;
    uint32_t arrived = 0, reserved = 0;
    uint32_t group_count = 0;
};
static_assert(sizeof(GridSync) == 48);

class Memory
{
public:
    Memory(size_t bytes, const char* label)
        : address(allocate(std::max<size_t>(bytes, 64), AllocationKind::Internal, label))
    {
        if(address == nullptr)
            throw std::runtime_error(std::string("no room for ") + label);
        std::memset(address, 0, std::max<size_t>(bytes, 64));
    }
    ~Memory() { release(address); }
    Memory(const Memory&)            = delete;
    Memory& operator=(const Memory&) = delete;
    uint64_t number() const { return reinterpret_cast<uint64_t>(address); }
    void* const address;
};

uint64_t hidden_value(const Shape& s, const HiddenArgument& hidden, uint32_t dynamic_lds)
{
    switch(hidden.kind)
    {
        case HiddenKind::BlockCountX: return s.grid.x;
        case HiddenKind::BlockCountY: return s.grid.y;
        case HiddenKind::BlockCountZ: return s.grid.z;
        case HiddenKind::GroupSizeX: return s.block.x;
        case HiddenKind::GroupSizeY: return s.block.y;
        case HiddenKind::GroupSizeZ: return s.block.z;
        case HiddenKind::GridDims: return s.grid.z > 1 || s.block.z > 1 ? 3 : s.grid.y > 1 || s.block.y > 1 ? 2 : 1;
        case HiddenKind::DynamicLdsSize: return dynamic_lds;
        case HiddenKind::PrivateBase: return PRIVATE_APERTURE;
        case HiddenKind::SharedBase: return SHARED_APERTURE;
        case HiddenKind::QueuePtr: return s.queue;
        case HiddenKind::HostcallBuffer: return s.host.buffer();
        case HiddenKind::HeapV1: return s.host.heap();
        case HiddenKind::PrintfBuffer: return s.host.printf_buffer();
        case HiddenKind::MultigridSync: return s.grid_sync;
        default: return 0; // whole workgroups, no offsets
    }
}

// Throws std::invalid_argument.
void check_launch(const Kernel& kernel, const Dim3& grid, const Dim3& block, size_t bytes)
{
    const uint64_t threads = uint64_t{block.x} * block.y * block.z;
    if(threads == 0 || uint64_t{grid.x} * grid.y * grid.z == 0)
        throw std::invalid_argument("an empty grid or block");
    if(threads > 1024)
        throw std::invalid_argument("more than 1024 threads a workgroup");
    for(const ExplicitArgument& argument : kernel.arguments)
        if(argument.offset + argument.bytes > bytes)
            throw std::invalid_argument("fewer argument bytes than the kernel takes");
}

// Throws LaunchFault if the kernel's code and its descriptor do not fit.
void check_registers(const Kernel& kernel)
{
    if(kernel.refusal.empty())
        return;
    const Code& code  = *kernel.code;
    const MicroOp& op = code.ops[kernel.refused_at];
    Fault fault;
    fault.kind        = FaultKind::Registers;
    fault.kernel      = kernel.name;
    fault.text        = code.text(op);
    fault.pc          = code.virtual_address(op);
    fault.instruction = kernel.refused_at - kernel.entry;
    fault.detail      = kernel.refusal;
    throw LaunchFault(std::move(fault));
}

// The compiler can't tell how deep calls by address and recursion go.
bool has_dynamic_stack(const Kernel& kernel) { return properties::DYNAMIC_STACK.of(kernel.properties) != 0; }

// Of a lane.
uint32_t scratch_bytes(const Kernel& kernel, uint32_t dynamic_stack)
{
    return std::max(kernel.scratch_bytes, has_dynamic_stack(kernel) ? dynamic_stack : 0);
}

void write_hidden(const Memory& kernarg, const Shape& shape, uint32_t dynamic_lds)
{
    for(const HiddenArgument& hidden : shape.kernel.hidden)
    {
        const uint64_t value = hidden_value(shape, hidden, dynamic_lds);
        std::memcpy(static_cast<uint8_t*>(kernarg.address) + hidden.offset, &value, std::min(hidden.bytes, 8u));
    }
}

DispatchPacket packet_of(const Shape& shape)
{
    const Dim3 &grid = shape.grid, &block = shape.block;
    DispatchPacket packet    = {};
    packet.header            = 2; // kernel dispatch
    packet.setup             = 3; // dimensions
    const uint32_t blocks[3] = {block.x, block.y, block.z}, grids[3] = {grid.x, grid.y, grid.z};
    for(unsigned i = 0; i < 3; ++i)
    {
        packet.workgroup[i] = static_cast<uint16_t>(blocks[i]);
        packet.grid[i]      = grids[i] * blocks[i];
    }
    packet.private_bytes   = shape.scratch_bytes;
    packet.group_bytes     = shape.lds_bytes;
    packet.kernel_object   = shape.kernel.descriptor_address;
    packet.kernarg_address = shape.kernarg;
    return packet;
}
} // namespace

void launch(const Kernel& kernel, Dim3 grid, Dim3 block, uint32_t dynamic_lds, const void* explicit_arguments,
            size_t bytes, uint32_t dynamic_stack, uint64_t resident, Together together)
{
    check_launch(kernel, grid, block, bytes);
    check_registers(kernel);
    // LLVM reads three dwords as four where they are aligned to eight bytes: the segment ends at a
    // multiple of its alignment (HSA system architecture, "Kernarg segment": 16 bytes).
    const size_t segment = std::max<size_t>(kernel.kernarg_bytes, bytes);
    const Memory kernarg((segment + 15) / 16 * 16, "kernel arguments");
    const Memory packet(sizeof(DispatchPacket), "dispatch packet"), queue(4096, "queue");
    HostCalls host(kernel);
    Operation* const operation = current_operation();
    GlobalRaces races(options().global_races != 0, operation);
    const bool is_cooperative = together == Together::Yes;
    const Memory sync(is_cooperative ? sizeof(GridSync) : 0, "grid barrier");
    const uint64_t threads = uint64_t{block.x} * block.y * block.z;
    const Shape shape{kernel,
                      grid,
                      block,
                      kernel.lds_bytes + dynamic_lds,
                      scratch_bytes(kernel, dynamic_stack),
                      static_cast<uint32_t>((threads + LANES - 1) / LANES),
                      kernarg.number(),
                      packet.number(),
                      queue.number(),
                      is_cooperative ? sync.number() : 0,
                      host,
                      options().global_races != 0 || operation != nullptr ? &races : nullptr};
    if(bytes != 0)
        std::memcpy(kernarg.address, explicit_arguments, bytes);
    write_hidden(kernarg, shape, dynamic_lds);
    if(is_cooperative)
        new(sync.address) GridSync{.group_count = static_cast<uint32_t>(shape.groups())};
    const DispatchPacket aql = packet_of(shape);
    std::memcpy(packet.address, &aql, sizeof aql);
    try
    {
        run_workgroups(shape, resident, together);
    }
    catch(LaunchFault& fault)
    {
        host.finish();
        if(fault.fault().kind == FaultKind::Scratch && has_dynamic_stack(kernel))
            fault.fault().detail += "; hipDeviceSetLimit(hipLimitStackSize, ..) gives a stack more";
        if(kernel.has(HiddenKind::MultigridSync) && !is_cooperative && fault.fault().kind == FaultKind::Memory &&
           fault.fault().address < sizeof(GridSync))
            fault.fault().detail += "the kernel synchronises its grid, which takes hipLaunchCooperativeKernel";
        throw;
    }
    catch(...)
    {
        host.finish();
        throw;
    }
    host.finish();
}
} // namespace emu
