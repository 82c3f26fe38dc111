#include "formats/trace/windows.h"

#include <algorithm>

namespace torchprof::formats {

const Window* window_after(const Process& process, int64_t t) {
  const auto found = std::ranges::upper_bound(process.windows, t, {}, [](const Window& w) { return w.end.value; });
  return found == process.windows.end() ? nullptr : &*found;
}

std::string step_ranges(const std::vector<uint64_t>& numbers, size_t most) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < numbers.size();) {
    size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    std::string& part = parts.emplace_back(std::to_string(numbers[i]));
    if (end > i + 1) part.append("-").append(std::to_string(numbers[end - 1]));
    i = end;
  }
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts.size() > most && i == most - 2) {
      text += ", ...";
      i = parts.size() - 2;
    }
    text.append(text.empty() ? "" : ", ").append(parts[i]);
  }
  return text;
}

}  // namespace torchprof::formats
