#include "checks/checks.h"

#include "isa/wave.h"

namespace emu {
namespace {
[[noreturn]] void report(Wave& wave, const MicroOp* op, unsigned lane, uint32_t address, FaultKind kind, Access access,
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

void check_lds(Wave& wave, const MicroOp* op, unsigned lane, uint32_t address, uint32_t bytes, LdsUse use)
{
    LdsShadow& shadow   = *wave.group->shadow;
    const auto self     = static_cast<uint8_t>(wave.number);
    const Access access = use == LdsUse::Read ? Access::Load : Access::Store;
    for(uint32_t at = address; at < address + bytes; ++at)
    {
        LdsShadow::Byte& byte  = shadow.bytes[at];
        const bool written_now = byte.write_epoch == shadow.epoch, read_now = byte.read_epoch == shadow.epoch;
        const bool of_wave = byte.in_flight[0] != 0, of_dma = byte.in_flight[1] != 0;
        const bool polled = read_now && byte.repeats == POLLED;
        const auto race   = [&](const std::string& detail) {
            if(!polled)
                report(wave, op, lane, at, FaultKind::Race, access, detail);
        };
        const auto writer = [&] {
            return byte.writer == SEVERAL_WAVES ? "several waves" : "wave " + std::to_string(byte.writer);
        };
        if(!written_now && (of_wave || of_dma) && byte.writer != self)
            race(writer() + (of_wave ? " did not wait (s_waitcnt lgkmcnt) for its write before the barrier"
                                     : " did not wait (s_waitcnt vmcnt) for its LDS-DMA before the barrier"));
        const bool both_atomic = use == LdsUse::Atomic && byte.atomic;
        if(written_now && byte.writer != self && !both_atomic)
            race("no barrier lies between this and the write by " + writer());
        if(use != LdsUse::Read)
        {
            if(read_now && byte.reader != self)
                race("another wave read this byte of LDS and no barrier lies in between");
            byte.atomic      = use == LdsUse::Atomic && (!written_now || byte.atomic);
            byte.writer      = written_now && byte.writer != self ? SEVERAL_WAVES : self;
            byte.write_epoch = shadow.epoch;
            continue;
        }
        if(!read_now)
            byte.lane = static_cast<uint8_t>(lane);
        const bool again = read_now && byte.reader == self && byte.lane == lane;
        byte.repeats     = static_cast<uint8_t>(!read_now ? 0 : byte.repeats + (again && !polled));
        byte.reader      = read_now && byte.reader != self ? SEVERAL_WAVES : self;
        byte.read_epoch  = shadow.epoch;
    }
}
} // namespace emu
