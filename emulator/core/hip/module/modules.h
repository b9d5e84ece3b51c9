// Registered libraries and loaded modules, and the programs made of their code objects when first
// needed.
#pragma once

#include "hip/module/code_object.h"
#include "run/program.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace emu {
struct ManagedVariable
{
    std::string name; // of the device variable that holds the pointer
    void* memory;
};

struct Module
{
    uint64_t handle = 0;
    std::string origin; // the file it came from, if known
    CodeObject code;
    std::vector<unsigned char> copy;  // of a loaded module's image; a registered library's stays where it is
    std::vector<std::string> kernels; // registered names
    std::vector<ManagedVariable> managed;
    std::unique_ptr<Program> program;
    std::string refusal; // why it has no program, after the first try
    bool tried = false;
};

// Add a module with the code object chosen from [image, image + bytes). `keep` copies what is
// needed of it.
Module& add_module(const void* image, size_t bytes, bool keep, std::string origin);
// As above, from memory of unknown size that may end or be garbage; never crashes.
Module& add_module_at(const void* image, bool keep, std::string origin);
// Drops its program, and with it the memory of its image. False if the module does not exist.
bool remove_module(Module* module);
bool is_module(const Module* module);

// The module's program, built at the first call. Throws HipFailure: hipErrorNoBinaryForGpu,
// hipErrorInvalidImage, ..
Program& program_of(Module& module);
// Throws HipFailure hipErrorNotFound.
const Kernel& kernel_of(Module& module, const std::string& name);
const Symbol& variable_of(Module& module, const std::string& name);
} // namespace emu
