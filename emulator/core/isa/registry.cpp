#include "isa/registry.h"

#include <unordered_map>
#include <vector>

namespace emu {

namespace {

const std::vector<Entry>& all_entries()
{
    static const std::vector<Entry> all = [] {
        std::vector<Entry> joined;
        for(const std::span<const Entry> part :
            {scalar_entries(),   scalar_memory_entries(), control_entries(),
             float_entries(),    integer_entries(),       wide_entries(),
             half_entries(),     convert_entries(),       scale_entries(),
             compare_entries(),  lane_entries(),          packed_entries(),
             matrix_entries(),   lds_entries(),           buffer_entries(),
             flat_entries(),     scalar_rare_entries(),   media_entries(),
             saturate_entries(), lds_atomic_entries(),    format_entries()})
            joined.insert(joined.end(), part.begin(), part.end());
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

const Entry* entry_at(size_t index)
{
    return index < all_entries().size() ? &all_entries()[index] : nullptr;
}

size_t entry_count() { return all_entries().size(); }

} // namespace emu
