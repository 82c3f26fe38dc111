// The line of the program that a call came from, of what is known.
//
//   --python functions   the innermost function of Python that is not torch's own, by its first line
//   --python calls       the line of it that makes the call, where it calls C itself
//   --native on          the line that was executed in it when the operator began; in C++, that of the program
//
// Where no function is torch's caller, the innermost one of torch; where none is known, the call of a module or an
// optimizer around it.
#pragma once

#include <span>
#include <vector>

#include "formats/native/site.h"
#include "formats/replay/thread_stack.h"
#include "formats/trace/names.h"

namespace torchprof::formats {

class ProgramPlaces {
 public:
  ProgramPlaces(const Process& process, Names& names) : process_(process), names_(names), sites_(process, names) {}

  // Of what is in these spans; `native`: its own stack, of an operator. None: not known.
  NameId of(std::span<const Span> around, NativeFrameId native = {});
  // A function that is not torch's own, nor the call of a module or an optimizer.
  bool is_program(const Span& span) { return span.kind == SliceKind::kPython && !span.object && is_program(span.name); }
  bool is_program(NameId function);

 private:
  NameId line_of(CallSiteId site);
  NameId line_of(NativeFrameId native);

  const Process& process_;
  Names& names_;
  NativeSites sites_;
  std::vector<int8_t> is_program_;  // by name: 1 yes, -1 no, 0 not looked at
};

}  // namespace torchprof::formats
