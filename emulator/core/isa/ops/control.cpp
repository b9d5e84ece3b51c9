// SOPP and what moves the program counter; hardware registers; unknown instructions.
#include "checks/lds_races.h"
#include "checks/twin.h"
#include "host/device_heap.h"
#include "host/host_calls.h"
#include "isa/operands.h"
#include "isa/registry.h"

namespace emu {
namespace {
// Whoever jumps back for a long time may wait for another wave, and gives way. It does so here, at
// the start of a loop, because the state of a wave that waits comes back there (run/state.h).
const MicroOp* jump(Wave& w, const MicroOp* op, bool taken)
{
    if(!taken)
        return op + 1;
    const MicroOp* target = op + op->offset;
    if(op->offset > 0 || --w.jumps_left != 0) [[likely]]
        return target;
    w.stop = Stop::Turn;
    w.next = target;
    return nullptr;
}

// To the micro-op at a byte address (s_setpc_b64, s_swappc_b64), in any loaded code object.
const MicroOp* jump_to(Wave& w, const MicroOp* op, uint64_t address)
{
    if(const MicroOp* target = w.code->at(address)) [[likely]]
        return target;
    const Place place = w.group->counts != nullptr ? place_of(address) : Place{};
    if(place.op == nullptr)
    {
        Fault fault;
        fault.kind    = FaultKind::Pc;
        fault.address = address;
        fault.detail  = "a jump to " + describe_address(address);
        raise(w, op, std::move(fault));
    }
    w.elsewhere = place.code;
    w.next      = place.op;
    w.stop      = Stop::Elsewhere;
    return nullptr;
}

const MicroOp* s_endpgm(Wave& w, const MicroOp* op)
{
    // What is still on its way to LDS lands: the workgroup's other waves may read it after their
    // own waits.
    wait(w, op, 0, 0);
    w.stop = Stop::End;
    return nullptr;
}

const MicroOp* s_barrier(Wave& w, const MicroOp* op)
{
    if(w.group->barriers && w.exec() != w.threads) [[unlikely]]
        raise_named(w, op, FaultKind::Barrier, "lanes are off at this barrier: it lies in divergent control flow");
    w.stop = Stop::Barrier;
    w.next = op + 1;
    return nullptr;
}

const MicroOp* s_waitcnt(Wave& w, const MicroOp* op)
{
    const bool late = w.group->late;
    if(late || w.group->interleaved) [[unlikely]]
    {
        const uint32_t vm = waitcnt::vmcnt(op->control), lgkm = waitcnt::LGKMCNT.of(op->control);
        w.gave_way = w.group->interleaved && !w.gave_way && (!late || outstanding(w.pending, vm, lgkm));
        if(w.gave_way)
        {
            w.stop = Stop::Turn;
            w.next = op;
            return nullptr;
        }
        if(late)
            wait(w, op, vm, lgkm);
    }
    return advance(op);
}

// Whoever sleeps waits for another wave.
const MicroOp* s_sleep(Wave& w, const MicroOp* op)
{
    if(w.group->turn == 0)
        return advance(op);
    w.stop = Stop::Turn;
    w.next = op + 1;
    return nullptr;
}

const MicroOp* s_branch(Wave& w, const MicroOp* op) { return jump(w, op, true); }
const MicroOp* s_cbranch_scc0(Wave& w, const MicroOp* op) { return jump(w, op, w.s[SCC] == 0); }
const MicroOp* s_cbranch_scc1(Wave& w, const MicroOp* op) { return jump(w, op, w.s[SCC] != 0); }
const MicroOp* s_cbranch_vccz(Wave& w, const MicroOp* op) { return jump(w, op, w.pair(VCC) == 0); }
const MicroOp* s_cbranch_vccnz(Wave& w, const MicroOp* op) { return jump(w, op, w.pair(VCC) != 0); }
const MicroOp* s_cbranch_execz(Wave& w, const MicroOp* op) { return jump(w, op, w.exec() == 0); }
const MicroOp* s_cbranch_execnz(Wave& w, const MicroOp* op) { return jump(w, op, w.exec() != 0); }

// Offset holds the bytes from .text to the instruction after this one.
const MicroOp* s_getpc_b64(Wave& w, const MicroOp* op)
{
    w.set_pair(op->dst - SCALAR, w.text_address + static_cast<uint32_t>(op->offset));
    return advance(op);
}

const MicroOp* s_setpc_b64(Wave& w, const MicroOp* op) { return jump_to(w, op, w.pair(op->src[0].code - SCALAR)); }

const MicroOp* s_swappc_b64(Wave& w, const MicroOp* op)
{
    const uint64_t target = w.pair(op->src[0].code - SCALAR);
    w.set_pair(op->dst - SCALAR, w.text_address + static_cast<uint32_t>(op->offset));
    return jump_to(w, op, target);
}

const MicroOp* s_call_b64(Wave& w, const MicroOp* op)
{
    w.set_pair(op->dst - SCALAR, w.text_address + op->literal);
    return jump(w, op, true);
}

// Hardware registers (ISA document, "Hardware register values"); control is a word of hwreg.
enum HardwareRegister : unsigned
{
    HW_MODE      = 1,
    HW_ID        = 4,
    HW_GPR_ALLOC = 5,
    HW_LDS_ALLOC = 6,
    HW_XCC_ID    = 20
};

Field field_of(const MicroOp* op) { return {hwreg::OFFSET.of(op->control), hwreg::SIZE.of(op->control) + 1}; }

const MicroOp* s_getreg_b32(Wave& w, const MicroOp* op)
{
    uint32_t value = 0;
    switch(hwreg::ID.of(op->control))
    {
        case HW_MODE: value = w.mode; break;
        case HW_ID: value = w.number; break;
        case HW_XCC_ID: value = 0; break; // one chiplet
        default: raise_unknown(w, op, "s_getreg_b32 of a hardware register other than MODE, HW_ID and XCC_ID");
    }
    w.s[op->dst - SCALAR] = field_of(op).of(value);
    return advance(op);
}

const MicroOp* s_setreg_b32(Wave& w, const MicroOp* op)
{
    if(hwreg::ID.of(op->control) != HW_MODE)
        raise_unknown(w, op, "s_setreg_b32 of a hardware register other than MODE");
    const Field field = field_of(op);
    set_mode(w, (w.mode & ~field.mask()) | field.put(scalar_value(w, op, op->src[0].code)));
    load_host_mode(w.mxcsr);
    return advance(op);
}

// A message to the host (ISA document, "S_SENDMSG Messages"). A kernel sends the interrupt with a
// request; the other messages are of graphics.
const MicroOp* s_sendmsg(Wave& w, const MicroOp* op)
{
    constexpr Field MESSAGE{0, 4};
    constexpr uint32_t INTERRUPT = 1;
    if(MESSAGE.of(op->control) == INTERRUPT && w.group->host != nullptr)
    {
        try
        {
            w.group->host->serve();
        }
        catch(const HostCallError& failure)
        {
            raise_named(w, op, FaultKind::Host, failure.what());
        }
        catch(const HeapError& failure)
        {
            raise_named(w, op, FaultKind::Heap, failure.what());
        }
    }
    return advance(op);
}

// VSKIP of the MODE register (ISA document, s_setvskip): vector instructions are not issued and do
// not count in waits. AITER's kernels skip one instruction and clear it. What else stands between
// is unknown.
const MicroOp* s_setvskip(Wave& w, const MicroOp* op)
{
    const auto skips = [&w](const MicroOp* at) {
        const uint32_t bit = scalar_value(w, at, at->src[1].code) & 31;
        return (scalar_value(w, at, at->src[0].code) >> bit & 1) != 0;
    };
    if(!skips(op))
        return advance(op);
    const MicroOp* next = op + 1;
    for(; next->handler != op->handler; ++next)
    {
        const auto kind = static_cast<Kind>(next->kind);
        if(kind != Kind::Valu && kind != Kind::Trans && kind != Kind::Mfma && kind != Kind::Vmem && kind != Kind::Lds)
            raise_unknown(w, next, "after s_setvskip, before the s_setvskip that ends it");
    }
    return s_setvskip(w, next);
}

// Traps of the HSA trap handler (LLVM AMDGPU usage, "Trap Handler ABI"): 3 is for a debugger, which
// is not there.
const MicroOp* s_trap(Wave& w, const MicroOp* op)
{
    constexpr uint32_t DEBUGGER = 3;
    if(op->control == DEBUGGER)
        return advance(op);
    raise_named(w, op, FaultKind::Trap, "the kernel ended itself: abort(), a failed assert or a trap");
}

// s_set_gpr_idx_* stay unknown. What stands too early after another instruction (option
// hazards) is a trap, too, with 1 as control.
const MicroOp* trap(Wave& w, const MicroOp* op)
{
    const bool named = w.code != nullptr && op->literal < w.code->texts.size();
    raise_named(w, op, op->control == 1 ? FaultKind::Hazard : FaultKind::Unknown,
                named ? w.code->texts[op->literal].c_str() : "an instruction that the emulator does not know");
}

// Answer a call of a function at its first micro-op, lane by lane, and return to its caller. It gets
// 64 bits in v[0:1] and answers there; s[30:31] is where it returns to (LLVM AMDGPU usage, "Non-Kernel
// Functions").
template <typename Answer>
const MicroOp* heap_call(Wave& w, const MicroOp* op, const char* what, Answer&& answer)
{
    const MicroOp* const body = w.code->replaced.at(op)(w, op); // waits for what the caller loaded
    if(options().heap == 0 || body == nullptr)
        return body;
    for(unsigned row = 0; row < 2; ++row)
        must_be_defined(w, op, row, w.exec(), what);
    for(unsigned l = 0; l < LANES && !w.is_twin; ++l)
    {
        if((w.exec() >> l & 1) == 0)
            continue;
        const uint64_t result = answer(l, w.v[0][l] | uint64_t{w.v[1][l]} << 32);
        for(Wave* one : {&w, w.twin})
            if(one != nullptr)
            {
                one->v[0][l] = static_cast<uint32_t>(result);
                one->v[1][l] = static_cast<uint32_t>(result >> 32);
            }
    }
    return jump_to(w, op, w.pair(30));
}

constexpr Entry ENTRIES[] = {
    {"trap", trap},
    {"s_nop", nothing},
    {"s_setvskip", s_setvskip},
    {"s_sendmsg", s_sendmsg},
    {"s_trap", s_trap},
    {"s_sleep", s_sleep},
    {"s_setprio", nothing},
    {"s_sethalt", nothing},
    {"s_ttracedata", nothing},
    {"s_icache_inv", nothing},
    {"s_incperflevel", nothing},
    {"s_decperflevel", nothing},
    {"s_endpgm", s_endpgm},
    {"s_barrier", s_barrier},
    {"s_waitcnt", s_waitcnt},
    {"s_branch", s_branch},
    {"s_cbranch_scc0", s_cbranch_scc0},
    {"s_cbranch_scc1", s_cbranch_scc1},
    {"s_cbranch_vccz", s_cbranch_vccz},
    {"s_cbranch_vccnz", s_cbranch_vccnz},
    {"s_cbranch_execz", s_cbranch_execz},
    {"s_cbranch_execnz", s_cbranch_execnz},
    {"s_getpc_b64", s_getpc_b64},
    {"s_setpc_b64", s_setpc_b64},
    {"s_swappc_b64", s_swappc_b64},
    {"s_call_b64", s_call_b64},
    {"s_getreg_b32", s_getreg_b32},
    {"s_setreg_b32", s_setreg_b32},
};
} // namespace

const MicroOp* heap_malloc(Wave& w, const MicroOp* op)
{
    return heap_call(w, op, "the size that malloc gets", [](unsigned, uint64_t bytes) { return kernel_malloc(bytes); });
}

const MicroOp* heap_free(Wave& w, const MicroOp* op)
{
    return heap_call(w, op, "the address that free gets", [&](unsigned lane, uint64_t address) {
        try
        {
            kernel_free(address);
        }
        catch(const HeapError& failure)
        {
            Fault fault;
            fault.kind   = FaultKind::Heap;
            fault.lane   = lane;
            fault.detail = failure.what();
            raise(w, op, std::move(fault));
        }
        return address;
    });
}

std::span<const Entry> control_entries() { return ENTRIES; }
} // namespace emu
