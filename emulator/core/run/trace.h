// A text file of what one wave executed: virtual address in the code object and text of each
// instruction, and what its destination held afterwards.
#pragma once

#include "isa/wave.h"

#include <cstdio>

namespace emu {

class Trace
{
public:
    Trace(const char* path);
    ~Trace();
    Trace(const Trace&)            = delete;
    Trace& operator=(const Trace&) = delete;
    void before(const Wave& wave, const MicroOp* op);
    void after(const Wave& wave, const MicroOp* op);

private:
    std::FILE* file_;
};

// The trace that the options ask for if this is the wave they name, else null.
Trace* trace_of(const Wave& wave, uint64_t workgroup);

} // namespace emu
