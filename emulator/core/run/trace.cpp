#include "run/trace.h"

#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <memory>

namespace emu {
Trace::Trace(const std::string& path) : path_(path), file_(std::fopen(path.c_str(), "w")) { demand(file_ != nullptr); }

Trace::~Trace() { std::fclose(file_); }

void Trace::before(const Wave& wave, const MicroOp* op)
{
    std::fprintf(file_, "%06" PRIx64 "  %s\n", wave.code->virtual_address(*op), wave.code->text(*op));
    demand(std::fflush(file_) == 0); // the instruction may be the launch's last
}

void Trace::after(const Wave& wave, const MicroOp* op)
{
    if(op->dst == NONE)
        return;
    if(op->dst >= SCALAR)
    {
        std::fprintf(file_, "        = %08x %08x  scc %u\n", wave.s[op->dst - SCALAR], wave.s[op->dst - SCALAR + 1],
                     wave.s[SCC]);
    }
    else
    {
        const uint32_t* row = wave.v[op->dst];
        std::fprintf(file_, "        = %08x %08x %08x %08x .. %08x  exec %016" PRIx64 "\n", row[0], row[1], row[2],
                     row[3], row[63], wave.exec());
    }
    demand(std::fflush(file_) == 0); // a child process must not inherit what is not written yet
}

void Trace::demand(bool written) const
{
    if(!written)
        throw std::runtime_error("trace file can't be written: " + path_ + ": " + std::strerror(errno));
}

Trace* trace_of(const Wave& wave, uint64_t workgroup)
{
    const Options& o = options();
    if(o.trace_file.empty() || wave.group->kernel == nullptr)
        return nullptr;
    if(static_cast<int64_t>(workgroup) != o.trace_workgroup || wave.number != static_cast<uint64_t>(o.trace_wave))
        return nullptr;
    if(!o.trace_kernel.empty() && wave.group->kernel->name.find(o.trace_kernel) == std::string::npos)
        return nullptr;
    // One file for all launches while the options name it.
    static std::unique_ptr<Trace> trace;
    static std::string path;
    if(path != o.trace_file)
    {
        trace = std::make_unique<Trace>(o.trace_file);
        path  = o.trace_file;
    }
    return trace.get();
}
} // namespace emu
