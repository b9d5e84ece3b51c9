#include "run/run.h"

#include "checks/global_races.h"
#include "checks/twin.h"
#include "hip/device_api.h"
#include "isa/registry.h"
#include "run/trace.h"
#include "timing/recorder.h"

#include <memory>
#include <mutex>
#include <vector>

namespace emu {
namespace {
// Under emu_execute: scratch bytes of a lane, micro-ops, dwords of .text that a jump by address can
// reach.
constexpr uint32_t EXECUTE_SCRATCH = 1024;
constexpr size_t MOST_OPS = size_t{1} << 24, MOST_WORDS = size_t{1} << 24;

void run_plain(Wave& wave)
{
    const MicroOp* op          = wave.next;
    const MicroOp* const first = wave.first;
    uint64_t* const counts     = wave.counts;
    while(op != nullptr)
    {
        ++counts[op - first];
        op = op->handler(wave, op);
    }
}

// A wave and its twin read memory one after the other: no other host thread may write between the
// two.
const MicroOp* step_undisturbed(Wave& wave, const MicroOp* op)
{
    static std::mutex memory;
    const auto kind = static_cast<Kind>(op->kind);
    std::unique_lock lock(memory, std::defer_lock);
    if(kind == Kind::Vmem || kind == Kind::Smem)
        lock.lock();
    return step_both(wave, op);
}

void run_watched(Wave& wave, Trace* trace)
{
    const auto limit  = static_cast<uint64_t>(options().max_instructions);
    const MicroOp* op = wave.next;
    while(op != nullptr)
    {
        ++wave.counts[op - wave.first];
        ++wave.instructions;
        if(limit != 0 && wave.instructions > limit)
        {
            Fault fault;
            fault.kind   = FaultKind::Timeout;
            fault.detail = "the wave has executed " + std::to_string(limit) +
                           " instructions, which is the limit (max_instructions), and goes on";
            raise(wave, op, std::move(fault));
        }
        const MicroOp* const done = op;
        if(trace != nullptr)
            trace->before(wave, done);
        op = wave.twin != nullptr ? step_undisturbed(wave, op) : op->handler(wave, op);
        if(trace != nullptr)
            trace->after(wave, done);
        if(wave.group->recorder != nullptr)
            wave.group->recorder->add(wave, done);
        if(wave.group->races != nullptr)
            wave.group->races->judge(wave, done);
    }
}

// Handlers in place of hashes, and the way from a pc to its micro-op. False, with the last error
// set: the core lacks one.
bool fill_code(Code& code, const void* micro_ops, size_t count)
{
    std::vector<MicroOp>& ops = code.ops;
    ops.resize(count + 1);
    std::memcpy(ops.data(), micro_ops, count * sizeof(MicroOp));
    for(size_t i = 0; i < count; ++i)
    {
        uint64_t hash;
        std::memcpy(&hash, &ops[i].handler, 8);
        ops[i].handler = find_handler(hash);
        if(ops[i].handler == nullptr)
        {
            set_last_error("the core has no micro-op of the kind of number " + std::to_string(i));
            return false;
        }
        const size_t word = ops[i].pc / 4;
        if(word >= MOST_WORDS)
            continue;
        if(word >= code.index_of_word.size())
            code.index_of_word.resize(word + 1, UINT32_MAX);
        if(code.index_of_word[word] == UINT32_MAX)
            code.index_of_word[word] = static_cast<uint32_t>(i);
    }
    // Running off the end stops there.
    ops[count].handler = [](Wave& w, const MicroOp* op) -> const MicroOp* {
        w.next = op;
        return nullptr;
    };
    return true;
}

// 0, or 1 with the fault as the last error.
int run_alone(Wave& wave)
{
    const uint32_t host = host_mode();
    int status          = 0;
    try
    {
        run_wave(wave, 0);
    }
    catch(const LaunchFault& fault)
    {
        set_last_error(fault_message(fault.fault()));
        status = 1;
    }
    load_host_mode(host);
    return status;
}

// To its next stop, or to where it jumps out of its code.
void run_here(Wave& wave, Trace* trace)
{
    if(trace != nullptr || wave.twin != nullptr || wave.group->recorder != nullptr || wave.group->races != nullptr ||
       options().max_instructions != 0)
        run_watched(wave, trace);
    else
    {
        wave.unseen = true;
        run_plain(wave);
    }
}
} // namespace

void run_wave(Wave& wave, uint64_t workgroup)
{
    load_host_mode(wave.mxcsr);
    wave.jumps_left = wave.group->turn;
    if(wave.twin != nullptr)
        wave.twin->jumps_left = wave.jumps_left;
    Trace* const trace = trace_of(wave, workgroup);
    wave.unseen        = false;
    run_here(wave, trace);
    while(wave.stop == Stop::Elsewhere)
    {
        for(Wave* one : {&wave, wave.twin})
            if(one != nullptr)
            {
                one->stop = Stop::Running;
                enter(*one, *wave.elsewhere);
            }
        run_here(wave, trace);
    }
}
} // namespace emu

int emu_execute(const void* micro_ops, size_t count, EmuWaveState* state)
{
    using namespace emu;
    if(count > MOST_OPS)
    {
        set_last_error("more micro-ops than any function has");
        return 1;
    }
    // A program and a kernel, so that jumps by address and faults find the micro-ops by their pc.
    Program program;
    Code code;
    Kernel kernel{};
    kernel.program = code.program = &program;
    kernel.code                   = &code;
    if(!fill_code(code, micro_ops, count))
        return 1;
    Workgroup group;
    group.kernel     = &kernel;
    group.lds        = state->lds;
    group.lds_bytes  = state->lds == nullptr ? 0 : state->lds_bytes;
    group.arch       = static_cast<uint32_t>(options().arch);
    group.srd_range  = options().srd_range();
    group.late       = options().late_loads != 0;
    group.exact_mfma = options().exact_mfma != 0;
    group.open_rules = options().open_rules != 0;
    std::vector<uint64_t> counts(count + 1);
    std::vector<uint8_t> scratch(size_t{LANES} * EXECUTE_SCRATCH);
    const auto wave     = std::make_unique<Wave>();
    wave->group         = &group;
    wave->scratch       = scratch.data();
    wave->scratch_bytes = EXECUTE_SCRATCH;
    wave->code          = &code;
    wave->first         = code.ops.data();
    wave->counts        = counts.data();
    wave->next          = code.ops.data();
    std::memcpy(wave->v, state->vector, sizeof wave->v);
    std::memcpy(wave->s, state->scalar, sizeof wave->s);
    set_inline_constants(*wave);
    set_mode(*wave, state->mode);
    const int status = run_alone(*wave);
    std::memcpy(state->vector, wave->v, sizeof wave->v);
    std::memcpy(state->scalar, wave->s, sizeof wave->s);
    state->mode    = wave->mode;
    state->stopped = static_cast<uint32_t>(wave->stop);
    state->next    = wave->next == nullptr ? 0 : static_cast<uint32_t>(wave->next - wave->first);
    return status;
}

size_t emu_micro_op_bytes(void) { return sizeof(emu::MicroOp); }

size_t emu_opcode_count(void) { return emu::entry_count(); }

const char* emu_opcode_name(size_t number)
{
    const emu::Entry* entry = emu::entry_at(number);
    return entry == nullptr ? nullptr : entry->name;
}
