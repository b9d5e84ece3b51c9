// Checks of LDS use between barriers: races of two waves.
//
// Each byte of LDS remembers the last epoch (count of barriers) in which it was written and read,
// and by which wave. Two waves that touch the same byte in one epoch, at least one of them writing,
// are unordered: whatever wave order the emulator happens to run, the hardware may run another. Two
// atomic writes are in no race, nor is a byte that a wave polls: atomic loads and stores of LDS are
// plain instructions, and a wave that waits for a flag reads it again and again.
#pragma once

#include "checks/banks.h"
#include "run/fault.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace emu {
struct Wave;
struct MicroOp;
struct Code;

inline constexpr uint8_t SEVERAL_WAVES = 255;
// Reads of a byte by one lane between two barriers that make it a flag that the wave waits for.
inline constexpr uint8_t POLLED = 200;

struct LdsShadow
{
    struct Byte
    {
        uint32_t write_epoch = 0, read_epoch = 0; // 0: never
        uint8_t writer = 0, reader = 0;           // wave; SEVERAL_WAVES: of this epoch
        uint8_t lane = 0, repeats = 0;            // reads by that lane of `reader` in this epoch, up to POLLED
        bool atomic = false;                      // all writes of this epoch are atomic
        // Writes that were not waited for (option late_loads): of ds_write, of LDS-DMA.
        uint8_t in_flight[2] = {0, 0};
        // Accesses of this epoch, by number; 0: none. The last read by each of two waves.
        uint32_t write = 0, read = 0, other_read = 0;
    };
    struct LdsAccess
    {
        const Code* code;
        const MicroOp* op;
        uint8_t wave;
    };
    std::vector<Byte> bytes;
    // Of this epoch; the number is the place, plus 1. An instruction of a wave has one, in a loop, too.
    std::vector<LdsAccess> accesses;
    std::map<std::pair<const MicroOp*, uint8_t>, uint32_t> numbers;
    uint32_t last = 0;         // number
    std::optional<Fault> race; // of the instruction that runs, the first of
    uint64_t racing   = 0;     // these lanes
    bool written_over = true;  // all of them write, and over what other waves wrote
    uint32_t epoch    = 1;

    uint32_t note(const Wave& wave, const MicroOp* op);
    // The access of this number, for people.
    std::string place(uint32_t number) const;
    void next_epoch();
    void start(uint32_t lds_bytes); // of a workgroup
    void forget();                  // what an instruction did that failed
};

// Record the use of [address, address + bytes). After all lanes, report_lds_race throws LaunchFault
// for a race.
void check_lds(Wave& wave, const MicroOp* op, unsigned lane, uint32_t address, uint32_t bytes, LdsUse use);
void report_lds_race(const Wave& wave, const MicroOp* op);
} // namespace emu
