#include "tests/unit/support/digest.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/unit/support/golden.h"

namespace torchprof::test {
namespace fs = std::filesystem;

namespace {

struct Hash {
  uint64_t value = 0xcbf29ce484222325u;
  void add(std::string_view text) {
    for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  }
  std::string hex() const {
    char text[17];
    std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(value));
    return text;
  }
};

struct OfKind {
  size_t lines = 0;
  Hash hash;
  std::vector<std::pair<std::string, uint64_t>> sums;  // by field, in the order of the first record
  std::set<std::string, std::less<>> texts;

  void add(std::string_view field, uint64_t number) {
    for (auto& [name, sum] : sums)
      if (name == field) return void(sum += number);
    sums.emplace_back(field, number);
  }
};

// NAME=NUMBER; nothing for any other word.
std::optional<std::pair<std::string_view, uint64_t>> field_of(std::string_view word) {
  const size_t equals = word.find('=');
  if (equals == 0 || equals == word.npos) return {};
  const char *begin = word.data() + equals + 1, *end = word.data() + word.size();
  const bool is_negative = begin != end && *begin == '-';
  uint64_t number = 0;
  const auto [last, error] = std::from_chars(begin + is_negative, end, number);
  if (error != std::errc{} || last != end) return {};
  return {{word.substr(0, equals), is_negative ? 0 - number : number}};
}

std::string_view take_word(std::string_view& line) {
  const std::string_view word = line.substr(0, line.find(' '));
  line.remove_prefix(std::min(word.size() + 1, line.size()));
  return word;
}

using Line = std::map<std::string, std::string, std::less<>>;

// What a digest says, by kind.
std::map<std::string, Line> read_digest(const std::string& digest) {
  std::map<std::string, Line> kinds;
  std::istringstream lines(digest);
  for (std::string line; std::getline(lines, line);) {
    std::string_view rest = line;
    Line& fields = kinds[std::string(take_word(rest))];
    while (!rest.empty()) {
      const std::string_view word = take_word(rest);
      const size_t equals = std::min(word.find('='), word.size());
      fields[std::string(word.substr(0, equals))] = word.substr(std::min(equals + 1, word.size()));
    }
  }
  return kinds;
}

std::string value_of(const Line& fields, const std::string& field) {
  const auto found = fields.find(field);
  return found == fields.end() ? "nothing" : found->second;
}

// Where the dump was written, or that it could not be.
std::string written(const fs::path& folder, const std::string& name, const std::string& dump) {
  const fs::path file = folder / (name + ".txt");
  std::error_code ignored;
  fs::create_directories(file.parent_path(), ignored);
  std::ofstream out(file, std::ios::binary);
  out << dump;
  out.close();
  return out ? file.string() : "cannot be written to " + file.string();
}

}  // namespace

std::string digest_of(const std::string& dump) {
  std::map<std::string, OfKind, std::less<>> kinds;
  OfKind all;
  std::istringstream lines(dump);
  for (std::string line; std::getline(lines, line);) {
    std::string_view rest = line;
    OfKind& kind = kinds[std::string(take_word(rest))];
    for (OfKind* one : {&all, &kind}) {
      ++one->lines;
      one->hash.add(line);
      one->hash.add("\n");
    }
    while (!rest.empty()) {
      std::string_view after = rest;
      const auto field = field_of(take_word(after));
      if (!field) break;
      kind.add(field->first, field->second);
      rest = after;
    }
    if (!rest.empty()) kind.texts.emplace(rest);
  }
  std::ostringstream digest;
  const auto put = [&](std::string_view name, const OfKind& kind) {
    digest << name << " lines=" << kind.lines << " hash=" << kind.hash.hex();
    for (const auto& [field, sum] : kind.sums) digest << ' ' << field << '=' << sum;
    if (!kind.texts.empty()) digest << " texts=" << kind.texts.size();
    digest << '\n';
  };
  put("all", all);
  for (const auto& [name, kind] : kinds) put(name, kind);
  return digest.str();
}

std::string difference_of_digests(const std::string& before, const std::string& now) {
  auto old_kinds = read_digest(before), new_kinds = read_digest(now);
  std::set<std::string> names;
  for (const auto& kinds : {old_kinds, new_kinds})
    for (const auto& [name, fields] : kinds) names.insert(name);
  std::string text;
  for (const std::string& name : names) {
    const Line &old_line = old_kinds[name], &new_line = new_kinds[name];
    if (old_line == new_line) continue;
    if (old_line.empty() || new_line.empty()) {
      const bool is_new = old_line.empty();
      text += name + (is_new ? ": new, " : ": gone, ") + value_of(is_new ? new_line : old_line, "lines") + " lines\n";
      continue;
    }
    std::set<std::string> fields;
    for (const Line* line : {&old_line, &new_line})
      for (const auto& [field, value] : *line) fields.insert(field);
    std::string changes;
    for (const std::string& field : fields) {
      const std::string old_value = value_of(old_line, field), new_value = value_of(new_line, field);
      if (field != "hash" && old_value != new_value)
        changes += (changes.empty() ? "" : ", ") + field + ' ' + old_value + " -> " + new_value;
    }
    if (changes.empty() && name == "all") changes = "as many lines, another text";
    if (changes.empty()) changes = "the same sums; numbers have changed places, or texts differ";
    text += name + ": " + changes + '\n';
  }
  return text;
}

void check_digest(const std::string& name, const std::string& dump) {
  const fs::path file = golden_directory() / (name + ".digest");
  const std::string digest = digest_of(dump);
  if (const char* folder = std::getenv("TORCHPROF_DUMP_GOLDEN")) written(folder, name, dump);
  if (std::getenv("TORCHPROF_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(file, std::ios::binary) << digest;
    return;
  }
  const std::string expected = fs::exists(file) ? read_file(file) : "";
  const fs::path beside = fs::read_symlink("/proc/self/exe").parent_path() / "golden_dumps";
  if (digest == expected) {
    std::error_code ignored;
    fs::remove(beside / (name + ".txt"), ignored);  // of a failure that is mended
    return;
  }
  FAIL_CHECK(
      name, ".digest differs:\n", difference_of_digests(expected, digest),
      "the whole dump: ", written(beside, name, dump),
      "\nwhich records: tests/golden_diff.py COMMIT BUILD, with a commit whose tests pass and this build's folder; "
      "TORCHPROF_UPDATE_GOLDEN=1 writes the digest anew");
}

}  // namespace torchprof::test
