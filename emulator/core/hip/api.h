// The C functions of the shared library beside the HIP ABI: what emulator/ckpm_emulator/device.py
// and the unit tests call over ctypes. Functions that return int: 0 is success, anything else an
// error told in emu_last_error().
#pragma once

#include <cstddef>
#include <cstdint>

#define EMU_API extern "C" __attribute__((visibility("default")))

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

// Text of the last error of this thread.
EMU_API const char* emu_last_error(void);

// Counters of all launches since the last reset, as JSON. Returns the bytes needed, including the
// terminating zero.
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
