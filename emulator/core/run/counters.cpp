#include "run/counters.h"

#include "hip/device_api.h"
#include "run/fault.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <sstream>
#include <vector>

namespace emu {
namespace {
constexpr std::array<const char*, static_cast<size_t>(Kind::Count)> KIND_NAMES = {
    "salu", "valu", "trans", "mfma", "smem", "vmem", "lds", "branch", "wait", "barrier", "other"};

struct Counted
{
    uint64_t launches                                                   = 0;
    std::array<uint64_t, static_cast<size_t>(Kind::Count)> instructions = {};
    uint64_t mfma_flops = 0, mfma_cycles = 0;
    Traffic traffic;
};

// The dwords of a program's .text that a kernel executed.
struct Executed
{
    std::vector<bool> words;
    uint64_t text = 0; // virtual address, as disassemblers print it
};

// The longest instruction, in dwords.
constexpr size_t LONGEST = 5;

std::mutex guard;
std::map<std::string, Counted> by_kernel;
std::map<std::string, Executed> executed_by_kernel;

void mark(Executed& executed, const Code& code, const MicroOp& op)
{
    const std::vector<uint32_t>& starts = code.index_of_word;
    const size_t first                  = op.pc / 4 - code.first_word;
    for(size_t word = first; word < std::min(first + LONGEST, starts.size()); ++word)
    {
        if(word != first && starts[word] != UINT32_MAX) // of the next instruction
            return;
        executed.words[code.first_word + word] = true;
    }
}

// By kernel, ranges of addresses: each from its first byte to the one after its last.
std::string executed_json()
{
    std::ostringstream out;
    out << '{';
    for(const char* next_kernel = ""; const auto& [name, executed] : executed_by_kernel)
    {
        out << next_kernel << json_string(name) << ": [";
        next_kernel            = ", ";
        const auto& words      = executed.words;
        const char* next_range = "";
        for(size_t word = 0; word < words.size(); ++word)
        {
            if(!words[word])
                continue;
            const size_t first = word;
            while(word < words.size() && words[word])
                ++word;
            out << next_range << '[' << executed.text + 4 * first << ", " << executed.text + 4 * word << ']';
            next_range = ", ";
        }
        out << ']';
    }
    out << '}';
    return out.str();
}

std::string json()
{
    std::ostringstream out;
    out << "{\"kernels\": {";
    const char* separator = "";
    for(const auto& [name, counted] : by_kernel)
    {
        out << separator << json_string(name) << ": {\"launches\": " << counted.launches << ", \"instructions\": {";
        for(size_t i = 0; i < KIND_NAMES.size(); ++i)
            out << (i == 0 ? "" : ", ") << '"' << KIND_NAMES[i] << "\": " << counted.instructions[i];
        out << "}, \"mfma_flops\": " << counted.mfma_flops << ", \"mfma_cycles\": " << counted.mfma_cycles;
#define X(name) out << ", \"" #name "\": " << counted.traffic.name;
        EMU_TRAFFIC(X)
#undef X
        out << "}";
        separator = ", ";
    }
    out << "}}";
    return out.str();
}
} // namespace

void add_traffic(Traffic& sum, const Traffic& part)
{
#define X(name) sum.name += part.name;
    EMU_TRAFFIC(X)
#undef X
}

void count_launch(const Kernel& kernel, const Counts& executions, const Traffic& traffic)
{
    const std::lock_guard lock(guard);
    Counted& counted = by_kernel[kernel.name];
    ++counted.launches;
    const Program& program = *kernel.program;
    Executed& executed     = executed_by_kernel[kernel.name];
    executed.text          = program.text_address - program.base;
    for(const auto& [code, times] : executions)
    {
        const bool own = code->program == &program; // not of another code object
        executed.words.resize(std::max(executed.words.size(), own ? code->first_word + code->index_of_word.size() : 0));
        for(size_t i = 0; i < times.size(); ++i)
        {
            if(times[i] == 0)
                continue;
            const MicroOp& op = code->ops[i];
            if(own)
                mark(executed, *code, op);
            counted.instructions[op.kind] += times[i];
            if(static_cast<Kind>(op.kind) == Kind::Mfma)
            {
                // emulator/ckpm_emulator/lowering/opcodes.py: literal is the flops of the whole
                // wave, literal_high its cycles.
                counted.mfma_flops += times[i] * op.literal;
                counted.mfma_cycles += times[i] * op.literal_high;
            }
        }
    }
    add_traffic(counted.traffic, traffic);
}
} // namespace emu

size_t emu_counters_json(char* text, size_t bytes)
{
    const std::lock_guard lock(emu::guard);
    return emu::answer_text(emu::json(), text, bytes);
}

void emu_reset_counters(void)
{
    const std::lock_guard lock(emu::guard);
    emu::by_kernel.clear();
}

size_t emu_executed_json(char* text, size_t bytes)
{
    const std::lock_guard lock(emu::guard);
    return emu::answer_text(emu::executed_json(), text, bytes);
}

void emu_reset_executed(void)
{
    const std::lock_guard lock(emu::guard);
    emu::executed_by_kernel.clear();
}
