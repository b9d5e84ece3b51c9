#include "run/workgroup.h"

#include "checks/global_races.h"
#include "checks/twin.h"
#include "hip/call.h"
#include "isa/fields.h"
#include "run/run.h"
#include "run/state.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace emu {
namespace {
// Backward jumps of a wave before it gives way: TURN in a workgroup alone, enough for ordinary
// loops; SHORT_TURN if workgroups wait for each other.
constexpr uint32_t TURN = 16384, SHORT_TURN = 256;
// Turns of a wave after which its workgroup is treated as waiting, although its state differs each
// time: the wave may count its attempts.
constexpr unsigned PATIENCE = 4096;
// The same for turns to a barrier, of which ordinary kernels make many; and the turns before the
// first look at the state.
constexpr unsigned BARRIERS = 1 << 20, BARRIERS_BEFORE_A_LOOK = 1024;

void fill(uint32_t* to, size_t count, Contents contents)
{
    for(size_t i = 0; i < count; ++i)
        to[i] = contents == Contents::Zero     ? 0
                : contents == Contents::Poison ? POISON
                                               : twin_poison(static_cast<uint32_t>(i));
}

void fill_registers(Wave& w, const Kernel& kernel, Contents unwritten)
{
    const unsigned total  = (rsrc1::VGPR_COUNT.of(kernel.rsrc1) + 1) * 8;
    const unsigned vector = std::min(total, (rsrc3::ACCUM_OFFSET.of(kernel.rsrc3) + 1) * 4);
    fill(&w.v[0][0], std::min(total, 256u) * LANES,
         unwritten); // all of them without accumulation registers
    fill(&w.v[256][0], std::min(total - vector, 256u) * LANES, unwritten);
    fill(w.s, 128, unwritten);
    if(unwritten == Contents::Twin) // set the sign bit, which POISON lacks
        for(unsigned i = 0; i < 128; ++i)
            w.s[i] |= 0x80000000;
    set_inline_constants(w);
    w.s[SCC]      = 0;
    w.s[RESERVED] = 0;
}

uint32_t initial_mode(uint32_t word)
{
    return mode::FLOATS.put(rsrc1::FLOAT_MODE.of(word)) | mode::DX10_CLAMP.put(rsrc1::ENABLE_DX10_CLAMP.of(word)) |
           mode::IEEE.put(rsrc1::ENABLE_IEEE_MODE.of(word)) | mode::FP16_OVFL.put(rsrc1::FP16_OVFL.of(word));
}

// User SGPRs in the order of the descriptor's properties, preloaded arguments, workgroup ids.
void set_scalars(Wave& w, const Shape& s)
{
    const Kernel& kernel = s.kernel;
    unsigned next        = 0;
    const auto put       = [&](Field property, uint64_t value, unsigned dwords) {
        if(!property.of(kernel.properties))
            return;
        for(unsigned i = 0; i < dwords; ++i)
            w.s[next++] = i < 2 ? static_cast<uint32_t>(value >> 32 * i) : 0;
    };
    // gfx90a's kernels reach scratch through a resource, those of later archs by architected flat
    // scratch. No initial flat_scratch is needed: flat addresses of scratch are those of an
    // aperture.
    const bool by_resource = properties::PRIVATE_SEGMENT_BUFFER.of(kernel.properties) != 0;
    if(by_resource)
        for(uint32_t word : {0u, srd::SCRATCH_WORD_1, LANES * s.scratch_bytes, srd::SCRATCH_WORD_3})
            w.s[next++] = word;
    put(properties::DISPATCH_PTR, s.packet, 2);
    put(properties::QUEUE_PTR, s.queue, 2);
    put(properties::KERNARG_SEGMENT_PTR, s.kernarg, 2);
    put(properties::DISPATCH_ID, 0, 2);
    put(properties::FLAT_SCRATCH_INIT, 0, 2);
    put(properties::PRIVATE_SEGMENT_SIZE, s.scratch_bytes, 1);
    const uint64_t preloaded = s.kernarg + 4 * preload::OFFSET.of(kernel.preload);
    for(unsigned i = 0; i < preload::LENGTH.of(kernel.preload); ++i)
        std::memcpy(&w.s[next++], reinterpret_cast<const void*>(preloaded + 4 * i), 4);
    next = std::max(next, rsrc2::USER_SGPR_COUNT.of(kernel.rsrc2));
    for(unsigned axis = 0; axis < 3; ++axis)
        if(rsrc2::ENABLE_WORKGROUP_ID[axis].of(kernel.rsrc2))
            w.s[next++] = w.group->id[axis];
    if(by_resource && rsrc2::ENABLE_PRIVATE_SEGMENT.of(kernel.rsrc2))
        w.s[next] = 0; // where the wave's part begins, which the kernel adds to the resource
}

// EXEC, and in v0 the workitem's id: x, y and z of ten bits each.
void set_lanes(Wave& w, const Dim3& block, uint32_t number)
{
    const uint64_t row = block.x, plane = row * block.y, threads = plane * block.z;
    uint64_t exec = 0;
    for(unsigned l = 0; l < LANES; ++l)
    {
        const uint64_t thread = uint64_t{number} * LANES + l;
        if(thread < threads)
            exec |= uint64_t{1} << l;
        const uint64_t x = thread % row, y = thread / row % block.y, z = thread / plane;
        w.v[0][l] = static_cast<uint32_t>(x | y << 10 | z << 20);
    }
    w.set_pair(EXEC, exec);
}

// The first 256 bytes of a kernel with preloaded arguments are for firmware that does not preload.
// The emulator preloads, so it skips them.
const MicroOp* entry_of(const Kernel& kernel)
{
    const MicroOp* entry = &kernel.code->ops[kernel.entry];
    if(preload::LENGTH.of(kernel.preload) == 0)
        return entry;
    return kernel.code->at(kernel.address + 256);
}

// Start state of a wave (LLVM AMDGPU usage, "Initial kernel execution state").
void start_wave(Wave& w, const Shape& s, uint32_t number, Contents unwritten)
{
    fill_registers(w, s.kernel, unwritten);
    set_mode(w, initial_mode(s.kernel.rsrc1));
    set_scalars(w, s);
    set_lanes(w, s.block, number);
    w.number        = number;
    w.threads       = w.exec();
    w.stop          = Stop::Running;
    w.instructions  = 0;
    w.time          = 0;
    w.next          = entry_of(s.kernel);
    w.scratch_bytes = s.scratch_bytes;
    w.pending.clear();
    enter(w, *s.kernel.code);
}
} // namespace

