// The C functions of the shared library beside the HIP ABI: emulator/ckpm_emulator/device.py and the
// tests call them over ctypes. Functions that return int: 0 is success, else emu_last_error() has the
// reason.
//
// Texts: functions with (char* text, size_t bytes) write as much as fits, always terminated, and
// return the bytes needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#define EMU_API extern "C" __attribute__((visibility("default")))

EMU_API const char* emu_last_error(void); // of this thread

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

// --- execution (run/launch.cpp, run/run.cpp) ---

// State of one wave for emu_execute; arrays as in the interpreter, so that a test sees all of it.
struct EmuWaveState
{
    uint32_t vector[512][64]; // v0-v255, a0-a255
    uint32_t scalar[256];     // by source encoding: s0-s101, vcc 106, m0 124, exec 126, scc 253
    uint32_t mode;            // the MODE register
    uint32_t lds_bytes;
    uint8_t* lds;     // may be null
    uint32_t next;    // out: index of the micro-op at which execution stopped (n: ran off the end)
    uint32_t stopped; // out: 0 ran off the end, 1 s_endpgm, 2 s_barrier
};

// Run `count` micro-ops (hashes of names instead of handlers, as
// emulator/ckpm_emulator/lowering/lower.py makes them) on one wave.
EMU_API int emu_execute(const void* micro_ops, size_t count, EmuWaveState* state);

// Counters of all launches since the last reset, as JSON.
EMU_API size_t emu_counters_json(char* text, size_t bytes);
EMU_API void emu_reset_counters(void);
// Which machine code all launches since the last reset executed, as JSON.
EMU_API size_t emu_executed_json(char* text, size_t bytes);
EMU_API void emu_reset_executed(void);

// The recorded workgroup (options record_kernel, record_workgroup) as JSON; "" (1 byte) if
// there is none.
EMU_API size_t emu_recording_json(char* text, size_t bytes);
EMU_API void emu_forget_recording(void);
// Replay it on a machine of these numbers (timing/numbers.h), and what came out of that as JSON.
EMU_API int emu_replay(const char* const* names, const uint64_t* values, size_t count);
EMU_API size_t emu_replay_json(char* text, size_t bytes);

// sizeof(MicroOp) and the number of the core's micro-ops: guards of the Python side.
EMU_API size_t emu_micro_op_bytes(void);
EMU_API size_t emu_opcode_count(void);
// Name of a micro-op by index; null past the last.
EMU_API const char* emu_opcode_name(size_t number);
