#include "standalone/settings.h"

#include "hip/device_api.h"
#include "run/fault.h"
#include "run/options.h"
#include "standalone/decoder.h"
#include "standalone/report.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <pthread.h>
#include <sstream>
#include <string_view>
#include <unistd.h>

namespace emu {
namespace {
Settings& writable()
{
    static Settings& only = *new Settings; // asked for while the process ends, too
    return only;
}

struct Number
{
    std::string_view name;
    int Settings::* member;
};
constexpr Number NUMBERS[] = {{"faulted", &Settings::faulted},       {"defective", &Settings::defective},
                              {"leaked", &Settings::leaked},         {"unwritten", &Settings::unwritten},
                              {"error_exit", &Settings::error_exit}, {"quiet", &Settings::quiet}};

// Throws std::exception for a number that is none.
void set_option(const std::string& name, const std::string& value)
{
    Settings& now   = writable();
    const auto rest = [&name](size_t prefix) { return name.substr(prefix); };
    int refused     = 0;
    if(name.starts_with("option."))
        refused = emu_set_option(rest(7).c_str(), std::stoll(value));
    else if(name.starts_with("text."))
        refused = emu_set_text_option(rest(5).c_str(), value.c_str());
    else if(name == "decoder")
        now.decoder.push_back(value);
    else if(name == "store")
        now.store = value;
    else if(name == "makers")
        now.makers = value;
    else if(name == "counters")
        now.counters = value;
    else if(const auto number = std::ranges::find(NUMBERS, name, &Number::name); number != std::end(NUMBERS))
        now.*(number->member) = std::stoi(value);
    else if(name == "process")
        now.process = std::stoll(value);
    else
        report_line("CKPM_EMULATOR: unknown setting " + name);
    if(refused)
        report_line(std::string("CKPM_EMULATOR: ") + emu_last_error());
}

// The program's own process has the file of the trace to itself; what it starts writes files beside
// it.
void name_trace()
{
    static const std::string whole = options().trace_file;
    if(!whole.empty() && getpid() != writable().process)
        options().trace_file = whole + "." + std::to_string(getpid());
}

// After all of the program's own handlers and destructors, which run before that of a library that
// was loaded with it.
void end_process(int status, void*)
{
    const Settings& now = settings();
    const bool ignored  = had_fault() && now.faulted != 0;
    const int reported  = ignored ? now.faulted : had_defect() ? now.defective : has_leaked() ? now.leaked : 0;
    const int chosen    = reported != 0 ? now.error_exit : 0;
    const int code      = chosen != 0 ? chosen : reported != 0 ? reported : all_written() ? 0 : now.unwritten;
    if((status != 0 && chosen == 0) || code == 0)
        return;
    std::fflush(nullptr); // what the program printed stands before our line
    if(ignored && status == 0)
        report_line("the program ignored a fault: exit code " + std::to_string(code));
    _exit(code);
}

// Before the program's own constructors, which register its code objects.
__attribute__((constructor)) void read_environment()
{
    const char* text = std::getenv("CKPM_EMULATOR");
    if(!text)
        return;
    writable().standalone = true;
    std::istringstream lines(text);
    for(std::string line; std::getline(lines, line);)
    {
        const size_t equals = line.find('=');
        try
        {
            set_option(line.substr(0, equals), equals == std::string::npos ? "" : line.substr(equals + 1));
        }
        catch(const std::exception&)
        {
            report_line("CKPM_EMULATOR: no number: " + line);
        }
    }
    name_trace();
    pthread_atfork(nullptr, nullptr, name_trace);
    emu_on_code_object(decode_code_object);
    on_exit(end_process, nullptr);
    std::atexit(report_at_exit);
}
} // namespace

const Settings& settings() { return writable(); }
} // namespace emu
