#include "formats/symbols/symbol_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <sstream>
#include <string_view>

#include "formats/io/open_file.h"
#include "formats/io/output.h"

namespace torchprof::formats {
namespace {

constexpr std::string_view kHead = "torchprof symbols 1";

template <class T>
bool parse(std::string_view text, T& out, int base) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out, base);
  return error == std::errc() && end == text.data() + text.size();
}

bool parse_bytes(std::string_view hex, std::string& out) {
  out.clear();
  if (hex == "-") return true;
  for (; hex.size() >= 2; hex.remove_prefix(2)) {
    uint8_t byte = 0;
    if (!parse(hex.substr(0, 2), byte, 16)) return false;
    out.push_back(static_cast<char>(byte));
  }
  return hex.empty();
}

std::string hex_of(uint64_t number) {
  std::array<char, 16> digits;
  return {digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), number, 16).ptr};
}

std::string field(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return c == '\t' || c == '\n'; }, ' ');
  return text;
}

using Fields = std::array<std::string_view, 4>;

Fields split(std::string_view line) {
  Fields out;
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t tab = i + 1 < out.size() ? line.find('\t') : std::string_view::npos;
    out[i] = line.substr(0, tab);
    if (tab == std::string_view::npos) break;
    line.remove_prefix(tab + 1);
  }
  return out;
}

}  // namespace

std::string hex_of(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    out.append({kDigits[byte >> 4], kDigits[byte & 15]});
  }
  return out.empty() ? "-" : out;
}

size_t SymbolFile::count() const {
  size_t sum = 0;
  for (const auto& [object, places] : objects) sum += places.size();
  return sum;
}

SymbolFile SymbolFile::read(const std::filesystem::path& file) {
  SymbolFile out;
  std::istringstream in(read_file(file));
  std::string line;
  if (!std::getline(in, line) || line != kHead) return out;
  std::map<uint64_t, Place>* object = nullptr;
  Place* place = nullptr;
  while (std::getline(in, line)) {
    const auto [kind, first, second, third] = split(line);
    if (kind == "object") {
      std::string build_id;
      object = parse_bytes(first, build_id) ? &out.objects[{build_id, std::string(second)}] : nullptr;
      place = nullptr;
    } else if (kind == "at" && object) {
      uint64_t address = 0;
      place = parse(first, address, 16) ? &(*object)[address] : nullptr;
      if (place) place->clear();
    } else if (kind == "symbol" && place) {
      uint32_t number = 0;
      if (parse(third, number, 10)) place->push_back({std::string(first), std::string(second), number});
    }
  }
  return out;
}

void SymbolFile::write(const std::filesystem::path& file) const {
  Output out(file);
  out.write(std::string(kHead) + '\n');
  for (const auto& [object, places] : objects) {
    out.write("object\t" + hex_of(object.first) + '\t' + field(object.second) + '\n');
    for (const auto& [address, place] : places) {
      out.write("at\t" + hex_of(address) + '\n');
      for (const Symbol& s : place)
        out.write("symbol\t" + field(s.function) + '\t' + field(s.file) + '\t' + std::to_string(s.line) + '\n');
    }
  }
  out.commit();
}

}  // namespace torchprof::formats
