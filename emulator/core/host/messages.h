// Messages that a lane sends to the host in several packets: what printf and assert are made of.
//
// Word 0 of each packet's lane: bit 0 begins a message, bit 1 ends it, bits 5 to 7 count the words
// that follow, bits 8 to 63 are the message's number, which the host answers to the packet that
// begins it (ROCm-Device-Libs, ockl/src/services.cl).
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <vector>

namespace emu {
// A kernel asked the host for what it can't do.
class HostCallError : public std::runtime_error
{
public:
    using std::runtime_error::runtime_error;
};

class Messages
{
public:
    // A lane's eight words, of which the first becomes the answer: to the end of a message the
    // number of bytes printed, or -1. Throws HostCallError.
    void take(uint64_t* words);

private:
    std::map<uint64_t, std::vector<uint64_t>> open_;
    uint64_t next_ = 0;
};
} // namespace emu
