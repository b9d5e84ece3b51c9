#include "run/fault.h"

#include "hip/device_api.h"

#include <cstdio>
#include <cstdlib>
#include <cxxabi.h>
#include <memory>
#include <mutex>
#include <unistd.h>

namespace emu {
std::atomic<uint32_t> fault_pending{0};

namespace {
struct Last
{
    std::mutex mutex;
    Fault fault;
    pid_t process = 0; // that recorded one
};

Last& last()
{
    // Leaked on purpose: destructors of other libraries still call it.
    static Last& only = *new Last;
    return only;
}

std::string& last_error()
{
    thread_local std::string text;
    return text;
}

// "17 bytes past the end of allocation 3 'K' (device, 4096 bytes at 0x10007ae00000)"
std::string where(const Fault& fault)
{
    const Allocation& a = fault.allocation;
    std::string place;
    if(fault.distance == 0 && fault.overrun)
        place = "inside, with its last " + plural(fault.overrun, "byte") + " past the end of";
    else if(fault.distance == 0)
        place = "inside";
    else if(fault.distance < 0)
        place = plural(static_cast<uint64_t>(-fault.distance), "byte") + " before the start of";
    else
        place = fault.distance == 1 ? "right after the end of"
                                    : plural(static_cast<uint64_t>(fault.distance - 1), "byte") + " past the end of";
    return place + " allocation " + std::to_string(a.id) + (a.label.empty() ? "" : " '" + a.label + "'") + " (" +
           allocation_kind_name(a.kind) + ", " + plural(a.bytes, "byte") + " at " + hex_text(a.base) +
           (a.freed ? ", freed before)" : ")");
}
} // namespace

std::string readable_name(const std::string& name)
{
    constexpr size_t LONGEST = 400;
    int status               = 0;
    const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status),
                                                           std::free);
    const std::string written = status == 0 ? text.get() : name;
    return name.starts_with("_Z") && written.size() <= LONGEST ? written : name;
}

std::string plural(uint64_t count, const char* what)
{
    return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

Fault fault_of(FaultKind kind, Access access, uint32_t lane, uint64_t address, uint64_t bytes, std::string detail)
{
    Fault fault;
    fault.kind    = kind;
    fault.access  = access;
    fault.lane    = lane;
    fault.address = address;
    fault.bytes   = bytes;
    fault.detail  = std::move(detail);
    return fault;
}

std::string hex_text(uint64_t value)
{
    char text[24];
    std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
    return text;
}

const char* fault_kind_name(FaultKind kind)
{
    // clang-format off
    static const char* const names[] = {
        "none", "memory", "srd_range", "alignment", "lds", "scratch", "unknown", "registers",
        "pc", "race", "uninitialised", "deadlock", "barrier", "timeout", "hazard", "heap",
        "trap", "host", "internal"};
    // clang-format on
    return names[static_cast<size_t>(kind)];
}

const char* access_name(Access access)
{
    static const char* const names[] = {"none", "load", "store", "atomic"};
    return names[static_cast<size_t>(access)];
}

void record_fault(Fault fault)
{
    const bool addressed      = fault.kind == FaultKind::Memory || fault.kind == FaultKind::SrdRange;
    const std::string foreign = addressed ? foreign_memory(fault.address) : "";
    if(!foreign.empty())
        fault.detail = foreign + (fault.detail.empty() ? "" : "; ") + fault.detail;
    else if(addressed)
    {
        fault.has_nearest  = nearest(fault.address, &fault.allocation, &fault.distance);
        const uint64_t end = fault.allocation.base + fault.allocation.bytes;
        if(fault.has_nearest && fault.distance == 0 && fault.bytes > end - fault.address)
            fault.overrun = fault.bytes - (end - fault.address);
    }
    std::lock_guard lock(last().mutex);
    last().process = getpid();
    if(fault_pending.load(std::memory_order_relaxed))
        return;
    last().fault = std::move(fault);
    fault_pending.store(1, std::memory_order_release);
}

bool last_fault(Fault* fault)
{
    std::lock_guard lock(last().mutex);
    if(!fault_pending.load(std::memory_order_relaxed))
        return false;
    *fault = last().fault;
    return true;
}

bool had_fault()
{
    std::lock_guard lock(last().mutex);
    return last().process == getpid();
}

void clear_fault()
{
    std::lock_guard lock(last().mutex);
    last().fault = {};
    fault_pending.store(0, std::memory_order_release);
}

int fault_error(FaultKind kind)
{
    switch(kind)
    {
        case FaultKind::None: return 0;
        case FaultKind::Memory:
        case FaultKind::SrdRange:
        case FaultKind::Alignment: return 700; // hipErrorIllegalAddress
        case FaultKind::Timeout: return 702;   // hipErrorLaunchTimeOut
        default: return 719;                   // hipErrorLaunchFailure
    }
}

std::string json_string(const std::string& text)
{
    std::string out = "\"";
    for(const char c : text)
    {
        if(c == '"' || c == '\\')
            out += '\\';
        if(static_cast<unsigned char>(c) < 0x20)
        {
            char escaped[8];
            std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(c));
            out += escaped;
        }
        else
        {
            out += c;
        }
    }
    return out + '"';
}

