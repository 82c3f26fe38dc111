// The line of the program from which a call came, as precisely as the recording allows:
//
//   --python functions   the innermost Python function that is not torch's, with its first line
//   --python calls       the line of that function, where it makes a C call itself
//   --native on          the line that the function was at when the operator began; in C++, the program's own line
//
// If no such function is around, the innermost function of torch; without any, the call of a module or an optimizer.
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

  // The place of something inside these spans. `native`: its own native stack, if it is an operator. None: not known.
  NameId of(std::span<const Span> around, NativeFrameId native = {});
  // Whether it is a Python function that is not torch's, and not the call of a module or an optimizer.
  bool is_program(const Span& span) const {
    return span.kind == SliceKind::kPython && !span.object && is_program(span.name);
  }
  bool is_program(NameId function) const { return names_.is_program(function); }

 private:
  NameId line_of(CallSiteId site);
  NameId line_of(NativeFrameId native);

  const Process& process_;
  Names& names_;
  NativeSites sites_;
};

}  // namespace torchprof::formats
