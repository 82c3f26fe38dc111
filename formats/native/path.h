// The native frames of a call path: those between an operator and the slice around it.
//
//   slice around it          frames between that and the operator
//   a function of Python     those inside the interpreter's: the binding, the dispatcher ...
//   another operator         those that the outer operator's stack does not have, without the function that called both
//   none                     the whole stack
//
// The innermost slice around it counts. An annotation gets no frames: the function that began it has mostly returned
// by the time that anything runs inside it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "formats/replay/thread_stack.h"
#include "formats/trace/native_stacks.h"

namespace torchprof::formats {

class NativePath {
 public:
  explicit NativePath(const NativeStacks* stacks) : stacks_(stacks) {}  // null: no native stacks

  // The frames' places (NativeStacks::where), outermost first; valid until the next call. `around`: outermost first.
  std::span<const uint32_t> places(std::span<const Span> around, OpScope scope, NativeFrameId innermost);

 private:
  bool is_next_to(NativeFrameId caller, NativeFrameId frame, uint32_t place) const;

  const NativeStacks* stacks_;
  std::vector<uint32_t> places_;
};

}  // namespace torchprof::formats
