// A text file of what one wave executed: virtual address in the code object and text of each
// instruction, and what its destination held afterwards.
#pragma once

#include "isa/wave.h"

#include <cstdio>
#include <string>

namespace emu {
class Trace
{
public:
    // This and the next two throw std::runtime_error: the file can't be written, as on a full disk.
    Trace(const std::string& path);
    void before(const Wave& wave, const MicroOp* op);
    void after(const Wave& wave, const MicroOp* op);
    ~Trace();
    Trace(const Trace&)            = delete;
    Trace& operator=(const Trace&) = delete;

private:
    void demand(bool written) const;

    std::string path_;
    std::FILE* file_;
};

// The trace that the options ask for if this is the wave they name, else null.
Trace* trace_of(const Wave& wave, uint64_t workgroup);
} // namespace emu
