#include "isa/wave.h"

#include <bit>

namespace emu {

namespace {

// MXCSR: bits 13-14 rounding (nearest, down, up, zero), bit 15 flush results, bit 6 denormal inputs
// are zero.
uint32_t host_bits(uint32_t round, uint32_t denormals)
{
    static constexpr uint32_t ROUNDING[] = {0, 2, 1, 3}; // MODE: nearest, up, down, zero
    // denormals: bit 0 keeps those of inputs, bit 1 those of results
    return 0x1f80 | ROUNDING[round & 3] << 13 | (denormals & 2 ? 0 : 0x8000) |
           (denormals & 1 ? 0 : 0x40);
}

} // namespace

void set_mode(Wave& wave, uint32_t mode)
{
    wave.mode       = mode;
    wave.mxcsr      = host_bits(mode, mode >> 4);
    wave.mxcsr_wide = host_bits(mode >> 2, mode >> 6);
}

void load_host_mode(uint32_t mxcsr) { __asm__ volatile("ldmxcsr %0" : : "m"(mxcsr) : "memory"); }

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

void raise(const Wave& wave, const MicroOp* op, Fault fault)
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
            if(op != nullptr)
            {
                const auto& texts = kernel.program->texts;
                if(op->text < texts.size())
                    fault.text = texts[op->text];
                fault.pc          = kernel.program->virtual_address(*op);
                fault.instruction = static_cast<uint32_t>(op - &kernel.program->ops[kernel.entry]);
            }
        }
    }
    throw LaunchFault(std::move(fault));
}

void raise_unknown(const Wave& wave, const MicroOp* op, const char* what)
{
    Fault fault;
    fault.kind   = FaultKind::Unknown;
    fault.detail = what;
    raise(wave, op, std::move(fault));
}

} // namespace emu
