// Reports of a process without Python: on standard error, and in the file of counters.
#pragma once

#include "hip/types.h"

#include <string>

namespace emu {
// One paragraph on standard error: "emulator: ...".
void report_line(const std::string& text);
// A HIP call failed. What the program can't know by the number alone is said once: why code can't
// be launched, and where a launch faulted.
void report_failure(const char* function, hipError_t error, const std::string& text);
// A call of a HIP function that the emulator lacks.
hipError_t report_absent(const char* function);
// What a check saw in the host's calls, once for each text. The program goes on; a defect sets its
// exit code (settings.h).
void report_defect(const char* check, const std::string& text);
// Whether this process, and not one that it was forked from, reported one.
bool had_defect();
// After report_at_exit: true if memory was not freed.
bool has_leaked();
// Names what was absent and writes the counters.
void report_at_exit();
// After report_at_exit: false if the counters could not be written.
bool all_written();
} // namespace emu
