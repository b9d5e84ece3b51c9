// printf of what a kernel sent, done on the host.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace emu {
// The text of a format and its arguments, as ROCm's runtime has it: the format, then for each
// conversion (and each * in it) a word, or a string in place. Strings end with a zero and are
// filled up to whole words. A `%n` takes its argument and does nothing. Where arguments run out, or
// a conversion is none of C's, the text ends.
std::string formatted(std::span<const uint64_t> words);
} // namespace emu
