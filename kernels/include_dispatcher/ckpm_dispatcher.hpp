/* The dispatcher for C++ programs, without Python: open the folders of built libraries, list their
 * kernels, choose one by a pattern over its fields, launch it with raw pointers on a stream.
 *
 * A folder holds libckpm.so and kernels.txt. Folders of kernels that were compiled on demand
 * (ckpm jit) have both; ckpm cpp index FOLDER writes kernels.txt beside
 * another library. A library leaves HIP's symbols open: link the program with libamdhip64, or load
 * one with RTLD_GLOBAL before the first folder.
 *
 * C++17. Failures are ckpm::Error; the message has the remedy.
 */
#pragma once

#include "ckpm.h"
#include "ckpm_appendkv.h"
#include "ckpm_fwd.h"

#include <algorithm>
#include <deque>
#include <dlfcn.h>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

/* The kernels that a program needs, for ckpm cpp kernels FILE and jit --declared FILE:
 *
 *   CKPM_KERNEL_SET(prefill, "aiter", "family=batch_prefill dtype=bf16 hdim_q=128 lse=false");
 *
 * A name, an upstream, then patterns, all but the name as plain literals. */
#define CKPM_KERNEL_SET(name, upstream, ...) \
    static const ::ckpm::KernelSet name      \
    {                                        \
        #name, upstream, { __VA_ARGS__ }     \
    }

namespace ckpm {

class Error : public std::runtime_error
{
public:
    using std::runtime_error::runtime_error;
};

struct KernelSet
{
    std::string name;
    std::string upstream;
    std::vector<std::string> patterns;
};

struct Kernel
{
    std::string name;
    std::map<std::string, std::string> fields;
};

/* "dtype=bf16 mask=no,mask lse=*": conditions that must all hold, one a field. A field has one of
 * the values; with * it has any. */
class Pattern
{
public:
    explicit Pattern(const std::string& text)
    {
        std::istringstream words(text);
        for(std::string word; words >> word;)
        {
            const std::size_t at    = word.find('=');
            const std::string there = "'" + word + "' in the pattern '" + text + "' ";
            if(at == std::string::npos || at == 0 || at + 1 == word.size() || at != word.rfind('='))
                throw Error(there + "is not FIELD=VALUE");
            const auto [condition, is_new] = conditions_.try_emplace(word.substr(0, at));
            if(!is_new)
                throw Error(there + "names its field again. Write FIELD=A,B");
            std::istringstream values(word.substr(at + 1) + ','); /* the last may be empty */
            for(std::string value; std::getline(values, value, ',');)
                condition->second.push_back(value);
            if(std::count(condition->second.begin(), condition->second.end(), ""))
                throw Error(there + "has an empty value");
        }
    }

    bool fits(const Kernel& kernel) const
    {
        return std::all_of(conditions_.begin(), conditions_.end(), [&](const auto& condition) {
            const auto& [field, allowed] = condition;
            const auto at                = kernel.fields.find(field);
            return at != kernel.fields.end() &&
                   std::any_of(allowed.begin(), allowed.end(), [&](const std::string& value) {
                       return value == "*" || value == at->second;
                   });
        });
    }

private:
    std::map<std::string, std::vector<std::string>> conditions_;
};

/* The C ABI of batch prefill (ckpm.h): a launch may name its kernel. */
struct BatchPrefill
{
    using Problem                        = ckpm_problem;
    static constexpr const char* START   = "ckpm";
    static constexpr uint32_t VERSION    = CKPM_ABI_VERSION;
    static constexpr bool TAKES_A_KERNEL = true;
    static constexpr int STAGES          = 1;
};

/* The C ABI of fwd, fwd_pagedkv, fwd_splitkv and fwd_v3 (ckpm_fwd.h): dispatch chooses. */
struct Forward
{
    using Problem                        = ckpm_fwd_problem;
    static constexpr const char* START   = "ckpm_fwd";
    static constexpr uint32_t VERSION    = CKPM_FWD_ABI_VERSION;
    static constexpr bool TAKES_A_KERNEL = false;
    static constexpr int STAGES          = 2;
};

/* The C ABI of fwd_appendkv (ckpm_appendkv.h): dispatch chooses. */
struct AppendKv
{
    using Problem                        = ckpm_appendkv_problem;
    static constexpr const char* START   = "ckpm_appendkv";
    static constexpr uint32_t VERSION    = CKPM_APPENDKV_ABI_VERSION;
    static constexpr bool TAKES_A_KERNEL = false;
    static constexpr int STAGES          = 1;
};

/* What a launch was: the kernels that ran, one a stage, and their milliseconds if repeat was set.
 */
struct Launched
{
    std::vector<std::string> kernels;
    float milliseconds = 0;
};

/* One built library. It stays open until the program ends. */
template <class Abi>
class Library
{
public:
    using Problem = typename Abi::Problem;

