// Where a function leads that does nothing but take the object to which its argument points, and jump.
//
// Compilers write a method that hands on to an implementation of its own (`return impl->run(stack);`) as these
// instructions: load the first field of the object that the first register points to into that register, and jump. Any
// thread; `code` must be readable for 16 bytes.
//
// Sources: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2 (ENDBR64, MOV, JMP); Arm Architecture
// Reference Manual, C6.2 (BTI, LDR, B).
#pragma once

#include <cstdint>
#include <cstring>

namespace torchprof::processor {

// 0: the function is something else.
inline uintptr_t thunk_target(const unsigned char* code) noexcept {
#if defined(__x86_64__)
  constexpr unsigned char kEndbr64[] = {0xf3, 0x0f, 0x1e, 0xfa}, kLoadAndJump[] = {0x48, 0x8b, 0x3f, 0xe9};
  if (std::memcmp(code, kEndbr64, sizeof(kEndbr64)) == 0) code += sizeof(kEndbr64);
  if (std::memcmp(code, kLoadAndJump, sizeof(kLoadAndJump)) != 0) return 0;
  int32_t distance;
  std::memcpy(&distance, code + sizeof(kLoadAndJump), sizeof(distance));
  const unsigned char* const after = code + sizeof(kLoadAndJump) + sizeof(distance);
#else
  constexpr uint32_t kBtiC = 0xd503245f, kLoad = 0xf9400000, kJump = 0x14000000, kJumpMask = 0xfc000000;
  uint32_t words[3];
  std::memcpy(words, code, sizeof(words));
  const uint32_t first = words[0] == kBtiC ? 1 : 0;
  if (words[first] != kLoad || (words[first + 1] & kJumpMask) != kJump) return 0;
  // 26 bits with a sign, in instructions of four bytes, from the jump itself.
  const int32_t distance = static_cast<int32_t>(words[first + 1] << 6) >> 4;
  const unsigned char* const after = code + sizeof(uint32_t) * (first + 1);
#endif
  return reinterpret_cast<uintptr_t>(after) + static_cast<uintptr_t>(intptr_t{distance});
}

}  // namespace torchprof::processor
