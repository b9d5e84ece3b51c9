#include "checks/twin.h"

#include "checks/undecided.h"
#include "isa/fields.h"
#include "isa/operands.h"

#include <bit>
#include <cstring>

namespace emu {
std::string name_of_row(unsigned row)
{
    return row < 256 ? "v" + std::to_string(row) : "a" + std::to_string(row - 256);
}

std::string name_of_scalar(unsigned code)
{
    switch(code)
    {
        case VCC: return "vcc_lo";
        case VCC + 1: return "vcc_hi";
        case M0: return "m0";
        default: return "s" + std::to_string(code);
    }
}

namespace {
// Lanes of an access that go to LDS or scratch, of which the twin has its own.
uint64_t private_lanes(const Wave& wave, const MicroOp* op, uint64_t mask)
{
    if(op->dwords[1] == 4 && srd::is_scratch(&wave.s[op->src[1].code - SCALAR])) // a buffer's resource
        return mask;
    uint64_t found = 0;
    if(op->flags & GENERIC)
        for(unsigned l = 0; l < LANES; ++l)
        {
            const uint32_t aperture = wave.v[op->src[0].code + 1][l];
            if(aperture == SHARED_APERTURE || aperture == PRIVATE_APERTURE)
                found |= uint64_t{1} << l;
        }
    return found & mask;
}

// Stores and atomics happen once: the twin only counts them, and gets the value that an atomic
// returned. `mask`: EXEC of both before it.
void write_as_twin(Wave& wave, Wave& twin, const MicroOp* op, uint64_t mask)
{
    twin.set_pair(EXEC, private_lanes(twin, op, mask));
    op->handler(twin, op);
    twin.set_pair(EXEC, mask);
    if(!(op->flags & RETURN))
        return;
    if(twin.group->late)
    {
        const auto newest = [op](Wave& w) -> PendingWrite& {
            return op->flags & GENERIC ? w.pending.flat.back() : w.pending.vector.back();
        };
        newest(twin) = newest(wave);
        return;
    }
    for(unsigned i = 0; i < op->dwords[3]; ++i)
        store_row(twin.v[op->dst + i], wave.v[op->dst + i], mask);
}
} // namespace

const MicroOp* step_both(Wave& wave, const MicroOp* op)
{
    Wave& twin          = *wave.twin;
    const uint64_t mask = wave.exec();
    Undecided open;
    find_undecided(wave, twin, op, open);
    const MicroOp* const next = op->handler(wave, op);
    twin.instructions         = wave.instructions;
    if(op->flags & WRITES)
    {
        write_as_twin(wave, twin, op, mask);
    }
    else if(op->handler(twin, op) != next || (wave.stop == Stop::Elsewhere && twin.next != wave.next) ||
            !part_twin(wave, twin, op, open))
    {
        raise_uninitialised(wave, op, NO_LANE, "where this jumps depends on");
    }
    if(wave.exec() != twin.exec())
        raise_uninitialised(wave, op, static_cast<unsigned>(std::countr_zero(wave.exec() ^ twin.exec())),
                            "EXEC, which this writes, depends on");
    if(wave.mode != twin.mode)
        raise_uninitialised(wave, op, NO_LANE, "MODE, which this writes, depends on");
    return next;
}

void raise_uninitialised(const Wave& wave, const MicroOp* op, unsigned lane, const std::string& what)
{
    Fault fault;
    fault.kind   = FaultKind::Uninitialised;
    fault.lane   = lane;
    fault.detail = what + " a register, LDS" +
                   (options().uninitialised_memory ? ", scratch or memory" : " or scratch") +
                   " that was never written, or on a lane that was off in a shuffle";
    raise(wave, op, std::move(fault));
}

void compare_lanes(const Wave& wave, const MicroOp* op, unsigned row, uint64_t mask, uint32_t bits, const char* what)
{
    const uint32_t *mine = wave.v[row], *other = wave.twin->v[row];
    for(unsigned l = 0; l < LANES; ++l)
        if(mask >> l & 1 && ((mine[l] ^ other[l]) & bits) != 0)
            raise_uninitialised(wave, op, l, std::string(what) + " (" + name_of_row(row) + ") depends on");
}

void compare_stored(const Wave& wave, const MicroOp* op, unsigned row, unsigned dwords, uint64_t mask,
                    const uint64_t* addresses)
{
    const auto known = [&](unsigned i, unsigned l) { return wave.v[row + i][l] == wave.twin->v[row + i][l]; };
    for(unsigned i = 0; i < dwords; ++i)
        for(unsigned l = 0; l < LANES; ++l)
        {
            if((mask >> l & 1) == 0 || known(i, l))
                continue;
            const uint64_t address = addresses[l] + 4 * i, in_eight = address % 8 / 4, in_sixteen = address % 16 / 4;
            const bool copied  = address % 4 == 0 && looks_unwritten(wave.v[row + i][l]) &&
                                 wave.twin->v[row + i][l] != wave.twin->in_flight; // nothing that was not waited for
            const auto follows = [&](uint64_t place) { return place != 0 && i >= place && known(i - place, l); };
            if(!copied || (!follows(in_eight) && !follows(in_sixteen)))
                compare_lanes(wave, op, row + i, uint64_t{1} << l, ~0u, "what is stored");
        }
}

// The other bytes were never written: any will do.
void end_marks(const Wave& wave, uint64_t mask, uint64_t base, const uint64_t* offsets, unsigned bytes)
{
    for(unsigned l = 0; l < LANES && wave.twin->group->doubts; ++l)
        if(const uint64_t address = base + offsets[l];
           mask >> l & 1 && address % 4 + bytes <= 4 && never_written(address))
            *reinterpret_cast<uint8_t*>(address ^ bytes) ^= 1;
}

void unwrite_padding(const Wave& wave, unsigned row, unsigned dwords, uint64_t mask, const uint64_t* addresses)
{
    for(unsigned i = 0; i < dwords && wave.twin->group->doubts; ++i)
        for(unsigned l = 0; l < LANES; ++l)
            if(mask >> l & 1 && wave.v[row + i][l] != wave.twin->v[row + i][l])
            {
                const uint64_t address = addresses[l] + 4 * i;
                const uint32_t mark    = fresh_mark(address);
                std::memcpy(reinterpret_cast<void*>(address), &mark, sizeof mark);
            }
}

void compare_scalars(const Wave& wave, const MicroOp* op, uint16_t code, unsigned count, const char* what)
{
    if(code < SCALAR || code >= SCALAR + 128)
        return; // constants
    for(unsigned i = code - SCALAR; i < code - SCALAR + count; ++i)
        if(wave.s[i] != wave.twin->s[i])
            raise_uninitialised(wave, op, NO_LANE, std::string(what) + " (" + name_of_scalar(i) + ") depends on");
}
} // namespace emu
