#include "formats/io/source_line.h"

#include <sys/stat.h>

#include <string_view>

#include "formats/io/open_file.h"
#include "formats/io/text.h"

namespace torchprof::formats {

std::string source_line(const std::string& path, uint32_t line, int64_t before) {
  struct stat of {};
  if (line == 0 || stat(path.c_str(), &of) != 0 || of.st_size > kLargestSource) return {};
  if (int64_t{of.st_mtim.tv_sec} * 1'000'000'000 + of.st_mtim.tv_nsec > before) return {};
  const std::string text = read_file(path);
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
  size_t size = kLongestSourceLine;
  while (size > 0 && (static_cast<unsigned char>(rest[size]) & 0xc0) == 0x80) --size;  // no part of a character
  return printable(rest.substr(0, size)) + " ...";
}

}  // namespace torchprof::formats
