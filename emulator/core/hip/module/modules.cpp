#include "hip/module/modules.h"

#include "hip/call.h"
#include "hip/module/compressed.h"
#include "memory/memory.h"

#include <cstring>
#include <dlfcn.h>
#include <map>
#include <mutex>

namespace emu {
namespace {
struct Modules
{
    // Recursive: the callback that builds a program comes back with emu_add_program.
    std::recursive_mutex mutex;
    std::map<uint64_t, std::unique_ptr<Module>> live;
    uint64_t next                  = 1;
    EmuCodeObjectCallback callback = nullptr;
};

Modules& modules()
{
    // Never destroyed: libraries unregister after our destructors would have run.
    static Modules& only = *new Modules;
    return only;
}

Module* find_module(uint64_t handle)
{
    const auto found = modules().live.find(handle);
    return found == modules().live.end() ? nullptr : found->second.get();
}

std::string named(const Module& module)
{
    return module.origin.empty() ? "module " + std::to_string(module.handle) : module.origin;
}

void build_program(Module& module)
{
    module.tried = true;
    if(!modules().callback)
    {
        module.refusal = "no decoder is registered (emu_on_code_object)";
        return;
    }
    const int status = modules().callback(module.handle, module.code.data, module.code.bytes, 0);
    if(!module.program && module.refusal.empty())
        module.refusal = "the decoder answered " + std::to_string(status) + " without a reason";
    if(!module.program)
        return;
    for(const ManagedVariable& variable : module.managed)
    {
        const auto symbol = module.program->variables.find(variable.name);
        if(symbol != module.program->variables.end())
            std::memcpy(reinterpret_cast<void*>(symbol->second.address), &variable.memory, sizeof variable.memory);
    }
}

// False, with the reason in `refusal`: there is no function at this virtual address.
bool decode_function(Module& module, uint64_t address)
{
    return modules().callback(module.handle, module.code.data, module.code.bytes, address) == 0;
}

// Null if no code object lies there.
Module* module_around(uint64_t address)
{
    for(const auto& [handle, module] : modules().live)
        if(module->program && address - module->program->base < module->program->bytes)
            return module.get();
    return nullptr;
}

Place decoded_place(const Program& program, uint64_t address)
{
    for(const auto& code : program.codes)
        if(const MicroOp* op = code->at(address))
            return {code.get(), op};
    return {};
}
} // namespace

Place place_of(uint64_t address)
{
    std::lock_guard lock(modules().mutex);
    Module* const module = module_around(address);
    if(!module)
        return {};
    const Place place = decoded_place(*module->program, address);
    if(place.op || !decode_function(*module, address - module->program->base))
        return place;
    return decoded_place(*module->program, address);
}

std::string describe_address(uint64_t address)
{
    const std::string number = hex_text(address);
    if(address == 0)
        return "address 0: the pointer to the function was never set";
    {
        std::lock_guard lock(modules().mutex);
        if(const Module* module = module_around(address))
            return number + ", which is " + hex_text(address - module->program->base) + " of the code object of " +
                   named(*module) + ": no instruction of a function starts there";
    }
    Dl_info host;
    if(dladdr(reinterpret_cast<const void*>(address), &host) && host.dli_fname)
        return number + ", which belongs to the host" +
               (host.dli_sname ? std::string(" (") + host.dli_sname + ")" : "") + " in " + host.dli_fname +
               ": take the address of a device function on the device";
    Allocation around;
    int64_t distance  = 0;
    const bool inside = nearest(address, &around, &distance) && distance == 0;
    if(inside && around.freed && around.kind == AllocationKind::Code)
        return number + ", which was in a code object that is unloaded";
    if(inside)
        return number + ", which is data in allocation " + std::to_string(around.id) +
               (around.label.empty() ? "" : " '" + around.label + "'");
    return number + ", where nothing is loaded";
}

Module& add_module(const void* image, size_t bytes, bool keep, std::string origin)
{
    auto module    = std::make_unique<Module>();
    module->origin = std::move(origin);
    auto* whole    = static_cast<const unsigned char*>(image);
    std::vector<unsigned char> plain;
    std::string damage;
    if(is_compressed(whole, bytes))
    {
        plain = decompress(whole, bytes, &damage);
        whole = plain.data();
        bytes = plain.size();
    }
    module->code = select_code_object(whole, bytes);
    if(!damage.empty() && plain.empty())
        module->code.reason = damage;
    if((keep || !plain.empty()) && module->code.data)
    {
        module->copy.assign(module->code.data, module->code.data + module->code.bytes);
        module->code.data = module->copy.data();
    }
    std::lock_guard lock(modules().mutex);
    module->handle = modules().next++;
    return *(modules().live[module->handle] = std::move(module));
}

Module& add_module_at(const void* image, bool keep, std::string origin)
{
    const size_t bytes = claimed_bytes(image);
    if(!keep && bytes)
        return add_module(image, bytes, false, std::move(origin)); // part of a library that was mapped whole
    std::vector<unsigned char> whole;
    if(bytes && bytes <= (4ull << 30))
        whole.resize(bytes);
    if(!whole.empty() && !copy_readable(image, whole.data(), bytes))
        whole.clear();
    Module& module = add_module(whole.data(), whole.size(), true, std::move(origin));
    if(whole.empty())
        module.code.reason = "the image is neither an offload bundle nor an ELF file, or it is truncated";
    return module;
}

bool is_module(const Module* module)
{
    std::lock_guard lock(modules().mutex);
    for(const auto& [handle, live] : modules().live)
        if(live.get() == module)
            return true;
    return false;
}

bool remove_module(Module* module)
{
    std::lock_guard lock(modules().mutex);
    if(!is_module(module))
        return false;
    for(const ManagedVariable& variable : module->managed)
        release(variable.memory);
    modules().live.erase(module->handle);
    return true;
}

Program& program_of(Module& module)
{
    std::lock_guard lock(modules().mutex);
    if(module.code.error != hipSuccess)
        throw HipFailure(module.code.error, named(module) + ": " + module.code.reason);
    if(!module.tried)
        build_program(module);
    if(!module.program)
        throw HipFailure(hipErrorInvalidImage, named(module) + ": " + module.refusal);
    return *module.program;
}

const Kernel& kernel_of(Module& module, const std::string& name)
{
    std::lock_guard lock(modules().mutex);
    const Program& program = program_of(module);
    const Kernel* kernel   = program.find(name);
    if(!kernel)
        throw HipFailure(hipErrorNotFound, named(module) + ": no kernel '" + name + "'");
    if(!kernel->code)
        decode_function(module, kernel->address - program.base);
    if(!kernel->code)
        throw HipFailure(hipErrorInvalidImage, named(module) + ": " + module.refusal);
    return *kernel;
}

const Symbol& variable_of(Module& module, const std::string& name)
{
    const Program& program = program_of(module);
    const auto found       = program.variables.find(name);
    if(found == program.variables.end())
        throw HipFailure(hipErrorNotFound, named(module) + ": no variable '" + name + "'");
    return found->second;
}
} // namespace emu

