#include "host/format.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <string_view>
#include <vector>

namespace emu {
namespace {
constexpr std::string_view CONVERSIONS = "diouxXfFeEgGaAcspn";

// What is left of a message.
class Words
{
public:
    explicit Words(std::span<const uint64_t> words) : words_(words) {}

    bool empty() const { return words_.empty(); }

    uint64_t word()
    {
        const uint64_t first = words_.front();
        words_               = words_.subspan(1);
        return first;
    }

    // A null pointer is sent as an empty string.
    std::string_view string()
    {
        const auto* const first = reinterpret_cast<const char*>(words_.data());
        const std::string_view all(first, words_.size_bytes());
        const std::string_view text = all.substr(0, all.find('\0'));
        words_                      = words_.subspan(std::min(words_.size(), text.size() / sizeof(uint64_t) + 1));
        return text;
    }

private:
    std::span<const uint64_t> words_;
};

template <typename Value>
std::string printed(const std::string& conversion, const std::vector<int>& stars, Value value)
{
    const auto print = [&](char* to, size_t room) {
        if(stars.empty())
            return std::snprintf(to, room, conversion.c_str(), value);
        if(stars.size() == 1)
            return std::snprintf(to, room, conversion.c_str(), stars[0], value);
        return std::snprintf(to, room, conversion.c_str(), stars[0], stars[1], value);
    };
    const int bytes = print(nullptr, 0);
    if(bytes <= 0)
        return "";
    std::string text(static_cast<size_t>(bytes) + 1, '\0');
    print(text.data(), text.size());
    text.pop_back();
    return text;
}

// One conversion, `%` and letter included. Device code has no wide characters, and its
// long double is a double.
void convert(std::string& text, std::string conversion, Words& words)
{
    std::vector<int> stars;
    for(auto left = std::ranges::count(conversion, '*'); left > 0 && !words.empty(); --left)
        stars.push_back(static_cast<int>(words.word()));
    if(words.empty() || stars.size() > 2)
        return;
    const char letter = conversion.back();
    if(std::string_view("fFeEgGaA").find(letter) != std::string_view::npos)
    {
        std::erase(conversion, 'L');
        text += printed(conversion, stars, std::bit_cast<double>(words.word()));
        return;
    }
    if(letter == 's' || letter == 'c' || letter == 'p')
        std::erase(conversion, 'l');
    if(letter == 's')
        text += printed(conversion, stars, std::string(words.string()).c_str());
    else if(letter == 'p')
        text += printed(conversion, stars, reinterpret_cast<void*>(words.word()));
    else if(const uint64_t value = words.word(); letter != 'n')
        text += printed(conversion, stars, value);
}
} // namespace

std::string formatted(std::span<const uint64_t> message)
{
    Words words(message);
    const std::string format(words.string());
    std::string text;
    for(size_t at = 0;;)
    {
        const size_t percent = format.find('%', at);
        text.append(format, at, percent - at);
        if(percent == std::string::npos)
            return text;
        if(format.compare(percent, 2, "%%") == 0)
        {
            text += '%';
            at = percent + 2;
            continue;
        }
        const size_t letter = format.find_first_of(CONVERSIONS, percent + 1);
        if(letter == std::string::npos || words.empty())
            return text;
        convert(text, format.substr(percent, letter + 1 - percent), words);
        at = letter + 1;
    }
}
} // namespace emu
