// What went wrong in a launch, where, and the device's state afterwards.
//
// The interpreter throws LaunchFault with its state; launch() catches it, calls record_fault,
// and returns. From then on the device is lost, as a GPU's is: every HIP call that works on the
// device answers with the fault's error until emu_clear_fault().
#pragma once

#include "memory/memory.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>

namespace emu {
enum class FaultKind : uint32_t
{
    None,
    Memory,        // an address outside the allocations
    SrdRange,      // CDNA4: a buffer resource's range touches an unmapped page
    Alignment,     // an address that the instruction needs aligned
    Lds,           // outside the LDS of the workgroup
    Scratch,       // outside the lane's scratch
    Unknown,       // an instruction, operand or modifier that the emulator lacks; `detail` names it
    Registers,     // not in the kernel's descriptor, or a tuple where none may begin
    Pc,            // a jump out of the program
    Race,          // two waves touched the same bytes, and nothing orders the two
    Uninitialised, // a value that was never written decided something
    Deadlock,      // waves wait for a barrier that the others will never reach
    Barrier,       // with lanes off, or another one than other waves wait at (option barriers)
    Timeout,       // more instructions than allowed
    Hazard,        // an instruction too early after another, for want of wait states (option hazards)
    Heap,          // a free() in a kernel of what malloc() did not give (option heap)
    Trap,          // the kernel ended itself: s_trap, of a failed assert or abort
    Host,          // an unknown request to the host
    Internal,      // a mistake of the emulator
};
std::string hex_text(uint64_t value);
std::string plural(uint64_t count, const char* what); // "1 byte", "2 bytes"
const char* fault_kind_name(FaultKind);

enum class Access : uint32_t
{
    None,
    Load,
    Store,
    Atomic
};
const char* access_name(Access);

constexpr uint32_t NO_LANE = ~0u; // scalar accesses, and faults of a whole wave

struct Fault
{
    FaultKind kind = FaultKind::None;
    Access access  = Access::None;
    std::string kernel;
    std::string text;          // the instruction as the decoder printed it
    std::string source;        // its file and line, if the code object has a line table
    uint64_t pc           = 0; // virtual address in the code object, as disassemblers print it
    uint32_t instruction  = 0; // its index in the kernel's micro-ops
    uint32_t workgroup[3] = {0, 0, 0};
    uint32_t wave = 0, lane = NO_LANE;
    uint64_t address = 0, bytes = 0;
    std::string detail; // a sentence for what the fields don't say

    // Filled in by record_fault for Memory and SrdRange.
    bool has_nearest = false;
    Allocation allocation;
    int64_t distance = 0; // as nearest() has it
    uint64_t overrun = 0; // of an access that begins inside a live allocation: bytes after its end
};
// A fault of an access; the wave and the instruction are filled in where it is raised.
Fault fault_of(FaultKind kind, Access access, uint32_t lane, uint64_t address, uint64_t bytes, std::string detail);

class LaunchFault : public std::exception
{
public:
    explicit LaunchFault(Fault fault) : fault_(std::move(fault)) {}
    const Fault& fault() const { return fault_; }
    Fault& fault() { return fault_; } // callers further out add kernel, workgroup, wave
    const char* what() const noexcept override { return "fault in a launch"; }

private:
    Fault fault_;
};

// Store a launch's fault as the device's and look up the nearest allocation. The first one stays
// until cleared.
void record_fault(Fault fault);
// Nonzero once a fault was recorded: other waves and threads look at it to stop early, HIP calls to
// refuse.
extern std::atomic<uint32_t> fault_pending;
// Whether this process, and not one that it was forked from, recorded one, cleared or not.
bool had_fault();
bool last_fault(Fault* fault);
void clear_fault();
// The error a HIP call answers with: 700 for addresses, 702 for Timeout, 719 for the rest.
int fault_error(FaultKind);
std::string fault_json(const Fault&);
std::string fault_message(const Fault&); // one readable paragraph
// A kernel's name as it was written in C++; as it is if it was not, or if that fills more than a few
// lines.
std::string readable_name(const std::string& name);

// For JSON made by hand: a quoted string.
std::string json_string(const std::string& text);
} // namespace emu
