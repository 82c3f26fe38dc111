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

}  // namespace

std::string json_string(std::string_view bytes) {
  using nlohmann::json;
  return json(bytes).dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string json_string_within(std::string_view bytes, size_t most) {
  std::string json = json_string(bytes);
  if (json.size() > most) json = json_string(bytes.substr(0, most / 6 - 2));  // a byte becomes six at most: \u0000
  return json;
}

std::string printable(std::string_view bytes) {
  std::string text(bytes);
  std::ranges::replace_if(
      text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, '?');
  // Through JSON and back: what is left of the text is valid UTF-8.
  return nlohmann::json::parse(json_string(text)).get<std::string>();
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
