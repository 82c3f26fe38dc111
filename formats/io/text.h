// Turns bytes of the profiled program into text that readers accept.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace torchprof::formats {

// A JSON string with its quotes: valid UTF-8 (U+FFFD where the bytes are not); what for_terminal() would replace is
// escaped, so that the text is the same to who reads it.
std::string json_string(std::string_view bytes);

// The same, of as much of the front as takes at most `most` bytes of JSON.
std::string json_string_within(std::string_view bytes, size_t most);

// One line of valid UTF-8 for people: invalid bytes become U+FFFD, and '?' what a terminal would act upon: the control
// characters C0, DEL and C1 (ECMA-48; U+009B begins a sequence as ESC [ does), and those that turn the direction of
// text or end a line (Unicode: Bidi_Control, U+2028, U+2029).
std::string printable(std::string_view bytes);
// The same of text with several lines.
std::string for_terminal(std::string_view bytes);

// Number of code points: the columns on a terminal, but for a few scripts.
size_t columns(std::string_view utf8);

// At most `most` bytes of the front, with no part of a character at its end.
std::string_view front_of(std::string_view utf8, size_t most);

// At most `width` columns; a text that is longer loses its middle: "torch/nn/mod...py(12): forward".
std::string shorten(std::string_view utf8, size_t width);

// Lines of at most `width` columns (at least 16), broken at spaces; every one after the first begins with two spaces. A
// word that is too long for a line loses its middle. A text that fits is one line, as it is.
std::vector<std::string> wrap(std::string_view utf8, size_t width);

// UTC, ISO 8601: "2026-07-31T23:59:59.123456Z"; `unix_ns` since 1970.
std::string iso_time(int64_t unix_ns);

// "3.2 GiB"
std::string bytes_text(uint64_t bytes);

}  // namespace torchprof::formats
