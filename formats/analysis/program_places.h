// The line of the program from which a call came, as precisely as the recording allows:
//
//   --python functions   the innermost Python function that is not torch's, with its first line
//   --python calls       the line of that function, where it makes a C call itself
//   --native on          the line that the function was at when the operator began; in C++, the program's own line
//
// If no such function is around, the innermost function of torch; without any, the call of a module or an optimizer.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "formats/native/site.h"
#include "formats/replay/thread_stack.h"
#include "formats/trace/names.h"

namespace torchprof::formats {

// Whether a function of Python, by its name ("path(line): name"), is torch's own.
bool is_torchs(std::string_view function);

class ProgramPlaces {
 public:
  ProgramPlaces(const Process& process, Names& names) : process_(process), names_(names), sites_(process, names) {}

  // The place of something inside these spans. `native`: its own native stack, if it is an operator. None: not known.
  NameId of(std::span<const Span> around, NativeFrameId native = {});
  // Whether it is a Python function that is not torch's, and not the call of a module or an optimizer.
  bool is_program(const Span& span) { return span.kind == SliceKind::kPython && !span.object && is_program(span.name); }
  bool is_program(NameId function);

 private:
  NameId line_of(CallSiteId site);
  NameId line_of(NativeFrameId native);

  const Process& process_;
  Names& names_;
  NativeSites sites_;
  std::vector<int8_t> is_program_;  // by name: 1 yes, -1 no, 0 not looked up yet
};

}  // namespace torchprof::formats
