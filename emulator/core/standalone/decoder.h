// Programs for code objects in a process without Python: out of the store on disk, else from a
// helper process (`python -m ckpm_emulator decode`), which puts them there.
#pragma once

#include <cstddef>
#include <cstdint>

namespace emu {
// An EmuCodeObjectCallback (hip/device_api.h).
int decode_code_object(uint64_t handle, const void* code, size_t bytes, uint64_t address);
} // namespace emu
