#include "formats/advice/sharing_places.h"

#include <cstdint>
#include <map>
#include <string_view>

#include "formats/advice/finding.h"
#include "formats/io/source_line.h"
#include "formats/io/sum.h"
#include "formats/trace/names.h"

namespace torchprof::formats {
namespace {

SharingPlace place_of(const StepView& view, uint32_t name) {
  const std::string where = view.where(name);
  return {where, source_of(view.timeline(), where)};
}

SharingPlace children_of(const StepView& view) {
  const Timeline& timeline = view.timeline();
  std::map<uint32_t, uint64_t> places;
  uint64_t all = 0;
  for (const TimelineState& s : timeline.states) {
    if (s.kind != StateKind::kChild || s.begin >= view.steps().back().end) continue;
    ++all;
    if (s.place != 0) ++places[s.place];
  }
  for (const auto& [place, n] : places)
    if (n * 2 > all) return place_of(view, place);
  return {};
}

SharingPlace threads_of(const StepView& view) {
  const Timeline& timeline = view.timeline();
  SharingPlace found;
  for (const auto& [file, text] : timeline.program_files()) {
    const std::string path(file);
    for (const SourceCall& call : calls_in_source(path, "set_num_threads", timeline.begin)) {
      if (!found.where.empty()) return {};
      found = {std::string(split_place(text).file) + "(" + std::to_string(call.line) + "): " + call.function,
               source_line(path, call.line, timeline.begin)};
    }
  }
  return found;
}

SharingPlace operators_of(const StepView& view) {
  if (!view.has_main()) return {};
  const RowView& row = view.rows()[view.main()];
  PlaceSums places;
  for (size_t i = 0; i < row.own.size(); ++i)
    if (row.activity[i] == Activity::kOperator) add_to(places[row.place[i]].ns, row.own[i]);
  const uint32_t most = most_of(places);
  return most == 0 ? SharingPlace{} : place_of(view, most);
}

}  // namespace

SharingPlaces sharing_places_of(const StepView& view, bool wants_threads) {
  return {children_of(view), wants_threads ? threads_of(view) : SharingPlace{}, operators_of(view)};
}

}  // namespace torchprof::formats
