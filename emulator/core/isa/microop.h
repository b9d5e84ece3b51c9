// The micro-op: one decoded machine instruction in the form the interpreter executes.
//
// emulator/ckpm_emulator/lowering/lower.py writes these records (numpy dtype in
// emulator/ckpm_emulator/lowering/microop.py: same size, same offsets) and
// emulator/ckpm_emulator/program_cache.py keeps them on disk; the core only replaces the opcode
// number by the handler's address.
#pragma once

#include <cstddef>
#include <cstdint>

namespace emu {
struct Wave;
struct MicroOp;

// Executes one micro-op and returns the next one; null when the wave stops (barrier or end of
// program).
using Handler = const MicroOp* (*)(Wave&, const MicroOp*);

// Codes of operands. 0-511: row of the unified vector file (v0-v255, then a0-a255). From SCALAR on:
// the 9-bit source encoding of the ISA document (CDNA3, section 12 "Source operands"): SGPRs, vcc,
// m0, exec, inline constants.
inline constexpr uint16_t SCALAR  = 512;
inline constexpr uint16_t LITERAL = SCALAR + 255; // 32-bit MicroOp::literal
inline constexpr uint16_t WIDE    = SCALAR + 256; // 64-bit MicroOp::literal, literal_high
inline constexpr uint16_t NONE    = 0xffff;

// Scalar registers with a name (ISA document, same section).
inline constexpr unsigned FLAT_SCRATCH = 102, VCC = 106, TTMP0 = 108, M0 = 124;
inline constexpr unsigned RESERVED = 125, EXEC = 126, SCC = 253;

// Source::mods: applied after the selection of Source::select.
enum Modifier : uint8_t
{
    NEGATE      = 1, // of the low half in packed operations
    ABSOLUTE    = 2,
    NEGATE_HIGH = 4,  // packed operations: negate the high half
    SIGN_EXTEND = 8,  // SDWA
    HALF        = 16, // the modifiers act on a 16-bit value: its sign is bit 15
    PERMUTED    = 32, // DPP
};

// Source::select: SDWA's SEL, and op_sel of 16-bit operations as WORD_0 or WORD_1. For packed
// operations bit 0 is op_sel and bit 1 op_sel_hi.
enum Select : uint8_t
{
    BYTE_0,
    BYTE_1,
    BYTE_2,
    BYTE_3,
    WORD_0,
    WORD_1,
    DWORD
};

struct Source
{
    uint16_t code;
    uint8_t mods;
    uint8_t select;
};

enum Flag : uint16_t
{
    CLAMP         = 1,
    HIGH_HALF     = 2,   // op_sel of the destination: write bits 31:16
    DPP           = 4,   // MicroOp::control holds DPP_CTRL, bank and row masks
    SDWA          = 8,   // MicroOp::destination_select, destination_unused
    OFFEN         = 16,  // buffer: the offset of each lane in src[0]
    TO_LDS        = 32,  // load straight to LDS
    RETURN        = 64,  // atomic with a result
    NO_ADDRESS    = 128, // scratch or global without a vector address
    BOUND_CONTROL = 256,
    IDXEN         = 512,
    LOW_HALF      = 1024, // write bits 15:0 alone
    WRITES        = 2048, // stores to global memory, or an atomic of it
    GENERIC       = 4096, // FLAT: an address may be of LDS or scratch
    COHERENT      = 8192, // a load or store that other workgroups may see or wait for (sc0, sc1)
};

struct MicroOp
{
    Handler handler; // on disk: FNV-1a hash of the micro-op's name (registry.h)
    Source src[3];
    uint16_t dst;        // row or scalar code; NONE without a destination
    uint16_t scalar_dst; // carry-out, compare result
    uint32_t literal;
    uint32_t literal_high;
    int32_t offset;             // memory: byte offset; branches: distance in micro-ops
    uint16_t flags;             // Flag
    uint16_t control;           // meaning depends on the opcode: waitcnt, DPP, hwreg, bitop3, MFMA
                                // cbsz/abid/blgp, offset1
    uint8_t dwords[4];          // dwords that src[0..2] and the destination take (0: none)
    uint8_t destination_select; // SDWA Select
    uint8_t destination_unused; // SDWA: 0 pad with zeros, 1 sign-extend, 2 preserve
    uint8_t omod;
    uint8_t kind;      // enum Kind: class for the counters
    uint32_t pc;       // byte offset in .text
    uint32_t text;     // index of the instruction's text
    uint32_t reserved; // 0
    uint16_t extra[2]; // codes of two more sources: the scales of a scaled MFMA
};

static_assert(sizeof(MicroOp) == 64);
static_assert(offsetof(MicroOp, src) == 8);
static_assert(offsetof(MicroOp, dst) == 20);
static_assert(offsetof(MicroOp, literal) == 24);
static_assert(offsetof(MicroOp, offset) == 32);
static_assert(offsetof(MicroOp, dwords) == 40);
static_assert(offsetof(MicroOp, pc) == 48);

// Classes of instructions for the counters; emulator/ckpm_emulator/lowering/opcodes.py has the same
// list.
enum class Kind : uint8_t
{
    Salu,
    Valu,
    Trans,
    Mfma,
    Smem,
    Vmem,
    Lds,
    Branch,
    Wait,
    Barrier,
    Other,
    Count
};
} // namespace emu
