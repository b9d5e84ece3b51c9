// The C functions about the device: options, programs, faults, memory.
// emulator/ckpm_emulator/device.py calls them over ctypes. (api.h has those about execution.)
// Functions that return int: 0 is success, else emu_last_error() has the reason.
//
// Texts: functions with (char* text, size_t bytes) write as much as fits, always terminated, and
// return the bytes needed.
#pragma once

#include "hip/api.h" // EMU_API

#include <cstddef>
#include <cstdint>
#include <string>

namespace emu {
// What emu_last_error() of this thread answers. Implemented here (fault.cpp) for all of the core.
void set_last_error(std::string text);
// How every function that answers a text does it; see above.
size_t answer_text(const std::string& whole, char* text, size_t bytes);
} // namespace emu

// --- options (device_api.cpp): every integer field of struct Options by its name, and
//     "capacity" (bytes of device memory), "guard" (bytes after allocations), "poison_memory".
EMU_API int emu_set_option(const char* name, int64_t value);
EMU_API int emu_set_text_option(const char* name, const char* value); // trace_kernel, ..
EMU_API int emu_get_option(const char* name, int64_t* value);

// --- programs (modules.cpp)
// Called when a kernel or variable of a code object is first asked for, on the thread that asks,
// with 0 as address: for the image, and for all of its functions unless they are many. It is called
// again for a function that was left out, with the function's virtual address. It shall call
// emu_add_program(handle, ..) and return 0, or emu_refuse_program(handle, why) and return anything
// else.
typedef int (*EmuCodeObjectCallback)(uint64_t handle, const void* code_object, size_t bytes, uint64_t address);
EMU_API void emu_on_code_object(EmuCodeObjectCallback callback);
EMU_API int emu_add_program(uint64_t handle, const void* blob, size_t bytes);
EMU_API int emu_refuse_program(uint64_t handle, const char* why);
// Registered libraries and modules with their archs and kernels' names, as JSON.
EMU_API size_t emu_modules_json(char* text, size_t bytes);

// --- faults (fault.cpp)
EMU_API size_t emu_last_fault_json(char* text, size_t bytes); // "" (1 byte) if there is none
EMU_API void emu_clear_fault(void);

// --- memory (memory_api.cpp)
EMU_API int emu_set_placement(uint32_t placement, uint64_t base); // enum Placement
EMU_API void* emu_allocate(size_t bytes, uint32_t kind, const char* label);
EMU_API int emu_release(uint64_t address);
EMU_API void emu_restart_addresses(void);
EMU_API int emu_mapped(uint64_t address, uint64_t bytes);            // 1 or 0
EMU_API int emu_srd_mapped(const uint32_t* srd, uint64_t* unmapped); // 1 or 0
EMU_API int emu_nearest(uint64_t address, uint64_t* base, uint64_t* bytes, int64_t* distance, uint32_t* freed);
EMU_API size_t emu_allocations_json(char* text, size_t bytes);
