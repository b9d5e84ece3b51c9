#include "checks/lds_races.h"

#include "isa/wave.h"
#include "run/program.h"

#include <utility>

namespace emu {
uint32_t LdsShadow::note(const Wave& wave, const MicroOp* op)
{
    const auto number = static_cast<uint8_t>(wave.number);
    if(last != 0 && accesses[last - 1].op == op && accesses[last - 1].wave == number)
        return last;
    last                       = static_cast<uint32_t>(accesses.size() + 1);
    const auto [place, is_new] = numbers.try_emplace({op, number}, last);
    if(is_new)
        accesses.push_back({wave.code, op, number});
    return last = place->second;
}

std::string LdsShadow::place(uint32_t number) const
{
    return number == 0 ? "" : ",\n  " + accesses[number - 1].code->place(*accesses[number - 1].op);
}

void LdsShadow::next_epoch()
{
    ++epoch;
    last = 0;
    accesses.clear();
    numbers.clear();
}

void LdsShadow::forget()
{
    race.reset();
    racing       = 0;
    written_over = true;
}

void LdsShadow::start(uint32_t lds_bytes)
{
    bytes.assign(lds_bytes, {});
    next_epoch();
    forget();
}

void report_lds_race(const Wave& wave, const MicroOp* op)
{
    LdsShadow& shadow = *wave.group->shadow;
    if(!shadow.race)
        return;
    Fault race            = std::move(*shadow.race);
    const uint64_t racing = shadow.racing;
    shadow.forget();
    raise_race(wave, op, std::move(race), racing);
}

void check_lds(Wave& wave, const MicroOp* op, unsigned lane, uint32_t address, uint32_t bytes, LdsUse use)
{
    LdsShadow& shadow   = *wave.group->shadow;
    const auto self     = static_cast<uint8_t>(wave.number);
    const Access access = use == LdsUse::Read ? Access::Load : Access::Store;
    const uint32_t now  = shadow.note(wave, op);
    for(uint32_t at = address; at < address + bytes; ++at)
    {
        LdsShadow::Byte& byte  = shadow.bytes[at];
        const bool written_now = byte.write_epoch == shadow.epoch, read_now = byte.read_epoch == shadow.epoch;
        const bool of_wave = byte.in_flight[0] != 0, of_dma = byte.in_flight[1] != 0;
        const bool polled = read_now && byte.repeats == POLLED;
        // Of this epoch; what is older has no number any more.
        const uint32_t write = written_now ? byte.write : 0, read = read_now ? byte.read : 0;
        const auto race = [&](const std::string& detail, uint32_t other) {
            if(polled)
                return;
            shadow.racing |= uint64_t{1} << lane;
            shadow.written_over &= use == LdsUse::Write && written_now && (!read_now || byte.reader == self);
            if(!shadow.race)
                shadow.race = fault_of(FaultKind::Race, access, lane, at, 1, detail + shadow.place(other));
        };
        const auto writer = [&] {
            return byte.writer == SEVERAL_WAVES ? "several waves" : "wave " + std::to_string(byte.writer);
        };
        if(!written_now && (of_wave || of_dma) && byte.writer != self)
            race(writer() + (of_wave ? " did not wait (s_waitcnt lgkmcnt) for its write before the barrier"
                                     : " did not wait (s_waitcnt vmcnt) for its LDS-DMA before the barrier"),
                 0);
        if(of_dma && byte.writer == self && use != LdsUse::Read && !(op->flags & TO_LDS))
            race("the wave did not wait (s_waitcnt vmcnt) for its LDS-DMA, which writes this byte, too", write);
        const bool both_atomic = use == LdsUse::Atomic && byte.atomic;
        if(written_now && byte.writer != self && !both_atomic)
            race("no barrier lies between this and the write by " + writer(), write);
        if(use != LdsUse::Read)
        {
            if(read_now && byte.reader != self)
                race("no barrier lies between this and the read by another wave",
                     shadow.accesses[read - 1].wave != self ? read : byte.other_read);
            byte.atomic      = use == LdsUse::Atomic && (!written_now || byte.atomic);
            byte.writer      = written_now && byte.writer != self ? SEVERAL_WAVES : self;
            byte.write_epoch = shadow.epoch;
            byte.write       = now;
            continue;
        }
        if(!read_now)
            byte.lane = static_cast<uint8_t>(lane);
        const bool again = read_now && byte.reader == self && byte.lane == lane;
        byte.repeats     = static_cast<uint8_t>(!read_now ? 0 : byte.repeats + (again && !polled));
        byte.reader      = read_now && byte.reader != self ? SEVERAL_WAVES : self;
        byte.read_epoch  = shadow.epoch;
        if(!read_now || shadow.accesses[read - 1].wave != self)
            byte.other_read = read;
        byte.read = now;
    }
}
} // namespace emu
