#include "formats/io/cells.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <string_view>

#include "formats/io/text.h"

namespace torchprof::formats {

std::string print(const char* format, double value) {
  std::array<char, 400> text;  // the largest double has 309 digits
  const auto length = static_cast<size_t>(std::snprintf(text.data(), text.size(), format, value));
  return {text.data(), std::min(length, text.size() - 1)};
}

std::string duration_text(double ns) {
  if (ns < 1e6) return print("%.3f us", ns / 1e3);
  if (ns < 1e9) return print("%.3f ms", ns / 1e6);
  return print("%.3f s", ns / 1e9);
}

std::string time_text(double ns) { return duration_text(ns) + (ns < 1e9 ? "" : " "); }

std::string count_text(uint64_t n) {
  std::string text = std::to_string(n);
  for (size_t i = text.size(); i > 3; i -= 3) text.insert(i - 3, 1, ',');
  return text;
}

std::string percent_text(int64_t part, int64_t whole) {
  return whole > 0 ? print("%.1f %%", 100.0 * static_cast<double>(part) / static_cast<double>(whole)) : "-";
}

// As torch's tables write sizes; a negative one says that more was freed than allocated.
std::string memory_text(int64_t bytes) {
  constexpr std::array<const char*, 7> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; std::abs(value) >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return print(unit == 0 ? "%.0f " : "%.2f ", value) + kUnits[unit];
}

std::string plural(uint64_t n, const std::string& one) {
  std::string text = count_text(n) + " " + one;
  if (n == 1) return text;
  if (one.ends_with('y')) return text.substr(0, text.size() - 1) + "ies";
  return text + (one.ends_with('s') ? "es" : "s");
}

// ---- a table: right-aligned columns, then one of text that takes what is left of the line ----------------

// Breaks `text` into lines of at most `width` columns; those after the first are indented by `indent` more. A word that
// is too long for a line is shortened.
std::string broken(std::string_view text, size_t width, size_t indent) {
  std::string lines;
  while (columns(text) > width) {
    size_t space = text.npos;
    for (size_t at = text.find(' '); at != text.npos; at = text.find(' ', at + 1)) {
      if (space != text.npos && columns(text.substr(0, at)) > width) break;
      space = at;
    }
    if (space == text.npos) break;
    lines.append(shorten(text.substr(0, space), width));
    lines.erase(lines.find_last_not_of(' ') + 1);
    lines.append("\n").append(indent, ' ');
    text.remove_prefix(space + 1);
  }
  return lines.append(shorten(text, width));
}

namespace {

// What the last column gets at least in a line of this width.
size_t least_for_last(size_t width) {
  constexpr size_t kLeast = 16;
  return std::clamp(width / 3, kLeast, kNarrowest);
}

// The columns but the last that are shown.
std::vector<size_t> columns_that_fit(const std::vector<size_t>& widths, const Fit& fit) {
  std::vector<size_t> shown(widths.size());
  std::iota(shown.begin(), shown.end(), size_t{0});
  const auto used = [&] {
    size_t sum = 0;
    for (const size_t c : shown) sum += 2 + widths[c];
    return sum;
  };
  while (!fit.importance.empty() && shown.size() > 1 && used() + 2 + least_for_last(fit.width) > fit.width) {
    auto least = shown.begin();
    for (auto at = shown.begin(); at != shown.end(); ++at)
      if (fit.importance[*at] <= fit.importance[*least]) least = at;
    shown.erase(least);
  }
  return shown;
}

}  // namespace

std::string aligned(const Cells& head, const std::vector<Cells>& rows, LastColumn last, const Fit& fit) {
  std::vector<size_t> widths;
  for (size_t c = 0; c + 1 < head.size(); ++c) {
    widths.push_back(columns(head[c]));
    for (const Cells& row : rows) widths.back() = std::max(widths.back(), columns(row[c]));
  }
  const std::vector<size_t> shown = columns_that_fit(widths, fit);
  std::string text;
  auto line = [&](const Cells& cells) {
    size_t used = 0;
    for (const size_t c : shown) {
      text.append(2 + widths[c] - columns(cells[c]), ' ').append(cells[c]);
      used += 2 + widths[c];
    }
    const size_t width = std::max(fit.width, used + 2 + least_for_last(fit.width)) - used - 2;
    text.append("  ").append(last == LastColumn::kWhole    ? cells.back()
                             : last == LastColumn::kBroken ? broken(cells.back(), width, used + 2)
                                                           : shorten(cells.back(), width));
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  };
  line(head);
  for (const Cells& row : rows) line(row);
  return text;
}

void section(std::string& out, const std::string& title, const std::string& body) {
  if (!body.empty()) out.append(out.empty() ? "" : "\n").append(title).append("\n").append(body);
}

}  // namespace torchprof::formats
