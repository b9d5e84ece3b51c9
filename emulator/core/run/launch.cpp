#include "run/launch.h"

#include "checks/checks.h"
#include "checks/twin.h"
#include "isa/wave.h"
#include "run/counters.h"
#include "run/run.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
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

struct Shape
{
    const Kernel& kernel;
    Dim3 grid, block;
    uint32_t lds_bytes, waves;
    uint64_t kernarg, packet, queue;
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
        default: return 0; // whole workgroups, no offsets
    }
}

// What was never written: zeros, POISON, or in a twin something else again.
enum class Contents
{
    Zero,
    Poison,
    Twin
};

void fill(uint32_t* to, size_t count, Contents contents)
{
    for(size_t i = 0; i < count; ++i)
        to[i] = contents == Contents::Zero     ? 0
                : contents == Contents::Poison ? POISON
                                               : twin_poison(static_cast<uint32_t>(i));
}

// Start state of a wave (LLVM AMDGPU usage, "Initial kernel execution state").
void start_wave(Wave& w, const Shape& s, uint32_t number, Contents unwritten)
{
    const Kernel& kernel  = s.kernel;
    const unsigned total  = ((kernel.rsrc1 & 63) + 1) * 8,
                   vector = std::min(total, ((kernel.rsrc3 & 63) + 1) * 4);
    fill(&w.v[0][0], std::min(vector, 256u) * LANES, unwritten);
    fill(&w.v[256][0], std::min(total - vector, 256u) * LANES, unwritten);
    fill(w.s, 128, unwritten);
    if(unwritten == Contents::Twin) // the sign that POISON has not
        for(unsigned i = 0; i < 128; ++i)
            w.s[i] |= 0x80000000;
    set_inline_constants(w);
    w.s[SCC] = 0;
    w.s[125] = 0;
    set_mode(w,
             (kernel.rsrc1 >> 12 & 0xff) | (kernel.rsrc1 >> 21 & 1) << 8 |
                 (kernel.rsrc1 >> 23 & 1) << 9 | (kernel.rsrc1 >> 26 & 1) << 23);

    unsigned next  = 0;
    const auto put = [&](unsigned property, uint64_t value, unsigned dwords) {
        if(!(kernel.properties >> property & 1))
            return;
        for(unsigned i = 0; i < dwords; ++i)
            w.s[next++] = i < 2 ? static_cast<uint32_t>(value >> 32 * i) : 0;
    };
    put(0, 0, 4); // private segment buffer: architected flat scratch has none
    put(1, s.packet, 2);
    put(2, s.queue, 2);
    put(3, s.kernarg, 2);
    put(4, 0, 2); // dispatch id
    put(5, 0, 2); // flat scratch
    put(6, kernel.scratch_bytes, 1);
    const unsigned preload = kernel.preload & 0x7f, first = kernel.preload >> 7 & 0x1ff;
    for(unsigned i = 0; i < preload; ++i)
        std::memcpy(&w.s[next++], reinterpret_cast<const void*>(s.kernarg + 4 * (first + i)), 4);
    next = std::max(next, kernel.rsrc2 >> 1 & 31);
    for(unsigned axis = 0; axis < 3; ++axis)
        if(kernel.rsrc2 >> (7 + axis) & 1)
            w.s[next++] = w.group->id[axis];

    const uint64_t threads = uint64_t{s.block.x} * s.block.y * s.block.z;
    uint64_t exec          = 0;
    for(unsigned l = 0; l < LANES; ++l)
    {
        const uint64_t thread = uint64_t{number} * LANES + l;
        if(thread < threads)
            exec |= uint64_t{1} << l;
        const uint64_t x = thread % s.block.x, y = thread / s.block.x % s.block.y,
                       z = thread / (uint64_t{s.block.x} * s.block.y);
        w.v[0][l]        = static_cast<uint32_t>(x | y << 10 | z << 20);
    }
    w.set_pair(EXEC, exec);
    w.number       = number;
    w.stop         = Stop::Running;
    w.text_address = kernel.program->text_address;
    w.instructions = 0;
    w.pending.clear();
    // Kernels with preloaded arguments start with 256 bytes for firmware that does not preload;
    // ours does.
    const MicroOp* entry = &kernel.program->ops[kernel.entry];
    if(preload != 0)
    {
        const uint32_t pc = entry->pc + 256;
        entry             = &kernel.program->ops[kernel.program->index_of_word[pc / 4]];
    }
    w.next          = entry;
    w.scratch_bytes = kernel.scratch_bytes;
}

