// An interpreter core without an interpreter. Programs are lists of kernel names, and the name
// selects the action of a launch. Memory, faults and HIP ABI are the real ones, so that tests
// reach all their paths.
//
// A blob is text, one line a kernel or variable:  kernel NAME LDS_BYTES MAX_WORKGROUP
// ARGUMENT_BYTES..  |  variable NAME BYTES
#include "hip/device_api.h"
#include "memory/memory.h"
#include "run/fault.h"
#include "run/launch.h"
#include "run/options.h"

#include <cstring>
#include <sstream>
#include <stdexcept>

namespace emu {

Options& options()
{
    static Options only;
    return only;
}

const Kernel* Program::find(const std::string& name) const
{
    for(const Kernel& kernel : kernels)
        if(kernel.name == name)
            return &kernel;
    return nullptr;
}

Program::~Program() { release(image); }

std::unique_ptr<Program> load_program(const void* blob, size_t bytes)
{
    std::istringstream lines(std::string(static_cast<const char*>(blob), bytes));
    auto program   = std::make_unique<Program>();
    program->image = allocate(4096, AllocationKind::Code, "image");
    auto next      = reinterpret_cast<uint64_t>(program->image);
    for(std::string line; std::getline(lines, line);)
    {
        std::istringstream words(line);
        std::string what, name;
        words >> what >> name;
        if(what == "variable")
        {
            uint64_t size = 0;
            words >> size;
            program->variables[name] = {next, size};
            next += size;
        }
        else if(what == "kernel")
        {
            static const Code none;
            Kernel kernel = {};
            kernel.name   = name;
            kernel.code   = &none;
            words >> kernel.lds_bytes >> kernel.max_workgroup;
            uint32_t offset = 0;
            for(uint32_t size; words >> size; offset += size)
            {
                offset = (offset + size - 1) / size * size;
                kernel.arguments.push_back({offset, size});
            }
            program->kernels.push_back(kernel);
        }
        else
        {
            throw std::runtime_error("no such line: " + line);
        }
    }
    return program;
}

void add_code(Program&, const void*, size_t) {}

const MicroOp* Code::at(uint64_t) const { return nullptr; }

// Kernels: "touch" loads 16 bytes at its first argument in lane 3 and then writes its second
// argument there; "srd" checks the resource whose base is the first argument and num_records the
// second; "trap", "broken" and "refused" fail.
void launch(const Kernel& kernel,
            Dim3 grid,
            Dim3 block,
            uint32_t lds,
            const void* arguments,
            size_t bytes,
            uint32_t,
            uint64_t,
            Together)
{
    uint64_t address = 0, second = 0;
    if(bytes >= 8)
        std::memcpy(&address, arguments, 8);
    if(bytes >= 16)
        std::memcpy(&second, static_cast<const char*>(arguments) + 8, 8);
    Fault fault;
    fault.kernel       = kernel.name;
    fault.text         = "global_load_dwordx4 v[0:3], v4, s[0:1] \"x\"";
    fault.pc           = 0x48;
    fault.wave         = 1;
    fault.lane         = 3;
    fault.workgroup[0] = grid.x - 1;
    fault.workgroup[2] = grid.z - 1;
    fault.address      = address;
    fault.access       = Access::Load;
    fault.bytes        = 16;
    if(kernel.name.find("touch") != std::string::npos)
    {
        fault.kind = FaultKind::Memory;
        if(!mapped(address, 16))
            throw LaunchFault(fault);
        std::memcpy(reinterpret_cast<void*>(address), &second, 8);
        const uint32_t sizes[2] = {block.x, lds};
        std::memcpy(reinterpret_cast<void*>(address + 8), sizes, 8);
    }
    else if(kernel.name.find("srd") != std::string::npos)
    {
        const uint32_t srd[4] = {static_cast<uint32_t>(address),
                                 static_cast<uint32_t>(address >> 32 & 0xffff),
                                 static_cast<uint32_t>(second),
                                 0};
        SrdChecker checker;
        fault.kind = FaultKind::SrdRange;
        if(options().srd_range() && !checker.check(srd, &fault.address))
            throw LaunchFault(fault);
    }
    else if(kernel.name.find("trap") != std::string::npos)
    {
        fault.kind   = FaultKind::Unknown;
        fault.lane   = NO_LANE;
        fault.detail = "v_unheard_of_b32";
        throw LaunchFault(fault);
    }
    else if(kernel.name.find("broken") != std::string::npos)
    {
        throw std::runtime_error("a mistake of ours");
    }
    else if(kernel.name.find("refused") != std::string::npos)
    {
        throw std::invalid_argument("no");
    }
}

} // namespace emu

size_t emu_counters_json(char* text, size_t bytes)
{
    return emu::answer_text("{\"launches\": 0}", text, bytes);
}
void emu_reset_counters(void) {}
size_t emu_executed_json(char* text, size_t bytes) { return emu::answer_text("{}", text, bytes); }
void emu_reset_executed(void) {}
