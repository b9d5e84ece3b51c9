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

// Micro-ops that were decoded together: of all functions, or of one function and those that it
// reaches.
struct Code
{
    const Program* program = nullptr;
    std::vector<MicroOp> ops;            // handlers resolved
    std::vector<std::string> texts;      // instruction texts, MicroOp::text
    std::vector<uint32_t> index_of_word; // dword of .text -> micro-op, UINT32_MAX: none starts here
    // Source lines: from which pc on, ascending, and the number of the text, plus 1; 0: none.
    std::vector<std::pair<uint32_t, uint32_t>> lines;
    // Handlers of micro-ops where calls of the device library are answered instead (host/device_heap.h).
    std::map<const MicroOp*, Handler> replaced;
    uint32_t first_word = 0; // the dword of .text with which index_of_word begins

    // The micro-op at an address; null if none starts there.
    const MicroOp* at(uint64_t address) const;
    // What disassemblers print for a micro-op: its virtual address in the code object.
    uint64_t virtual_address(const MicroOp& op) const;
    const char* text(const MicroOp& op) const;
    // Its file and line; empty if the code object has no line table.
    std::string source(const MicroOp& op) const;
    // All of it: "at pc 0x1a40  ds_read_b32 v1, v0  (kernel.hip:17)".
    std::string place(const MicroOp& op) const;
};

struct Kernel
{
    std::string name; // without .kd
    const Program* program;
    uint64_t address; // of its first instruction
    const Code* code; // null until it is decoded, then:
    uint32_t entry;   // index of the first micro-op
    uint32_t end;     // one past the last micro-op of its function
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

    bool has(HiddenKind kind) const;
};

struct Symbol
{
    uint64_t address;
    uint64_t bytes;
};

struct Program
{
    std::vector<std::unique_ptr<Code>> codes;
    std::vector<Kernel> kernels;
    std::map<std::string, Symbol> variables; // device globals
    Formats formats;                         // of what kernels print into a buffer
    void* image           = nullptr;         // loaded segments, from memory.h's allocate()
    uint64_t base         = 0;               // address of the image: adds to the ELF's virtual addresses
    uint64_t bytes        = 0;               // of the image
    uint64_t text_address = 0;               // of .text, base added
    uint32_t arch         = 0;               // 942, 950, 910 for 90a

    const Kernel* find(const std::string& name) const;
    ~Program();
};

// Build a program from the blob of emulator/ckpm_emulator/program_cache.py: allocates and relocates
// the image, resolves handlers. Throws std::runtime_error with the reason if the blob is malformed
// or of another version.
std::unique_ptr<Program> load_program(const void* blob, size_t bytes);
// Add functions that were decoded later, and give them to their kernels. Throws the same.
void add_code(Program& program, const void* blob, size_t bytes);

// The micro-op at an address of any loaded code object, decoded if it was not; nulls if none starts
// there. (hip/module/modules.cpp)
struct Place
{
    const Code* code;
    const MicroOp* op;
};
Place place_of(uint64_t address);
// What is at an address where no instruction starts, for people.
std::string describe_address(uint64_t address);
} // namespace emu
