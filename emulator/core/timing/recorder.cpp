#include "timing/recorder.h"

#include "run/options.h"
#include "run/program.h"

#include <algorithm>
#include <array>
#include <mutex>

namespace emu {
namespace {
// Bytes of a line of the vector L1 cache of MI300 and MI350 (CDNA 3 white paper, "Cache and memory
// hierarchy").
constexpr uint64_t LINE   = 128;
constexpr int64_t LONGEST = -2; // Options::record_workgroup

std::mutex guard;
std::shared_ptr<const Recording> kept;

uint64_t moved(const Traffic& t)
{
    return t.global_load_bytes + t.global_store_bytes + t.scratch_bytes + t.lds_load_bytes + t.lds_store_bytes;
}

uint64_t length(const Recording& recording)
{
    uint64_t instructions = 0;
    for(const auto& steps : recording.waves)
        instructions += steps.size();
    return instructions;
}
} // namespace

Recorder::Recorder(const Kernel& kernel, uint64_t workgroup, uint64_t launched, uint32_t waves, const Traffic& before)
    : recording_(std::make_unique<Recording>()), seen_(before)
{
    const Code& code = *kernel.code;
    Recording& r     = *recording_;
    r.kernel         = kernel.name;
    r.workgroup      = workgroup;
    r.launched       = launched;
    r.first          = kernel.entry;
    r.address        = code.virtual_address(code.ops[kernel.entry]);
    r.ops.assign(code.ops.begin() + kernel.entry, code.ops.begin() + kernel.end);
    for(const MicroOp& op : r.ops)
        r.text.emplace_back(code.text(op));
    r.waves.resize(waves);
}

void Recorder::add(const Wave& wave, const MicroOp* op)
{
    const auto index = static_cast<uint64_t>(op - wave.first) - recording_->first;
    if(wave.code != wave.group->kernel->code || index >= recording_->ops.size())
        raise_unknown(wave, op, "a recording of a kernel that calls functions");
    const Traffic& now = wave.group->traffic;
    const Step step{static_cast<uint32_t>(index), static_cast<uint32_t>(moved(now) - moved(seen_)),
                    static_cast<uint16_t>(now.lds_bank_conflicts - seen_.lds_bank_conflicts),
                    static_cast<uint16_t>(lines_)};
    recording_->waves[wave.number].push_back(step);
    seen_  = now;
    lines_ = 0;
}

void Recorder::touch(uint64_t base, const uint64_t* offsets, uint64_t mask, unsigned bytes)
{
    std::array<uint64_t, 2 * LANES> lines;
    size_t count = 0;
    for(unsigned l = 0; l < LANES; ++l)
    {
        if(!(mask >> l & 1))
            continue;
        const uint64_t first = base + offsets[l], last = first + bytes - 1;
        lines[count++] = first / LINE;
        if(last / LINE != first / LINE)
            lines[count++] = last / LINE;
    }
    std::sort(lines.begin(), lines.begin() + count);
    lines_ += static_cast<uint32_t>(std::unique(lines.begin(), lines.begin() + count) - lines.begin());
}

void Recorder::keep()
{
    const std::lock_guard lock(guard);
    if(options().record_workgroup == LONGEST && kept != nullptr)
    {
        const uint64_t own = length(*recording_), other = length(*kept);
        if(own < other || (own == other && recording_->workgroup > kept->workgroup))
            return;
    }
    kept = std::move(recording_);
}

bool is_recorded(const Kernel& kernel, uint64_t workgroup)
{
    const Options& o = options();
    return (static_cast<int64_t>(workgroup) == o.record_workgroup || o.record_workgroup == LONGEST) &&
           kernel.name.find(o.record_kernel) != std::string::npos;
}

std::shared_ptr<const Recording> kept_recording()
{
    const std::lock_guard lock(guard);
    return kept;
}

void forget_recording()
{
    const std::lock_guard lock(guard);
    kept.reset();
}
} // namespace emu
