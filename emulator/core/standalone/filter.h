// Which launches are checked, and by which checks (options checked_kernel, launch_skip,
// launch_count, suppressions).
#pragma once

#include "run/options.h"

#include <string>
#include <vector>

namespace emu {
// While it lives, checks are off that a launch of this kernel does without. One at a time.
class LaunchChecks
{
public:
    explicit LaunchChecks(const std::string& kernel);
    ~LaunchChecks();
    LaunchChecks(const LaunchChecks&)            = delete;
    LaunchChecks& operator=(const LaunchChecks&) = delete;

private:
    std::vector<int64_t Options::*> off_; // what was on before
};

// Whether a suppression names the check, and a part of the text or nothing more.
bool is_suppressed(const std::string& check, const std::string& text);
} // namespace emu
