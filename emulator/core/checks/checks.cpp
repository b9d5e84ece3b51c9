#include "checks/checks.h"

#include "isa/wave.h"

namespace emu {

namespace {

[[noreturn]] void report(Wave& wave,
                         const MicroOp* op,
                         unsigned lane,
                         uint32_t address,
                         FaultKind kind,
                         Access access,
                         std::string detail)
{
    Fault fault;
    fault.kind    = kind;
    fault.access  = access;
    fault.lane    = lane;
    fault.address = address;
    fault.bytes   = 1;
    fault.detail  = std::move(detail);
    raise(wave, op, std::move(fault));
}

} // namespace

void check_lds(
    Wave& wave, const MicroOp* op, unsigned lane, uint32_t address, uint32_t bytes, LdsUse use)
{
    LdsShadow& shadow = *wave.group->shadow;
    const auto self   = static_cast<uint8_t>(wave.number);
    for(uint32_t at = address; at < address + bytes; ++at)
    {
        LdsShadow::Byte& byte  = shadow.bytes[at];
        const bool written_now = byte.write_epoch == shadow.epoch,
                   read_now    = byte.read_epoch == shadow.epoch;
        const Access access    = use == LdsUse::Read ? Access::Load : Access::Store;
        if(shadow.races && !written_now && byte.in_flight != 0 && byte.writer != self)
            report(
                wave,
                op,
                lane,
                at,
                FaultKind::Race,
                access,
                std::string("wave ")
                    .append(std::to_string(byte.writer))
                    .append(" did not wait (s_waitcnt lgkmcnt) for its write before the barrier"));
        if(shadow.races && written_now && byte.writer != self)
            report(wave,
                   op,
                   lane,
                   at,
                   FaultKind::Race,
                   access,
                   std::string("no barrier lies between this and the write by wave ")
                       .append(std::to_string(byte.writer)));
        if(use == LdsUse::Write)
        {
            if(shadow.races && read_now && byte.reader != self)
                report(wave,
                       op,
                       lane,
                       at,
                       FaultKind::Race,
                       access,
                       "another wave read this byte of LDS and no barrier lies in between");
            byte.write_epoch = shadow.epoch;
            byte.writer      = self;
            byte.written     = true;
        }
        else
        {
            if(shadow.unwritten && !byte.written)
                report(wave,
                       op,
                       lane,
                       at,
                       FaultKind::Uninitialised,
                       access,
                       "this byte of LDS was never written");
            byte.reader     = read_now && byte.reader != self ? 255 : self;
            byte.read_epoch = shadow.epoch;
        }
    }
}

} // namespace emu
