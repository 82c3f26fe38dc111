#include "formats/io/nearest.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace torchprof::formats {
namespace {

constexpr size_t kLongest = 64;

bool is_same(char a, char b) {
  return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
}

// The optimal string alignment distance. Neither is longer than kLongest.
size_t distance(std::string_view a, std::string_view b) {
  std::array<std::array<size_t, kLongest + 1>, 3> rows{};
  for (size_t j = 0; j <= b.size(); ++j) rows[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    auto& row = rows[i % 3];
    const auto &above = rows[(i + 2) % 3], &two_above = rows[(i + 1) % 3];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (is_same(a[i - 1], b[j - 1]) ? 0 : 1)});
      if (i > 1 && j > 1 && is_same(a[i - 1], b[j - 2]) && is_same(a[i - 2], b[j - 1]))
        row[j] = std::min(row[j], two_above[j - 2] + 1);
    }
  }
  return rows[a.size() % 3][b.size()];
}

}  // namespace

namespace {

// The one name of which `wrong` is the beginning; empty: none, or several.
std::string_view begun(std::string_view wrong, std::span<const std::string> names) {
  constexpr size_t kShortest = 2;
  std::string_view found;
  if (wrong.size() < kShortest) return found;
  for (const std::string& name : names) {
    if (!std::ranges::equal(std::string_view(name).substr(0, wrong.size()), wrong, is_same)) continue;
    if (!found.empty()) return {};
    found = name;
  }
  return found;
}

}  // namespace

std::string_view nearest(std::string_view wrong, std::span<const std::string> names) {
  std::string_view best = begun(wrong, names);
  size_t least = kLongest;
  if (!best.empty() || wrong.empty() || wrong.size() > kLongest) return best;
  for (const std::string& name : names) {
    if (name.empty() || name.size() > kLongest) continue;
    const size_t longer = std::max(name.size(), wrong.size());
    const size_t most = std::max<size_t>(longer / 3, longer > 2 ? 1 : 0);
    const size_t d = distance(wrong, name);
    if (d > most || d >= least) continue;
    best = name;
    least = d;
  }
  return best;
}

std::string did_you_mean(std::string_view wrong, std::span<const std::string> names) {
  const std::string_view best = nearest(wrong, names);
  return best.empty() ? "" : std::string(" (did you mean '").append(best).append("'?)");
}

}  // namespace torchprof::formats