    explicit Library(const std::string& folder) : folder_(folder)
    {
        read_index();
        open();
        check_index();
    }

    const std::string& folder() const { return folder_; }
    const std::vector<Kernel>& kernels() const { return kernels_; }

    /* The first kernel, in dispatch order, that fits; null if none does. */
    const Kernel* find(const std::string& pattern) const
    {
        const Pattern wanted(pattern);
        const auto at = std::find_if(kernels_.begin(), kernels_.end(), [&](const Kernel& kernel) {
            return wanted.fits(kernel);
        });
        return at == kernels_.end() ? nullptr : &*at;
    }

    /* A problem of this library's C ABI in which everything else is 0 or null. */
    static Problem problem()
    {
        Problem made{};
        made.struct_bytes = sizeof(Problem);
        made.abi_version  = Abi::VERSION;
        return made;
    }

    /* Launch on a stream (null: the default one) what dispatch chooses, or `kernel`. A C ABI that
     * takes no name runs what its dispatch chooses; if that is another, it is an Error. */
    Launched launch(Problem problem, void* stream = nullptr, const Kernel* kernel = nullptr) const
    {
        problem.stream     = stream;
        char message[1024] = {};
        Launched launched;
        int status = 0;
        if constexpr(Abi::TAKES_A_KERNEL)
            status = launch_(&problem,
                             kernel ? kernel->name.c_str() : nullptr,
                             &launched.milliseconds,
                             message,
                             sizeof(message));
        else
            status = launch_(&problem, &launched.milliseconds, message, sizeof(message));
        if(status != CKPM_OK)
            throw Error(folder_ + ": the launch was refused or failed: " + message);
        for(int stage = 0; stage < Abi::STAGES; ++stage)
            if(const char* name = selected(stage))
                launched.kernels.emplace_back(name);
        if(kernel && (launched.kernels.empty() || launched.kernels[0] != kernel->name))
            throw Error(folder_ + ": dispatch chose another kernel than " + kernel->name);
        return launched;
    }

private:
    template <bool TakesAKernel, class P>
    struct LaunchOf
    {
        using Type = int (*)(const P*, const char*, float*, char*, size_t);
    };
    template <class P>
    struct LaunchOf<false, P>
    {
        using Type = int (*)(const P*, float*, char*, size_t);
    };
    using Launch = typename LaunchOf<Abi::TAKES_A_KERNEL, Problem>::Type;

    static constexpr const char* INDEX_START = "ckpm-kernels 1";

    void read_index()
    {
        const std::string place = folder_ + "/kernels.txt";
        std::ifstream file(place);
        std::string line;
        if(!std::getline(file, line) || line != INDEX_START)
            throw Error(place + ": missing, or of another version. Run: ckpm cpp index " + folder_);
        while(std::getline(file, line))
        {
            std::istringstream words(line);
            std::string kind;
            Kernel kernel;
            words >> kind;
            if(kind == "library")
                words >> library_;
            if(kind == "made-with")
                words >> family_;
            if(kind != "kernel")
                continue;
            words >> kernel.name;
            for(std::string word; words >> word;)
            {
                const std::size_t at = word.find('=');
                if(at == std::string::npos)
                    throw Error(place + ": damaged at " + word + ". Write it again.");
                kernel.fields[word.substr(0, at)] = word.substr(at + 1);
            }
            kernels_.push_back(std::move(kernel));
        }
    }

