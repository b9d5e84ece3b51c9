#include "standalone/decoder.h"

#include "hip/device_api.h"
#include "standalone/settings.h"
#include "standalone/sha256.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <spawn.h>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

extern char** environ;

namespace emu {
namespace {
constexpr size_t DIGEST = 64; // hex digits

class File
{
public:
    explicit File(int number) : number_(number) {}
    ~File()
    {
        if(number_ >= 0)
            close(number_);
    }
    File(const File&)            = delete;
    File& operator=(const File&) = delete;
    int number() const { return number_; }

private:
    const int number_;
};

// A file's bytes, mapped; empty if it is, or can't be.
class Mapped
{
public:
    explicit Mapped(int file)
    {
        struct stat status;
        if(file < 0 || fstat(file, &status) != 0 || status.st_size <= 0)
            return;
        bytes_ = static_cast<size_t>(status.st_size);
        at_    = mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, file, 0);
        if(at_ == MAP_FAILED)
            bytes_ = 0;
    }
    ~Mapped()
    {
        if(bytes_ > 0)
            munmap(at_, bytes_);
    }
    Mapped(const Mapped&)            = delete;
    Mapped& operator=(const Mapped&) = delete;
    std::string_view text() const { return {static_cast<const char*>(at_), bytes_}; }

private:
    void* at_     = nullptr;
    size_t bytes_ = 0;
};

// Only this user and root could have written it (as ckpm_emulator/trust.py; whoever else may is for
// the helper to judge).
bool is_private(const std::string& path)
{
    struct stat link, there;
    if(lstat(path.c_str(), &link) != 0 || stat(path.c_str(), &there) != 0)
        return false;
    const auto ours = [](const struct stat& one) { return one.st_uid == geteuid() || one.st_uid == 0; };
    return ours(link) && ours(there) && (there.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

// What is decoded: the image of a code object, or a function of it.
struct Wanted
{
    uint64_t handle;
    const void* code;
    size_t bytes;
    std::string function; // "0x" and the virtual address; empty for the image
};

// As ckpm_emulator/program_cache.py has it.
std::string key_of(const Wanted& wanted)
{
    static std::map<uint64_t, std::string> known; // a code object may be large
    std::string& code = known[wanted.handle];
    if(code.empty())
    {
        Sha256 digest;
        digest.add(wanted.code, wanted.bytes);
        code = digest.hex();
    }
    const std::string words = code + settings().makers + wanted.function;
    Sha256 digest;
    digest.add(words.data(), words.size());
    return digest.hex();
}

// The content of a store's entry if it is whole: a line with the sha256 of its name, a zero and its
// content, then the content (ckpm_emulator/cache.py).
std::string_view content(const std::string& name, std::string_view entry)
{
    if(entry.size() <= DIGEST || entry[DIGEST] != '\n')
        return {};
    const std::string_view rest = entry.substr(DIGEST + 1);
    Sha256 digest;
    digest.add(name.c_str(), name.size() + 1);
    digest.add(rest.data(), rest.size());
    return digest.hex() == entry.substr(0, DIGEST) ? rest : std::string_view();
}

bool add_stored(const Wanted& wanted)
{
    if(settings().store.empty())
        return false;
    const std::string name = key_of(wanted) + ".entry";
    const std::string path = settings().store + "/" + name;
    if(!is_private(settings().store) || !is_private(path))
        return false;
    const File file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    const Mapped entry(file.number());
    const std::string_view program = content(name, entry.text());
    // After the entry's line nothing is aligned.
    std::vector<std::max_align_t> aligned(program.size() / sizeof(std::max_align_t) + 1);
    std::memcpy(aligned.data(), program.data(), program.size());
    return !program.empty() && emu_add_program(wanted.handle, aligned.data(), program.size()) == 0;
}

// A file in memory. Throws std::runtime_error.
int memory_file(const char* name)
{
    const int file = memfd_create(name, MFD_CLOEXEC);
    if(file < 0)
        throw std::runtime_error(std::string("no memory file: ") + std::strerror(errno));
    return file;
}

void write_all(int file, const void* data, size_t bytes)
{
    const auto* at = static_cast<const char*>(data);
    for(size_t done = 0; done < bytes;)
    {
        const ssize_t got = write(file, at + done, bytes - done);
        if(got < 0 && errno == EINTR)
            continue;
        if(got <= 0)
            throw std::runtime_error(std::string("no memory file: ") + std::strerror(errno));
        done += static_cast<size_t>(got);
    }
    lseek(file, 0, SEEK_SET);
}

// What the program was preloaded with, and these settings, are not for the helper.
std::vector<char*> helper_environment()
{
    std::vector<char*> out;
    for(char** one = environ; *one; ++one)
        if(std::strncmp(*one, "LD_PRELOAD=", 11) != 0 && std::strncmp(*one, "LD_LIBRARY_PATH=", 16) != 0 &&
           std::strncmp(*one, "CKPM_EMULATOR=", 14) != 0)
            out.push_back(*one);
    out.push_back(nullptr);
    return out;
}

// Run the helper to its end. Throws std::runtime_error if it doesn't start.
void run_helper(const Wanted& wanted, const File& input, const File& output, const File& errors)
{
    std::vector<char*> words;
    for(const std::string& word : settings().decoder)
        words.push_back(const_cast<char*>(word.c_str()));
    if(words.empty())
        throw std::runtime_error("CKPM_EMULATOR names no decoder");
    std::string function = wanted.function;
    if(!function.empty())
        words.insert(words.end(), {const_cast<char*>("--function"), function.data()});
    words.push_back(nullptr);
    std::vector<char*> variables = helper_environment();
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input.number(), STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, output.number(), STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, errors.number(), STDERR_FILENO);
    pid_t child;
    const int refused = posix_spawn(&child, words[0], &actions, nullptr, words.data(), variables.data());
    posix_spawn_file_actions_destroy(&actions);
    if(refused)
        throw std::runtime_error(std::string(words[0]) + " can't be started: " + std::strerror(refused));
    // If the program ignores SIGCHLD the status is lost: waiting ends with the child all the
    // same, and what it wrote is checked.
    int status;
    while(waitpid(child, &status, 0) < 0 && errno == EINTR)
    {
    }
}

int add_decoded(const Wanted& wanted)
{
    const File input(memory_file("code object")), output(memory_file("program")), errors(memory_file("errors"));
    write_all(input.number(), wanted.code, wanted.bytes);
    run_helper(wanted, input, output, errors);
    const Mapped program(output.number());
    if(!program.text().empty())
        return emu_add_program(wanted.handle, program.text().data(), program.text().size());
    const Mapped said(errors.number());
    std::string reason(said.text());
    while(!reason.empty() && reason.back() == '\n')
        reason.pop_back();
    emu_refuse_program(wanted.handle, reason.empty() ? "the decoder ended without a word" : reason.c_str());
    return 1;
}
} // namespace

int decode_code_object(uint64_t handle, const void* code, size_t bytes, uint64_t address)
{
    try
    {
        std::ostringstream function;
        if(address != 0)
            function << "0x" << std::hex << address;
        const Wanted wanted{handle, code, bytes, function.str()};
        return add_stored(wanted) ? 0 : add_decoded(wanted);
    }
    catch(const std::exception& failure)
    {
        emu_refuse_program(handle, failure.what());
        return 1;
    }
}
} // namespace emu
