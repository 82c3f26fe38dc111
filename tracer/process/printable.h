// Text that the library did not write itself, on its way to the terminal of the program. The launcher's half has the
// same rule (formats/io/text.h); a test compares them.
#pragma once

#include <cstddef>

namespace torchprof {

namespace detail {

// How many bytes are one character of UTF-8 at `text`; 0: none is there.
inline size_t utf8_size(const unsigned char* text, size_t left) noexcept {
  const unsigned first = text[0];
  const size_t size = first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  if (size == 0 || size > left) return 0;
  for (size_t i = 1; i < size; ++i)
    if ((text[i] & 0xc0) != 0x80) return 0;
  if (first == 0xe0 && text[1] < 0xa0) return 0;  // could be shorter
  if (first == 0xed && text[1] > 0x9f) return 0;  // a half of a pair of UTF-16
  if (first == 0xf0 && text[1] < 0x90) return 0;
  if (first == 0xf4 && text[1] > 0x8f) return 0;  // beyond U+10FFFF
  return size;
}

// The controls C0, DEL and C1, and those that turn the direction of text or end a line.
inline bool acts_on_terminal(const unsigned char* text, size_t size) noexcept {
  if (size == 1) return text[0] < 0x20 || text[0] == 0x7f;
  if (size == 2) return (text[0] == 0xc2 && text[1] < 0xa0) || (text[0] == 0xd8 && text[1] == 0x9c);
  if (size != 3 || text[0] != 0xe2) return false;
  // U+200E, U+200F, U+2028 to U+202E, U+2066 to U+2069
  if (text[1] == 0x80) return text[2] == 0x8e || text[2] == 0x8f || (text[2] >= 0xa8 && text[2] <= 0xae);
  return text[1] == 0x81 && text[2] >= 0xa6 && text[2] <= 0xa9;
}

}  // namespace detail

// One line that a terminal survives: '?' stands for each byte of what it would act upon, and of what is no UTF-8.
inline void make_printable(char* bytes, size_t size) noexcept {
  auto* text = reinterpret_cast<unsigned char*>(bytes);
  for (size_t i = 0; i < size;) {
    const size_t character = detail::utf8_size(text + i, size - i);
    if (character != 0 && !detail::acts_on_terminal(text + i, character)) {
      i += character;
      continue;
    }
    for (const size_t end = i + (character != 0 ? character : 1); i < end; ++i) text[i] = '?';
  }
}

}  // namespace torchprof
