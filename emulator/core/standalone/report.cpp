#include "standalone/report.h"

#include "hip/call.h"
#include "hip/device_api.h"
#include "host/device_heap.h"
#include "memory/memory.h"
#include "run/options.h"
#include "standalone/filter.h"
#include "standalone/settings.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>
#include <unistd.h>

HIP_API const char* hipGetErrorName(hipError_t error);

namespace emu {
namespace {
// Failures of launches, of the code that is launched, and of streams and events. Others are the program's to explain.
constexpr hipError_t EXPLAINED[] = {
    hipErrorInvalidConfiguration, hipErrorInvalidDeviceFunction, hipErrorInvalidImage,
    hipErrorNoBinaryForGpu,       hipErrorIllegalAddress,        hipErrorLaunchOutOfResources,
    hipErrorLaunchTimeOut,        hipErrorLaunchFailure,         hipErrorUnknown,
    hipErrorInvalidHandle,        hipErrorIllegalState};

bool is_explained(hipError_t error)
{
    const bool of_capture = error >= hipErrorStreamCaptureUnsupported && error <= hipErrorStreamCaptureWrongThread;
    return of_capture || std::find(std::begin(EXPLAINED), std::end(EXPLAINED), error) != std::end(EXPLAINED);
}

struct Reports
{
    std::mutex mutex;
    std::set<std::string> said;
    std::map<std::string, uint64_t> absent; // calls by function
    bool whole      = true;                 // the file of counters is written
    bool leaked     = false;
    pid_t defective = 0; // the process that reported a defect
};

Reports& reports()
{
    static Reports& only = *new Reports; // asked for while the process ends, too
    return only;
}

std::string absent_functions()
{
    std::lock_guard lock(reports().mutex);
    std::string out;
    for(const auto& [function, calls] : reports().absent)
        out +=
            (out.empty() ? "" : ", ") + function + " (" + std::to_string(calls) + (calls == 1 ? " call)" : " calls)");
    return out;
}

// Beside the file, then renamed: a reader never sees half of it.
bool write_file(const std::string& path, const std::string& text)
{
    const std::string draft = path + "." + std::to_string(getpid()) + ".draft";
    std::FILE* file         = std::fopen(draft.c_str(), "w");
    if(!file)
        return false;
    const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    const bool closed  = std::fclose(file) == 0;
    if(written && closed && std::rename(draft.c_str(), path.c_str()) == 0)
        return true;
    const int why = errno;
    std::remove(draft.c_str());
    errno = why;
    return false;
}

void report_leaks()
{
    uint64_t count = 0, bytes = 0;
    Allocation first;
    for(const Allocation& one : allocations())
    {
        if(one.kind != AllocationKind::Device && one.kind != AllocationKind::Host &&
           one.kind != AllocationKind::Managed && (options().heap == 0 || one.label != MALLOC_LABEL))
            continue;
        if(count++ == 0)
            first = one;
        bytes += one.bytes;
    }
    const std::string text = "never freed: " + plural(count, "allocation") + " of " + std::to_string(bytes) +
                             " bytes together, the first one allocation " + std::to_string(first.id) + " (" +
                             allocation_kind_name(first.kind) + ", " + std::to_string(first.bytes) + " bytes)";
    reports().leaked       = count != 0 && !is_suppressed("leaks", text);
    if(reports().leaked)
        report_line(text);
}

bool write_counters()
{
    std::string path = settings().counters;
    if(path.empty())
        return true;
    std::string text(emu_counters_json(nullptr, 0), '\0');
    emu_counters_json(text.data(), text.size());
    text.back() = '\n';
    // The program's own process has the file to itself; what it starts writes files beside it.
    if(getpid() != settings().process)
        path += "." + std::to_string(getpid());
    if(write_file(path, text))
        return true;
    report_line(path + ": the counters can't be written: " + std::strerror(errno));
    return false;
}
} // namespace

void report_line(const std::string& text)
{
    const std::string whole = "emulator: " + text + "\n";
    std::fwrite(whole.data(), 1, whole.size(), stderr);
}

void report_failure(const char* function, hipError_t error, const std::string& text)
{
    const bool provoked = settings().quiet != 0 && fault_status() == hipSuccess;
    if(!settings().standalone || provoked || !is_explained(error))
        return;
    const std::string whole = std::string(function) + ": " + hipGetErrorName(error) + ": " + text;
    {
        std::lock_guard lock(reports().mutex);
        if(!reports().said.insert(whole).second)
            return;
    }
    report_line(whole);
}

void report_defect(const char* check, const std::string& text)
{
    const std::string whole = std::string(check) + ": " + text;
    if(!settings().standalone || is_suppressed(check, text))
        return;
    {
        std::lock_guard lock(reports().mutex);
        reports().defective = getpid();
        if(!reports().said.insert(whole).second)
            return;
    }
    report_line(whole);
}

bool had_defect() { return reports().defective == getpid(); }
bool has_leaked() { return reports().leaked; }

hipError_t report_absent(const char* function)
{
    set_last_error(std::string(function) + ": the emulator lacks this function");
    remember_error(hipErrorNotSupported);
    std::lock_guard lock(reports().mutex);
    ++reports().absent[function];
    return hipErrorNotSupported;
}

void report_at_exit()
{
    report_host_accesses();
    if(const std::string absent = absent_functions(); !absent.empty() && settings().quiet == 0)
        report_line("answered hipErrorNotSupported, for want of these functions: " + absent);
    if(options().leaks != 0)
        report_leaks();
    reports().whole = write_counters();
}

bool all_written() { return reports().whole; }
} // namespace emu
