#include "checks/global_races.h"

#include "hip/call.h"
#include "isa/wave.h"
#include "standalone/report.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace emu {
namespace {
// What the notes of a launch take at most; then its rest is not checked, which is reported.
constexpr uint64_t MOST_BYTES = uint64_t{2} << 30;

void release(Order& order, uint32_t number)
{
    const auto at = std::ranges::lower_bound(order.releases, number);
    if(at == order.releases.end() || *at != number)
        order.releases.insert(at, number);
}

bool reached(const Order& before, uint32_t number, const Order& now)
{
    const auto first = std::ranges::lower_bound(before.releases, number);
    return first != before.releases.end() && *first <= now.acquired;
}

// Ordinary and atomic stores look alike.
bool has_weak_stores(const Wave& wave)
{
    constexpr uint32_t GFX90A = 910;
    return wave.group->arch == GFX90A;
}

// The load before a loop of compare-and-swap, as LLVM writes atomics that the arch lacks: the swap finds out if its
// value is an old one.
bool begins_swaps(const MicroOp& load, const Kernel& kernel)
{
    const MicroOp* const ops = kernel.code->ops.data();
    for(const MicroOp* op = &load; op >= ops + kernel.entry && op < ops + kernel.end; ++op)
    {
        const bool in_place = load.src[0].code >= SCALAR
                                  ? op->src[1].code == load.src[0].code
                                  : op->src[0].code == load.src[0].code && op->src[1].code == load.src[1].code;
        if(in_place && op->offset == load.offset && std::strstr(kernel.code->text(*op), "_atomic_cmpswap") != nullptr)
            return true;
    }
    return false;
}

std::string id_text(const uint32_t id[3])
{
    return "workgroup (" + std::to_string(id[0]) + ", " + std::to_string(id[1]) + ", " + std::to_string(id[2]) + ")";
}
} // namespace

bool is_plain_store(const Wave& wave, const MicroOp* op)
{
    return wave.group->races->judges() && !(op->flags & COHERENT) && !has_weak_stores(wave);
}

GroupOrder* GlobalRaces::start(const uint32_t id[3])
{
    has_room(sizeof(GroupOrder));
    GroupOrder& group = groups_.emplace_back();
    std::copy_n(id, 3, group.id);
    return &group;
}

void GlobalRaces::touch(Access access, uint64_t base, const uint64_t* offsets, uint64_t mask, unsigned bytes)
{
    for(uint32_t l = 0; l < LANES; ++l)
        if(mask >> l & 1)
            touch(access, base + offsets[l], bytes, l);
}

void GlobalRaces::touch(Access access, uint64_t address, unsigned bytes, uint32_t lane)
{
    Touch& added = touched_.emplace_back(Touch{access, lane, address, bytes, {}});
    if(access == Access::Store)
        std::memcpy(added.before, reinterpret_cast<const void*>(address), bytes);
}

void GlobalRaces::judge(const Wave& wave, const MicroOp* op)
{
    if(touched_.empty())
        return;
    const std::vector<Touch> touched = std::move(touched_);
    touched_.clear();
    if(operation_ != nullptr)
        tell_operation(touched, op);
    if(full_ || !judges_)
        return;
    const Access access = touched.front().access;
    const bool coherent = access == Access::Atomic || op->flags & COHERENT;
    const bool compared = !coherent || (access == Access::Atomic && !has_weak_stores(wave));
    if(access == Access::Load ? coherent : !compared && op->flags & RETURN)
        for(const Touch& one : touched)
            publish(one);
    if(coherent)
        order(wave, op, access, static_cast<uint32_t>(records_.size()) + compared);
    if(!compared)
        return;
    const Now now = record(wave, op, access);
    for(const Touch& one : touched)
        access == Access::Store ? store(now, one) : access == Access::Load ? load(now, one) : change(now, one);
    if(race_)
        raise_race(wave, op, std::move(*race_), racing_);
}

GlobalRaces::Now GlobalRaces::record(const Wave& wave, const MicroOp* op, Access access)
{
    GroupOrder& group = *wave.group->order;
    has_room(sizeof(Record));
    records_.push_back({&group, op, wave.code, group.barriers, wave.number, access});
    return {wave, op, static_cast<uint32_t>(records_.size())};
}

// What an atomic or a coherent access does for others, as access `number`.
void GlobalRaces::order(const Wave& wave, const MicroOp* op, Access access, uint32_t number)
{
    GroupOrder& group = *wave.group->order;
    const bool flag   = access == Access::Store && !has_weak_stores(wave);
    if(flag)
        release(group.lds, number);
    if(access != Access::Load && (!flag || group.written_back != 0))
        release(group.device, flag ? group.written_back : number);
    if(access == Access::Store || (access == Access::Atomic && !(op->flags & RETURN)))
        return;
    group.device.acquired = number;
    if(access == Access::Load)
        group.lds.acquired = number;
}

void GlobalRaces::write_back(const Wave& wave)
{
    wave.group->order->written_back = static_cast<uint32_t>(records_.size());
    if(operation_ != nullptr)
        operation_->publish();
}

void GlobalRaces::change(const Now& now, const Touch& touch)
{
    visit(touch, [&](Cell& cell, uint64_t address, unsigned) {
        for(const uint32_t before : {cell.repeated ? 0 : cell.store, cell.load, cell.other_load})
            compare(now, touch, address, before);
        cell.atomic = now.number;
    });
}