Waves::Waves(const Shape& shape)
    : shape_(shape),
      waves_(shape.waves),
      lds_(shape.lds_bytes / 64 + 2),
      scratch_(static_cast<size_t>(shape.waves) * LANES * shape.scratch_bytes / 4 + 16)
{
    const Options& o  = options();
    group.kernel      = &shape.kernel;
    group.lds         = reinterpret_cast<uint8_t*>(lds_.data());
    group.lds_bytes   = shape.lds_bytes;
    group.arch        = shape.kernel.program->arch;
    group.srd_range   = o.srd_range();
    group.late        = o.late_loads != 0;
    group.unaligned   = o.unaligned != 0;
    group.aligned     = group.unaligned || o.alignment != 0;
    group.barriers    = o.barriers != 0;
    group.lds_bounds  = o.lds_bounds != 0;
    group.late_reads  = group.late && o.late_lds_reads != 0;
    group.interleaved = o.interleaved != 0;
    group.waves       = waves_;
    group.exact_mfma  = o.exact_mfma != 0;
    group.open_rules  = o.open_rules != 0;
    group.host        = &shape.host;
    for(Wave& wave : waves_)
        wave.group = &group;
}

void Waves::start(Contents unwritten)
{
    fill(lds_.data()->d, 16 * lds_.size(), unwritten);
    fill(scratch_.data(), scratch_.size(), unwritten);
    if(group.late_reads)
        group.lds_reads.assign(group.lds_bytes, 0);
    for(uint32_t i = 0; i < shape_.waves; ++i)
    {
        start_wave(waves_[i], shape_, i, unwritten);
        waves_[i].scratch =
            reinterpret_cast<uint8_t*>(scratch_.data()) + static_cast<size_t>(i) * LANES * shape_.scratch_bytes;
    }
}

