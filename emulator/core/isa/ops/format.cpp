// Buffer instructions that convert: MUBUF's by the format in the resource, MTBUF's by that in the
// instruction (CDNA3 ISA document, section "Vector memory buffer instructions").
//
// Components that the memory format lacks are 0, the fourth 1. A load by the resource takes its
// components in the order of DST_SEL; MTBUF's order is that of memory. With D16 two components
// share a register: floats as f16, integers by their low halves.
#include "checks/lds_races.h"
#include "isa/buffer_access.h"
#include "isa/buffer_formats.h"
#include "isa/registry.h"

#include <array>

namespace emu {
namespace {
constexpr unsigned MOST_BYTES = 16;

// Fields of word 3 of a resource (ISA, "Buffer resource descriptor").
constexpr Field DST_SEL[] = {{0, 3}, {3, 3}, {6, 3}, {9, 3}};
constexpr Field NUM_FORMAT{12, 3};

struct Format
{
    DataFormat data;
    NumberFormat number;
    std::array<uint32_t, 4> select; // 0: zero, 1: one, 4 to 7: a component
};

Format format_of(const Wave& w, const MicroOp* op)
{
    Format format;
    if(op->control & TYPED)
    {
        format.data   = DATA_FORMATS[op->control & 15];
        format.number = static_cast<NumberFormat>(op->control >> 4 & 7);
        format.select = {4, 5, 6, 7};
    }
    else
    {
        const uint32_t word = w.s[op->src[1].code - SCALAR + 3];
        format.data         = DATA_FORMATS[srd::DATA_FORMAT.of(word)];
        format.number       = static_cast<NumberFormat>(NUM_FORMAT.of(word));
        for(unsigned i = 0; i < 4; ++i)
            format.select[i] = DST_SEL[i].of(word);
    }
    if(!has_format(format.data, format.number))
        raise_unknown(w, op, "a buffer format that is reserved");
    return format;
}

// `bits` bits from bit `low` on of what a lane has in memory.
uint32_t bits_of(const uint8_t* bytes, uint32_t low, uint32_t bits)
{
    uint64_t word = 0;
    std::memcpy(&word, bytes + low / 32 * 4, 4);
    if(low % 32 + bits > 32)
        std::memcpy(reinterpret_cast<uint8_t*>(&word) + 4, bytes + low / 32 * 4 + 4, 4);
    return static_cast<uint32_t>(word >> low % 32) & (bits == 32 ? ~0u : (1u << bits) - 1);
}

// The four values that the format's components make, in the order of the selection.
std::array<uint32_t, 4> decoded(const Format& format, const uint8_t* bytes)
{
    const uint32_t one             = is_integer(format.number) ? 1 : std::bit_cast<uint32_t>(1.0f);
    std::array<uint32_t, 4> values = {0, 0, 0, one}, chosen;
    uint32_t low                   = 0;
    for(unsigned i = 0; i < format.data.components(); ++i)
    {
        values[i] = from_component(bits_of(bytes, low, format.data.bits[i]), format.data.bits[i], format.number);
        low += format.data.bits[i];
    }
    for(unsigned i = 0; i < 4; ++i)
        chosen[i] = format.select[i] >= 4 ? values[format.select[i] - 4] : format.select[i] == 1 ? one : 0;
    return chosen;
}

template <unsigned Components, bool Half, Part Where = Part::Whole>
const MicroOp* load(Wave& w, const MicroOp* op)
{
    constexpr unsigned ROWS = Half ? (Components + 1) / 2 : Components;
    const Format format     = format_of(w, op);
    const unsigned bytes    = format.data.bytes();
    const HostMode mode(w.mxcsr, MXCSR_NEAREST); // the conversions follow no MODE
    Lanes lanes;
    aim_buffer(w, op, Access::Load, bytes, bytes - 1, lanes);
    Rows data = {};
    for(unsigned l = 0; l < LANES; ++l)
    {
        if(!(lanes.whole >> l & 1))
            continue;
        uint8_t held[MOST_BYTES] = {};
        std::memcpy(held, reinterpret_cast<const void*>(lanes.resource.base + lanes.offset[l]), bytes);
        const std::array<uint32_t, 4> values = decoded(format, held);
        for(unsigned i = 0; i < Components; ++i)
        {
            if constexpr(Half)
                data.d[i / 2][l] |=
                    (is_integer(format.number) ? values[i] & 0xffff : f32_to_f16(values[i], Round::Nearest))
                    << 16 * (i % 2);
            else
                data.d[i][l] = values[i];
        }
    }
    if constexpr(Half && Components == 3)
        for(unsigned l = 0; l < LANES; ++l) // the fourth half is kept
            data.d[1][l] |= w.v[op->dst + 1][l] & 0xffff0000;
    deliver(w, op, Counter::Vector, data.d, ROWS, w.exec(), Where);
    return advance(op);
}

// The component `i` of what a lane stores, as 32 bits.
template <bool Half, bool High>
uint32_t stored(const Wave& w, const MicroOp* op, const Format& format, unsigned i, unsigned lane)
{
    if constexpr(!Half)
        return w.v[op->dst + i][lane];
    const uint32_t half = w.v[op->dst + i / 2][lane] >> (High ? 16 : 16 * (i % 2)) & 0xffff;
    if(format.number == NumberFormat::Sint)
        return static_cast<uint32_t>(static_cast<int16_t>(half));
    return format.number == NumberFormat::Uint ? half : f16_to_f32_bits(half);
}

template <unsigned Components, bool Half, bool High = false>
const MicroOp* store(Wave& w, const MicroOp* op)
{
    constexpr unsigned ROWS = Half ? (Components + 1) / 2 : Components;
    const Format format     = format_of(w, op);
    const unsigned bytes    = format.data.bytes();
    const HostMode mode(w.mxcsr, MXCSR_NEAREST); // the conversions follow no MODE
    if(Components < format.data.components() || format.select != std::array<uint32_t, 4>{4, 5, 6, 7})
        raise_unknown(w, op, "a store of fewer components than its format has, or in another order");
    Lanes lanes;
    aim_buffer(w, op, Access::Store, bytes, bytes - 1, lanes);
    for(unsigned i = 0; i < ROWS; ++i)
        must_be_defined(w, op, op->dst + i, lanes.whole, "what is stored");
    for(unsigned l = 0; l < LANES; ++l)
    {
        if(!(lanes.whole >> l & 1))
            continue;
        uint32_t words[MOST_BYTES / 4] = {}, low = 0;
        for(unsigned i = 0; i < format.data.components(); ++i)
        {
            const uint32_t width = format.data.bits[i];
            if(Half && is_integer(format.number) && width > 16)
                raise_unknown(w, op, "a store of 16-bit integers as wider ones");
            const auto part = to_component(stored<Half, High>(w, op, format, i, l), width, format.number);
            if(!part)
                raise_unknown(w, op, "a value that the buffer's format doesn't hold");
            const uint64_t shifted = uint64_t{*part} << low % 32;
            words[low / 32] |= static_cast<uint32_t>(shifted);
            if(low % 32 + width > 32)
                words[low / 32 + 1] |= static_cast<uint32_t>(shifted >> 32);
            low += width;
        }
        std::memcpy(reinterpret_cast<void*>(lanes.resource.base + lanes.offset[l]), words, bytes);
    }
    issue(w, Counter::Vector);
    return advance(op);
}

#define FORMATS(PREFIX)                                                                                       \
    {PREFIX "load_format_x", load<1, false>}, {PREFIX "load_format_xy", load<2, false>},                      \
        {PREFIX "load_format_xyz", load<3, false>}, {PREFIX "load_format_xyzw", load<4, false>},              \
        {PREFIX "load_format_d16_x", load<1, true, Part::Low>}, {PREFIX "load_format_d16_xy", load<2, true>}, \
        {PREFIX "load_format_d16_xyz", load<3, true>}, {PREFIX "load_format_d16_xyzw", load<4, true>},        \
        {PREFIX "store_format_x", store<1, false>}, {PREFIX "store_format_xy", store<2, false>},              \
        {PREFIX "store_format_xyz", store<3, false>}, {PREFIX "store_format_xyzw", store<4, false>},          \
        {PREFIX "store_format_d16_x", store<1, true>}, {PREFIX "store_format_d16_xy", store<2, true>},        \
        {PREFIX "store_format_d16_xyz", store<3, true>}, {PREFIX "store_format_d16_xyzw", store<4, true>},

constexpr Entry ENTRIES[] = {
    // clang-format off
    FORMATS("buffer_")
    FORMATS("tbuffer_")
    // clang-format on
    {"buffer_load_format_d16_hi_x", load<1, true, Part::High>},
    {"buffer_store_format_d16_hi_x", store<1, true, true>},
};
} // namespace

std::span<const Entry> format_entries() { return ENTRIES; }
} // namespace emu
