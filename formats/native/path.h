// Native frames of a call path: those through which an operator was called, from what is around it in the trace.
//
//   what is around it            the frames, which stand between that and the operator
//   a function of Python         those inside of the interpreter: the binding, the dispatcher ...
//   another operator             those of its stack that the outer one's does not have; not once more the function that
//                                called both
//   nothing                      the whole stack
//
// The nearest of these counts. An annotation has none: what began it has mostly returned by the time that something
// runs inside it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "formats/replay/thread_stack.h"
#include "formats/trace/native_stacks.h"

namespace torchprof::formats {

class NativePath {
 public:
  explicit NativePath(const NativeStacks* stacks) : stacks_(stacks) {}  // null: there are none

  // Places (NativeStacks::where), outermost first, until the next call. `around`: outermost first.
  std::span<const uint32_t> places(std::span<const Span> around, OpScope scope, NativeFrameId innermost);

 private:
  bool is_next_to(NativeFrameId caller, NativeFrameId frame, uint32_t place) const;

  const NativeStacks* stacks_;
  std::vector<uint32_t> places_;
};

}  // namespace torchprof::formats
