#include "formats/io/source_line.h"

#include <sys/stat.h>

#include <algorithm>
#include <string_view>

#include "formats/io/open_file.h"
#include "formats/io/text.h"

namespace torchprof::formats {

namespace {

// Empty: it cannot be read, is too large, or was changed.
std::string text_of_program(const std::string& path, int64_t before) {
  struct stat of {};
  if (stat(path.c_str(), &of) != 0 || of.st_size > kLargestSource) return {};
  if (int64_t{of.st_mtim.tv_sec} * 1'000'000'000 + of.st_mtim.tv_nsec > before) return {};
  return read_file(path);
}

bool is_of_name(char c) {
  const auto letter = static_cast<unsigned char>(c);
  return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || letter >= 0x80;
}

// Whether the line has a call of it.
bool has_call(std::string_view line, std::string_view called) {
  line = line.substr(0, line.find('#'));
  for (size_t at = line.find(called); at != line.npos; at = line.find(called, at + 1)) {
    const size_t end = at + called.size();
    if (end >= line.size() || line[end] != '(' || (at != 0 && is_of_name(line[at - 1]))) continue;
    if (!line.substr(0, at).ends_with("def ")) return true;
  }
  return false;
}

// "main" of "async def main(...): ..."; empty: it defines no function.
std::string_view defined_by(std::string_view line) {
  for (const std::string_view head : {"def ", "async def "})
    if (line.starts_with(head)) {
      line.remove_prefix(head.size());
      size_t size = 0;
      while (size < line.size() && is_of_name(line[size])) ++size;
      return line.substr(0, size);
    }
  return {};
}

}  // namespace

std::vector<SourceCall> calls_in_source(const std::string& path, std::string_view called, int64_t before) {
  struct Open {  // a block that a definition begins
    size_t indent;
    std::string_view function;
  };
  std::vector<SourceCall> found;
  std::vector<Open> open;
  const std::string text = text_of_program(path, before);
  std::string_view rest = text;
  for (uint32_t number = 1; !rest.empty(); ++number) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const size_t indent = line.find_first_not_of(" \t\r\f");
    if (indent == line.npos || line[indent] == '#') continue;
    while (!open.empty() && open.back().indent >= indent) open.pop_back();
    if (has_call(line, called)) found.push_back({number, open.empty() ? "<module>" : printable(open.back().function)});
    if (const std::string_view function = defined_by(line.substr(indent)); !function.empty())
      open.push_back({indent, function});
  }
  return found;
}

std::string source_line(const std::string& path, uint32_t line, int64_t before) {
  if (line == 0) return {};
  const std::string text = text_of_program(path, before);
  std::string_view rest = text;
  for (uint32_t at = 1; at < line; ++at) {
    const size_t end = rest.find('\n');
    if (end == rest.npos) return {};
    rest.remove_prefix(end + 1);
  }
  rest = rest.substr(0, rest.find('\n'));
  const size_t first = rest.find_first_not_of(" \t\r\f"), last = rest.find_last_not_of(" \t\r\f");
  if (first == rest.npos) return {};
  rest = rest.substr(first, last + 1 - first);
  if (rest.size() <= kLongestSourceLine) return printable(rest);
  return printable(front_of(rest, kLongestSourceLine)) + " ...";
}

}  // namespace torchprof::formats
