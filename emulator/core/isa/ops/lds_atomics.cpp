// Read-modify-write of LDS beyond one 32-bit operand, reads and writes by M0, counters of lanes
// (CDNA3 and CDNA4 ISA documents, section "Data share operations").
#include "isa/fields.h"
#include "isa/lds_access.h"
#include "isa/registry.h"

#include <algorithm>
#include <bit>

namespace emu {
namespace {
// LDS = F(LDS, data0, data1), lane by lane in ascending order.
template <typename T, auto F>
const MicroOp* atomic_of_two(Wave& w, const MicroOp* op)
{
    constexpr unsigned DWORDS = sizeof(T) / 4;
    const uint64_t mask       = w.exec();
    Offsets at;
    Rows old = {};
    finish_own_writes(w);
    lds_addresses(w, op, static_cast<uint32_t>(op->offset), sizeof(T), mask, LdsUse::Atomic, at);
    for(unsigned l = 0; l < LANES; ++l)
    {
        if(!(mask >> l & 1))
            continue;
        uint32_t words[2][DWORDS];
        for(unsigned i = 0; i < DWORDS; ++i)
            for(unsigned source = 0; source < 2; ++source)
                words[source][i] = w.v[op->src[source + 1].code + i][l];
        T before, first, second;
        uint8_t* const cell = w.group->lds + at.d[l];
        std::memcpy(&before, cell, sizeof(T));
        std::memcpy(&first, words[0], sizeof(T));
        std::memcpy(&second, words[1], sizeof(T));
        const T after = F(before, first, second);
        std::memcpy(cell, &after, sizeof(T));
        for(unsigned i = 0; i < DWORDS; ++i)
            std::memcpy(&old.d[i][l], reinterpret_cast<const uint8_t*>(&before) + 4 * i, 4);
    }
    deliver_old(w, op, Counter::Lds, old, DWORDS);
    return advance(op);
}

// Two exchanges at two addresses: op->offset and op->literal.
template <unsigned Dwords>
const MicroOp* exchange_two(Wave& w, const MicroOp* op)
{
    const uint64_t mask     = w.exec();
    const uint32_t places[] = {static_cast<uint32_t>(op->offset), op->literal};
    Offsets at[2];
    Rows old = {};
    finish_own_writes(w);
    for(unsigned part = 0; part < 2; ++part)
        lds_addresses(w, op, places[part], 4 * Dwords, mask, LdsUse::Atomic, at[part]);
    for(unsigned l = 0; l < LANES; ++l)
    {
        if(!(mask >> l & 1))
            continue;
        for(unsigned i = 0; i < 2 * Dwords; ++i) // both reads come first
            std::memcpy(&old.d[i][l], w.group->lds + at[i / Dwords].d[l] + 4 * (i % Dwords), 4);
        for(unsigned i = 0; i < 2 * Dwords; ++i)
            std::memcpy(w.group->lds + at[i / Dwords].d[l] + 4 * (i % Dwords),
                        &w.v[op->src[1 + i / Dwords].code + i % Dwords][l], 4);
    }
    deliver_old(w, op, Counter::Lds, old, 2 * Dwords);
    return advance(op);
}

// Each dword of the pair whose data has bit 31 set is replaced by the data's other bits.
const MicroOp* ds_condxchg32_b64(Wave& w, const MicroOp* op)
{
    constexpr uint32_t ADDRESS = 0xfff8, REPLACE = 0x80000000;
    const uint64_t mask = w.exec();
    Offsets at;
    Rows old = {};
    finish_own_writes(w);
    const uint32_t* base = w.v[op->src[0].code];
    must_be_defined(w, op, op->src[0].code, mask, "the LDS address");
    for(unsigned l = 0; l < LANES; ++l)
    {
        if(!(mask >> l & 1))
            continue;
        at.d[l] = (base[l] + static_cast<uint32_t>(op->offset)) & ADDRESS;
        if(at.d[l] + 8 > w.group->lds_bytes)
            raise_memory(w, op, Access::Store, l, at.d[l], 8, FaultKind::Lds);
        watch_lds(w, op, l, at.d[l], 8, LdsUse::Atomic);
        for(unsigned i = 0; i < 2; ++i)
        {
            uint8_t* const cell = w.group->lds + at.d[l] + 4 * i;
            const uint32_t data = w.v[op->src[1].code + i][l], value = data & ~REPLACE;
            std::memcpy(&old.d[i][l], cell, 4);
            if(data & REPLACE)
                std::memcpy(cell, &value, 4);
        }
    }
    end_watch(w, op);
    deliver_old(w, op, Counter::Lds, old, 2);
    return advance(op);
}

// M0[15:0] + offset, where a dword for each lane is checked, `stride` bytes apart.
uint32_t address_by_m0(Wave& w, const MicroOp* op, Access access, unsigned stride)
{
    scalars_must_be_defined(w, op, SCALAR + M0, 1, "the LDS address");
    const uint32_t address = (w.s[M0] & 0xffff) + static_cast<uint32_t>(op->offset);
    lanes_must_fit_lds(w, op, access, address, stride, 4);
    return address;
}

// The dword at M0 + offset counts lanes: it grows or shrinks by as many as EXEC has, and each of
// them gets what it was.
template <bool Append>
const MicroOp* count_lanes(Wave& w, const MicroOp* op)
{
    const uint64_t mask = w.exec();
    Rows old            = {};
    finish_own_writes(w);
    const uint32_t address = address_by_m0(w, op, Access::Atomic, 0);
    if(mask != 0)
    {
        watch_lds(w, op, static_cast<unsigned>(std::countr_zero(mask)), address, 4, LdsUse::Atomic);
        end_watch(w, op);
        const auto lanes = static_cast<uint32_t>(std::popcount(mask));
        uint32_t before;
        std::memcpy(&before, w.group->lds + address, 4);
        const uint32_t after = Append ? before + lanes : before - lanes;
        std::memcpy(w.group->lds + address, &after, 4);
        std::fill_n(old.d[0], LANES, before);
    }
    deliver_old(w, op, Counter::Lds, old, 1);
    return advance(op);
}

// A dword a lane from M0 + offset on.
template <bool Write>
const MicroOp* by_thread(Wave& w, const MicroOp* op)
{
    const uint64_t mask = w.exec();
    Rows data           = {};
    finish_own_writes(w);
    const uint32_t first = address_by_m0(w, op, Write ? Access::Store : Access::Load, 4);
    for(unsigned l = 0; l < LANES; ++l)
    {
        if(!(mask >> l & 1))
            continue;
        const uint32_t address = first + 4 * l;
        watch_lds(w, op, l, address, 4, Write ? LdsUse::Write : LdsUse::Read);
        if constexpr(Write)
            std::memcpy(w.group->lds + address, &w.v[op->src[1].code][l], 4);
        else
            std::memcpy(&data.d[0][l], w.group->lds + address, 4);
    }
    end_watch(w, op);
    if constexpr(Write)
        issue(w, Counter::Lds);
    else
        deliver(w, op, Counter::Lds, data.d, 1, mask);
    return advance(op);
}

// CDNA4's transposing read of 6-bit values: in each group of 16 lanes a lane reads a row of 16
// values, and lane j gets column j.
const MicroOp* ds_read_b96_tr_b6(Wave& w, const MicroOp* op)
{
    constexpr unsigned BITS = 6, VALUES = 16;
    const uint64_t mask = w.exec();
    Offsets at;
    Rows data = {}, out = {};
    const uint64_t within = lds_addresses(w, op, static_cast<uint32_t>(op->offset), 12, mask, LdsUse::Read, at);
    LdsSource source{{}, 0, 16};
    take(w, source, at, 12, within);
    {
        const OwnWrites shown(w);
        gather<3>(w.group->lds, at.d, within, data.d);
    }
    const auto bit = [&](unsigned lane, unsigned at_bit) { return data.d[at_bit / 32][lane] >> at_bit % 32 & 1; };
    for(unsigned l = 0; l < LANES; ++l)
        for(unsigned i = 0; i < VALUES * BITS; ++i)
            out.d[i / 32][l] |= bit((l & ~15u) + i / BITS, (l & 15) * BITS + i % BITS) << i % 32;
    deliver_read(w, op, out.d, 3, mask, std::move(source));
    return advance(op);
}

#define ATOMIC(NAME, T, ...) {"ds_" NAME, lds_atomic<T, ([](T m, T d) -> T { return static_cast<T>(__VA_ARGS__); })>}
#define ATOMIC_OF_TWO(NAME, T, ...) \
    {"ds_" NAME, atomic_of_two<T, ([](T m, T d, T e) -> T { return static_cast<T>(__VA_ARGS__); })>}

constexpr Entry ENTRIES[] = {
    {"ds_nop", nothing},
    ATOMIC("sub_u64", uint64_t, m - d),
    ATOMIC("rsub_u64", uint64_t, d - m),
    ATOMIC("inc_u64", uint64_t, m >= d ? 0 : m + 1),
    ATOMIC("dec_u64", uint64_t, m == 0 || m > d ? d : m - 1),
    ATOMIC("min_i64", int64_t, std::min(m, d)),
    ATOMIC("max_i64", int64_t, std::max(m, d)),
    ATOMIC("min_u64", uint64_t, std::min(m, d)),
    ATOMIC("max_u64", uint64_t, std::max(m, d)),
    ATOMIC("min_f64", double, d < m ? d : m),
    ATOMIC("max_f64", double, d > m ? d : m),
    ATOMIC("pk_add_f16", uint32_t, packed_add_f16(m, d)),
    ATOMIC("pk_add_bf16", uint32_t, packed_add_bf16(m, d)),
    ATOMIC_OF_TWO("mskor_b32", uint32_t, (m & ~d) | e),
    ATOMIC_OF_TWO("mskor_b64", uint64_t, (m & ~d) | e),
    ATOMIC_OF_TWO("cmpst_b32", uint32_t, m == d ? e : m),
    ATOMIC_OF_TWO("cmpst_b64", uint64_t, m == d ? e : m),
    ATOMIC_OF_TWO("cmpst_f32", float, m == d ? e : m),
    ATOMIC_OF_TWO("cmpst_f64", double, m == d ? e : m),
    ATOMIC_OF_TWO("wrap_b32", uint32_t, m >= d ? m - d : m + e),
    {"ds_wrxchg2_b32", exchange_two<1>},
    {"ds_wrxchg2_b64", exchange_two<2>},
    {"ds_condxchg32_b64", ds_condxchg32_b64},
    {"ds_append", count_lanes<true>},
    {"ds_consume", count_lanes<false>},
    {"ds_read_addtid_b32", by_thread<false>},
    {"ds_write_addtid_b32", by_thread<true>},
    {"ds_read_b96_tr_b6", ds_read_b96_tr_b6},
};
} // namespace

std::span<const Entry> lds_atomic_entries() { return ENTRIES; }
} // namespace emu
