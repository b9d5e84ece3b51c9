#include "host/printf_buffer.h"

#include "host/format.h"
#include "memory/memory.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <span>
#include <stdexcept>
#include <vector>

namespace emu {
namespace {
// ROCm's: CL_DEVICE_PRINTF_BUFFER_SIZE of its runtime.
constexpr uint32_t BUFFER_BYTES = 4 << 20, HEAD_BYTES = 8;
constexpr uint32_t TO_STDERR = 1, BY_HASH = 2;

// The words that formatted() takes.
std::vector<uint64_t> message(std::span<const uint8_t> print, bool by_hash, const Formats& formats)
{
    std::vector<uint64_t> words;
    if(by_hash)
    {
        uint64_t hash = 0;
        std::memcpy(&hash, print.data(), std::min(sizeof hash, print.size()));
        print             = print.subspan(std::min(sizeof hash, print.size()));
        const auto format = formats.find(hash);
        if(format == formats.end())
            return words;
        words.resize(format->second.size() / 8 + 1);
        std::memcpy(words.data(), format->second.data(), format->second.size());
    }
    const size_t before = words.size();
    words.resize(before + (print.size() + 7) / 8);
    std::memcpy(words.data() + before, print.data(), print.size());
    return words;
}
} // namespace

PrintfBuffer::PrintfBuffer(const Formats& formats)
    : formats_(formats),
      words_(static_cast<uint32_t*>(allocate(BUFFER_BYTES, AllocationKind::Internal, "printf of a kernel")))
{
    if(words_ == nullptr)
        throw std::runtime_error("no room for the printf of a kernel");
    words_[0] = 0;
    words_[1] = BUFFER_BYTES - HEAD_BYTES;
}

PrintfBuffer::~PrintfBuffer() { release(words_); }

void PrintfBuffer::write() const
{
    const auto* bytes = reinterpret_cast<const uint8_t*>(words_) + HEAD_BYTES;
    std::span left(bytes, std::min(words_[0], words_[1]));
    while(left.size() >= sizeof(uint32_t))
    {
        uint32_t control;
        std::memcpy(&control, left.data(), sizeof control);
        const size_t size = control >> 2;
        if(size < sizeof control || size > left.size())
            return;
        const std::string text =
            formatted(message(left.subspan(sizeof control, size - sizeof control), (control & BY_HASH) != 0, formats_));
        std::fwrite(text.data(), 1, text.size(), control & TO_STDERR ? stderr : stdout);
        left = left.subspan(size);
    }
}
} // namespace emu