Runner::Runner(const Shape& shape, Counts& counts)
    : shape_(shape), waves_(shape), group_(waves_.group), banks_(shape.kernel.program->arch), order_(shape.waves)
{
    const Options& o = options();
    group_.banks     = &banks_;
    group_.turn      = TURN;
    group_.races     = shape.races;
    group_.counts    = &counts;
    if(o.lds_races)
        group_.shadow = &shadow_;
    if(o.uninitialised)
    {
        twins_.emplace(shape).group.turn = TURN;
        twins_->group.counts             = &counts;
        twins_->group.doubts             = o.uninitialised_memory != 0;
    }
    counts[shape.kernel.code].resize(shape.kernel.code->ops.size());
    for(uint32_t i = 0; i < shape.waves; ++i)
    {
        waves_[i].counts = counts[shape.kernel.code].data();
        if(!twins_)
            continue;
        waves_[i].twin         = &(*twins_)[i];
        (*twins_)[i].in_flight = twin_poison(~i); // as no place of LDS or scratch
        (*twins_)[i].is_twin   = true;
    }
}

bool Runner::run(uint64_t index)
{
    if(options().record_only && !is_recorded(shape_.kernel, index))
        return true;
    start(index);
    Watch watch(2), barriers(BARRIERS_BEFORE_A_LOOK);
    unsigned patience = PATIENCE, barriers_left = BARRIERS;
    const auto state = [this](bool everything) { return this->state(0, everything); };
    while(turn())
        if(gave_way_ ? --patience == 0 || watch.went_in_circles(state)
                     : --barriers_left == 0 || barriers.went_in_circles(state))
            return false;
    finish();
    return true;
}

void Runner::make_turns_short()
{
    group_.turn = SHORT_TURN;
    if(twins_)
        twins_->group.turn = SHORT_TURN;
}

void Runner::start(uint64_t index)
{
    index_                   = index;
    group_.id[0]             = static_cast<uint32_t>(index % shape_.grid.x);
    group_.id[1]             = static_cast<uint32_t>(index / shape_.grid.x % shape_.grid.y);
    group_.id[2]             = static_cast<uint32_t>(index / (uint64_t{shape_.grid.x} * shape_.grid.y));
    const bool poisoned      = options().poison != 0 || twins_.has_value();
    const Contents unwritten = poisoned ? Contents::Poison : Contents::Zero;
    waves_.start(unwritten);
    if(twins_)
    {
        std::copy_n(group_.id, 3, twins_->group.id);
        twins_->start(Contents::Twin);
    }
    if(group_.shadow != nullptr)
        shadow_.start(shape_.lds_bytes);
    if(group_.races != nullptr)
        group_.order = group_.races->start(group_.id);
    std::iota(order_.begin(), order_.end(), 0u);
    random_.seed(static_cast<uint64_t>(options().wave_order) * 0x9e3779b97f4a7c15 + index);
    barriers_before_ = group_.traffic.barriers;
    stores_before_   = group_.traffic.global_store_bytes;
    if(is_recorded(shape_.kernel, index))
        group_.recorder =
            &recorder_.emplace(shape_.kernel, index, uint64_t{shape_.grid.x} * shape_.grid.y * shape_.grid.z,
                               shape_.waves, group_.traffic);
}

void Runner::finish()
{
    if(recorder_)
        recorder_->keep();
    recorder_.reset();
    group_.recorder = nullptr;
    ++group_.traffic.workgroups;
    group_.traffic.waves += shape_.waves;
    if(group_.traffic.barriers == barriers_before_ && group_.traffic.global_store_bytes == stores_before_)
        ++group_.traffic.early_out_workgroups;
}

