#include "checks/undecided.h"

#include "checks/twin.h"
#include "isa/operands.h"
#include "isa/registry.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

namespace emu {
namespace {
using Result = Undecided::Result;

enum class Test : uint8_t
{
    Float, // or anything else that one bit may change
    Equal,
    Less, // and greater, or equal
    Least,
    Greatest
};

struct Rule
{
    Result result;
    Test test     = Test::Float;
    unsigned bits = 32;
    bool has_sign = false;
};

// "u32" in v_cmp_lt_u32 and s_min_u32.
Rule of_type(Result result, std::string_view name, Test test)
{
    const char type = name[name.rfind('_') + 1];
    const auto bits = static_cast<unsigned>(std::atoi(name.substr(name.rfind('_') + 2).data()));
    return {result, type == 'f' ? Test::Float : test, bits, type == 'i'};
}

// What an instruction decides, by its name; None: nothing.
Rule rule_of(std::string_view name)
{
    const auto compares = [name](std::string_view prefix) { return name.starts_with(prefix); };
    for(const auto& [prefix, result] :
        {std::pair{"v_cmp_", Result::Lanes}, std::pair{"v_cmpx_", Result::Exec}, std::pair{"s_cmp_", Result::Scc}})
        if(compares(prefix))
        {
            const std::string_view test = name.substr(std::string_view(prefix).size());
            if(test.starts_with("f_") || test.starts_with("t_") || test.starts_with("tru_"))
                return {Result::None}; // of no operand
            const bool equal = test.starts_with("eq_") || test.starts_with("ne_") || test.starts_with("lg_");
            return of_type(result, name, equal ? Test::Equal : Test::Less);
        }
    for(const auto& [prefix, result] : {std::pair{"v_", Result::Row}, std::pair{"s_", Result::Scalar}})
        for(const auto& [operation, test] : {std::pair{"min_", Test::Least}, std::pair{"max_", Test::Greatest}})
            for(const char* type : {"u32", "i32", "f32"})
                if(name == std::string(prefix) + operation + type)
                    return of_type(result, name, test);
    for(const char* operation : {"s_and_b", "s_or_b", "s_xor_b", "s_andn2_b", "s_orn2_b"})
        if(compares(operation))
            return of_type(Result::NotZero, name, Test::Equal);
    if(compares("s_cbranch_vcc"))
        return {Result::Vcc};
    return {Result::None};
}

const Rule& rule_of(Handler handler)
{
    static const std::unordered_map<Handler, Rule> rules = [] {
        std::unordered_map<Handler, Rule> by_handler;
        for(size_t i = 0; i < entry_count(); ++i)
            if(const Rule rule = rule_of(std::string_view(entry_at(i)->name)); rule.result != Result::None)
                by_handler.emplace(entry_at(i)->handler, rule);
        return by_handler;
    }();
    static const Rule none{Result::None};
    const auto known = rules.find(handler);
    return known == rules.end() ? none : known->second;
}

// All bits of the bytes of which one bit is set: no byte of the patterns is equal, but bits are.
uint64_t whole_bytes(uint64_t bits)
{
    uint64_t whole = 0;
    for(unsigned at = 0; at < 64; at += 8)
        if(bits >> at & 0xff)
            whole |= uint64_t{0xff} << at;
    return whole;
}

// An operand in a wave and its twin: from all unknown bits 0 to all 1, as unsigned numbers.
struct Between
{
    uint64_t low, high, unknown;
};

Between between(const Rule& rule, uint64_t wave, uint64_t twin)
{
    const uint64_t all  = rule.bits == 64 ? ~uint64_t{0} : (uint64_t{1} << rule.bits) - 1;
    const uint64_t sign = rule.has_sign ? uint64_t{1} << (rule.bits - 1) : 0, number = (wave ^ sign) & all;
    const bool of_lanes    = rule.result == Result::Scc && rule.bits == 64; // a bit for each
    const uint64_t differs = wave ^ twin, unknown = (of_lanes ? differs : whole_bytes(differs)) & all;
    return {number & ~unknown, number | unknown, unknown};
}

bool is_open(const Rule& rule, const Between& a, const Between& b)
{
    const uint64_t unknown = a.unknown | b.unknown;
    switch(unknown == 0 ? Test::Least : rule.test)
    {
        case Test::Float: return true;
        case Test::Equal: return ((a.low ^ b.low) & ~unknown) == 0;
        case Test::Less: return a.low <= b.high && b.low <= a.high;
        default: return false;
    }
}

// Of sources 0 and 1, lane by lane; a scalar instruction has one lane.
template <typename First, typename Second>
void compare(const Rule& rule, unsigned lanes, First&& first, Second&& second, Undecided& open)
{
    for(unsigned l = 0; l < lanes; ++l)
    {
        const Between a = first(l), b = second(l);
        if(rule.result == Result::Row && rule.test == Test::Float)
        {
            open.lanes |= uint64_t{(a.unknown | b.unknown) != 0} << l;
            open.known[l] = POISON;
            open.other[l] = twin_poison(l);
            continue;
        }
        if(rule.test != Test::Least && rule.test != Test::Greatest)
        {
            open.lanes |= uint64_t{is_open(rule, a, b)} << l;
            continue;
        }
        const bool least    = rule.test == Test::Least;
        const uint64_t low  = least ? std::min(a.low, b.low) : std::max(a.low, b.low);
        const uint64_t high = least ? std::min(a.high, b.high) : std::max(a.high, b.high);
        open.lanes |= uint64_t{low != high} << l;
        const uint32_t sign = rule.has_sign ? 0x80000000 : 0;
        open.known[l]       = static_cast<uint32_t>(low) ^ sign;
        open.other[l]       = static_cast<uint32_t>(high) ^ sign;
    }
}

void compare_rows(const Rule& rule, const Wave& wave, const Wave& twin, const MicroOp* op, Undecided& open)
{
    Row low[4], high[4];
    const bool wide = rule.bits == 64;
    const auto make = [&](unsigned i) {
        const auto row = [&](const Wave& w, unsigned buffer) {
            if(!wide || op->dwords[i] < 2) // the mask of a class is a dword
            {
                const uint32_t* dwords = source_row(w, op, i, low[buffer]);
                return WideSource{dwords, nullptr};
            }
            return wide_source(w, op, i, low[buffer], high[buffer]);
        };
        return [&rule, a = row(wave, 2 * i), b = row(twin, 2 * i + 1)](unsigned l) {
            const auto value = [l](const WideSource& s) { return s.high == nullptr ? s.low[l] : s[l]; };
            return between(rule, value(a), value(b));
        };
    };
    compare(rule, LANES, make(0), make(1), open);
    open.lanes &= write_mask(wave, op);
}

void compare_scalars(const Rule& rule, const Wave& wave, const Wave& twin, const MicroOp* op, Undecided& open)
{
    const auto make = [&](unsigned i) {
        const auto value = [&](const Wave& w) {
            return rule.bits == 64 ? scalar_pair(w, op, op->src[i].code) : scalar_value(w, op, op->src[i].code);
        };
        return [&rule, a = value(wave), b = value(twin)](unsigned) { return between(rule, a, b); };
    };
    compare(rule, 1, make(0), make(1), open);
}
} // namespace

void find_undecided(const Wave& wave, const Wave& twin, const MicroOp* op, Undecided& open)
{
    const Rule& rule = rule_of(op->handler);
    open.result      = rule.result;
    switch(rule.result)
    {
        case Result::Lanes:
        case Result::Exec:
        case Result::Row: return compare_rows(rule, wave, twin, op, open);
        case Result::Scc:
        case Result::Scalar: return compare_scalars(rule, wave, twin, op, open);
        default: return;
    }
}

bool part_twin(const Wave& wave, Wave& twin, const MicroOp* op, const Undecided& open)
{
    const unsigned scalar = op->dst - SCALAR;
    // Whether a value is zero: a known bit of it that is set decides.
    const auto zero_is_open = [&](bool pair, unsigned at) {
        const uint64_t a = pair ? wave.pair(at) : wave.s[at], b = pair ? twin.pair(at) : twin.s[at];
        return a != b && (a & b) == 0;
    };
    switch(open.result)
    {
        case Result::Lanes:
        case Result::Exec:
            twin.set_pair(scalar, (twin.pair(scalar) & ~open.lanes) | (~wave.pair(scalar) & open.lanes));
            if(open.result == Result::Exec)
                twin.set_pair(EXEC, twin.pair(scalar));
            break;
        case Result::Scc: twin.s[SCC] ^= open.lanes & (twin.s[SCC] == wave.s[SCC]); break;
        case Result::NotZero:
            if(zero_is_open(op->dwords[3] == 2, scalar))
                twin.s[SCC] = wave.s[SCC] ^ 1;
            break;
        case Result::Vcc: return !zero_is_open(true, VCC);
        case Result::Row:
            for(unsigned l = 0; l < LANES; ++l)
                if(open.lanes >> l & 1 && twin.v[op->dst][l] == wave.v[op->dst][l])
                    twin.v[op->dst][l] = wave.v[op->dst][l] == open.known[l] ? open.other[l] : open.known[l];
            break;
        case Result::Scalar:
            if(open.lanes != 0 && twin.s[scalar] == wave.s[scalar])
                twin.s[scalar] = wave.s[scalar] == open.known[0] ? open.other[0] : open.known[0];
            break;
        default: break;
    }
    return true;
}
} // namespace emu
