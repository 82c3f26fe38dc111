// Two numbers as one key of a hash table.
#pragma once

#include <cstdint>

namespace torchprof::formats {

constexpr uint64_t pair_key(uint32_t first, uint32_t second) { return uint64_t{first} << 32 | second; }
constexpr uint32_t first_of(uint64_t key) { return static_cast<uint32_t>(key >> 32); }
constexpr uint32_t second_of(uint64_t key) { return static_cast<uint32_t>(key); }

}  // namespace torchprof::formats
