#include "formats/io/text.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <iterator>
#include <nlohmann/json.hpp>

namespace torchprof::formats {
namespace {

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// Byte offset of code point `n`; the size if there are fewer.
size_t offset_of(std::string_view utf8, size_t n) {
  size_t i = 0;
  for (; i < utf8.size(); ++i) {
    if (continues(utf8[i])) continue;
    if (n == 0) break;
    --n;
  }
  return i;
}

// How many bytes of `text`, valid UTF-8, are one character at `i` on which a terminal acts; 0: it does not.
size_t acted_upon(std::string_view text, size_t i) {
  const auto byte = [text, i](size_t n) { return i + n < text.size() ? static_cast<unsigned char>(text[i + n]) : 0; };
  const unsigned first = byte(0);
  if (first < 0x20 || first == 0x7f) return 1;
  if (first == 0xc2) return byte(1) >= 0x80 && byte(1) <= 0x9f ? 2 : 0;  // C1
  if (first == 0xd8) return byte(1) == 0x9c ? 2 : 0;                     // U+061C
  if (first != 0xe2) return 0;
  const unsigned last = byte(2);
  // U+200E, U+200F, U+2028 to U+202E, U+2066 to U+2069
  if (byte(1) == 0x80) return last == 0x8e || last == 0x8f || (last >= 0xa8 && last <= 0xae) ? 3 : 0;
  return byte(1) == 0x81 && last >= 0xa6 && last <= 0xa9 ? 3 : 0;
}

// Puts what `instead` gives for it in the place of each such character.
template <class Instead>
std::string replaced(std::string_view text, Instead instead) {
  std::string out;
  size_t copied = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t size = acted_upon(text, i);
    if (size == 0) {
      ++i;
      continue;
    }
    out.append(text.substr(copied, i - copied));
    instead(out, text.substr(i, size));
    copied = i += size;
  }
  return copied == 0 ? std::string(text) : out.append(text.substr(copied));
}

std::string json_of(std::string_view bytes) {
  using nlohmann::json;
  return json(bytes).dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

std::string json_string(std::string_view bytes) {
  // Nearly all names are ASCII without what JSON writes otherwise.
  const bool is_plain =
      std::ranges::all_of(bytes, [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; });
  if (is_plain) return std::string(1, '"').append(bytes).append(1, '"');
  return replaced(json_of(bytes), [](std::string& out, std::string_view character) {
    const auto bits = [character](size_t n) { return static_cast<unsigned>(static_cast<unsigned char>(character[n])); };
    const unsigned code = character.size() == 1   ? bits(0)
                          : character.size() == 2 ? (bits(0) & 0x1f) << 6 | (bits(1) & 0x3f)
                                                  : (bits(0) & 0xf) << 12 | (bits(1) & 0x3f) << 6 | (bits(2) & 0x3f);
    char escaped[8];
    snprintf(escaped, sizeof(escaped), "\\u%04x", code & 0xffff);
    out += escaped;
  });
}

std::string json_string_within(std::string_view bytes, size_t most) {
  std::string json = json_string(bytes);
  if (json.size() > most) json = json_string(bytes.substr(0, most / 6 - 2));  // a byte becomes six at most: \u0000
  return json;
}

std::string printable(std::string_view bytes) {
  std::string text = for_terminal(bytes);
  std::ranges::replace(text, '\n', '?');
  return text;
}

std::string for_terminal(std::string_view bytes) {
  // Through JSON and back: what is left of the text is valid UTF-8.
  const bool is_ascii = std::ranges::all_of(bytes, [](char c) { return static_cast<signed char>(c) >= 0; });
  const std::string text = is_ascii ? std::string(bytes) : nlohmann::json::parse(json_of(bytes)).get<std::string>();
  return replaced(text, [](std::string& out, std::string_view character) { out += character == "\n" ? '\n' : '?'; });
}

std::string_view front_of(std::string_view utf8, size_t most) {
  if (utf8.size() <= most) return utf8;
  while (most > 0 && continues(utf8[most])) --most;
  return utf8.substr(0, most);
}

size_t columns(std::string_view utf8) {
  return static_cast<size_t>(std::ranges::count_if(utf8, [](char c) { return !continues(c); }));
}

std::string shorten(std::string_view utf8, size_t width) {
  constexpr std::string_view kDots = "...";
  const size_t all = columns(utf8);
  if (all <= width) return std::string(utf8);
  if (width <= kDots.size()) return std::string(kDots.substr(0, width));
  const size_t kept = width - kDots.size();
  const size_t head = kept / 3;  // the end of a path and the function's name tell more than its beginning
  return std::string(utf8.substr(0, offset_of(utf8, head)))
      .append(kDots)
      .append(utf8.substr(offset_of(utf8, all - (kept - head))));
}

std::vector<std::string> wrap(std::string_view utf8, size_t width) {
  constexpr std::string_view kIndent = "  ";
  std::vector<std::string> lines{std::string()};
  if (columns(utf8) <= width) return {std::string(utf8)};
  while (!utf8.empty()) {
    const size_t end = std::min(utf8.find(' '), utf8.size());
    const std::string word = shorten(utf8.substr(0, end), width - kIndent.size());
    utf8.remove_prefix(std::min(end + 1, utf8.size()));
    std::string& line = lines.back();
    if (line.empty() || columns(line) + 1 + columns(word) <= width) {
      line.append(line.empty() ? "" : " ").append(word);
    } else {
      lines.push_back(std::string(kIndent) + word);
    }
  }
  return lines;
}

std::string iso_time(int64_t unix_ns) {
  const time_t seconds = unix_ns / 1'000'000'000;
  tm parts{};
  gmtime_r(&seconds, &parts);
  char date[32], out[48];
  strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &parts);
  snprintf(out, sizeof(out), "%s.%06dZ", date, static_cast<int>(unix_ns % 1'000'000'000 / 1000));
  return out;
}

std::string bytes_text(uint64_t bytes) {
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) value /= 1024, ++unit;
  char text[32];
  snprintf(text, sizeof(text), unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

}  // namespace torchprof::formats
