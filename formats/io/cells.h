// Cells of tables for people, and the tables. A line has at most kWidth columns or those of a terminal, more only where
// the columns before the last one need them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace torchprof::formats {

inline constexpr size_t kWidth = 120;
inline constexpr size_t kNarrowest = 40;  // what the last column gets at least

std::string print(const char* format, double value);     // printf's
std::string duration_text(double ns);                    // "12.345 ms"
std::string time_text(double ns);                        // the same for a column: every unit is two wide
std::string count_text(uint64_t n);                      // "12,345"
std::string percent_text(int64_t part, int64_t whole);   // "12.3 %"
std::string memory_text(int64_t bytes);                  // "-1.50 MiB", as torch's tables
std::string plural(uint64_t n, const std::string& one);  // "2 kernels"

// Rows: right-aligned columns, then a column of text that gets the rest of the line: shortened, broken at spaces, or
// however long it is.
enum class LastColumn : uint8_t { kShortened, kBroken, kWhole };
using Cells = std::vector<std::string>;
struct Fit {
  size_t width = kWidth;  // of a line, in columns
  // Of each column but the last, for when they do not all fit: the least important ones are left out, of several alike
  // the last; never all. Empty: none is left out, and the lines are longer.
  std::vector<int> importance{};
};
std::string aligned(const Cells& head, const std::vector<Cells>& rows, LastColumn last = LastColumn::kShortened,
                    const Fit& fit = {});

// A title and a body; nothing if the body is empty.
void section(std::string& out, const std::string& title, const std::string& body);

}  // namespace torchprof::formats
