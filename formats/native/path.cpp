#include "formats/native/path.h"

#include <algorithm>
#include <optional>
#include <string>

namespace torchprof::formats {

// Whether the place is in the function that `caller` called in the stack of `frame`. If so it is the same call of that
// function, since the operator with `frame` is still open. In an object without symbols functions cannot be told apart,
// so any place of the object will do.
bool NativePath::is_next_to(NativeFrameId caller, NativeFrameId frame, uint32_t place) const {
  std::optional<uint32_t> next;
  stacks_->each_place(frame, [&](NativeFrameId id, uint32_t at) {
    if (id.value <= caller.value) return false;
    next = at;
    return true;
  });
  if (!next) return false;
  const auto function = [this](uint32_t at) -> const std::string& {
    return stacks_->symbol(stacks_->where(at).texts.back()).function;
  };
  return function(place) == function(*next) && stacks_->where(place).object == stacks_->where(*next).object;
}

std::span<const uint32_t> NativePath::places(std::span<const Span> around, OpScope scope, NativeFrameId innermost) {
  places_.clear();
  if (stacks_ == nullptr || is_annotation(scope) || !stacks_->has(innermost)) return {};
  NativeFrameId outer{};
  bool is_in_python = false;
  for (size_t i = around.size(); i-- > 0 && !outer;) {
    const Span& span = around[i];
    if (!span.is_op())
      is_in_python = true;
    else if (!is_annotation(span.scope) && stacks_->has(span.native))
      outer = span.native;
  }
  const NativeFrameId caller = outer ? stacks_->common_caller(outer, innermost) : NativeFrameId{};
  bool is_cut = false;  // the walk stopped at the interpreter
  stacks_->each_place(innermost, [&](NativeFrameId frame, uint32_t place) {
    if (frame.value <= caller.value) return false;
    is_cut = is_in_python && stacks_->is_interpreter(place);
    if (!is_cut) places_.push_back(place);
    return !is_cut;
  });
  if (outer && !is_cut && !places_.empty() && is_next_to(caller, outer, places_.back())) places_.pop_back();
  std::ranges::reverse(places_);
  return places_;
}

}  // namespace torchprof::formats
