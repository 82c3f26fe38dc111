#include "formats/analysis/program_places.h"

#include <algorithm>
#include <string_view>

namespace torchprof::formats {

// The import prefix is cut from the path, if it is known.
bool is_torchs(std::string_view function) {
  return function.starts_with("torch/") || function.find("-packages/torch/") != function.npos;
}

bool ProgramPlaces::is_program(NameId function) {
  if (function.value >= is_program_.size())
    is_program_.resize(std::max<size_t>(function.value + 1, is_program_.size() * 2));
  int8_t& is_program = is_program_[function.value];
  if (is_program == 0) is_program = is_torchs(names_.text(function)) ? -1 : 1;
  return is_program > 0;
}

// The line, if it is the program's.
NameId ProgramPlaces::line_of(CallSiteId id) {
  if (!id || id.value >= process_.call_sites.size()) return {};
  const CallSiteDef& site = process_.call_sites[id.value];
  const NameId place = site.line == 0 ? NameId{} : names_.place(site.function, site.line);
  return place && is_program(place) ? place : NameId{};
}

NameId ProgramPlaces::line_of(NativeFrameId native) {
  NameId found;
  if (!native || !process_.native) return found;
  process_.native->each_python_line(native, [&](FunctionId function, uint32_t line) {
    if (found) return;
    const NameId place = names_.place(function, line);
    if (is_program(place)) found = place;
  });
  return found;
}

NameId ProgramPlaces::of(std::span<const Span> around, NativeFrameId native) {
  if (const NameId line = line_of(native)) return line;
  NameId of_torch, object;
  for (size_t i = around.size(); i-- > 0;) {
    const Span& span = around[i];
    if (is_program(span)) return span.name;
    if (const NameId line = span.is_real_op() ? line_of(span.native) : line_of(span.site)) return line;
    if (!native) native = span.native;
    if (span.kind != SliceKind::kPython) continue;
    NameId& kind = span.object ? object : of_torch;
    if (!kind) kind = span.name;
  }
  if (!of_torch)
    if (const NameId site = sites_.of(native)) return site;
  return of_torch ? of_torch : object;
}

}  // namespace torchprof::formats
