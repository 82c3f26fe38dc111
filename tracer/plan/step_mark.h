// The mark of a step that the program or torch.profiler makes: an annotation "ProfilerStep#12".
#pragma once

#include <charconv>
#include <cstdint>
#include <string_view>
#include <system_error>

namespace torchprof::window {

inline constexpr std::string_view kProfilerStep = "ProfilerStep#";

inline bool is_mark(std::string_view name, uint64_t& step) noexcept {
  if (!name.starts_with(kProfilerStep)) return false;
  name.remove_prefix(kProfilerStep.size());
  return std::from_chars(name.data(), name.data() + name.size(), step).ec == std::errc{};
}

}  // namespace torchprof::window
