// Checks of LDS use between barriers: races of two waves.
//
// Each byte of LDS remembers the last epoch (count of barriers) in which it was written and read,
// and by which wave. Two waves that touch the same byte in one epoch, at least one of them writing,
// are unordered: whatever wave order the emulator happens to run, the hardware may run another. Two
// atomic writes are in no race, nor is a byte that a wave polls: atomic loads and stores of LDS are
// plain instructions, and a wave that waits for a flag reads it again and again.
#pragma once

#include "checks/banks.h"

#include <cstdint>
#include <vector>

namespace emu {
struct Wave;
struct MicroOp;

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
    };
    std::vector<Byte> bytes;
    uint32_t epoch = 1;
};

// Record the use of [address, address + bytes) and throw LaunchFault if it is a race.
void check_lds(Wave& wave, const MicroOp* op, unsigned lane, uint32_t address, uint32_t bytes, LdsUse use);
} // namespace emu
