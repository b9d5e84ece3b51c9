#include "isa/access.h"

#include "checks/lds_races.h"
#include "hip/call.h"
#include "isa/fields.h"
#include "isa/lds_access.h"

#include <bit>
#include <mutex>
#include <set>
#include <string>

namespace emu {
void raise_misaligned(const Wave& w, const MicroOp* op, Access access, unsigned lane, uint64_t address, uint64_t bytes,
                      uint64_t step)
{
    raise(w, op,
          fault_of(FaultKind::Alignment, access, lane, address, bytes,
                   std::string(access_name(access)) + " of " + std::to_string(bytes) + " bytes at " +
                       hex_text(address) + ", which is not a multiple of " + std::to_string(step)));
}

void raise_lanes_race(const Wave& w, const MicroOp* op, unsigned lane, uint64_t address, unsigned other)
{
    raise(w, op,
          fault_of(FaultKind::Race, Access::Store, lane, address, 1,
                   "lane " + std::to_string(other) + " stores another value at " + hex_text(address) +
                       " with the same instruction"));
}

uint64_t lanes_in_lds(Wave& w, const MicroOp* op, const uint32_t* addresses, unsigned bytes, uint64_t mask, LdsUse use)
{
    static std::mutex mutex;
    static std::set<std::string>& said = *new std::set<std::string>;
    const uint32_t size                = w.group->lds_bytes;
    const bool goes_on                 = use == LdsUse::Read && !w.group->lds_bounds;
    for(unsigned l = 0; l < LANES; ++l)
    {
        if(!(mask >> l & 1) || (addresses[l] <= size && size - addresses[l] >= bytes))
            continue;
        const Access access = use == LdsUse::Read ? Access::Load : Access::Store;
        Fault fault         = outside(w, access, l, addresses[l], bytes, FaultKind::Lds);
        if(!goes_on)
            raise(w, op, std::move(fault));
        mask &= ~(uint64_t{1} << l);
        const std::lock_guard lock(mutex);
        fault = located(w, op, std::move(fault));
        if(said.insert(fault.kernel).second)
            report_line(fault_message(fault) +
                        "\n  The lane reads 0 and the kernel goes on, as on a "
                        "GPU. With the check lds_bounds it is a fault.");
    }
    return mask;
}

void lanes_must_fit_lds(const Wave& w, const MicroOp* op, Access access, uint32_t base, unsigned stride, unsigned bytes)
{
    const uint64_t mask = w.exec();
    if(mask == 0)
        return;
    const auto first      = static_cast<unsigned>(std::countr_zero(mask));
    const unsigned last   = LANES - 1 - static_cast<unsigned>(std::countl_zero(mask));
    const uint64_t from   = base + first * stride; // in 32 bits, as lanes have it
    const uint64_t extent = (last - first) * stride + bytes;
    if(from + extent > w.group->lds_bytes)
        raise_memory(w, op, access, NO_LANE, from, extent, FaultKind::Lds);
}

uint32_t lds_dma_place(Wave& w, const MicroOp* op, int32_t offset, unsigned dwords)
{
    scalars_must_be_defined(w, op, SCALAR + M0, 1, "the LDS address");
    const Field used    = w.group->arch == 950 ? lds_dma::OFFSET_CDNA4 : lds_dma::OFFSET_CDNA3;
    const uint32_t base = used.of(w.s[M0]) + static_cast<uint32_t>(offset);
    lanes_must_fit_lds(w, op, Access::Store, base, lds_dma_stride(dwords), 4 * dwords);
    w.group->traffic.lds_dma_bytes += 4 * dwords * static_cast<uint64_t>(std::popcount(w.exec()));
    return base;
}

void load_to_lds(Wave& w, const MicroOp* op, int32_t offset, const uint32_t (*data)[LANES], unsigned dwords)
{
    const unsigned bytes = 4 * dwords, stride = lds_dma_stride(dwords);
    const uint64_t mask = w.exec();
    const uint32_t base = lds_dma_place(w, op, offset, dwords);
    PendingWrite write;
    write.target = PendingWrite::Target::Lds;
    write.chunk  = bytes;
    for(unsigned l = 0; l < LANES; ++l)
    {
        if(!(mask >> l & 1))
            continue;
        const uint32_t address = base + l * stride;
        if(w.group->shadow != nullptr)
            check_lds(w, op, l, address, bytes, LdsUse::Write);
        if(w.group->late_reads)
            spoil_reads(w, op, l, address, bytes, Writer::LdsDma);
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
    end_watch(w, op);
    issue(w, Counter::Vector, std::move(write));
}
} // namespace emu
