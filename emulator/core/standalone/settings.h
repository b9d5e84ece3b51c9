// Settings of a process without Python: `python -m ckpm_emulator run` puts them into its
// environment.
//
// CKPM_EMULATOR holds lines of name=value (emulator/ckpm_emulator/standalone.py writes them):
// `option.NAME` sets an integer option, `text.NAME` a text option, each `decoder` adds a word to
// the helper's command, `store` and `makers` say where programs are kept and under which names,
// `counters` is the file for the counters of process `process`. A program that ends as if all were
// well gets the exit code `faulted` after a fault, `unwritten` if its counters can't be written.
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
    int unwritten   = 0;
};

const Settings& settings();
} // namespace emu