    void open()
    {
        const std::string place = folder_ + "/" + library_;
        handle_                 = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
        if(!handle_)
        {
            const std::string why = dlerror();
            const bool hip        = why.find("undefined symbol: hip") != std::string::npos;
            throw Error(why + (hip ? ". Load a libamdhip64.so with RTLD_GLOBAL first." : ""));
        }
        const auto version = call<int (*)()>("abi_version")();
        const auto bytes   = call<size_t (*)()>("problem_bytes")();
        if(version != static_cast<int>(Abi::VERSION) || bytes != sizeof(Problem))
            throw Error(place +
                        ": its C ABI is of another version than this header. Build it anew.");
        launch_ = call<Launch>("launch");
    }

    /* The index must be of this library: in its dispatch order, kernel by kernel. */
    void check_index()
    {
        const int count = call<int (*)()>("kernel_count")();
        const auto name = call<const char* (*)(int)>("kernel_name");
        std::map<std::string, Kernel> listed;
        for(const Kernel& kernel : kernels_)
            listed[kernel.name] = kernel;
        std::vector<Kernel> in_order;
        for(int index = 0; index < count; ++index)
            if(const auto at = listed.find(name(index)); at != listed.end())
                in_order.push_back(at->second);
        if(in_order.size() != kernels_.size() || in_order.size() != static_cast<size_t>(count))
            throw Error(folder_ + ": kernels.txt is another library's. Run: ckpm cpp index " +
                        folder_);
        kernels_ = std::move(in_order);
    }

    const char* selected(int stage) const
    {
        if constexpr(Abi::TAKES_A_KERNEL)
            return call<const char* (*)()>("selected_kernel")();
        else
            return call<const char* (*)(int)>("selected_kernel")(stage);
    }

    template <class Function>
    Function call(const char* name) const
    {
        const std::string symbol = std::string(Abi::START) + "_" + name;
        void* address            = dlsym(handle_, symbol.c_str());
        if(!address)
            throw Error(folder_ + ": a library of " + family_ + " has no " + symbol +
                        ": open it by its own C ABI");
        return reinterpret_cast<Function>(address);
    }

    std::string folder_;
    std::string library_ = "libckpm.so";
    std::string family_;
    std::vector<Kernel> kernels_;
    void* handle_  = nullptr;
    Launch launch_ = nullptr;
};

/* Several libraries of one C ABI, asked in the order in which they were added. */
template <class Abi>
class Registry
{
public:
    struct Choice
    {
        const Library<Abi>* library;
        const Kernel* kernel;
    };

    const Library<Abi>& add(const std::string& folder) { return libraries_.emplace_back(folder); }

    /* The first kernel that fits; Error if no library has one. */
    Choice find(const std::string& pattern) const
    {
        for(const Library<Abi>& library : libraries_)
            if(const Kernel* kernel = library.find(pattern))
                return {&library, kernel};
        std::string lacking;
        std::istringstream words(pattern);
        for(std::string word; words >> word;)
        {
            const std::string field = word.substr(0, word.find('='));
            if(std::none_of(libraries_.begin(), libraries_.end(), [&](const auto& library) {
                   return library.find(field + "=*");
               }))
                lacking += " None has a field '" + field + "'.";
        }
        throw Error("no kernel fits '" + pattern + "'." + lacking +
                    " Compile one: ckpm jit --declared FILE");
    }

    /* Error unless each pattern of a declared set has a kernel. */
    void demand(const KernelSet& declared) const
    {
        for(const std::string& pattern : declared.patterns)
            find(pattern);
    }

private:
    std::deque<Library<Abi>> libraries_; /* elements keep their place */
};

} // namespace ckpm
