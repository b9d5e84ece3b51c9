#include "run/launch.h"

#include "host/host_calls.h"
#include "isa/wave.h"
#include "run/cooperative.h"
#include "run/counters.h"
#include "run/workgroup.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <new>
#include <optional>
#include <stdexcept>
#include <thread>

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
        case HiddenKind::GridDims:
            return s.grid.z > 1 || s.block.z > 1 ? 3 : s.grid.y > 1 || s.block.y > 1 ? 2 : 1;
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
    const Program& program = *kernel.program;
    const MicroOp& op      = program.ops[kernel.refused_at];
    Fault fault;
    fault.kind        = FaultKind::Registers;
    fault.kernel      = kernel.name;
    fault.text        = program.texts[op.text];
    fault.pc          = program.virtual_address(op);
    fault.instruction = kernel.refused_at - kernel.entry;
    fault.detail      = kernel.refusal;
    throw LaunchFault(std::move(fault));
}

void write_hidden(const Memory& kernarg, const Shape& shape, uint32_t dynamic_lds)
{
    for(const HiddenArgument& hidden : shape.kernel.hidden)
    {
        const uint64_t value = hidden_value(shape, hidden, dynamic_lds);
        std::memcpy(static_cast<uint8_t*>(kernarg.address) + hidden.offset,
                    &value,
                    std::min(hidden.bytes, 8u));
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
    packet.private_bytes   = shape.kernel.scratch_bytes;
    packet.group_bytes     = shape.lds_bytes;
    packet.kernel_object   = shape.kernel.descriptor_address;
    packet.kernarg_address = shape.kernarg;
    return packet;
}

// Host threads that share the workgroups of a launch.
class Workers
{
public:
    explicit Workers(const Shape& shape)
        : shape_(shape),
          groups_(uint64_t{shape.grid.x} * shape.grid.y * shape.grid.z),
          executions_(shape.kernel.program->ops.size(), 0)
    {}

    // Run all workgroups and count what they did. Throws LaunchFault: of several faults the one of
    // the first workgroup.
    void run()
    {
        const auto wanted = static_cast<uint64_t>(std::max<int64_t>(1, options().threads));
        std::vector<std::thread> helpers;
        for(uint64_t i = 1; i < std::min(wanted, groups_); ++i)
            helpers.emplace_back([this] { work(); });
        work();
        for(std::thread& helper : helpers)
            helper.join();
        count_launch(shape_.kernel, executions_, traffic_);
        if(failure_)
            std::rethrow_exception(failure_);
        if(fault_)
            throw *fault_;
    }

private:
    void work()
    {
        const uint32_t host = host_mode();
        std::vector<uint64_t> counts(executions_.size());
        std::optional<Runner> runner;
        try
        {
            runner.emplace(shape_, counts);
            for(uint64_t index; !stopped_ && (index = next_++) < groups_;)
                run_group(*runner, index);
        }
        catch(...)
        {
            const std::lock_guard lock(guard_);
            stopped_ = true;
            failure_ = std::current_exception();
        }
        load_host_mode(host);
        const std::lock_guard lock(guard_);
        if(!runner)
            return;
        add_traffic(traffic_, runner->traffic());
        for(size_t i = 0; i < executions_.size(); ++i)
            executions_[i] += counts[i];
    }

    void run_group(Runner& runner, uint64_t index)
    {
        try
        {
            runner.run(index);
        }
        catch(const LaunchFault& fault)
        {
            const std::lock_guard lock(guard_);
            stopped_ = true;
            if(fault_ && fault_at_ < index)
                return;
            fault_.emplace(fault);
            fault_at_ = index;
        }
    }

    const Shape& shape_;
    const uint64_t groups_;
    std::atomic<uint64_t> next_ = 0;
    std::atomic<bool> stopped_  = false;
    std::mutex guard_; // of all that follows
    std::optional<LaunchFault> fault_;
    uint64_t fault_at_ = 0;
    std::exception_ptr failure_;
    Traffic traffic_;
    std::vector<uint64_t> executions_;
};

} // namespace

void launch(const Kernel& kernel,
            Dim3 grid,
            Dim3 block,
            uint32_t dynamic_lds,
            const void* explicit_arguments,
            size_t bytes,
            Together together)
{
    check_launch(kernel, grid, block, bytes);
    check_registers(kernel);
    const Memory kernarg(std::max<size_t>(kernel.kernarg_bytes, bytes), "kernel arguments");
    const Memory packet(sizeof(DispatchPacket), "dispatch packet"), queue(4096, "queue");
    HostCalls host(kernel);
    const bool in_turns = together == Together::Yes;
    const Memory sync(in_turns ? sizeof(GridSync) : 0, "grid barrier");
    const uint64_t threads = uint64_t{block.x} * block.y * block.z;
    const Shape shape{kernel,
                      grid,
                      block,
                      kernel.lds_bytes + dynamic_lds,
                      static_cast<uint32_t>((threads + LANES - 1) / LANES),
                      kernarg.number(),
                      packet.number(),
                      queue.number(),
                      in_turns ? sync.number() : 0,
                      host};
    if(bytes != 0)
        std::memcpy(kernarg.address, explicit_arguments, bytes);
    write_hidden(kernarg, shape, dynamic_lds);
    if(in_turns)
        new(sync.address) GridSync{.group_count = grid.x * grid.y * grid.z};
    const DispatchPacket aql = packet_of(shape);
    std::memcpy(packet.address, &aql, sizeof aql);
    try
    {
        if(in_turns)
            run_together(shape);
        else
            Workers(shape).run();
    }
    catch(...)
    {
        host.finish();
        throw;
    }
    host.finish();
}

} // namespace emu
