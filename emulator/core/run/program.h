// A loaded code object: micro-ops, kernels and the memory its image occupies.
#pragma once

#include "host/printf_buffer.h"
#include "isa/microop.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace emu {

// Kinds of hidden kernel arguments (LLVM AMDGPU usage, "Kernel argument metadata", .value_kind).
// Same order in emulator/ckpm_emulator/image.py. Explicit arguments are not listed: their bytes
// come from the caller.
enum class HiddenKind : uint32_t
{
    BlockCountX,
    BlockCountY,
    BlockCountZ,
    GroupSizeX,
    GroupSizeY,
    GroupSizeZ,
    RemainderX,
    RemainderY,
    RemainderZ,
    GlobalOffsetX,
    GlobalOffsetY,
    GlobalOffsetZ,
    MultigridSync,
    GridDims,
    DynamicLdsSize,
    PrivateBase,
    SharedBase,
    QueuePtr,
    HostcallBuffer,
    HeapV1,
    PrintfBuffer,
    Zero,
    Count,
};

struct HiddenArgument
{
    HiddenKind kind;
    uint32_t offset;
    uint32_t bytes;
};

struct ExplicitArgument
{
    uint32_t offset;
    uint32_t bytes;
};

struct Program;

struct Kernel
{
    std::string name; // without .kd
    const Program* program;
    uint32_t entry; // index of the first micro-op
    uint32_t end;   // one past the last micro-op of its function
    uint64_t descriptor_address;
    // Fields of the kernel descriptor (LLVM AMDGPU usage, "Kernel descriptor").
    uint32_t lds_bytes, scratch_bytes, kernarg_bytes;
    uint32_t rsrc1, rsrc2, rsrc3;
    uint32_t properties; // kernel_code_properties
    uint32_t preload;    // kernarg_preload_spec_length | offset << 7
    uint32_t max_workgroup;
    uint32_t refused_at; // why the kernel can't run: micro-op
    std::string refusal; // and reason; empty if it can
    std::vector<ExplicitArgument> arguments;
    std::vector<HiddenArgument> hidden;
};

struct Symbol
{
    uint64_t address;
    uint64_t bytes;
};

struct Program
{
    std::vector<MicroOp> ops; // handlers resolved
    // Dword offset in .text -> micro-op, UINT32_MAX inside an instruction.
    std::vector<uint32_t> index_of_word;
    std::vector<std::string> texts; // instruction texts, MicroOp::text
    // Source lines: from which pc on, ascending, and the text of file and line; -1: none.
    std::vector<std::pair<uint32_t, int64_t>> lines;
    std::vector<Kernel> kernels;
    std::map<std::string, Symbol> variables; // device globals
    Formats formats;                         // of what kernels print into a buffer
    void* image           = nullptr;         // loaded segments, from memory.h's allocate()
    uint64_t base         = 0; // address of the image: adds to the ELF's virtual addresses
    uint64_t text_address = 0; // of .text, base added
    uint32_t arch         = 0; // 942, 950, 910 for 90a

    // What disassemblers print for a micro-op: its virtual address in the code object.
    uint64_t virtual_address(const MicroOp& op) const { return text_address - base + op.pc; }
    // The file and line of a pc; empty if the code object has no line table.
    std::string source_of(uint32_t pc) const;
    const Kernel* find(const std::string& name) const;
    ~Program();
};

// Build a program from the blob of emulator/ckpm_emulator/program_cache.py: allocates and relocates
// the image, resolves handlers. Throws std::runtime_error with the reason if the blob is malformed
// or of another version.
std::unique_ptr<Program> load_program(const void* blob, size_t bytes);

} // namespace emu
