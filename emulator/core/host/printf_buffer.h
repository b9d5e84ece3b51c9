// printf into a buffer that the host reads after the launch (clang's -mprintf-kind=buffered).
//
// The buffer begins with two 32-bit words, the bytes written and the room; the device library's
// __printf_alloc adds to the first. Each print begins with a 32-bit word: bit 0 for standard error,
// bit 1 if the format is known by its hash alone, from bit 2 on the bytes, this word included.
// Formats with their hashes are in the code object's metadata, amdhsa.printf.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace emu {
using Formats = std::map<uint64_t, std::string>; // by hash

class PrintfBuffer
{
public:
    // Throws std::runtime_error: no room.
    explicit PrintfBuffer(const Formats& formats);
    ~PrintfBuffer();
    PrintfBuffer(const PrintfBuffer&)            = delete;
    PrintfBuffer& operator=(const PrintfBuffer&) = delete;

    uint64_t address() const { return reinterpret_cast<uint64_t>(words_); }
    // Prints what stands in the buffer. What no longer had room was not printed on a GPU either.
    void write() const;

private:
    const Formats& formats_;
    uint32_t* words_;
};
} // namespace emu
