// Put text and numbers into a buffer that has room for them; each function returns the place behind what it wrote.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>

namespace torchprof::formats {

inline char* put(char* at, std::string_view text) { return at + text.copy(at, text.size()); }

inline char* put(char* at, uint64_t value) { return std::to_chars(at, at + 20, value).ptr; }

inline char* put_signed(char* at, int64_t value) {
  if (value >= 0) return put(at, static_cast<uint64_t>(value));
  *at++ = '-';
  return put(at, uint64_t{0} - static_cast<uint64_t>(value));
}

// Nanoseconds as microseconds with three decimals.
inline char* put_us(char* at, int64_t ns) {
  const auto value = static_cast<uint64_t>(std::max<int64_t>(0, ns));
  at = put(at, value / 1000);
  const uint64_t rest = value % 1000;
  *at++ = '.';
  *at++ = static_cast<char>('0' + rest / 100);
  *at++ = static_cast<char>('0' + rest / 10 % 10);
  *at++ = static_cast<char>('0' + rest % 10);
  return at;
}

// The shortest text that reads back as this number, which is finite; at most 24 bytes.
template <class Float>
char* put_float(char* at, Float value) {
  return std::to_chars(at, at + 32, value).ptr;
}

}  // namespace torchprof::formats
