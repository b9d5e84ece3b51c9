#include "host/messages.h"

#include "host/format.h"
#include "isa/fields.h"

#include <cstdio>
#include <string>

namespace emu {
namespace {
constexpr uint64_t BEGIN = 1, END = 2, NUMBER_UNIT = 256;
constexpr Field COUNT{5, 3};

// The first word is the stream: 0 is standard output, 1 standard error.
int64_t print(const std::vector<uint64_t>& message)
{
    if(message.empty() || message[0] > 1)
        return -1;
    const std::string text = formatted(std::span(message).subspan(1));
    std::FILE* const file  = message[0] == 0 ? stdout : stderr;
    const bool whole       = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    return whole ? static_cast<int32_t>(text.size()) : -1;
}
} // namespace

void Messages::take(uint64_t* words)
{
    const auto word = static_cast<uint32_t>(words[0]);
    uint64_t number = words[0] / NUMBER_UNIT;
    if(word & BEGIN)
        open_[number = next_++];
    const auto message = open_.find(number);
    if(message == open_.end())
        throw HostCallError("the kernel goes on with message " + std::to_string(number) +
                            " to the host, which it never began");
    message->second.insert(message->second.end(), words + 1, words + 1 + COUNT.of(word));
    if(word & END)
    {
        words[0] = static_cast<uint64_t>(print(message->second));
        open_.erase(message);
    }
    else
    {
        words[0] = number * NUMBER_UNIT | (word & (NUMBER_UNIT - 1) & ~BEGIN);
    }
}
} // namespace emu
