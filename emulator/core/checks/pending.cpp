#include "checks/pending.h"

#include "checks/lds_races.h"
#include "checks/twin.h"
#include "isa/wave.h"
#include "run/program.h"

#include <algorithm>
#include <span>
#include <string>

namespace emu {
namespace {
// What a destination holds between the issue of its load and the wait.
void poison_target(Wave& wave, const PendingWrite& write)
{
    if(write.target == PendingWrite::Target::Vector)
    {
        for(size_t r = 0; r * LANES < write.data.size(); ++r)
        {
            uint32_t* row = wave.v[write.index + r];
            for(unsigned l = 0; l < LANES; ++l)
                if(write.lanes >> l & 1)
                    row[l] = write.keep.empty() ? wave.in_flight
                                                : (row[l] & write.keep[0]) | (wave.in_flight & ~write.keep[0]);
        }
    }
    else if(write.target == PendingWrite::Target::ScalarRegister)
    {
        for(size_t i = 0; i < write.data.size(); ++i)
            wave.s[write.index + i] = wave.in_flight;
    }
    else if(write.target == PendingWrite::Target::Lds)
    {
        for(const uint32_t address : write.addresses)
            for(uint32_t at = 0; at < write.chunk; at += 4)
                std::memcpy(wave.group->lds + address + at, &wave.in_flight, std::min(4u, write.chunk - at));
    }
}

void land(Wave& wave, const PendingWrite& write)
{
    if(write.target == PendingWrite::Target::Vector)
    {
        for(size_t r = 0; r * LANES < write.data.size(); ++r)
        {
            uint32_t* row       = wave.v[write.index + r];
            const uint32_t keep = write.keep.empty() ? 0 : write.keep[0];
            for(unsigned l = 0; l < LANES; ++l)
                if(write.lanes >> l & 1)
                    row[l] = (row[l] & keep) | (write.data[r * LANES + l] & ~keep);
        }
    }
    else if(write.target == PendingWrite::Target::ScalarRegister)
    {
        for(size_t i = 0; i < write.data.size(); ++i)
            wave.s[write.index + i] = write.data[i];
    }
    else if(write.target == PendingWrite::Target::Lds)
    {
        const auto* bytes   = reinterpret_cast<const uint8_t*>(write.data.data());
        const size_t stride = (write.chunk + 3) / 4 * 4;
        for(size_t i = 0; i < write.addresses.size(); ++i)
            std::memcpy(wave.group->lds + write.addresses[i], bytes + i * stride, write.chunk);
    }
}

// Count the bytes of LDS that a pending write has, or had, in flight, and those that a read takes.
void count_in_flight(Wave& wave, const PendingWrite& write, Counter counter, int change)
{
    for(const LdsSource::Place& place : write.source.places)
        for(uint32_t at = place.address; at < place.address + write.source.chunk; ++at)
            wave.group->lds_reads[at] = static_cast<uint16_t>(wave.group->lds_reads[at] + change);
    LdsShadow* const shadow = wave.group->shadow;
    if(shadow == nullptr || write.target != PendingWrite::Target::Lds)
        return;
    for(const uint32_t address : write.addresses)
        for(uint32_t at = address; at < address + write.chunk; ++at)
        {
            uint8_t& count = shadow->bytes[at].in_flight[counter == Counter::Vector];
            count          = static_cast<uint8_t>(count + change);
        }
}

[[noreturn]] void report_overwritten(const Wave& wave, const MicroOp* op, const PendingWrite& write,
                                     const std::string& name, unsigned lane)
{
    raise(wave, op,
          fault_of(FaultKind::Hazard, Access::Load, lane, 0, 0,
                   name + " was overwritten before this wait for a load that writes it again,\n  " +
                       write.code->place(*write.op)));
}

// Nothing but the load writes to its registers before the wait. (A twin has the same writers.)
void check_untouched(const Wave& wave, const MicroOp* op, const PendingWrite& write)
{
    if(write.op == nullptr || wave.is_twin)
        return;
    if(write.target == PendingWrite::Target::ScalarRegister)
    {
        for(size_t i = 0; i < write.data.size(); ++i)
            if(wave.s[write.index + i] != wave.in_flight)
                report_overwritten(wave, op, write, name_of_scalar(static_cast<unsigned>(write.index + i)), NO_LANE);
        return;
    }
    const uint32_t bits = write.keep.empty() ? ~0u : ~write.keep[0];
    for(unsigned r = 0; r * LANES < write.data.size(); ++r)
        for(unsigned l = 0; l < LANES; ++l)
            if(write.lanes >> l & 1 && ((wave.v[write.index + r][l] ^ wave.in_flight) & bits) != 0)
                report_overwritten(wave, op, write, name_of_row(write.index + r), l);
}

// What later loads of the queue write to the same registers is on its way still.
void poison_again(Wave& wave, const std::deque<PendingWrite>& queue, const PendingWrite& landed)
{
    const auto end = [](const PendingWrite& write) { return write.index + write.data.size() / LANES; };
    for(const PendingWrite& later : queue)
        if(&later != &landed && later.target == PendingWrite::Target::Vector && later.index < end(landed) &&
           landed.index < end(later))
            poison_target(wave, later);
}

void finish(Wave& wave, const PendingWrite& write, Counter counter)
{
    land(wave, write);
    count_in_flight(wave, write, counter, -1);
}

// Take the oldest operation off its queue.
void leave(Wave& wave, const MicroOp* op, std::deque<PendingWrite>& queue, Counter counter)
{
    const PendingWrite& landed = queue.front();
    check_untouched(wave, op, landed);
    finish(wave, landed, counter);
    if(landed.target == PendingWrite::Target::Vector)
        poison_again(wave, queue, landed);
    queue.pop_front();
}

// Take the operations that are done off those that return in any order. The data of those `behind` comes later.
template <typename Done>
void land_if(Wave& wave, const MicroOp* op, std::vector<PendingWrite>& writes, const std::deque<PendingWrite>& behind,
             const Done& done)
{
    for(const PendingWrite& write : writes)
        if(done(write))
        {
            check_untouched(wave, op, write);
            land(wave, write);
            poison_again(wave, behind, write);
        }
    std::erase_if(writes, done);
}

// Whether a read takes any of these bytes; the lanes that get them.
uint64_t lanes_that_take(const LdsSource& source, uint32_t address, uint32_t bytes)
{
    uint64_t lanes = 0;
    for(const LdsSource::Place& place : source.places)
        if(place.address < address + bytes && address < place.address + source.chunk)
            lanes |= ((uint64_t{1} << source.spread) - 1) << place.lane / source.spread * source.spread;
    return lanes;
}

void spoil(const Wave& wave, PendingWrite& read, uint64_t lanes)
{
    for(size_t i = 0; i < read.data.size(); ++i)
        if(lanes >> i % LANES & 1)
            read.data[i] = wave.in_flight;
}

[[noreturn]] void report_read_under_way(const Wave& wave, const MicroOp* op, unsigned lane, uint32_t address,
                                        const Wave& reader)
{
    raise(wave, op,
          fault_of(FaultKind::Race, Access::Store, lane, address, 1,
                   "wave " + std::to_string(reader.number) +
                       " did not wait (s_waitcnt lgkmcnt) for its read of these bytes of LDS" +
                       (&reader == &wave ? " before the LDS-DMA" : " before the barrier")));
}
} // namespace

void issue(Wave& wave, Counter counter, PendingWrite write)
{
    if(!wave.group->late)
    {
        land(wave, write);
        return;
    }
    write.code   = wave.code;
    write.number = wave.pending.issued++;
    poison_target(wave, write);
    switch(counter)
    {
        case Counter::Flat: wave.pending.flat.push_back(std::move(write)); break;
        case Counter::Vector:
        case Counter::Lds:
            count_in_flight(wave, write, counter, 1);
            (counter == Counter::Lds ? wave.pending.lds : wave.pending.vector).push_back(std::move(write));
            break;
        case Counter::Scalar: wave.pending.scalar.push_back(std::move(write)); break;
    }
}

void issue(Wave& wave, Counter counter)
{
    if(wave.group->late)
        issue(wave, counter, PendingWrite{});
}

void show_own_writes(Wave& wave)
{
    for(const PendingWrite& write : wave.pending.lds)
        if(write.target == PendingWrite::Target::Lds)
            land(wave, write);
}

void hide_own_writes(Wave& wave)
{
    for(const PendingWrite& write : wave.pending.lds)
        if(write.target == PendingWrite::Target::Lds)
            poison_target(wave, write);
}

void finish_own_writes(Wave& wave)
{
    for(PendingWrite& write : wave.pending.lds)
        if(write.target == PendingWrite::Target::Lds)
        {
            finish(wave, write, Counter::Lds);
            write = PendingWrite{};
        }
}

void spoil_reads(Wave& wave, const MicroOp* op, unsigned lane, uint32_t address, uint32_t bytes, Writer writer)
{
    Workgroup& group  = *wave.group;
    const auto counts = std::span(group.lds_reads);
    if(std::ranges::all_of(counts.subspan(address, bytes), [](uint16_t count) { return count == 0; }))
        return;
    for(Wave& reader : group.waves)
    {
        if(reader.stop == Stop::End || (&reader == &wave && writer == Writer::Wave))
            continue; // LDS serves a wave in order
        for(PendingWrite& read : reader.pending.lds)
        {
            const uint64_t lanes = lanes_that_take(read.source, address, bytes);
            if(lanes != 0 && group.shadow != nullptr)
                report_read_under_way(wave, op, lane, address, reader);
            spoil(reader, read, lanes);
        }
    }
}

bool outstanding(const Pending& pending, uint32_t vm, uint32_t lgkm)
{
    return pending.vector.size() > vm || pending.lds.size() > lgkm || (lgkm == 0 && !pending.scalar.empty()) ||
           ((vm == 0 || lgkm == 0) && !pending.flat.empty());
}

void wait(Wave& wave, const MicroOp* op, uint32_t vm, uint32_t lgkm)
{
    Pending& pending = wave.pending;
    // Scalar loads and FLAT operations return in any order: while the allowed count is not zero it
    // may be one of them that is outstanding.
    for(PendingWrite& write : pending.flat)
    {
        write.vm_zero |= vm == 0;
        if(lgkm == 0)
            write.lds_done = std::min(write.lds_done, pending.issued);
    }
    const auto done = [](const PendingWrite& write) { return write.vm_zero && write.lds_done != PendingWrite::NEVER; };
    while(pending.vector.size() > vm)
    {
        // Memory's part of a FLAT load comes before the data of what began after the wait for its
        // LDS part: compilers let both write a register (LLVM, SIInsertWaitcnts).
        const uint64_t number = pending.vector.front().number;
        land_if(wave, op, pending.flat, pending.vector,
                [&](const PendingWrite& write) { return done(write) && write.lds_done <= number; });
        leave(wave, op, pending.vector, Counter::Vector);
    }
    land_if(wave, op, pending.flat, {}, done);
    if(lgkm == 0)
        land_if(wave, op, pending.scalar, {}, [](const PendingWrite&) { return true; });
    // With them outstanding, the operations still counted may all be LDS ones.
    while(pending.lds.size() > lgkm)
        leave(wave, op, pending.lds, Counter::Lds);
}
} // namespace emu
