// Numbers of variable length in the bytes of a record: seven bits a byte, the lowest first, the highest bit of a byte
// set where another byte follows (LEB128). Numbers with a sign are folded first, so that small ones stay short: 0, -1,
// 1, -2 become 0, 1, 2, 3. The reader is formats/values/tensor.h (EncodedReader).
//
// At most kMostVarint bytes; the caller has seen to the room. Any thread; no allocation.
#pragma once

#include <cstddef>
#include <cstdint>

namespace torchprof {

inline constexpr size_t kMostVarint = 10;

// Writes at `at`; gives where the next byte goes.
inline unsigned char* put_varint(unsigned char* at, uint64_t value) noexcept {
  for (; value >= 0x80; value >>= 7) *at++ = static_cast<unsigned char>(value | 0x80);
  *at++ = static_cast<unsigned char>(value);
  return at;
}

constexpr uint64_t zigzag_of(int64_t value) noexcept {
  return static_cast<uint64_t>(value) << 1 ^ static_cast<uint64_t>(value >> 63);
}

}  // namespace torchprof
