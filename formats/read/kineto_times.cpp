#include "formats/read/kineto_times.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

namespace torchprof::formats {
namespace {

constexpr double kMostExact = 9e15;  // microseconds; their nanoseconds fit into 64 bits

}  // namespace

int64_t ns_of(double us) {
  constexpr double kMost = 9e18;  // larger than any time that is possible
  const double ns = us * 1e3;
  return std::isnan(ns) ? std::numeric_limits<int64_t>::min() : std::llround(std::clamp(ns, -kMost, kMost));
}

int64_t exact_ns(std::string_view text, double us) {
  if (!(std::abs(us) < kMostExact)) return ns_of(us);
  const size_t dot = std::min(text.find('.'), text.size());
  int64_t whole = 0, part = 0;
  const auto end = std::from_chars(text.data(), text.data() + dot, whole);
  const std::string_view after = text.substr(std::min(dot + 1, text.size()));
  for (size_t i = 0; i < 4; ++i) part = part * 10 + (i < after.size() ? after[i] - '0' : 0);  // the fourth: to round
  const bool is_plain =
      end.ec == std::errc{} && end.ptr == text.data() + dot && after.find_first_not_of("0123456789") == after.npos;
  if (!is_plain) return ns_of(us);  // it has an exponent
  part = (part + 5) / 10;
  return whole * 1000 + (text.starts_with('-') ? -part : part);
}

}  // namespace torchprof::formats