bool Runner::turn()
{
    const int64_t choice = options().wave_order;
    if(choice == 1)
        std::ranges::sort(order_, std::greater<>{});
    if(choice > 1)
        for(size_t i = order_.size(); i > 1; --i)
            std::swap(order_[i - 1], order_[random_() % i]);
    bool waiting = false;
    gave_way_    = false;
    for(const uint32_t i : order_)
    {
        Wave& wave = waves_[i];
        if(wave.stop == Stop::Running || wave.stop == Stop::Turn)
        {
            wave.stop = Stop::Running;
            run(wave);
        }
        waiting |= wave.stop == Stop::Barrier;
        gave_way_ |= wave.stop == Stop::Turn;
    }
    if(waiting && !gave_way_)
        open_barrier();
    return waiting || gave_way_;
}

void Runner::run(Wave& wave)
{
    try
    {
        run_wave(wave, index_);
    }
    catch(LaunchFault& found)
    {
        if(group_.shadow != nullptr && found.fault().kind == FaultKind::Uninitialised)
            look_for_race(wave);
        throw;
    }
}

// What was never written may be what another wave writes before the next barrier: then the two race.
void Runner::look_for_race(const Wave& reader)
{
    const auto forget = [this] { // the accesses of an instruction that failed
        if(group_.races != nullptr)
            group_.races->forget();
        shadow_.forget();
    };
    forget();
    for(const uint32_t i : order_)
    {
        Wave& wave = waves_[i];
        if(&wave == &reader || (wave.stop != Stop::Running && wave.stop != Stop::Turn))
            continue;
        try
        {
            run_wave(wave, index_);
        }
        catch(const LaunchFault& other) // the first fault counts
        {
            if(other.fault().kind == FaultKind::Race)
                throw;
            forget();
        }
    }
}

// All waves wait at one barrier: it is the same for them.
void Runner::compare_barriers() const
{
    const Wave* first = nullptr;
    for(uint32_t i = 0; i < shape_.waves; ++i)
    {
        const Wave& wave = waves_[i];
        if(wave.stop != Stop::Barrier)
            continue;
        if(first == nullptr)
            first = &wave;
        if(wave.next != first->next)
        {
            Fault fault;
            fault.kind   = FaultKind::Barrier;
            fault.detail = "wave " + std::to_string(first->number) + " waits at another barrier, that " +
                           first->code->place(first->next[-1]);
            raise(wave, wave.next - 1, std::move(fault));
        }
    }
}

// All waves that still run have reached it.
void Runner::open_barrier()
{
    if(group_.barriers)
        compare_barriers();
    for(uint32_t i = 0; i < shape_.waves; ++i)
        if(waves_[i].stop == Stop::Barrier)
            waves_[i].stop = Stop::Running;
    ++group_.traffic.barriers;
    if(group_.order != nullptr)
        ++group_.order->barriers;
    shadow_.next_epoch();
}

uint64_t Waves::memory_state(uint64_t sum) const
{
    sum = add_bytes(sum, lds_.data(), lds_.size() * sizeof(Chunk));
    return add_bytes(sum, scratch_.data(), scratch_.size() * sizeof(uint32_t));
}

uint64_t Runner::state(uint64_t sum, bool everything) const
{
    for(uint32_t i = 0; i < shape_.waves; ++i)
    {
        const Wave& wave = waves_[i];
        if(wave.stop == Stop::End)
            continue;
        sum = add_bytes(sum, &wave.next, sizeof wave.next);
        sum = add_bytes(sum, wave.s, sizeof wave.s);
        if(everything)
            sum = add_bytes(sum, wave.v, sizeof wave.v);
    }
    return everything ? waves_.memory_state(sum) : sum;
}

void Runner::report_deadlock(const std::string& detail) const
{
    uint32_t first = 0;
    while(first + 1 < shape_.waves && waves_[first].stop == Stop::End)
        ++first;
    Fault fault;
    fault.kind   = FaultKind::Deadlock;
    fault.detail = detail;
    raise(waves_[first], waves_[first].next, std::move(fault));
}
} // namespace emu
