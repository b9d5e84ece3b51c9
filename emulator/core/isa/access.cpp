#include "isa/access.h"

#include "checks/checks.h"
#include "isa/fields.h"

#include <bit>

namespace emu {

uint64_t lds_dma_place(Wave& w, const MicroOp* op, int64_t offset, unsigned dwords)
{
    const unsigned bytes = 4 * dwords;
    const uint64_t mask  = w.exec();
    scalars_must_be_defined(w, op, SCALAR + M0, 1, "the LDS address");
    const Field used      = w.group->arch == 950 ? lds_dma::OFFSET_CDNA4 : lds_dma::OFFSET_CDNA3;
    const uint64_t base   = used.of(w.s[M0]) + static_cast<uint64_t>(offset);
    const uint64_t extent = (LANES - 1) * lds_dma_stride(dwords) + bytes;
    if(mask != 0 && base + extent > w.group->lds_bytes)
        raise_memory(w, op, Access::Store, NO_LANE, base, extent, FaultKind::Lds);
    w.group->traffic.lds_dma_bytes += bytes * static_cast<uint64_t>(std::popcount(mask));
    return base;
}

void load_to_lds(
    Wave& w, const MicroOp* op, int64_t offset, const uint32_t (*data)[LANES], unsigned dwords)
{
    const unsigned bytes = 4 * dwords, stride = lds_dma_stride(dwords);
    const uint64_t mask = w.exec();
    const uint64_t base = lds_dma_place(w, op, offset, dwords);
    PendingWrite write;
    write.target = PendingWrite::Target::Lds;
    write.chunk  = bytes;
    for(unsigned l = 0; l < LANES; ++l)
    {
        if(!(mask >> l & 1))
            continue;
        const uint32_t address = static_cast<uint32_t>(base) + l * stride;
        if(w.group->shadow != nullptr)
            check_lds(w, op, l, address, bytes, LdsUse::Write);
        uint32_t values[4];
        for(unsigned i = 0; i < dwords; ++i)
            values[i] = data[i][l];
        if(!w.group->late)
        {
            std::memcpy(w.group->lds + address, values, bytes);
            continue;
        }
        write.addresses.push_back(address);
        write.data.insert(write.data.end(), values, values + dwords);
    }
    issue(w, Counter::Vector, std::move(write));
}

} // namespace emu