// A workgroup's waves with their LDS and scratch.
class Waves
{
public:
    explicit Waves(const Shape& shape)
        : shape_(shape),
          waves_(shape.waves),
          lds_(shape.lds_bytes / 64 + 2),
          scratch_(static_cast<size_t>(shape.waves) * LANES * shape.kernel.scratch_bytes / 4 + 16)
    {
        const Options& o = options();
        group.kernel     = &shape.kernel;
        group.lds        = reinterpret_cast<uint8_t*>(lds_.data());
        group.lds_bytes  = shape.lds_bytes;
        group.arch       = shape.kernel.program->arch;
        group.srd_range  = o.srd_range();
        group.late       = o.late_loads != 0;
        for(Wave& wave : waves_)
        {
            wave.group = &group;
            wave.first = shape.kernel.program->ops.data();
        }
    }
    Waves(const Waves&)            = delete;
    Waves& operator=(const Waves&) = delete;

    void start(Contents unwritten)
    {
        fill(lds_.data()->d, 16 * lds_.size(), unwritten);
        fill(scratch_.data(), scratch_.size(), unwritten);
        for(uint32_t i = 0; i < shape_.waves; ++i)
        {
            start_wave(waves_[i], shape_, i, unwritten);
            waves_[i].scratch = reinterpret_cast<uint8_t*>(scratch_.data()) +
                                static_cast<size_t>(i) * LANES * shape_.kernel.scratch_bytes;
        }
    }

    Wave& operator[](size_t i) { return waves_[i]; }

    Workgroup group;

private:
    struct alignas(64) Chunk
    {
        uint32_t d[16];
    };

    const Shape& shape_;
    std::vector<Wave> waves_;
    std::vector<Chunk> lds_;
    std::vector<uint32_t> scratch_;
};

// What one host thread needs to run workgroups.
class Runner
{
public:
    Runner(const Shape& shape, size_t ops)
        : counts(ops, 0),
          shape_(shape),
          waves_(shape),
          group_(waves_.group),
          banks_(shape.kernel.program->arch)
    {
        const Options& o = options();
        group_.banks     = &banks_;
        if(o.lds_races || o.uninitialised)
        {
            shadow_.races     = o.lds_races != 0;
            shadow_.unwritten = o.uninitialised != 0;
            group_.shadow     = &shadow_;
        }
        if(o.uninitialised)
            twins_.emplace(shape);
        for(uint32_t i = 0; i < shape.waves; ++i)
        {
            waves_[i].counts = counts.data();
            if(!twins_)
                continue;
            waves_[i].twin         = &(*twins_)[i];
            (*twins_)[i].in_flight = twin_poison(i);
        }
    }

    void run(uint64_t index)
    {
        group_.id[0] = static_cast<uint32_t>(index % shape_.grid.x);
        group_.id[1] = static_cast<uint32_t>(index / shape_.grid.x % shape_.grid.y);
        group_.id[2] = static_cast<uint32_t>(index / (uint64_t{shape_.grid.x} * shape_.grid.y));
        waves_.start(options().poison != 0 || twins_ ? Contents::Poison : Contents::Zero);
        if(twins_)
        {
            std::copy_n(group_.id, 3, twins_->group.id);
            twins_->start(Contents::Twin);
        }
        if(group_.shadow != nullptr)
        {
            shadow_.bytes.assign(shape_.lds_bytes, {});
            shadow_.epoch = 1;
        }
        const uint64_t barriers = group_.traffic.barriers,
                       stores   = group_.traffic.global_store_bytes;
        run_waves(index);
        ++group_.traffic.workgroups;
        group_.traffic.waves += shape_.waves;
        if(group_.traffic.barriers == barriers && group_.traffic.global_store_bytes == stores)
            ++group_.traffic.early_out_workgroups;
    }

    const Traffic& traffic() const { return group_.traffic; }

    std::vector<uint64_t> counts;

private:
    // Each wave runs to its next barrier or its end; a barrier opens when all waves that still run
    // have reached it.
    void run_waves(uint64_t index)
    {
        std::vector<uint32_t> order(shape_.waves);
        std::iota(order.begin(), order.end(), 0u);
        const int64_t choice = options().wave_order;
        std::mt19937_64 random(static_cast<uint64_t>(choice) * 0x9e3779b97f4a7c15 + index);
        for(;;)
        {
            if(choice == 1)
                std::ranges::sort(order, std::greater<>{});
            if(choice > 1)
                for(size_t i = order.size(); i > 1; --i)
                    std::swap(order[i - 1], order[random() % i]);
            bool waiting = false;
            for(const uint32_t i : order)
            {
                Wave& wave = waves_[i];
                if(wave.stop == Stop::End)
                    continue;
                wave.stop = Stop::Running;
                run_wave(wave, index);
                waiting |= wave.stop == Stop::Barrier;
            }
            if(!waiting)
                return;
            ++group_.traffic.barriers;
            ++shadow_.epoch;
        }
    }

