#include "timing/replay.h"

#include "timing/servers.h"
#include "timing/timeline.h"
#include "timing/wave.h"

#include <algorithm>

namespace emu {
namespace {
constexpr uint32_t NO_WAVE = UINT32_MAX;

struct Port
{
    uint64_t free = 0;
    uint32_t user = NO_WAVE; // the wave that had it last
};

struct Simd
{
    Port vector, memory, scalar, branch;
    uint64_t matrix_free = 0;
};

// The waves of one copy of the workgroup.
struct Group
{
    uint32_t live = 0, arrived = 0;
    uint64_t last_arrival = 0;
};

// The first cycle at which a wave's next instruction can issue, and what stops it until then.
struct Turn
{
    uint64_t cycle;
    Cause cause = Cause::IssueConflict;

    void wait(uint64_t until, Cause why)
    {
        if(until > cycle)
            *this = {until, why};
    }
};

class Replay
{
public:
    Replay(const Recording& recording, const Numbers& numbers);
    Replayed run();

private:
    Turn turn_of(uint32_t number) const;
    Port* port_of(uint32_t number, const Instruction& instruction);
    uint32_t first() const;
    void issue(uint32_t number, const Turn& turn);
    uint64_t occupy(uint32_t number, uint64_t cycle, const Instruction& instruction);
    void access(ReplayedWave& wave, uint64_t cycle, const Instruction& instruction);
    void wait(uint32_t number, const Instruction& instruction);
    void arrive(uint32_t number);
    void end(uint32_t number);
    void open(uint32_t group, uint64_t cycle);
    void note_loop(ReplayedWave& wave, uint64_t cycle, uint32_t op);
    static void close_part(ReplayedWave& wave);
    const Instruction& next_of(const ReplayedWave& w) const { return instructions_[(*w.steps)[w.at].op]; }

