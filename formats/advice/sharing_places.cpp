#include "formats/advice/sharing_places.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "formats/advice/finding.h"
#include "formats/io/source_line.h"
#include "formats/io/sum.h"
#include "formats/timeline/thread_looks.h"
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

namespace {

bool is_of_expression(char c) {
  return c == '_' || c == '.' || c == '[' || c == ']' || c == '"' || c == '\'' || (c >= '0' && c <= '9') ||
         (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

struct Seen {
  double looks = 0;
  bool has_steps = false;  // the function around it has several of them
};

// Lines at which the program itself worked, in steps.
std::map<uint32_t, Seen> lines_of(const StepView& view) {
  const Timeline& timeline = view.timeline();
  const std::vector<TimelineSpan>& spans = timeline.rows[view.main()].spans;
  std::map<uint32_t, Seen> lines;
  const ThreadLooks looks(timeline, view.main());
  for (const TimelineSample* look : looks.all()) {
    if (!view.begins_in_step(look->end) || look->wait != SampledWait::kUnknown) continue;
    const auto after = std::ranges::upper_bound(spans, look->end, {}, &TimelineSpan::begin);
    if (after == spans.begin()) continue;
    auto i = static_cast<uint32_t>(after - spans.begin() - 1);
    while (i != kNoSpan && (spans[i].end <= look->end || spans[i].kind == SpanKind::kAnnotation)) i = spans[i].parent;
    if (i == kNoSpan || spans[i].kind != SpanKind::kPython || !timeline.is_program(spans[i].name)) continue;
    const uint32_t line = line_in_function(timeline, look->frame, view.text(spans[i].name));
    if (line == 0) continue;
    Seen& seen = lines[line];
    seen.looks += ThreadLooks::weight(*look);
    seen.has_steps = seen.has_steps || spans[i].ns() > 2 * view.typical_ns();
  }
  return lines;
}

// Whether a call of the function of this line has several steps.
bool has_several_steps(const StepView& view, std::string_view where) {
  const PlaceParts function = split_place(where);
  return std::ranges::any_of(view.timeline().rows[view.main()].spans, [&](const TimelineSpan& span) {
    if (span.kind != SpanKind::kPython || span.ns() <= 2 * view.typical_ns()) return false;
    const PlaceParts each = split_place(view.text(span.name));
    return each.file == function.file && each.name == function.name;
  });
}

}  // namespace

std::string_view container_added_to(std::string_view source) {
  constexpr std::array<std::string_view, 7> kAdd = {".append(", ".extend(",     ".appendleft(", ".insert(",
                                                    ".update(", ".setdefault(", ".put("};
  for (const std::string_view add : kAdd) {
    const size_t end = source.find(add);
    if (end == source.npos || source.substr(0, end).find('#') != source.npos) continue;
    size_t begin = end;
    while (begin > 0 && is_of_expression(source[begin - 1])) --begin;
    if (begin < end) return source.substr(begin, end - begin);
  }
  return {};
}

std::string line_that_keeps(const StepView& view, const Findings& findings) {
  if (!view.has_main()) return {};
  std::map<uint32_t, Seen> lines = lines_of(view);
  std::erase_if(lines, [](const auto& each) { return each.second.looks < kFewestLooks; });
  std::set<std::string> found;
  const auto look = [&](const std::string& where, const auto& outlives_step) {
    const std::string source = source_of(view.timeline(), where);
    const std::string_view container = container_added_to(source);
    if (container.empty()) return;
    if (container.find_first_of(".[") != container.npos || outlives_step()) found.insert(where);
  };
  for (const auto& line : lines) look(view.where(line.first), [&line] { return line.second.has_steps; });
  for (const Finding& f : findings)
    if (f.rule == "python") look(f.where, [&] { return has_several_steps(view, f.where); });
  return found.size() == 1 ? *found.begin() : std::string();
}

}  // namespace torchprof::formats
