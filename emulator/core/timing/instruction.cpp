#include "timing/instruction.h"

#include "isa/fields.h"

#include <algorithm>
#include <string_view>

namespace emu {
namespace {
constexpr uint32_t NOP_CYCLES   = 4,
                   SLEEP_CYCLES = 64; // of a unit of s_nop and s_sleep (ISA documents)

Unit unit_of(const MicroOp& op, std::string_view text)
{
    switch(static_cast<Kind>(op.kind))
    {
        case Kind::Valu:
        case Kind::Trans: return Unit::Vector;
        case Kind::Mfma: return Unit::Matrix;
        case Kind::Smem: return Unit::ScalarMemory;
        case Kind::Vmem: return Unit::Memory;
        case Kind::Lds: return Unit::Lds;
        case Kind::Salu: return Unit::Scalar;
        case Kind::Wait: return Unit::Wait;
        case Kind::Barrier: return Unit::Barrier;
        case Kind::Branch: return text.starts_with("s_endpgm") ? Unit::End : Unit::Branch;
        default: return Unit::Idle;
    }
}

void add_read(Instruction& i, uint16_t code, unsigned words)
{
    if(code < SCALAR && words != 0)
        i.read[i.reads++] = {code, static_cast<uint16_t>(words)};
}

// Memory instructions name data that they store in dst (buffer) or in a source.
void set_registers(Instruction& i, const MicroOp& op, std::string_view text, bool stores)
{
    const bool matrix = i.unit == Unit::Matrix, computed = matrix || i.unit == Unit::Vector;
    const bool sparse = text.starts_with("v_smfmac"); // adds to its destination
    for(unsigned s = 0; s < 3; ++s)
        if(!(matrix && s == 2 && !sparse))
            add_read(i, op.src[s].code, op.dwords[s]);
    for(unsigned s = 0; s < 2 && text.starts_with("v_mfma_scale"); ++s)
        add_read(i, op.extra[s], 1);
    if(sparse)
        i.addend = {op.dst, op.dwords[3]};
    else if(matrix && op.src[2].code < SCALAR)
        i.addend = {op.src[2].code, op.dwords[2]};
    if(op.dst >= SCALAR)
        return;
    if(computed)
        i.result = {op.dst, op.dwords[3]};
    else if(i.unit == Unit::Memory && stores)
        add_read(i, op.dst, op.dwords[3]);
}

void set_vector_cost(Instruction& i, const MicroOp& op, std::string_view text, const Numbers& n)
{
    const bool swap  = text.starts_with("v_permlane") && text.find("_swap") != text.npos;
    i.packed         = text.starts_with("v_pk_") || text.starts_with("v_dot");
    i.transcendental = static_cast<Kind>(op.kind) == Kind::Trans;
    i.port_cycles    = static_cast<uint16_t>(swap               ? n.permlane_swap_cycles
                                             : i.transcendental ? n.transcendental_cycles
                                             : i.packed         ? n.packed_cycles
                                                                : n.vector_cycles);
}

void set_idle_cost(Instruction& i, const MicroOp& op, std::string_view text, const Numbers& n)
{
    if(text.starts_with("s_nop"))
        i.slot_cycles = NOP_CYCLES * ((op.control & 15u) + 1);
    else if(text.starts_with("s_sleep"))
        i.slot_cycles = n.issue_cycles + SLEEP_CYCLES * (op.control & 127u);
    else if(text.starts_with("s_setprio"))
        i.priority = static_cast<int8_t>(op.control & 3);
}

// Eight registers of factors are read at a time: 32x32x16 of 16 bits has as many.
unsigned factor_reads(const MicroOp& op)
{
    const unsigned registers = op.dwords[0] + op.dwords[1];
    return std::max(1u, (registers + 7) / 8);
}

Instruction instruction_of(const MicroOp& op, std::string_view text, const Numbers& n)
{
    Instruction i;
    i.unit            = unit_of(op, text);
    i.slot_cycles     = n.issue_cycles;
    const bool stores = text.find("_store_") != text.npos || text.find("_atomic_") != text.npos;
    set_registers(i, op, text, stores);
    switch(i.unit)
    {
        case Unit::Vector: set_vector_cost(i, op, text, n); break;
        case Unit::Matrix:
            i.matrix_cycles = static_cast<uint16_t>(op.literal_high);
            i.port_cycles   = static_cast<uint16_t>(n.matrix_read_cycles * factor_reads(op));
            break;
        case Unit::Memory:
            i.to_lds = (op.flags & TO_LDS) != 0 || text.find("_load_lds_") != text.npos;
            i.load   = !stores;
            i.flat   = (op.flags & GENERIC) != 0;
            break;
        case Unit::Lds: i.write = text.starts_with("ds_write"); break;
        case Unit::Wait:
            i.vmcnt   = static_cast<uint8_t>(waitcnt::vmcnt(op.control));
            i.lgkmcnt = static_cast<uint8_t>(waitcnt::LGKMCNT.of(op.control));
            break;
        case Unit::Idle: set_idle_cost(i, op, text, n); break;
        default: break;
    }
    return i;
}
} // namespace

std::vector<Instruction> instructions_of(const std::vector<MicroOp>& ops, const std::vector<std::string>& text,
                                         const Numbers& numbers)
{
    std::vector<Instruction> made;
    made.reserve(ops.size());
    for(size_t i = 0; i < ops.size(); ++i)
        made.push_back(instruction_of(ops[i], text[i], numbers));
    return made;
}
} // namespace emu