    const Numbers& numbers_;
    const std::vector<Instruction> instructions_;
    std::vector<std::vector<Part>> parts_; // of each recorded wave
    std::vector<ReplayedWave> waves_;
    std::vector<Turn> turns_; // of each wave, or earlier: what others do can only put it off
    std::vector<Group> groups_;
    std::array<Simd, SIMDS> simds_;
    uint64_t now_ = 0; // cycle of the last issue
    LdsServer lds_;
    MemoryServer memory_;
    Timeline timeline_;
};

Replay::Replay(const Recording& recording, const Numbers& numbers)
    : numbers_(numbers),
      instructions_(instructions_of(recording.ops, recording.text, numbers)),
      waves_(recording.waves.size() * numbers.workgroups),
      turns_(waves_.size(), Turn{0}),
      groups_(numbers.workgroups),
      lds_(numbers),
      memory_(numbers),
      timeline_(numbers, waves_.size())
{
    std::vector<Loop> loops;
    for(const std::vector<Step>& steps : recording.waves)
    {
        loops.push_back(hot_loop(steps, instructions_));
        parts_.push_back(phases_of(steps, instructions_));
    }
    for(uint32_t i = 0; i < waves_.size(); ++i)
    {
        const auto number   = static_cast<uint32_t>(i % recording.waves.size());
        waves_[i].steps     = &recording.waves[number];
        waves_[i].hot       = loops[number];
        waves_[i].parts     = &parts_[number];
        waves_[i].group     = static_cast<uint32_t>(i / recording.waves.size());
        waves_[i].next      = uint64_t{waves_[i].group} * numbers.start_offset;
        turns_[i]           = {waves_[i].next};
        waves_[i].time.simd = number % SIMDS;
        waves_[i].ended     = waves_[i].steps->empty();
        groups_[waves_[i].group].live += !waves_[i].ended;
    }
}

Turn Replay::turn_of(uint32_t number) const
{
    const ReplayedWave& wave = waves_[number];
    const Instruction& i     = next_of(wave);
    const Simd& simd         = simds_[wave.time.simd];
    Turn turn{wave.next};
    turn.wait(wave.ready, Cause::MatrixResult);
    const auto take = [&](const Port& port) {
        turn.wait(port.free, port.user == number ? Cause::VectorBusy : Cause::IssueConflict);
    };
    switch(i.unit)
    {
        case Unit::Vector:
            take(simd.vector);
            if(i.packed)
            {
                if(numbers_.packed_apart != 0)
                    turn.wait(simd.matrix_free, Cause::Packed);
                turn.wait(wave.matrix_end == 0 ? 0 : wave.matrix_end + numbers_.packed_after_matrix, Cause::Packed);
            }
            break;
        case Unit::Matrix:
            take(simd.vector);
            turn.wait(simd.matrix_free, Cause::MatrixBusy);
            break;
        // Queues forget what has left them: that there is room is true from now on.
        case Unit::Lds:
            take(simd.memory);
            turn.wait(std::max(now_, lds_.room(wave.time.simd, turn.cycle)), Cause::LdsQueue);
            break;
        case Unit::Memory:
            take(simd.memory);
            turn.wait(std::max(now_, memory_.room(turn.cycle, (*wave.steps)[wave.at])), Cause::MemoryQueue);
            break;
        case Unit::Scalar:
        case Unit::ScalarMemory: take(simd.scalar); break;
        case Unit::Branch:
        case Unit::End: take(simd.branch); break;
        default: break;
    }
    return turn;
}

Port* Replay::port_of(uint32_t number, const Instruction& instruction)
{
    Simd& simd = simds_[waves_[number].time.simd];
    switch(instruction.unit)
    {
        case Unit::Vector:
        case Unit::Matrix: return &simd.vector;
        case Unit::Lds:
        case Unit::Memory: return &simd.memory;
        case Unit::Scalar:
        case Unit::ScalarMemory: return &simd.scalar;
        case Unit::Branch:
        case Unit::End: return &simd.branch;
        default: return nullptr;
    }
}

// Ports, pipes and registers. Returns the cycles of the wave's slot.
uint64_t Replay::occupy(uint32_t number, uint64_t cycle, const Instruction& i)
{
    ReplayedWave& wave = waves_[number];
    const bool vector = i.unit == Unit::Vector, matrix = i.unit == Unit::Matrix;
    const uint64_t slot =
        i.unit == Unit::Branch && is_taken(*wave.steps, wave.at) ? numbers_.branch_cycles : i.slot_cycles;
    if(Port* port = port_of(number, i))
        *port = {cycle + (vector || matrix ? i.port_cycles : numbers_.issue_cycles), number};
    if(vector)
    {
        wave.time.vector += i.port_cycles;
        timeline_.add(number, Doing::Vector, cycle, cycle + i.port_cycles);
        wave.registers.write(i, cycle, numbers_);
    }
    else if(matrix)
    {
        wave.matrix_end                    = cycle + i.matrix_cycles;
        simds_[wave.time.simd].matrix_free = wave.matrix_end;
        wave.time.matrix += i.matrix_cycles;
        timeline_.add(number, Doing::Matrix, cycle, wave.matrix_end);
        wave.registers.write(i, cycle, numbers_);
    }
    else
    {
        const bool memory = i.unit == Unit::Lds || i.unit == Unit::Memory;
        timeline_.add(number, memory ? Doing::Memory : Doing::Other, cycle, cycle + slot);
    }
    return slot;
}

// LDS and memory, and what counts them.
void Replay::access(ReplayedWave& wave, uint64_t cycle, const Instruction& i)
{
    const Step& step = (*wave.steps)[wave.at];
    if(i.unit == Unit::Lds)
    {
        const uint64_t end = lds_.issue(wave.time.simd, cycle, i, step);
        wave.lds_order     = std::max(wave.lds_order, end);
        wave.other.add(wave.lds_order);
    }
    else if(i.unit == Unit::Memory)
    {
        const uint64_t end = memory_.issue(cycle, i, step);
        wave.vector_order  = std::max(wave.vector_order, end);
        wave.vector.add(wave.vector_order);
        if(i.flat)
            wave.other.add(wave.vector_order);
        if(i.to_lds)
            lds_.arrive(end, step.bytes);
    }
    else if(i.unit == Unit::ScalarMemory)
        wave.other.add(cycle + numbers_.scalar_memory_latency);
}

// s_waitcnt has been issued: until its counters are down.
void Replay::wait(uint32_t number, const Instruction& i)
{
    constexpr unsigned ANY_LGKM = 15, ANY_VM = 63; // largest values: no wait
    ReplayedWave& wave = waves_[number];
    const uint64_t vm  = i.vmcnt == ANY_VM ? 0 : wave.vector.reach(wave.next, i.vmcnt);
    const uint64_t lds = i.lgkmcnt == ANY_LGKM ? 0 : wave.other.reach(wave.next, i.lgkmcnt);
    const uint64_t end = std::max({vm, lds, wave.next});
    const Cause cause  = vm > lds ? Cause::WaitMemory : Cause::WaitLds;
    wave.time.stalls[static_cast<size_t>(cause)] += end - wave.next;
    timeline_.add(number, Doing::Wait, wave.next, end);
    wave.next = end;
}

void Replay::open(uint32_t group, uint64_t cycle)
{
    for(uint32_t n = 0; n < waves_.size(); ++n)
    {
        ReplayedWave& wave = waves_[n];
        if(wave.group != group || !wave.at_barrier)
            continue;
        wave.at_barrier = false;
        wave.time.stalls[static_cast<size_t>(Cause::Barrier)] += cycle - wave.next;
        timeline_.add(n, Doing::Barrier, wave.next, cycle);
        wave.next = cycle;
        turns_[n] = {cycle};
    }
    groups_[group].arrived = 0;
}

void Replay::arrive(uint32_t number)
{
    ReplayedWave& wave = waves_[number];
    Group& group       = groups_[wave.group];
    wave.at_barrier    = true;
    group.last_arrival = std::max(group.last_arrival, wave.next);
    if(++group.arrived == group.live)
        open(wave.group, group.last_arrival + numbers_.barrier_cycles);
}

// A wave has ended: the others need not wait for it.
void Replay::end(uint32_t number)
{
    ReplayedWave& wave = waves_[number];
    Group& group       = groups_[wave.group];
    wave.ended         = true;
    wave.time.end      = wave.next;
    close_part(wave);
    if(--group.live != 0 && group.arrived == group.live)
        open(wave.group, std::max(group.last_arrival, wave.next) + numbers_.barrier_cycles);
}

void Replay::note_loop(ReplayedWave& wave, uint64_t cycle, uint32_t op)
{
    if(!wave.hot.found || op != wave.hot.branch || !is_taken(*wave.steps, wave.at))
        return;
    LoopTime& loop = wave.loop;
    if(loop.passes++ == 0)
    {
        loop.begin   = cycle;
        wave.at_loop = wave.time;
    }
    loop.end = cycle;
    loop.of  = wave.time.since(wave.at_loop);
}

// Everything up to the next instruction's stalls belongs to the part before it.
void Replay::close_part(ReplayedWave& wave)
{
    const auto phase = static_cast<size_t>((*wave.parts)[wave.part++].phase);
    ++wave.phases.count[phase];
    wave.phases.times[phase].add(wave.time.since(wave.at_part));
    wave.at_part = wave.time;
}

void Replay::issue(uint32_t number, const Turn& turn)
{
    now_                 = turn.cycle;
    ReplayedWave& wave   = waves_[number];
    const uint32_t op    = (*wave.steps)[wave.at].op;
    const Instruction& i = instructions_[op];
    if(wave.at == (*wave.parts)[wave.part].end)
        close_part(wave);
    wave.time.stalls[static_cast<size_t>(turn.cause)] += turn.cycle - wave.next;
    timeline_.add(number, Doing::Stalled, wave.next, turn.cycle);
    note_loop(wave, turn.cycle, op);
    const uint64_t slot = occupy(number, turn.cycle, i);
    access(wave, turn.cycle, i);
    ++wave.time.instructions;
    wave.time.issued += slot;
    wave.next = turn.cycle + slot;
    if(i.priority >= 0)
        wave.priority = i.priority;
    if(i.unit == Unit::Wait)
        wait(number, i);
    ++wave.at;
    turns_[number] = {wave.next};
    if(i.unit == Unit::Barrier)
        arrive(number);
    if(wave.at == wave.steps->size())
        end(number);
    else
        wave.ready = wave.registers.ready(next_of(wave));
}

// The wave whose turn is the earliest; NO_WAVE if all have ended.
uint32_t Replay::first() const
{
    uint32_t first = NO_WAVE;
    for(uint32_t n = 0; n < waves_.size(); ++n)
    {
        const ReplayedWave& wave = waves_[n];
        if(wave.ended || wave.at_barrier)
            continue;
        if(first == NO_WAVE || turns_[n].cycle < turns_[first].cycle)
        {
            first = n;
            continue;
        }
        const ReplayedWave& other = waves_[first];
        if(turns_[n].cycle == turns_[first].cycle &&
           (wave.priority > other.priority || (wave.priority == other.priority && wave.next < other.next)))
            first = n;
    }
    return first;
}

Replayed Replay::run()
{
    for(uint32_t n; (n = first()) != NO_WAVE;)
    {
        const Turn turn = turn_of(n);
        if(turn.cycle == turns_[n].cycle)
            issue(n, turn);
        else
            turns_[n] = turn;
    }
    Replayed result;
    for(uint32_t n = 0; n < waves_.size(); ++n)
    {
        result.cycles = std::max(result.cycles, waves_[n].time.end);
        result.waves.push_back(waves_[n].time);
        result.loops.push_back(waves_[n].loop);
        result.phases.push_back(waves_[n].phases);
        result.loops[n].found  = waves_[n].hot.found;
        result.loops[n].head   = waves_[n].hot.head;
        result.loops[n].branch = waves_[n].hot.branch;
        result.timeline.push_back(timeline_.letters(n));
    }
    for(const Simd& simd : simds_) // what waves that have ended left at work
        result.cycles = std::max({result.cycles, simd.matrix_free, simd.vector.free});
    return result;
}
} // namespace

Replayed replay(const Recording& recording, const Numbers& numbers) { return Replay(recording, numbers).run(); }
} // namespace emu
