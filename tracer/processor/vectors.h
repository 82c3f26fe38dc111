// Sixteen bytes at a time, as far as hot loops need it: both processors have registers of this size, always.
//
// Where the compiler's own vectors do (^, &, |, -, ==), they are used. These are the rest: a register's parts as bits
// of a word.
//
// Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2 (PMOVMSKB, MOVMSKPD); Arm Neon
// Intrinsics Reference (vshrn_n_u16).
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#else
#include <arm_neon.h>
#endif

namespace torchprof::processor {

using Bytes = uint8_t __attribute__((vector_size(16)));
using Words = uint64_t __attribute__((vector_size(16)));

template <class Vector>
[[gnu::no_sanitize("address", "thread")]] inline Vector load(const void* from) noexcept {
  Vector value;
  __builtin_memcpy(&value, from, sizeof(value));
  return value;
}

// One or more bits for each byte, the first byte lowest, of what a comparison says of it.
#if defined(__x86_64__)
inline constexpr uint64_t kEachByte = 0xffff;
inline uint64_t mask_of(Bytes compared) noexcept {
  return static_cast<unsigned>(_mm_movemask_epi8(reinterpret_cast<__m128i>(compared)));
}
#else
inline constexpr uint64_t kEachByte = ~uint64_t{0};
inline uint64_t mask_of(Bytes compared) noexcept {
  const auto pairs = vreinterpretq_u16_u8(reinterpret_cast<uint8x16_t>(compared));
  return vget_lane_u64(vreinterpret_u64_u8(vshrn_n_u16(pairs, 4)), 0);
}
#endif

// The highest bits of the first and of the second word, as bits 0 and 1.
inline unsigned high_bits(Words words) noexcept {
#if defined(__x86_64__)
  return static_cast<unsigned>(_mm_movemask_pd(reinterpret_cast<__m128d>(words)));
#else
  return static_cast<unsigned>(words[0] >> 63 | words[1] >> 63 << 1);
#endif
}

}  // namespace torchprof::processor