std::string fault_json(const Fault& f)
{
    const auto number = [](uint64_t value) { return std::to_string(value); };
    std::string out =
        "{\"kind\": " + json_string(fault_kind_name(f.kind)) + ", \"access\": " + json_string(access_name(f.access)) +
        ", \"kernel\": " + json_string(f.kernel) + ", \"text\": " + json_string(f.text) +
        ", \"source\": " + json_string(f.source) + ", \"pc\": " + number(f.pc) +
        ", \"instruction\": " + number(f.instruction) + ", \"workgroup\": [" + number(f.workgroup[0]) + ", " +
        number(f.workgroup[1]) + ", " + number(f.workgroup[2]) + "], \"wave\": " + number(f.wave) +
        ", \"lane\": " + (f.lane == NO_LANE ? "null" : number(f.lane)) + ", \"address\": " + number(f.address) +
        ", \"bytes\": " + number(f.bytes) + ", \"detail\": " + json_string(f.detail) +
        ", \"message\": " + json_string(fault_message(f)) + ", \"error\": " + std::to_string(fault_error(f.kind));
    if(f.has_nearest)
    {
        const Allocation& a = f.allocation;
        out += ", \"nearest\": {\"id\": " + number(a.id) + ", \"base\": " + number(a.base) +
               ", \"bytes\": " + number(a.bytes) + ", \"kind\": " + json_string(allocation_kind_name(a.kind)) +
               ", \"label\": " + json_string(a.label) + ", \"freed\": " + (a.freed ? "true" : "false") +
               ", \"distance\": " + std::to_string(f.distance) + ", \"overrun\": " + number(f.overrun) + "}";
    }
    else
    {
        out += ", \"nearest\": null";
    }
    return out + "}";
}

std::string fault_message(const Fault& f)
{
    std::string out;
    if(f.kind == FaultKind::Memory)
        out = std::string(access_name(f.access)) + " of " + plural(f.bytes, "byte") + " at " + hex_text(f.address) +
              " outside the allocations";
    else if(f.kind == FaultKind::SrdRange)
        out = "the range of a buffer resource touches an unmapped page at " + hex_text(f.address) +
              " (CDNA4 faults even if the addressed bytes are mapped)";
    else
        out = std::string(fault_kind_name(f.kind)) + " fault";
    if(!f.detail.empty())
        out += ": " + f.detail;
    out += "\n  kernel " + readable_name(f.kernel) + "\n  pc " + hex_text(f.pc) +
           (f.text.empty() ? "" : "  " + f.text) + (f.source.empty() ? "" : "\n  source " + f.source);
    if(f.kind == FaultKind::Registers) // found before any wave ran
        return out;
    out += "\n  workgroup (" + std::to_string(f.workgroup[0]) + ", " + std::to_string(f.workgroup[1]) + ", " +
           std::to_string(f.workgroup[2]) + ") wave " + std::to_string(f.wave) +
           (f.lane == NO_LANE ? "" : " lane " + std::to_string(f.lane));
    if(f.has_nearest)
        out += "\n  nearest: " + where(f);
    return out;
}

void set_last_error(std::string text) { last_error() = std::move(text); }

// Copies what fits; returns the bytes needed, with the NUL.
size_t answer_text(const std::string& whole, char* text, size_t bytes)
{
    if(bytes > 0)
        std::snprintf(text, bytes, "%s", whole.c_str());
    return whole.size() + 1;
}
} // namespace emu

const char* emu_last_error(void) { return emu::last_error().c_str(); }

size_t emu_last_fault_json(char* text, size_t bytes)
{
    emu::Fault fault;
    return emu::answer_text(emu::last_fault(&fault) ? emu::fault_json(fault) : "", text, bytes);
}

void emu_clear_fault(void) { emu::clear_fault(); }
