#include "checks/probe.h"

#include "checks/twin.h"
#include "hip/api.h"
#include "hip/device_api.h"
#include "isa/access.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <limits>
#include <map>
#include <mutex>
#include <sstream>
#include <string_view>
#include <tuple>

namespace emu {

namespace {

constexpr std::array<const char*, 9> FATE_NAMES = {
    "masked", "carried", "overwritten", "landed", "left", "jump", "store", "mode", "faulted"};

struct Range
{
    int64_t least = std::numeric_limits<int64_t>::max(), most = std::numeric_limits<int64_t>::min();
};

// Of all launches since the last reset.
struct Observed
{
    uint64_t executions = 0, different = 0;
    std::array<Range, 3> sources; // of the instruction that was built, as signed dwords
    std::map<std::tuple<uint64_t, std::string, Fate>, uint64_t> fates;
};

std::mutex guard;
Observed observed;

bool is_called(const Wave& wave, const MicroOp* op, std::initializer_list<const char*> names)
{
    const std::string_view text = wave.code->text(*op);
    return std::ranges::any_of(names, [&](const char* name) { return text.starts_with(name); });
}

// How many registers from src[i] on are read. Memory instructions leave out what they do not use;
// of a whole row v_readlane and v_writelane read one lane, and show it by their result.
unsigned words_read(const Wave& wave, const MicroOp* op, unsigned i)
{
    const auto kind   = static_cast<Kind>(op->kind);
    const bool memory = kind == Kind::Vmem || kind == Kind::Lds || kind == Kind::Smem;
    if(op->src[i].code == NONE || (i == 0 && is_called(wave, op, {"v_readlane", "v_writelane"})))
        return 0;
    return memory ? op->words[i] : std::max<unsigned>(1, op->words[i]);
}

template <typename Places>
bool reads_any(const Wave& wave, const MicroOp* op, const Places& places)
{
    if(places.none())
        return false;
    // These do not name SCC; branches are looked at where they go.
    bool reads =
        places[SCALAR + SCC] && is_called(wave, op, {"s_cselect", "s_cmov", "s_addc", "s_subb"});
    for(unsigned i = 0; i < 3; ++i)
        for(unsigned w = 0; w < words_read(wave, op, i) && op->src[i].code + w < places.size(); ++w)
            reads |= places[op->src[i].code + w];
    return reads;
}

void note(const Wave& wave, const MicroOp* op, Fate fate)
{
    const std::lock_guard lock(guard);
    ++observed.fates[{wave.code->virtual_address(*op), wave.code->text(*op), fate}];
}

void note_sources(const Wave& wave, const MicroOp* op)
{
    const uint64_t mask = wave.exec();
    const std::lock_guard lock(guard);
    ++observed.executions;
    for(unsigned i = 0; i < 3; ++i)
    {
        const uint16_t code = op->src[i].code;
        Range& range        = observed.sources[i];
        const auto see      = [&range](uint32_t value) {
            const auto number = static_cast<int32_t>(value);
            range.least       = std::min<int64_t>(range.least, number);
            range.most        = std::max<int64_t>(range.most, number);
        };
        if(words_read(wave, op, i) == 0 || code >= SCALAR + 128)
            continue;
        if(code >= SCALAR)
            see(wave.s[code - SCALAR]);
        else
            for(unsigned l = 0; l < LANES; ++l)
                if(mask >> l & 1)
                    see(wave.v[code][l]);
    }
}

bool memory_differs(const Wave& wave, const Wave& other)
{
    return std::memcmp(wave.group->lds, other.group->lds, wave.group->lds_bytes) != 0 ||
           std::memcmp(wave.scratch, other.scratch, size_t{LANES} * wave.scratch_bytes) != 0;
}

bool row_differs(const Wave& wave, unsigned row)
{
    return std::memcmp(wave.v[row], wave.other->v[row], sizeof wave.v[row]) != 0;
}

// Whether a store that reads something different stores the same.
bool stored_alike(Wave& wave, const MicroOp* op)
{
    if(!is_called(wave, op, {"buffer_store"}))
        return false;
    try
    {
        return stores_alike(wave, *wave.other, op);
    }
    catch(const LaunchFault&)
    {
        return false;
    }
}

std::string json()
{
    std::ostringstream out;
    out << "{\"executions\": " << observed.executions << ", \"different\": " << observed.different
        << ", \"sources\": [";
    for(size_t i = 0; i < observed.sources.size(); ++i)
    {
        const Range& range = observed.sources[i];
        out << (i == 0 ? "" : ", ");
        if(range.least > range.most)
            out << "null";
        else
            out << '[' << range.least << ", " << range.most << ']';
    }
    out << "], \"fates\": [";
    const char* separator = "";
    for(const auto& [key, count] : observed.fates)
    {
        const auto& [pc, text, fate] = key;
        out << separator << "{\"pc\": " << pc << ", \"text\": " << json_string(text)
            << ", \"fate\": \"" << FATE_NAMES[static_cast<size_t>(fate)]
            << "\", \"count\": " << count << "}";
        separator = ", ";
    }
    out << "]}";
    return out.str();
}

} // namespace

void Probe::start()
{
    std::ranges::fill(differing_, Places{});
    memory_ = live_ = over_ = false;
}

const MicroOp* Probe::step(Wave& wave, const MicroOp* op)
{
    if(over_)
        return op->handler(wave, op);
    Wave& other               = *wave.other;
    const bool planted        = op->other != 0;
    const MicroOp* const mine = planted ? &wave.code->ops[op->other] : op;
    if(planted)
        note_sources(wave, op);
    if(op->flags & WRITES)
        return store(wave, op, planted);
    const MicroOp* parallel = nullptr;
    try
    {
        parallel = mine->handler(other, mine);
    }
    catch(const LaunchFault&)
    {
        const MicroOp* const next = op->handler(wave, op); // which may fault like the other
        decide(wave, op, Fate::Faulted);
        return next;
    }
    const MicroOp* const next = op->handler(wave, op);
    other.instructions        = wave.instructions;
    if(!planted && !live_)
        return next;
    if(wave.mode != other.mode)
        decide(wave, op, Fate::Mode);
    else if(!planted && parallel != next)
        decide(wave, op, Fate::Jump);
    else
        compare(wave, op, planted);
    return next;
}

// Stores and atomics happen once; where they would differ, or one of them is the planted
// instruction, the two part. Lanes outside of a buffer's bounds do not count.
const MicroOp* Probe::store(Wave& wave, const MicroOp* op, bool planted)
{
    const Places& places = differing_[wave.number];
    const uint64_t mask = wave.exec(), others = wave.other->exec();
    bool differs = mask != others || (planted && mask != 0) || reads_any(wave, op, places);
    for(unsigned w = 0; w < op->words[3] && op->dst + w < places.size(); ++w)
        differs |= places[op->dst + w]; // a buffer's data
    const bool dropped        = differs && !planted && stored_alike(wave, op);
    const MicroOp* const next = op->handler(wave, op);
    if(differs && !dropped)
    {
        if(planted)
        {
            const std::lock_guard lock(guard);
            ++observed.different;
        }
        decide(wave, op, Fate::Store);
        return next;
    }
    if(dropped)
        note(wave, op, Fate::Masked);
    write_as_twin(wave, *wave.other, op, mask);
    wave.other->set_pair(EXEC, others);
    return next;
}

void Probe::compare_places(const Wave& wave, const MicroOp* op, bool whole, Places& places) const
{
    const auto look = [&](unsigned code, unsigned words) {
        for(unsigned row = code; row < code + std::max(1u, words) && row < SCALAR; ++row)
            places[row] = row_differs(wave, row);
    };
    if(whole)
        look(0, SCALAR);
    for(unsigned i = 0; i < 3 && !whole; ++i)
        look(op->src[i].code, op->words[i]); // some instructions write these, too
    if(!whole)
        look(op->dst, op->words[3]);
    for(unsigned i = 0; i < 256; ++i)
        places[SCALAR + i] = wave.s[i] != wave.other->s[i];
}

void Probe::compare(const Wave& wave, const MicroOp* op, bool whole)
{
    Places& places      = differing_[wave.number];
    const Places before = places;
    const bool had      = memory_;
    const auto kind     = static_cast<Kind>(op->kind);
    const bool lands    = kind == Kind::Wait || wave.stop == Stop::End;
    compare_places(wave, op, whole || (lands && wave.group->late), places);
    if(whole || lands || kind == Kind::Lds || kind == Kind::Vmem)
        memory_ = memory_differs(wave, *wave.other);
    if(before.any() && places.none()) // nothing else may be left either
        compare_places(wave, op, true, places);
    if(whole)
    {
        const std::lock_guard lock(guard);
        observed.different += places != before || memory_ != had;
    }
    else
    {
        judge(wave, op, before);
        if(had && !memory_)
            note(wave, op, lands ? Fate::Landed : Fate::Overwritten);
    }
    if(wave.stop == Stop::End && places.any())
    {
        note(wave, op, Fate::Left);
        places.reset();
    }
    live_ = memory_ || std::ranges::any_of(differing_, [](const Places& p) { return p.any(); });
}

// What became of the differences that the micro-op met.
void Probe::judge(const Wave& wave, const MicroOp* op, const Places& before)
{
    const Places& after = differing_[wave.number];
    const bool reads    = reads_any(wave, op, before);
    if((after & ~before).any())
        note(wave, op, Fate::Carried);
    else if(reads && after != before)
        note(wave, op, Fate::Masked);
    else if(reads)
    {
        const unsigned first = op->dst, last = first + std::max<unsigned>(1, op->words[3]);
        bool carried = false;
        for(unsigned code = first; code < last && code < after.size(); ++code)
            carried |= after[code];
        note(wave, op, carried ? Fate::Carried : Fate::Masked);
    }
    else if((before & ~after).any())
        note(
            wave, op, static_cast<Kind>(op->kind) == Kind::Wait ? Fate::Landed : Fate::Overwritten);
}

void Probe::decide(const Wave& wave, const MicroOp* op, Fate fate)
{
    note(wave, op, fate);
    over_ = true;
}

} // namespace emu

size_t emu_probe_json(char* text, size_t bytes)
{
    const std::lock_guard lock(emu::guard);
    return emu::answer_text(emu::json(), text, bytes);
}

void emu_reset_probe(void)
{
    const std::lock_guard lock(emu::guard);
    emu::observed = {};
}
