// Letters and digits of names in ASCII, whatever the locale.
#pragma once

namespace torchprof::formats {

inline bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
inline bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
inline bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace torchprof::formats
