// Settings of a process without Python: `python -m ckpm_emulator run` puts them into its
// environment.
//
// CKPM_EMULATOR holds lines of name=value (emulator/ckpm_emulator/standalone.py writes them):
// `option.NAME` sets an integer option, `text.NAME` a text option, each `decoder` adds a word to
// the helper's command, `store` and `makers` say where programs are kept and under which names,
// `counters` is the file for the counters of process `process`. A program that ends as if all were
// well gets the exit code `faulted` after a fault, `defective` after another report of a check,
// `leaked` if memory was not freed, `unwritten` if its counters can't be written; 0: its own.
// `error_exit` replaces the first three, and the program's own. With `quiet`, failures of calls are
// not reported.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace emu {
struct Settings
{
    bool standalone = false; // the variable is there
    std::vector<std::string> decoder;
    std::string store, makers, counters;
    int64_t process = 0;
    int faulted     = 0;
    int defective   = 0;
    int leaked      = 0;
    int unwritten   = 0;
    int error_exit  = 0;
    int quiet       = 0;
};

const Settings& settings();
} // namespace emu
