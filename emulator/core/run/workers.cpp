#include "run/workers.h"

#include "run/counters.h"
#include "run/fault.h"
#include "run/turns.h"

#include <algorithm>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace emu {
namespace {
class Workers
{
public:
    Workers(const Shape& shape, uint64_t resident) : shape_(shape), resident_(resident) {}

    // One after the other on each host thread, to the end or until they wait for others.
    void run()
    {
        const auto wanted =
            shape_.races != nullptr ? 1 : static_cast<uint64_t>(std::max<int64_t>(1, options().threads));
        std::vector<std::thread> helpers;
        for(uint64_t i = 1; i < std::min({wanted, shape_.groups(), resident_}); ++i)
            helpers.emplace_back([this] { work(); });
        work();
        for(std::thread& helper : helpers)
            helper.join();
    }

    // All at once, on this thread.
    void start_all()
    {
        Counts& counts = new_counts();
        while(next_ < shape_.groups())
        {
            waiting_.push_back(std::make_unique<Runner>(shape_, counts));
            waiting_.back()->start(next_++);
        }
    }

    // What waits for others, in turns; then throw what was thrown.
    void finish()
    {
        const uint32_t host = host_mode();
        if(!failure_ && !fault_)
            finish_waiting();
        load_host_mode(host);
        count();
        if(failure_)
            std::rethrow_exception(failure_);
        if(fault_)
            throw *fault_;
    }

private:
    Counts& new_counts()
    {
        const std::lock_guard lock(guard_);
        return counts_.emplace_back();
    }

    void work()
    {
        const uint32_t host = host_mode();
        std::unique_ptr<Runner> runner;
        try
        {
            Counts& counts = new_counts();
            while(const std::optional<uint64_t> index = take())
            {
                if(!runner)
                    runner = std::make_unique<Runner>(shape_, counts);
                give_back(runner, run_group(*runner, *index));
            }
        }
        catch(...)
        {
            const std::lock_guard lock(guard_);
            stopped_ = true;
            failure_ = std::current_exception();
        }
        load_host_mode(host);
        const std::lock_guard lock(guard_);
        if(runner)
            add_traffic(traffic_, runner->traffic());
    }

    // A workgroup to run, if the device has room for it.
    std::optional<uint64_t> take()
    {
        const std::lock_guard lock(guard_);
        if(stopped_ || next_ == shape_.groups() || running_ + waiting_.size() >= resident_)
            return std::nullopt;
        ++running_;
        return next_++;
    }

    void give_back(std::unique_ptr<Runner>& runner, bool ended)
    {
        const std::lock_guard lock(guard_);
        --running_;
        if(!ended)
            waiting_.push_back(std::move(runner));
    }

    // False: it waits for others.
    bool run_group(Runner& runner, uint64_t index)
    {
        try
        {
            return runner.run(index);
        }
        catch(const LaunchFault& fault)
        {
            const std::lock_guard lock(guard_);
            stopped_ = true;
            if(!fault_ || index < fault_at_)
            {
                fault_.emplace(fault);
                fault_at_ = index;
            }
            return true;
        }
    }

    void finish_waiting()
    {
        std::vector<Runner*> open;
        for(const auto& runner : waiting_)
        {
            runner->make_turns_short();
            open.push_back(runner.get());
        }
        try
        {
            take_turns(shape_, std::move(open), next_);
        }
        catch(...)
        {
            failure_ = std::current_exception();
        }
    }

    void count()
    {
        for(const auto& runner : waiting_)
            add_traffic(traffic_, runner->traffic());
        Counts executions;
        for(const Counts& part : counts_)
            for(const auto& [code, counts] : part)
            {
                std::vector<uint64_t>& sum = executions[code];
                sum.resize(counts.size());
                for(size_t i = 0; i < counts.size(); ++i)
                    sum[i] += counts[i];
            }
        count_launch(shape_.kernel, executions, traffic_);
    }

    const Shape& shape_;
    const uint64_t resident_;
    std::mutex guard_; // of all that follows
    uint64_t next_ = 0, running_ = 0;
    bool stopped_ = false;
    std::deque<Counts> counts_; // of each thread
    std::vector<std::unique_ptr<Runner>> waiting_;
    std::optional<LaunchFault> fault_;
    uint64_t fault_at_ = 0;
    std::exception_ptr failure_;
    Traffic traffic_;
};
} // namespace

void run_workgroups(const Shape& shape, uint64_t resident, Together together)
{
    // One runs even where the device, by its registers, has room for none.
    Workers workers(shape, std::max<uint64_t>(1, resident));
    if(together == Together::Yes)
        workers.start_all();
    else
        workers.run();
    workers.finish();
}
} // namespace emu
