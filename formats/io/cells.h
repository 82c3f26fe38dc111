// Cells of tables for people, and tables of them: lines of at most kWidth columns, more only where all but the last
// take too many.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace torchprof::formats {

inline constexpr size_t kWidth = 120;
inline constexpr size_t kNarrowest = 40;  // that the last column gets, however many there are before it

std::string print(const char* format, double value);     // printf's
std::string duration_text(double ns);                    // "12.345 ms"
std::string time_text(double ns);                        // the same in a column: all units are two wide
std::string count_text(uint64_t n);                      // "12,345"
std::string percent_text(int64_t part, int64_t whole);   // "12.3 %"
std::string memory_text(int64_t bytes);                  // "-1.50 MiB", as torch's tables
std::string plural(uint64_t n, const std::string& one);  // "2 kernels"

// Right-aligned columns, then one of text that takes what is left of the line: shortened, or broken at its spaces.
using Cells = std::vector<std::string>;
std::string aligned(const Cells& head, const std::vector<Cells>& rows, bool is_wrapped = false);

// Nothing for an empty body.
void section(std::string& out, const std::string& title, const std::string& body);

}  // namespace torchprof::formats
