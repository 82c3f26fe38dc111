#include "formats/replay/gpu_annotations.h"

#include <algorithm>

#include "formats/replay/thread_stack.h"

namespace torchprof::formats {

void GpuAnnotations::extend(const GpuActivity& a) {
  const ThreadStack& stack = *a.call->stack;
  for (int32_t i = stack.top_op(); i >= 0; i = stack[i].below_op) {
    if (!is_annotation(stack[i].scope)) continue;
    auto& spans = open_[stack[i].id];
    const auto it =
        std::ranges::find_if(spans, [&a](const Span& s) { return s.device == a.device && s.stream == a.stream; });
    if (it == spans.end()) {
      spans.push_back({a.device, a.stream, a.begin.value, a.end.value});
    } else {
      it->begin = std::min(it->begin, a.begin.value);
      it->end = std::max(it->end, a.end.value);
    }
  }
}

std::vector<GpuAnnotations::Span> GpuAnnotations::take(uint64_t external_id) {
  const auto it = open_.find(external_id);
  if (it == open_.end()) return {};
  std::vector<Span> spans = std::move(it->second);
  open_.erase(it);
  return spans;
}

}  // namespace torchprof::formats