void GlobalRaces::tell_operation(const std::vector<Touch>& touched, const MicroOp* op)
{
    for(const Touch& one : touched)
        if(one.access == Access::Atomic || op->flags & COHERENT)
            operation_->synchronise(one.access, one.address, (op->flags & RETURN) != 0);
        else
            operation_->touch(one.access, one.address, one.bytes,
                              one.access == Access::Store &&
                                  std::memcmp(reinterpret_cast<const void*>(one.address), one.before, one.bytes) != 0);
}

void GlobalRaces::order_by_lds(const Wave& wave, const MicroOp* op)
{
    Order& order      = wave.group->order->lds;
    const auto number = static_cast<uint32_t>(records_.size());
    release(order, number);
    if(op->flags & RETURN)
        order.acquired = number;
}

// Call each(cell, address, bytes) for the cells of an access.
template <typename Visit>
void GlobalRaces::visit(const Touch& touch, Visit&& each)
{
    const bool in_dwords = touch.address % 4 == 0 && touch.bytes % 4 == 0;
    uint64_t address     = touch.address;
    while(address < touch.address + touch.bytes)
    {
        Page* const page = page_of(address);
        if(page == nullptr)
            return;
        if(!in_dwords && page->step == 4)
        {
            std::vector<Cell> cells(PAGE_BYTES);
            for(size_t i = 0; i < cells.size(); ++i)
                cells[i] = page->cells[i / 4];
            has_room((cells.size() - page->cells.size()) * sizeof(Cell));
            page->cells = std::move(cells);
            page->step  = 1;
        }
        each(page->cells[address % PAGE_BYTES / page->step], address, page->step);
        address += page->step;
    }
}

void GlobalRaces::load(const Now& now, const Touch& touch)
{
    visit(touch, [&](Cell& cell, uint64_t address, unsigned) {
        if(!cell.repeated)
            compare(now, touch, address, cell.store);
        compare(now, touch, address, cell.atomic);
        if(cell.load != 0 && !same_wave(cell.load, now.number))
            cell.other_load = cell.load;
        cell.load = now.number;
    });
}

void GlobalRaces::store(const Now& now, const Touch& touch)
{
    visit(touch, [&](Cell& cell, uint64_t address, unsigned bytes) {
        if(std::memcmp(reinterpret_cast<const void*>(address), touch.before + (address - touch.address), bytes) != 0)
        {
            for(const uint32_t before : {cell.store, cell.load, cell.other_load, cell.atomic})
                compare(now, touch, address, before);
            cell = {now.number, 0, 0, 0, false};
        }
        else if(cell.store == 0 || !same_wave(cell.store, now.number))
        {
            cell.store    = now.number;
            cell.repeated = true;
        }
    });
}

// What a coherent load reads. If an ordinary store wrote it, as a flag on gfx90a, then that was a
// release.
void GlobalRaces::publish(const Touch& touch)
{
    visit(touch, [&](Cell& cell, uint64_t, unsigned) {
        if(cell.store != 0)
            release(const_cast<GroupOrder*>(records_[cell.store - 1].group)->device, cell.store);
    });
}

bool GlobalRaces::same_wave(uint32_t one, uint32_t other) const
{
    const Record &first = records_[one - 1], &second = records_[other - 1];
    return first.group == second.group && first.wave == second.wave;
}

bool GlobalRaces::is_ordered(uint32_t before, uint32_t now) const
{
    const Record &first = records_[before - 1], &second = records_[now - 1];
    if(reached(first.group->device, before, second.group->device))
        return true;
    return first.group == second.group && (first.wave == second.wave || first.barriers != second.barriers ||
                                           reached(first.group->lds, before, second.group->lds));
}

void GlobalRaces::compare(const Now& now, const Touch& touch, uint64_t address, uint32_t before)
{
    if(before == 0 || is_ordered(before, now.number))
        return;
    const Record &other = records_[before - 1], &own = records_[now.number - 1];
    const Record& load  = other.access == Access::Load ? other : own;
    const Access beside = (other.access == Access::Load ? own : other).access;
    if(load.access == Access::Load && beside == Access::Atomic && begins_swaps(*load.op, *now.wave.group->kernel))
        return;
    if(touch.lane != NO_LANE)
        racing_ |= uint64_t{1} << touch.lane;
    if(race_)
        return;
    const bool in_group = other.group == now.wave.group->order;
    std::string detail  = std::string(access_name(touch.access)) + " at " + hex_text(address);
    Allocation place;
    if(find_allocation(address, &place))
        detail += " (byte " + std::to_string(address - place.base) + " of allocation " + std::to_string(place.id) +
                  (place.label.empty() ? "" : " '" + place.label + "'") + ")";
    detail += std::string(in_group ? ", and no barrier or" : ", and no") + " atomic lies between this and the " +
              access_name(other.access) + " by " + id_text(other.group->id) + " wave " + std::to_string(other.wave) +
              " " + other.code->place(*other.op);
    race_ = fault_of(FaultKind::Race, touch.access, touch.lane, address, touch.bytes, std::move(detail));
}

// Null if there is no room for another one.
GlobalRaces::Page* GlobalRaces::page_of(uint64_t address)
{
    Page& page = pages_[address / PAGE_BYTES];
    if(page.cells.empty())
    {
        if(!has_room(PAGE_BYTES / 4 * sizeof(Cell)))
            return nullptr;
        page.cells.resize(PAGE_BYTES / 4);
    }
    return &page;
}

bool GlobalRaces::has_room(uint64_t bytes)
{
    used_ += bytes;
    if(used_ > MOST_BYTES && !full_)
    {
        full_ = true;
        report_line(
            "global_races: a launch makes more accesses than the check can remember. Its "
            "rest is not checked: make the problem smaller.");
    }
    return !full_;
}
} // namespace emu
