#include "isa/matrix_pairs.h"

#ifdef EMU_PAIRS

#include <cmath>
#include <cpuid.h>

namespace emu {
namespace {
// CPUID leaf 7, subleaf 1: EAX bit 5 is AVX512_BF16.
bool has_instruction()
{
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax >> 5 & 1) != 0;
}

struct Case
{
    float sum;
    uint32_t row, column; // two bf16 each
};

// Each has another result with a single rounding, or with the halves in the other order.
constexpr Case CASES[] = {
    {0x1p24f, 0x3f803f80, 0x3f803f80},       // 2^24 + 1 + 1
    {-0x1p24f, 0x4b803f80, 0x3f803f80},      // -2^24 + 1 + 2^24
    {0x1p0f, 0x33803380, 0x3f803f80},        // 1 + 2^-24 + 2^-24
    {0x1.000002p0f, 0x3380b380, 0x3f803f80}, // 1 + 2^-23 - 2^-24 + 2^-24
    {0x1p30f, 0xce803f80, 0x3f803f80},       // 2^30 + 1 - 2^30
};

EMU_PAIRS_TARGET bool adds_as_said()
{
    for(const Case& one : CASES)
    {
        const auto low  = [](uint32_t word) { return as_float(word << 16); };
        const auto high = [](uint32_t word) { return as_float(word & 0xffff0000); };
        // vdpbf16ps begins with the high halves.
        const float first = std::fma(high(one.row), high(one.column), one.sum);
        const float said  = std::fma(low(one.row), low(one.column), first);
        float got[16];
        _mm512_storeu_ps(got,
                         add_pair(_mm512_set1_ps(one.sum), one.row, _mm512_set1_epi32(static_cast<int>(one.column))));
        for(const float lane : got)
            if(as_bits(lane) != as_bits(said))
                return false;
    }
    return true;
}
} // namespace

const bool HOST_ADDS_PAIRS = has_instruction() && adds_as_said();
} // namespace emu

#endif
