#include "isa/registry.h"

#include <unordered_map>
#include <vector>

namespace emu {
namespace {
const std::vector<Entry>& all_entries()
{
    static const std::vector<Entry> all = [] {
        std::vector<Entry> joined;
#define X(name)                                \
    for(const Entry& entry : name##_entries()) \
        joined.push_back(entry);
        EMU_TABLES(X)
#undef X
        return joined;
    }();
    return all;
}
} // namespace

Handler find_handler(uint64_t hash)
{
    static const std::unordered_map<uint64_t, Handler> by_hash = [] {
        std::unordered_map<uint64_t, Handler> map;
        for(const Entry& entry : all_entries())
            map.emplace(name_hash(entry.name), entry.handler);
        return map;
    }();
    const auto found = by_hash.find(hash);
    return found == by_hash.end() ? nullptr : found->second;
}

const Entry* entry_at(size_t index) { return index < all_entries().size() ? &all_entries()[index] : nullptr; }

size_t entry_count() { return all_entries().size(); }
} // namespace emu
