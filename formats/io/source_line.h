// A line of a program's source, to be shown beside what was measured.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace torchprof::formats {

// Without the blanks around it, at most kLongestSourceLine bytes, safe to show. Empty: the file cannot be read, is
// larger than kLargestSource, has no such line, or was changed after `before` (ns since 1970), so that the program that
// was measured may have been another one.
inline constexpr size_t kLongestSourceLine = 90;
inline constexpr int64_t kLargestSource = 4 << 20;
std::string source_line(const std::string& path, uint32_t line, int64_t before);

// A call by its name as it is written in a program in Python.
struct SourceCall {
  uint32_t line;
  std::string function;  // in which it stands: "main", or "<module>"
};
// The lines that call it, in order; none where source_line() has no text. Comments and definitions are no calls; text
// in quotes is not known from others.
std::vector<SourceCall> calls_in_source(const std::string& path, std::string_view called, int64_t before);

}  // namespace torchprof::formats
