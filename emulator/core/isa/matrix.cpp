#include "isa/matrix.h"

namespace emu {
LaneMap own_lanes()
{
    LaneMap map;
    for(unsigned l = 0; l < LANES; ++l)
        map.from[l] = static_cast<uint8_t>(l);
    return map;
}

LaneMap broadcast_lanes(uint32_t control, unsigned n)
{
    const unsigned size = matrix_control::CBSZ.of(control), of_group = matrix_control::ABID.of(control);
    LaneMap map;
    for(unsigned l = 0; l < LANES; ++l)
    {
        const unsigned block = (l / n >> size << size) + of_group;
        map.from[l]          = static_cast<uint8_t>((n * block + l % n) % LANES);
    }
    return map;
}

LaneMap permuted_lanes(uint32_t control)
{
    const unsigned pattern = matrix_control::BLGP.of(control);
    LaneMap map            = own_lanes();
    for(unsigned l = 0; l < LANES; ++l)
    {
        if(pattern == 3)
            map.from[l] = static_cast<uint8_t>((l + 16) % LANES);
        else if(pattern == 1 || pattern == 2)
            map.from[l] = static_cast<uint8_t>(l % 32 + 32 * (pattern - 1));
        else if(pattern >= 4)
            map.from[l] = static_cast<uint8_t>(l % 16 + 16 * (pattern - 4));
    }
    return map;
}
} // namespace emu
