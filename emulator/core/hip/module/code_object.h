// Finding the device's code object in what a library or a program hands over: a bundle of several
// archs, or one ELF.
#pragma once

#include "hip/types.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace emu {
struct CodeObject
{
    const unsigned char* data = nullptr; // inside the image; null if `error` is set
    size_t bytes              = 0;
    hipError_t error          = hipSuccess;
    std::string reason;             // for a message
    std::vector<std::string> archs; // of all code objects there, with target features
};

// `limit` is the image's size. Never reads outside of it.
CodeObject select_code_object(const unsigned char* image, size_t limit);

// The size that an image's own headers claim; 0 if it is neither a bundle nor an ELF, or its
// headers cannot be read. The memory need not be readable as far as that.
size_t claimed_bytes(const void* image);
// Copy from memory that may not be readable; false if some of it is not.
bool copy_readable(const void* from, void* to, size_t bytes);
} // namespace emu