void emu_on_code_object(EmuCodeObjectCallback callback)
{
    std::lock_guard lock(emu::modules().mutex);
    emu::modules().callback = callback;
}

int emu_add_program(uint64_t handle, const void* blob, size_t bytes)
{
    std::lock_guard lock(emu::modules().mutex);
    emu::Module* module = emu::find_module(handle);
    try
    {
        if(!module)
            throw std::runtime_error("no code object has the handle " + std::to_string(handle));
        if(module->program)
            emu::add_code(*module->program, blob, bytes);
        else
            module->program = emu::load_program(blob, bytes);
        return 0;
    }
    catch(const std::exception& failure)
    {
        emu::set_last_error(failure.what());
        if(module)
            module->refusal = failure.what();
        return 1;
    }
}

int emu_refuse_program(uint64_t handle, const char* why)
{
    std::lock_guard lock(emu::modules().mutex);
    emu::Module* module = emu::find_module(handle);
    if(!module)
        return 1;
    module->refusal = why;
    return 0;
}

size_t emu_modules_json(char* text, size_t bytes)
{
    const auto list = [](const std::vector<std::string>& words) {
        std::string out;
        for(const std::string& word : words)
            out += (out.empty() ? "" : ", ") + emu::json_string(word);
        return "[" + out + "]";
    };
    std::lock_guard lock(emu::modules().mutex);
    std::string out;
    for(const auto& [handle, module] : emu::modules().live)
    {
        const std::string reason = module->code.error ? module->code.reason : module->refusal;
        out += (out.empty() ? "" : ", ") + ("{\"handle\": " + std::to_string(handle)) +
               ", \"origin\": " + emu::json_string(module->origin) + ", \"archs\": " + list(module->code.archs) +
               ", \"kernels\": " + list(module->kernels) + ", \"error\": " + std::to_string(module->code.error) +
               ", \"reason\": " + emu::json_string(reason) + ", \"loaded\": " + (module->program ? "true" : "false") +
               "}";
    }
    return emu::answer_text("[" + out + "]", text, bytes);
}
