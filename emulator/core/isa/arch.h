// The archs that can be emulated, and what a device of each is like.
#pragma once

#include <cstdint>

namespace emu {
struct Arch
{
    int64_t number;        // options().arch
    const char* processor; // as in code object ids
    const char* full_name; // gcnArchName: with the target features of a data centre board
    const char* board;
    uint32_t elf_machine; // EF_AMDGPU_MACH_* in e_flags (LLVM AMDGPU usage, "ELF header")
    int major, minor;
    int compute_units;
    uint64_t memory;
    uint32_t lds_bytes; // of a workgroup and of a compute unit (CDNA3 and CDNA4 ISA documents, "LDS")
    int clock_khz;
};

// Null if the number is unknown.
const Arch* find_arch(int64_t number);
const Arch* find_elf_arch(uint32_t elf_machine);
// The arch set by the options; an unknown number cannot get there.
const Arch& current_arch();
} // namespace emu
