#include "hip/module/code_object.h"

#include "hip/module/compressed.h"
#include "isa/arch.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/uio.h>
#include <unistd.h>

namespace emu {
namespace {
// clang's documentation, "Clang Offload Bundler": magic, u64 count, then (u64 offset, u64 bytes,
// u64 id bytes, id).
constexpr char BUNDLE_MAGIC[]  = "__CLANG_OFFLOAD_BUNDLE__";
constexpr size_t MAGIC_BYTES   = sizeof BUNDLE_MAGIC - 1;
constexpr uint64_t ENTRIES_MAX = 4096, ID_MAX = 4096; // beyond, the header is garbage

// The ELF header's places that matter (System V ABI, 64 bit).
constexpr size_t ELF_HEADER_BYTES = 64;
constexpr uint16_t MACHINE_AMDGPU = 224;

template <typename T>
T read(const unsigned char* at)
{
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

bool is_elf(const unsigned char* image) { return std::memcmp(image, "\177ELF\2\1", 6) == 0; }

struct Entry
{
    uint64_t offset, bytes;
    std::string id;
};

// False if the header is cut off. `get(offset, to, bytes)` reads from the image.
template <typename Get>
bool read_entries(Get get, std::vector<Entry>* entries)
{
    uint64_t count = 0, at = MAGIC_BYTES + 8;
    if(!get(MAGIC_BYTES, &count, 8) || count > ENTRIES_MAX)
        return false;
    for(uint64_t i = 0; i < count; ++i)
    {
        uint64_t fields[3];
        if(!get(at, fields, sizeof fields) || fields[2] > ID_MAX)
            return false;
        std::string id(fields[2], '\0');
        at += sizeof fields;
        if(!get(at, id.data(), id.size()))
            return false;
        at += id.size();
        entries->push_back({fields[0], fields[1], id});
    }
    return true;
}

// "hipv4-amdgcn-amd-amdhsa--gfx950:sramecc+" -> "gfx950:sramecc+"; empty for the host's entry.
std::string target_of(const std::string& id)
{
    const size_t at = id.rfind("-gfx");
    return id.compare(0, 3, "hip") == 0 && at != std::string::npos ? id.substr(at + 1) : "";
}

// Can the device run code of this target? A feature that the target leaves open runs with either
// setting.
bool runs(const std::string& target, const Arch& arch)
{
    const std::string device = std::string(":").append(arch.full_name).append(":");
    size_t begin             = 0;
    for(size_t end; begin <= target.size(); begin = end + 1)
    {
        end                    = std::min(target.find(':', begin), target.size());
        const std::string word = std::string(":").append(target, begin, end - begin).append(":");
        if(device.find(word) == std::string::npos)
            return false;
    }
    return true;
}

std::string joined(const std::vector<std::string>& words)
{
    std::string out;
    for(const std::string& word : words)
        out += (out.empty() ? "" : ", ") + word;
    return out.empty() ? "no GPU" : out;
}

CodeObject refused(CodeObject object, hipError_t error, std::string reason)
{
    object.data   = nullptr;
    object.bytes  = 0;
    object.error  = error;
    object.reason = std::move(reason);
    return object;
}

CodeObject other_arch(CodeObject object)
{
    const std::string reason =
        "it has code for " + joined(object.archs) + "; the emulated device is " + current_arch().processor;
    return refused(std::move(object), hipErrorNoBinaryForGpu, reason);
}

// Empty if the code object is whole, as far as its headers tell; else what is wrong.
std::string check_elf(const unsigned char* elf, size_t bytes)
{
    if(bytes < ELF_HEADER_BYTES)
        return "it is shorter than an ELF header";
    if(!is_elf(elf))
        return "it is not a 64-bit ELF file";
    if(read<uint16_t>(elf + 18) != MACHINE_AMDGPU)
        return "it is ELF code of another machine";
    const auto past = [bytes](uint64_t offset, uint64_t size) { return offset > bytes || size > bytes - offset; };
    const uint64_t headers = read<uint64_t>(elf + 32), sections = read<uint64_t>(elf + 40);
    const uint64_t header_size = read<uint16_t>(elf + 54), section_size = read<uint16_t>(elf + 58);
    const uint64_t header_count = read<uint16_t>(elf + 56), section_count = read<uint16_t>(elf + 60);
    if(past(headers, header_count * header_size) || past(sections, section_count * section_size))
        return "it is truncated";
    for(uint64_t i = 0; header_size >= 56 && i < header_count; ++i)
    {
        const unsigned char* header = elf + headers + i * header_size;
        if(past(read<uint64_t>(header + 8), read<uint64_t>(header + 32)))
            return "it is truncated";
    }
    return "";
}

CodeObject select_elf(CodeObject object)
{
    if(const std::string wrong = check_elf(object.data, object.bytes); !wrong.empty())
        return refused(std::move(object), hipErrorInvalidImage, "the code object is unusable: " + wrong);
    const Arch* arch = find_elf_arch(read<uint32_t>(object.data + 48) & 0xff);
    if(object.archs.empty())
        object.archs.push_back(arch ? arch->processor : "an unknown arch");
    if(!arch || arch->number != current_arch().number)
        return other_arch(std::move(object));
    return object;
}
} // namespace

CodeObject select_code_object(const unsigned char* image, size_t limit)
{
    CodeObject object;
    if(limit < MAGIC_BYTES)
        return refused(object, hipErrorInvalidImage, "the image is truncated: " + std::to_string(limit) + " bytes");
    if(is_elf(image))
    {
        object.data  = image;
        object.bytes = limit;
        return select_elf(std::move(object));
    }
    if(std::memcmp(image, BUNDLE_MAGIC, MAGIC_BYTES) != 0)
        return refused(object, hipErrorInvalidImage, "the image is neither an offload bundle nor an ELF file");
    const auto past = [limit](uint64_t offset, uint64_t size) { return offset > limit || size > limit - offset; };
    std::vector<Entry> entries;
    const bool whole =
        read_entries([&](uint64_t offset, void* to,
                         uint64_t bytes) { return !past(offset, bytes) && std::memcpy(to, image + offset, bytes); },
                     &entries);
    if(!whole)
        return refused(object, hipErrorInvalidImage, "the offload bundle's header is damaged or truncated");
    const Entry* chosen = nullptr;
    for(const Entry& entry : entries)
    {
        const std::string target = target_of(entry.id);
        if(target.empty())
            continue;
        object.archs.push_back(target);
        if(!chosen && runs(target, current_arch()))
            chosen = &entry;
    }
    if(!chosen)
        return other_arch(std::move(object));
    if(past(chosen->offset, chosen->bytes))
        return refused(object, hipErrorInvalidImage, "the offload bundle is truncated");
    object.data  = image + chosen->offset;
    object.bytes = chosen->bytes;
    return select_elf(std::move(object));
}

bool copy_readable(const void* from, void* to, size_t bytes)
{
    if(bytes == 0)
        return true;
    iovec target = {to, bytes}, source = {const_cast<void*>(from), bytes};
    const ssize_t got = process_vm_readv(getpid(), &target, 1, &source, 1, 0);
    if(got < 0 && errno != EFAULT)
    {
        // forbidden in this container: trust the caller
        std::memcpy(to, from, bytes);
        return true;
    }
    return got == static_cast<ssize_t>(bytes);
}

size_t claimed_bytes(const void* image)
{
    unsigned char head[ELF_HEADER_BYTES];
    const auto* bytes = static_cast<const unsigned char*>(image);
    const auto get    = [bytes](uint64_t offset, void* to, uint64_t count) {
        return copy_readable(bytes + offset, to, count);
    };
    if(!get(0, head, MAGIC_BYTES))
        return 0;
    if(std::memcmp(head, BUNDLE_MAGIC, MAGIC_BYTES) == 0)
    {
        std::vector<Entry> entries;
        if(!read_entries(get, &entries))
            return 0;
        uint64_t end = MAGIC_BYTES + 8;
        for(const Entry& entry : entries)
            if(entry.bytes <= (1ull << 40) && entry.offset <= (1ull << 40))
                end = std::max(end, entry.offset + entry.bytes);
        return end;
    }
    if(is_compressed(head, MAGIC_BYTES))
        return get(0, head, COMPRESSED_HEADER_BYTES)
                   ? std::max<uint64_t>(compressed_bytes(head, COMPRESSED_HEADER_BYTES), COMPRESSED_HEADER_BYTES)
                   : MAGIC_BYTES;
    if(!is_elf(head) || !get(0, head, sizeof head))
        return 0;
    // Section headers come last, unless they were cut away: then the last segment ends the file.
    uint64_t end            = ELF_HEADER_BYTES;
    const uint64_t sections = read<uint64_t>(head + 40);
    if(sections && sections < (1ull << 40))
        end = std::max(end, sections + uint64_t{read<uint16_t>(head + 58)} * read<uint16_t>(head + 60));
    const uint64_t headers = read<uint64_t>(head + 32), size = read<uint16_t>(head + 54);
    for(uint64_t i = 0; i < read<uint16_t>(head + 56) && headers < (1ull << 40); ++i)
    {
        unsigned char header[40];
        if(!get(headers + i * size, header, sizeof header))
            return 0;
        const uint64_t offset = read<uint64_t>(header + 8), bytes_in_file = read<uint64_t>(header + 32);
        if(offset < (1ull << 40) && bytes_in_file < (1ull << 40))
            end = std::max(end, offset + bytes_in_file);
    }
    return end;
}
} // namespace emu
