// Bit fields of words that the hardware and the code object define, under their documents' names.
//
// ISA: "AMD Instinct MI300 CDNA3 Instruction Set Architecture"; CDNA4's has the same fields. LLVM:
// "User Guide for AMDGPU Backend".
#pragma once

#include <cstdint>

namespace emu {
// `bits` bits of a word, the lowest of them bit `low`.
struct Field
{
    unsigned low, bits;

    constexpr uint32_t mask() const { return (bits == 32 ? ~0u : (1u << bits) - 1) << low; }
    constexpr uint32_t of(uint32_t word) const { return (word & mask()) >> low; }
    constexpr uint32_t put(uint32_t value) const { return value << low & mask(); }
};

// The MODE register (ISA, "MODE register"). "WIDE" is of f64 and f16.
namespace mode {
inline constexpr Field FLOATS{0, 8}; // rounding and subnormals: the next six
inline constexpr Field ROUND_F32{0, 2}, ROUND_WIDE{2, 2};
// 1: subnormals are kept, 0: they become zeros.
inline constexpr Field INPUTS_F32{4, 1}, RESULTS_F32{5, 1}, INPUTS_WIDE{6, 1}, RESULTS_WIDE{7, 1};
inline constexpr Field DX10_CLAMP{8, 1}; // the clamp modifier makes NaN zero
inline constexpr Field IEEE{9, 1};       // signalling NaNs are made quiet
inline constexpr Field FP16_OVFL{23, 1}; // too large f16 and 8-bit results become the largest value
} // namespace mode

// Kernel descriptor (LLVM, "Kernel Descriptor", compute_pgm_rsrc1 to 3 for GFX6 to GFX12).
namespace rsrc1 {
inline constexpr Field VGPR_COUNT{0, 6}; // vector and accumulation registers, in eights, less one
inline constexpr Field FLOAT_MODE{12, 8};
inline constexpr Field ENABLE_DX10_CLAMP{21, 1}, ENABLE_IEEE_MODE{23, 1}, FP16_OVFL{26, 1};
} // namespace rsrc1

namespace rsrc2 {
inline constexpr Field ENABLE_PRIVATE_SEGMENT{0, 1}, USER_SGPR_COUNT{1, 5};
inline constexpr Field ENABLE_WORKGROUP_ID[] = {{7, 1}, {8, 1}, {9, 1}}; // x, y, z
} // namespace rsrc2

namespace rsrc3 {
inline constexpr Field ACCUM_OFFSET{0, 6}; // vector registers before the first a, in fours, less one
} // namespace rsrc3

// kernel_code_properties of the descriptor: which values the first SGPRs hold.
namespace properties {
inline constexpr Field PRIVATE_SEGMENT_BUFFER{0, 1}, DISPATCH_PTR{1, 1}, QUEUE_PTR{2, 1};
inline constexpr Field KERNARG_SEGMENT_PTR{3, 1}, DISPATCH_ID{4, 1}, FLAT_SCRATCH_INIT{5, 1};
inline constexpr Field PRIVATE_SEGMENT_SIZE{6, 1}, DYNAMIC_STACK{11, 1};
} // namespace properties

// kernarg_preload of the descriptor: kernel arguments in SGPRs, in dwords.
namespace preload {
inline constexpr Field LENGTH{0, 7}, OFFSET{7, 9};
} // namespace preload

// Immediate of s_waitcnt (ISA, "SOPP", S_WAITCNT).
namespace waitcnt {
inline constexpr Field VMCNT_LOW{0, 4}, VMCNT_HIGH{14, 2}, LGKMCNT{8, 4};

constexpr uint32_t vmcnt(uint32_t word) { return VMCNT_LOW.of(word) | VMCNT_HIGH.of(word) << 4; }
} // namespace waitcnt

// Immediate of s_getreg_b32 and s_setreg_b32 (ISA, "Hardware register values").
namespace hwreg {
inline constexpr Field ID{0, 6}, OFFSET{6, 5}, SIZE{11, 5}; // SIZE less one
} // namespace hwreg

// Offset of ds_swizzle_b32 (ISA, "DS_SWIZZLE_B32").
namespace swizzle {
inline constexpr Field QUADS{15, 1}, AND_MASK{0, 5}, OR_MASK{5, 5}, XOR_MASK{10, 5};
} // namespace swizzle

// M0 of loads to LDS (ISA, "Memory Buffer Load to LDS").
namespace lds_dma {
inline constexpr Field OFFSET_CDNA3{0, 16}, OFFSET_CDNA4{0, 18};
} // namespace lds_dma

// Buffer resource descriptor of four dwords (ISA, "Buffer resource descriptor"): word 0 is the low
// base, word 2 num_records.
namespace srd {
inline constexpr Field BASE_HIGH{0, 16}, STRIDE{16, 14}, SWIZZLE_ENABLE{31, 1}; // of word 1
inline constexpr Field DATA_FORMAT{15, 4}, ADD_TID_ENABLE{23, 1};               // of word 3

constexpr uint64_t base(const uint32_t* words) { return uint64_t{BASE_HIGH.of(words[1])} << 32 | words[0]; }
constexpr uint32_t stride(const uint32_t* words) { return STRIDE.of(words[1]); }

// A wave's scratch, as gfx90a's kernels find it in their first SGPRs. Its base is 0 here: what a
// lane has is a run of bytes of its own, as with scratch instructions, and not dwords among those
// of others.
inline constexpr uint32_t SCRATCH_WORD_1 = SWIZZLE_ENABLE.put(1);
inline constexpr uint32_t SCRATCH_WORD_3 = ADD_TID_ENABLE.put(1);
constexpr bool is_plain(const uint32_t* words) { return !SWIZZLE_ENABLE.of(words[1]) && !ADD_TID_ENABLE.of(words[3]); }
constexpr bool is_scratch(const uint32_t* words)
{
    return words[0] == 0 && words[1] == SCRATCH_WORD_1 && words[3] == SCRATCH_WORD_3;
}

// The data format 0, INVALID, is that of no buffer.
constexpr bool is_unbound(const uint32_t* words) { return DATA_FORMAT.of(words[3]) == 0; }

// num_records of Triton's resources, INT32_MAX - 1, and of FlyDSL's: one value for every pointer, no
// size of anything. Triton's lanes that are masked off have the offset INT32_MAX, which is out of
// that range.
constexpr uint32_t NO_SIZE = 0x7ffffffe, UNLIMITED = 0xffffffff;
constexpr bool has_size(const uint32_t* words)
{
    return stride(words) || (words[2] != NO_SIZE && words[2] != UNLIMITED);
}
} // namespace srd
} // namespace emu
