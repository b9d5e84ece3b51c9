// The declarations of CK's newest batch prefill, without definitions.
//
// No CK tree of that version is packaged. These headers declare its interface from notes (names,
// template parameters, field order, enumerators), so that our generated text compiles and its
// host side runs. In place of a launch, they record the arguments. They contain no text of CK.
#pragma once

#include <cstdint>
#include <cstdio>
#include <hip/hip_runtime.h>
#include <string>
#include <type_traits>

// CK's own macros of archs, which its kernels check.
#if defined(__gfx942__) || defined(__gfx950__)
#define __gfx94__
#endif

extern "C" {
// The control side, in fake_runtime.hip: takes a record, and makes a launch fail.
void ckpm_fake_take(const char* record);
const char* ckpm_fake_wanted_exception(
    void);                        // null: none; "": an exception that is not a std::exception
int ckpm_fake_start_kernel(void); // the hipError_t of a launch
}

namespace ck_tile {

using index_t = int32_t;

template <index_t... Numbers>
struct sequence
{
    static std::string text()
    {
        std::string all;
        ((all += (all.empty() ? "" : "x") + std::to_string(Numbers)), ...);
        return all;
    }
    static constexpr index_t product = (Numbers * ...);
    static constexpr index_t at(int wanted)
    {
        const index_t all[] = {Numbers...};
        return all[wanted];
    }
};

// Element types: distinct, and of the right size.
struct half_t
{
    uint16_t bits;
};
struct bf16_t
{
    uint16_t bits;
};
struct fp8_t
{
    uint8_t bits;
};
struct fp4_t // two
{
    uint8_t bits;
};

template <typename T>
constexpr const char* type_word()
{
    if constexpr(std::is_same_v<T, half_t>)
        return "half";
    else if constexpr(std::is_same_v<T, bf16_t>)
        return "bf16";
    else if constexpr(std::is_same_v<T, fp8_t>)
        return "fp8";
    else if constexpr(std::is_same_v<T, fp4_t>)
        return "fp4";
    else if constexpr(std::is_same_v<T, uint8_t>)
        return "uint8";
    else
    {
        static_assert(std::is_same_v<T, float>,
                      "an element type that no kernel of batch prefill has");
        return "float";
    }
}

// A record: lines of name=value, numbers in decimal.
class Record
{
    std::string text_;

public:
    template <typename T>
    void line(const char* name, const T& value)
    {
        text_ += name;
        text_ += '=';
        if constexpr(std::is_convertible_v<T, std::string>)
            text_ += value;
        else if constexpr(std::is_pointer_v<T>)
            text_ += std::to_string(reinterpret_cast<uintptr_t>(value));
        else if constexpr(std::is_enum_v<T>)
            text_ += std::to_string(static_cast<int>(value));
        else if constexpr(std::is_floating_point_v<T>)
        {
            char number[32];
            std::snprintf(number, sizeof(number), "%.9g", static_cast<double>(value));
            text_ += number;
        }
        else
            text_ += std::to_string(value);
        text_ += '\n';
    }
    const char* text() const { return text_.c_str(); }
};

} // namespace ck_tile
