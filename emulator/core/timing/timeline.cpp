#include "timing/timeline.h"

#include <algorithm>

namespace emu {
namespace {
constexpr char LETTERS[] = "MVLSWB-";

template <typename Bin>
char letter(const Bin& bin, uint64_t width)
{
    const auto cycles = [&](Doing doing) { return bin[static_cast<size_t>(doing)]; };
    // An MFMA is at work long after its slot: half a bin of it makes the bin matrix work.
    if(2 * cycles(Doing::Matrix) >= width)
        return 4 * cycles(Doing::Vector) >= width ? 'X' : 'M';
    const auto most = std::ranges::max_element(bin);
    return *most == 0 ? '.' : LETTERS[most - bin.begin()];
}
} // namespace

Timeline::Timeline(const Numbers& numbers, size_t waves)
    : from_(numbers.timeline_from), width_(numbers.timeline_bin), count_(numbers.timeline_bins), bins_(waves * count_)
{}

void Timeline::add(size_t wave, Doing doing, uint64_t from, uint64_t to)
{
    from = std::max(from, from_);
    to   = std::min(to, from_ + width_ * count_);
    while(from < to)
    {
        const uint64_t bin  = (from - from_) / width_;
        const uint64_t next = std::min(to, from_ + (bin + 1) * width_);
        bins_[wave * count_ + bin][static_cast<size_t>(doing)] += static_cast<uint32_t>(next - from);
        from = next;
    }
}

std::string Timeline::letters(size_t wave) const
{
    std::string text;
    for(size_t i = 0; i < count_; ++i)
        text += letter(bins_[wave * count_ + i], width_);
    return text;
}
} // namespace emu
