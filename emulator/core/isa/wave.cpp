#include "isa/wave.h"

#include <bit>

namespace emu {
namespace {
uint32_t host_bits(uint32_t round, bool keeps_inputs, bool keeps_results)
{
    static constexpr uint32_t ROUNDING[] = {0, 2, 1, 3}; // MODE: nearest, up, down, zero
    return MXCSR_NEAREST | MXCSR_ROUND.put(ROUNDING[round]) | (keeps_results ? 0 : MXCSR_FLUSH) |
           (keeps_inputs ? 0 : MXCSR_INPUTS_ARE_ZERO);
}
} // namespace

void set_mode(Wave& wave, uint32_t word)
{
    wave.mode       = word;
    wave.mxcsr      = host_bits(mode::ROUND_F32.of(word), mode::INPUTS_F32.of(word), mode::RESULTS_F32.of(word));
    wave.mxcsr_wide = host_bits(mode::ROUND_WIDE.of(word), mode::INPUTS_WIDE.of(word), mode::RESULTS_WIDE.of(word));
}

uint32_t host_mode()
{
    uint32_t mxcsr;
    __asm__ volatile("stmxcsr %0" : "=m"(mxcsr) : : "memory");
    return mxcsr;
}

void set_inline_constants(Wave& wave)
{
    for(uint32_t i = 0; i <= 64; ++i)
        wave.s[128 + i] = i;
    for(uint32_t i = 1; i <= 16; ++i)
        wave.s[192 + i] = 0u - i;
    static constexpr float FLOATS[] = {0.5f, -0.5f, 1.0f, -1.0f, 2.0f, -2.0f, 4.0f, -4.0f};
    for(unsigned i = 0; i < 8; ++i)
        wave.s[240 + i] = std::bit_cast<uint32_t>(FLOATS[i]);
    wave.s[248] = 0x3e22f983; // 1 / (2 pi)
}

void enter(Wave& wave, const Code& code)
{
    wave.code         = &code;
    wave.first        = code.ops.data();
    wave.text_address = code.program->text_address;
    if(wave.counts == nullptr)
        return;
    std::vector<uint64_t>& counts = (*wave.group->counts)[&code];
    counts.resize(code.ops.size());
    wave.counts = counts.data();
}

Fault located(const Wave& wave, const MicroOp* op, Fault fault)
{
    if(op != nullptr)
    {
        fault.pc          = op->pc;
        fault.instruction = static_cast<uint32_t>(op - wave.first);
    }
    fault.wave = wave.number;
    if(const Workgroup* group = wave.group; group != nullptr)
    {
        for(unsigned i = 0; i < 3; ++i)
            fault.workgroup[i] = group->id[i];
        if(group->kernel != nullptr)
        {
            const Kernel& kernel = *group->kernel;
            fault.kernel         = kernel.name;
            if(op != nullptr && wave.code != nullptr)
            {
                fault.text   = wave.code->text(*op);
                fault.source = wave.code->source(*op);
                fault.pc     = wave.code->virtual_address(*op);
                if(wave.code == kernel.code)
                    fault.instruction -= kernel.entry;
            }
        }
    }
    return fault;
}

void raise(const Wave& wave, const MicroOp* op, Fault fault) { throw LaunchFault(located(wave, op, std::move(fault))); }

void raise_race(const Wave& wave, const MicroOp* op, Fault fault, uint64_t lanes)
{
    if(const int more = std::popcount(lanes) - 1; more > 0)
        fault.detail +=
            "\n  " + plural(static_cast<uint64_t>(more), "more lane") + " of this instruction in the same race";
    raise(wave, op, std::move(fault));
}

void raise_unknown(const Wave& wave, const MicroOp* op, const char* what)
{
    raise_named(wave, op, FaultKind::Unknown, what);
}

void raise_named(const Wave& wave, const MicroOp* op, FaultKind kind, const char* what)
{
    Fault fault;
    fault.kind   = kind;
    fault.detail = what;
    raise(wave, op, std::move(fault));
}
} // namespace emu
