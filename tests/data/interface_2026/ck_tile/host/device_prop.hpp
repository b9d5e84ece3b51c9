// The name of the device, which a test sets.
#pragma once

#include <string>

extern "C" const char* ckpm_fake_device(void);

namespace ck_tile {

inline std::string get_device_name() { return ckpm_fake_device(); }

} // namespace ck_tile
