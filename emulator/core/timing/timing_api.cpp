// The C functions of the timing model: the recording, and the last replay of it, as JSON.
#include "hip/device_api.h"
#include "run/fault.h"
#include "timing/recorder.h"
#include "timing/replay.h"

#include <mutex>
#include <sstream>
#include <stdexcept>

namespace emu {
namespace {
constexpr std::array<const char*, CAUSES> CAUSE_NAMES = {
    "matrix_busy", "matrix_result", "vector_busy", "packed",   "issue_conflict",
    "lds_queue",   "memory_queue",  "wait_memory", "wait_lds", "barrier"};

constexpr std::array<const char*, PHASES> PHASE_NAMES = {"prologue", "matrix", "softmax", "mixed", "other", "epilogue"};

std::mutex guard;
std::string replayed_json;

std::string recording_json()
{
    const auto recording = kept_recording();
    if(recording == nullptr)
        return "";
    std::ostringstream out;
    out << "{\"kernel\": " << json_string(recording->kernel) << ", \"workgroup\": " << recording->workgroup
        << ", \"launched\": " << recording->launched << ", \"instructions\": [";
    const char* separator = "";
    for(const auto& steps : recording->waves)
    {
        out << separator << steps.size();
        separator = ", ";
    }
    out << "]}";
    return out.str();
}

void put_figures(std::ostream& out, const WaveTime& time)
{
    out << "\"instructions\": " << time.instructions << ", \"issued\": " << time.issued
        << ", \"matrix\": " << time.matrix << ", \"vector\": " << time.vector << ", \"stalls\": {";
    for(size_t i = 0; i < CAUSES; ++i)
        out << (i == 0 ? "\"" : ", \"") << CAUSE_NAMES[i] << "\": " << time.stalls[i];
    out << "}";
}

void put_phases(std::ostream& out, const PhaseTimes& phases)
{
    const char* separator = "";
    for(size_t i = 0; i < PHASES; ++i)
    {
        if(phases.count[i] == 0)
            continue;
        out << separator << "\"" << PHASE_NAMES[i] << "\": {\"parts\": " << phases.count[i] << ", ";
        put_figures(out, phases.times[i]);
        out << "}";
        separator = ", ";
    }
}

void put_wave(std::ostream& out, const Recording& recording, const Replayed& replayed, size_t number)
{
    const WaveTime& time = replayed.waves[number];
    const LoopTime& loop = replayed.loops[number];
    const auto address   = [&](uint32_t op) { return recording.address + recording.ops[op].pc - recording.ops[0].pc; };
    out << "{\"simd\": " << time.simd << ", \"end\": " << time.end << ", ";
    put_figures(out, time);
    out << ", \"hot\": ";
    if(loop.found)
        out << "[" << address(loop.head) << ", " << address(loop.branch) << "]";
    else
        out << "null";
    out << ", \"loop\": {\"passes\": " << loop.passes << ", \"begin\": " << loop.begin << ", \"end\": " << loop.end
        << ", ";
    put_figures(out, loop.of);
    out << "}, \"phases\": {";
    put_phases(out, replayed.phases[number]);
    out << "}, \"timeline\": " << json_string(replayed.timeline[number]) << "}";
}

std::string json(const Replayed& replayed, const Recording& recording)
{
    std::ostringstream out;
    out << "{\"kernel\": " << json_string(recording.kernel) << ", \"workgroup\": " << recording.workgroup
        << ", \"cycles\": " << replayed.cycles << ", \"waves\": [";
    for(size_t i = 0; i < replayed.waves.size(); ++i)
    {
        out << (i == 0 ? "" : ", ");
        put_wave(out, recording, replayed, i);
    }
    out << "]}";
    return out.str();
}
} // namespace
} // namespace emu

size_t emu_recording_json(char* text, size_t bytes) { return emu::answer_text(emu::recording_json(), text, bytes); }

void emu_forget_recording(void) { emu::forget_recording(); }

int emu_replay(const char* const* names, const uint64_t* values, size_t count)
{
    const auto recording = emu::kept_recording();
    if(recording == nullptr)
    {
        emu::set_last_error("no workgroup was recorded");
        return 1;
    }
    try
    {
        std::string made = emu::json(emu::replay(*recording, emu::numbers_of(names, values, count)), *recording);
        const std::lock_guard lock(emu::guard);
        emu::replayed_json = std::move(made);
    }
    catch(const std::invalid_argument& error)
    {
        emu::set_last_error(error.what());
        return 1;
    }
    return 0;
}

size_t emu_replay_json(char* text, size_t bytes)
{
    const std::lock_guard lock(emu::guard);
    return emu::answer_text(emu::replayed_json, text, bytes);
}
