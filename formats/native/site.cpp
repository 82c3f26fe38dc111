#include "formats/native/site.h"

#include <algorithm>
#include <array>

namespace torchprof::formats {
namespace {

bool is_library(std::string_view path) {
  constexpr std::array<std::string_view, 8> kNames = {"libc10",  "libtorch",    "libc.so", "libstdc++.so",
                                                      "libgomp", "libgcc_s.so", "libm.so", "ld-linux"};
  const std::string_view name = path.substr(path.rfind('/') + 1);
  return std::ranges::any_of(kNames, [name](std::string_view begin) { return name.starts_with(begin); });
}

}  // namespace

NameId NativeSites::of(NativeFrameId innermost) {
  if (!process_.native || !process_.native->has(innermost)) return {};
  const auto [it, is_new] = known_.try_emplace(innermost.value);
  if (!is_new) return it->second;
  NameId& site = it->second;
  const NativeStacks& stacks = *process_.native;
  stacks.each_place(innermost, [&](NativeFrameId, uint32_t place) {
    const NativeStacks::Where where = stacks.where(place);
    const bool is_other =
        where.object == nullptr || stacks.is_interpreter(place) || is_library(process_.string(where.object->path));
    if (is_other && !stacks.is_script(place)) return true;
    site = names_.intern(stacks.texts()[where.texts.front()]);
    return false;
  });
  return site;
}

}  // namespace torchprof::formats