    const Shape& shape_;
    Waves waves_;
    std::optional<Waves> twins_;
    Workgroup& group_;
    BankConflicts banks_;
    LdsShadow shadow_;
};

} // namespace

void launch(const Kernel& kernel,
            Dim3 grid,
            Dim3 block,
            uint32_t dynamic_lds,
            const void* explicit_arguments,
            size_t bytes)
{
    const uint64_t threads = uint64_t{block.x} * block.y * block.z,
                   groups  = uint64_t{grid.x} * grid.y * grid.z;
    if(threads == 0 || groups == 0)
        throw std::invalid_argument("an empty grid or block");
    if(threads > 1024)
        throw std::invalid_argument("more than 1024 threads a workgroup");
    for(const ExplicitArgument& argument : kernel.arguments)
        if(argument.offset + argument.bytes > bytes)
            throw std::invalid_argument("fewer argument bytes than the kernel takes");

    const Memory kernarg(std::max<size_t>(kernel.kernarg_bytes, bytes), "kernel arguments"),
        packet(64, "dispatch packet"), queue(4096, "queue");
    const uint32_t lds = kernel.lds_bytes + dynamic_lds;
    const Shape shape{kernel,
                      grid,
                      block,
                      lds,
                      static_cast<uint32_t>((threads + LANES - 1) / LANES),
                      kernarg.number(),
                      packet.number(),
                      queue.number()};
    if(bytes != 0)
        std::memcpy(kernarg.address, explicit_arguments, bytes);
    for(const HiddenArgument& hidden : kernel.hidden)
    {
        const uint64_t value = hidden_value(shape, hidden, dynamic_lds);
        std::memcpy(static_cast<uint8_t*>(kernarg.address) + hidden.offset,
                    &value,
                    std::min(hidden.bytes, 8u));
    }
    DispatchPacket aql       = {};
    aql.header               = 2; // kernel dispatch
    aql.setup                = 3;
    const uint32_t blocks[3] = {block.x, block.y, block.z}, grids[3] = {grid.x, grid.y, grid.z};
    for(unsigned i = 0; i < 3; ++i)
    {
        aql.workgroup[i] = static_cast<uint16_t>(blocks[i]);
        aql.grid[i]      = grids[i] * blocks[i];
    }
    aql.private_bytes   = kernel.scratch_bytes;
    aql.group_bytes     = lds;
    aql.kernel_object   = kernel.descriptor_address;
    aql.kernarg_address = kernarg.number();
    std::memcpy(packet.address, &aql, sizeof aql);

    std::atomic<uint64_t> next = 0;
    std::atomic<bool> stopped  = false;
    std::mutex guard;
    std::optional<LaunchFault> fault;
    std::exception_ptr failure;
    uint64_t fault_at = ~uint64_t{0};
    Traffic traffic;
    std::vector<uint64_t> executions(kernel.program->ops.size(), 0);

    const auto work = [&] {
        const uint32_t host = host_mode();
        std::optional<Runner> runner;
        try
        {
            runner.emplace(shape, executions.size());
            for(uint64_t index; !stopped && (index = next++) < groups;)
            {
                try
                {
                    runner->run(index);
                }
                catch(const LaunchFault& found)
                {
                    const std::lock_guard lock(guard);
                    stopped = true;
                    // Of several faults the one of the first workgroup is told.
                    if(index < fault_at)
                    {
                        fault.emplace(found);
                        fault_at = index;
                    }
                }
            }
        }
        catch(...)
        {
            const std::lock_guard lock(guard);
            stopped = true;
            failure = std::current_exception();
        }
        load_host_mode(host);
        const std::lock_guard lock(guard);
        if(!runner)
            return;
        add_traffic(traffic, runner->traffic());
        for(size_t i = 0; i < executions.size(); ++i)
            executions[i] += runner->counts[i];
    };

    const auto wanted = static_cast<uint64_t>(std::max<int64_t>(1, options().threads));
    std::vector<std::thread> helpers;
    for(uint64_t i = 1; i < std::min(wanted, groups); ++i)
        helpers.emplace_back(work);
    work();
    for(std::thread& helper : helpers)
        helper.join();
    count_launch(kernel, executions, traffic);
    if(failure)
        std::rethrow_exception(failure);
    if(fault)
        throw *fault;
}

} // namespace emu
