// Scalar instructions that compilers seldom choose: registers by index, hints, and scalar stores
// and atomics (CDNA3 ISA document, sections 5 and 8; LLVM has the scalar stores of gfx9).
#include "checks/twin.h"
#include "isa/atomics.h"
#include "isa/operands.h"
#include "isa/registry.h"

namespace emu {
namespace {
constexpr unsigned SCALARS = 102; // s0 to s101

// The scalar register that M0 moves `code` to, of `words` registers.
unsigned indexed(const Wave& w, const MicroOp* op, uint16_t code, unsigned words)
{
    const uint64_t moved = uint64_t{code} - SCALAR + w.s[M0];
    if(moved + words > SCALARS)
        raise_unknown(w, op, "an index after the last scalar register");
    return static_cast<unsigned>(moved);
}

template <unsigned Words>
const MicroOp* s_movrels(Wave& w, const MicroOp* op)
{
    const unsigned from   = indexed(w, op, op->src[0].code, Words);
    const uint32_t copy[] = {w.s[from], w.s[from + Words - 1]};
    for(unsigned i = 0; i < Words; ++i)
        w.s[op->dst - SCALAR + i] = copy[i];
    return advance(op);
}

template <unsigned Words>
const MicroOp* s_movreld(Wave& w, const MicroOp* op)
{
    const unsigned to = indexed(w, op, op->dst, Words);
    if constexpr(Words == 2)
        w.set_pair(to, scalar_pair(w, op, op->src[0].code));
    else
        w.s[to] = scalar_value(w, op, op->src[0].code);
    return advance(op);
}

// M0 holds the index and its uses; lowering has the list of instructions.
constexpr Field INDEX{0, 8}, USES{12, 4};

const MicroOp* s_set_gpr_idx_on(Wave& w, const MicroOp* op)
{
    const uint32_t index = scalar_value(w, op, op->src[0].code);
    w.s[M0]              = (w.s[M0] & ~(INDEX.mask() | USES.mask())) | INDEX.put(index) | USES.put(op->control);
    return advance(op);
}

const MicroOp* s_set_gpr_idx_idx(Wave& w, const MicroOp* op)
{
    const uint32_t index = scalar_value(w, op, op->src[0].code);
    w.s[M0]              = (w.s[M0] & ~INDEX.mask()) | INDEX.put(index);
    return advance(op);
}

const MicroOp* s_set_gpr_idx_mode(Wave& w, const MicroOp* op)
{
    w.s[M0] = (w.s[M0] & ~USES.mask()) | USES.put(op->control);
    return advance(op);
}

// An address of global memory or, with a resource, of a buffer; null where the buffer ends before.
template <bool Buffer>
uint8_t* address_of(Wave& w, const MicroOp* op, Access access, unsigned bytes)
{
    scalars_must_be_defined(w, op, op->src[0].code, Buffer ? 4 : 2, "the address");
    if(op->src[1].code != NONE)
        scalars_must_be_defined(w, op, op->src[1].code, 1, "the address");
    const int64_t offset  = int64_t{op->offset} + (op->src[1].code == NONE ? 0 : w.s[op->src[1].code - SCALAR]);
    const uint32_t* words = &w.s[op->src[0].code - SCALAR];
    uint64_t base         = w.pair(op->src[0].code - SCALAR);
    if constexpr(Buffer)
    {
        base                   = srd::base(words);
        const uint32_t stride  = srd::stride(words);
        const uint64_t records = stride == 0 ? words[2] : uint64_t{words[2]} * stride;
        if((static_cast<uint64_t>(offset) & ~uint64_t{3}) + bytes > records)
            return nullptr;
    }
    const uint64_t address = (base + static_cast<uint64_t>(offset)) & ~uint64_t{3};
    if(!w.group->ranges.check(address, bytes))
        raise_memory(w, op, access, NO_LANE, address, bytes);
    if(w.group->races != nullptr) [[unlikely]]
        w.group->races->touch(access, address, bytes);
    return reinterpret_cast<uint8_t*>(address);
}

template <bool Buffer, unsigned Dwords>
const MicroOp* store(Wave& w, const MicroOp* op)
{
    uint8_t* const address = address_of<Buffer>(w, op, Access::Store, 4 * Dwords);
    scalars_must_be_defined(w, op, op->src[2].code, Dwords, "what is stored");
    if(address != nullptr)
        std::memcpy(address, &w.s[op->src[2].code - SCALAR], 4 * Dwords);
    issue(w, Counter::Scalar);
    return advance(op);
}

void put_old(Wave& w, const MicroOp* op, const void* old, unsigned dwords)
{
    if(op->flags & RETURN)
        issue_scalars(w, op, op->src[2].code, old, dwords);
    else
        issue(w, Counter::Scalar);
}

// A twin would execute the atomic a second time.
void demand_one_wave(const Wave& w, const MicroOp* op)
{
    if(w.twin != nullptr)
        raise_unknown(w, op, "a scalar atomic, under the option uninitialised");
}

template <bool Buffer, typename T, auto F>
const MicroOp* atomic(Wave& w, const MicroOp* op)
{
    demand_one_wave(w, op);
    T data, old{};
    std::memcpy(&data, &w.s[op->src[2].code - SCALAR], sizeof(T));
    if(uint8_t* const address = address_of<Buffer>(w, op, Access::Atomic, sizeof(T)))
        old = modify<T, F>(address, data);
    put_old(w, op, &old, sizeof(T) / 4);
    return advance(op);
}

// The data are the new value, then the one compared with.
template <bool Buffer, typename T>
const MicroOp* compare_swap(Wave& w, const MicroOp* op)
{
    demand_one_wave(w, op);
    T data[2], old{};
    std::memcpy(data, &w.s[op->src[2].code - SCALAR], sizeof data);
    if(uint8_t* const address = address_of<Buffer>(w, op, Access::Atomic, sizeof(T)))
    {
        old = data[1];
        std::atomic_ref<T>(*reinterpret_cast<T*>(address)).compare_exchange_strong(old, data[0]);
    }
    put_old(w, op, &old, sizeof(T) / 4);
    return advance(op);
}

#define ATOMIC_OF(BUFFER, PREFIX, NAME, T, ...) \
    {PREFIX NAME, atomic<BUFFER, T, ([](T m, T d) -> T { return static_cast<T>(__VA_ARGS__); })>},
#define GLOBAL_ATOMIC(NAME, T, ...) ATOMIC_OF(false, "s_atomic_", NAME, T, __VA_ARGS__)
#define BUFFER_ATOMIC(NAME, T, ...) ATOMIC_OF(true, "s_buffer_atomic_", NAME, T, __VA_ARGS__)

constexpr Entry ENTRIES[] = {
    // clang-format off
    EMU_INTEGER_ATOMICS(GLOBAL_ATOMIC)
    EMU_INTEGER_ATOMICS(BUFFER_ATOMIC)
    // clang-format on
    {"s_atomic_cmpswap", compare_swap<false, uint32_t>},
    {"s_atomic_cmpswap_x2", compare_swap<false, uint64_t>},
    {"s_buffer_atomic_cmpswap", compare_swap<true, uint32_t>},
    {"s_buffer_atomic_cmpswap_x2", compare_swap<true, uint64_t>},
    {"s_store_dword", store<false, 1>},
    {"s_store_dwordx2", store<false, 2>},
    {"s_store_dwordx4", store<false, 4>},
    {"s_buffer_store_dword", store<true, 1>},
    {"s_buffer_store_dwordx2", store<true, 2>},
    {"s_buffer_store_dwordx4", store<true, 4>},
    {"s_movrels_b32", s_movrels<1>},
    {"s_movrels_b64", s_movrels<2>},
    {"s_movreld_b32", s_movreld<1>},
    {"s_movreld_b64", s_movreld<2>},
    {"s_set_gpr_idx_on", s_set_gpr_idx_on},
    {"s_set_gpr_idx_off", nothing},
    {"s_set_gpr_idx_idx", s_set_gpr_idx_idx},
    {"s_set_gpr_idx_mode", s_set_gpr_idx_mode},
    {"s_wakeup", nothing},
    {"s_atc_probe", nothing},
    {"s_atc_probe_buffer", nothing},
    // The device has no debugger.
    {"s_cbranch_cdbgsys", nothing},
    {"s_cbranch_cdbguser", nothing},
    {"s_cbranch_cdbgsys_or_user", nothing},
    {"s_cbranch_cdbgsys_and_user", nothing},
};
} // namespace

std::span<const Entry> scalar_rare_entries() { return ENTRIES; }
} // namespace emu
