// Compressed offload bundles (clang's documentation, "Clang Offload Bundler", "Compression").
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace emu {
constexpr size_t COMPRESSED_HEADER_BYTES = 32; // of the longest header

bool is_compressed(const unsigned char* image, size_t bytes);
// What the header claims of a compressed bundle's size; 0 for version 1, which doesn't say.
// `header` has COMPRESSED_HEADER_BYTES, or all of a shorter image.
uint64_t compressed_bytes(const unsigned char* header, size_t bytes);
// The bundle inside. Empty if that fails; then `reason` has the cause.
std::vector<unsigned char> decompress(const unsigned char* image, size_t bytes, std::string* reason);
} // namespace emu
