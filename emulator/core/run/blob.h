// Layout of the blob that emulator/ckpm_emulator/program_cache.py writes and load_program() reads.
// All little endian, packed by hand: the numpy dtypes of emulator/ckpm_emulator/lowering/blob.py
// have the same fields in the same order, a unit test compares the sizes.
#pragma once

#include <cstdint>

namespace emu {
inline constexpr char BLOB_MAGIC[8] = {'E', 'M', 'U', 'P', 'R', 'O', 'G', '5'};

struct BlobTable
{
    uint64_t offset; // bytes from the start of the blob
    uint64_t count;  // records
};

struct BlobHeader
{
    char magic[8];
    uint32_t arch; // 942, 950, 910 for 90a
    uint32_t micro_op_bytes;
    uint64_t image_bytes;  // extent of the loaded segments from virtual address 0
    uint64_t text_address; // virtual
    uint64_t text_bytes;
    BlobTable ops, texts, kernels, arguments, hidden, segments, relocations, variables, formats, lines, strings, data;
};

// a range of the strings
struct BlobText
{
    uint32_t offset, bytes;
};

struct BlobKernel
{
    BlobText name;
    uint64_t descriptor_address, address; // virtual; `address` of its first instruction
    uint32_t entry, end;                  // 0 if the blob has no code
    uint32_t lds_bytes, scratch_bytes, kernarg_bytes, rsrc1, rsrc2, rsrc3, properties, preload, max_workgroup;
    uint32_t first_argument, argument_count, first_hidden, hidden_count;
    // If the kernel can't run: the micro-op, and the number of the text with the reason, plus 1.
    uint32_t refused_at, refusal, spare;
};

struct BlobArgument
{
    uint32_t offset, bytes;
};

struct BlobHidden
{
    uint32_t kind, offset, bytes;
};

struct BlobSegment
{
    uint64_t address, data_offset, data_bytes, memory_bytes;
};

// R_AMDGPU_RELATIVE64: *(address + base) = addend + base
struct BlobRelocation
{
    uint64_t address, addend;
};

struct BlobVariable
{
    BlobText name;
    uint64_t address, bytes;
};

// From this pc on the code is of the source line in text - 1; 0: of none.
struct BlobLine
{
    uint32_t pc, text;
};

// what a kernel prints by the hash of its format (host/printf_buffer.h)
struct BlobFormat
{
    BlobText text;
    uint64_t hash;
};
} // namespace emu
