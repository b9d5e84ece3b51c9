#include "hip/module/compressed.h"

#include <cstring>
#include <dlfcn.h>

namespace emu {
namespace {
constexpr uint64_t LARGEST = 8ull << 30; // beyond, the header is garbage
enum Method : uint16_t
{
    Zlib = 0,
    Zstd = 1
};

struct Header
{
    uint16_t version = 0, method = 0;
    uint64_t file_bytes  = 0; // with the header; 0: it doesn't say
    uint64_t plain_bytes = 0;
    size_t bytes         = 0; // of the header itself; 0: unknown version, or cut off
};

template <typename T>
T read(const unsigned char* at)
{
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

// Magic, version, method; in version 1 the plain size, from 2 on the file's size before it, in 3
// both in 64 bits; a hash.
Header header_of(const unsigned char* image, size_t bytes)
{
    Header header;
    if(bytes < 24)
        return header;
    header.version = read<uint16_t>(image + 4);
    header.method  = read<uint16_t>(image + 6);
    switch(header.version)
    {
        case 1:
            header.plain_bytes = read<uint32_t>(image + 8);
            header.bytes       = 20;
            break;
        case 2:
            header.file_bytes  = read<uint32_t>(image + 8);
            header.plain_bytes = read<uint32_t>(image + 12);
            header.bytes       = 24;
            break;
        case 3:
            header.file_bytes  = read<uint64_t>(image + 8);
            header.plain_bytes = bytes < 32 ? 0 : read<uint64_t>(image + 16);
            header.bytes       = bytes < 32 ? 0 : 32;
            break;
        default: break;
    }
    return header;
}

// A function of a library of this machine. Null with a reason if it isn't there.
void* function_of(const char* library, const char* name, std::string* reason)
{
    void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    void* found  = handle ? dlsym(handle, name) : nullptr;
    if(!found)
        *reason = std::string("the fat binary is compressed, and ") + library +
                  " is not installed: install it, or build with --no-offload-compress";
    return found;
}

bool unpack_zstd(std::vector<unsigned char>& plain, const unsigned char* packed, size_t bytes, std::string* reason)
{
    using Decompress = size_t (*)(void*, size_t, const void*, size_t);
    auto* unpack     = reinterpret_cast<Decompress>(function_of("libzstd.so.1", "ZSTD_decompress", reason));
    return unpack && unpack(plain.data(), plain.size(), packed, bytes) == plain.size();
}

bool unpack_zlib(std::vector<unsigned char>& plain, const unsigned char* packed, size_t bytes, std::string* reason)
{
    using Uncompress   = int (*)(unsigned char*, unsigned long*, const unsigned char*, unsigned long);
    auto* unpack       = reinterpret_cast<Uncompress>(function_of("libz.so.1", "uncompress", reason));
    unsigned long made = plain.size();
    return unpack && unpack(plain.data(), &made, packed, bytes) == 0 && made == plain.size();
}
} // namespace

bool is_compressed(const unsigned char* image, size_t bytes)
{
    return bytes >= 4 && std::memcmp(image, "CCOB", 4) == 0;
}

uint64_t compressed_bytes(const unsigned char* header, size_t bytes)
{
    const Header read = header_of(header, bytes);
    return read.file_bytes <= LARGEST ? read.file_bytes : 0;
}

std::vector<unsigned char> decompress(const unsigned char* image, size_t bytes, std::string* reason)
{
    const Header header = header_of(image, bytes);
    const uint64_t end  = header.file_bytes ? header.file_bytes : bytes;
    *reason             = "the compressed fat binary is damaged or truncated";
    if(header.version > 3)
        *reason = "the fat binary is compressed in a way that is unknown (version " + std::to_string(header.version) +
                  "): build with --no-offload-compress";
    if(header.bytes == 0 || end > bytes || end < header.bytes || header.plain_bytes == 0 ||
       header.plain_bytes > LARGEST)
        return {};
    std::vector<unsigned char> plain(header.plain_bytes);
    const unsigned char* packed = image + header.bytes;
    const size_t packed_bytes   = end - header.bytes;
    const bool whole            = header.method == Zstd   ? unpack_zstd(plain, packed, packed_bytes, reason)
                                  : header.method == Zlib ? unpack_zlib(plain, packed, packed_bytes, reason)
                                                          : false;
    return whole ? plain : std::vector<unsigned char>();
}
} // namespace emu
