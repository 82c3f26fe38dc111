#include "formats/read/ranges.h"

#include <algorithm>
#include <tuple>

namespace torchprof::formats {

std::string range_name(std::string text) {
  for (const char* const what : {", seq = ", ", stashed seq = ", ", op_id = ", ", sizes = "})
    if (const size_t at = text.find(what); at != std::string::npos && at > 0) text.resize(at);
  return text;
}

Ranges::Ranges(std::vector<Range> ranges) : ranges_(std::move(ranges)) {
  std::ranges::sort(ranges_, {}, [](const Range& r) { return std::tuple(r.begin, -r.end); });
}

uint32_t Ranges::around(int64_t begin, int64_t end) {
  for (; next_ < ranges_.size() && ranges_[next_].begin < begin; ++next_) {
    while (!open_.empty() && open_.back().end <= ranges_[next_].begin) open_.pop_back();
    open_.push_back(ranges_[next_]);
  }
  while (!open_.empty() && open_.back().end <= begin) open_.pop_back();
  for (auto it = open_.rbegin(); it != open_.rend(); ++it)
    if (end < it->end) return it->external;
  return 0;
}

}  // namespace torchprof::formats
