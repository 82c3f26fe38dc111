#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "formats/analysis/step_parts.h"
#include "formats/io/sum.h"
#include "formats/timeline/timeline_index.h"
#include "formats/timeline/unit_names.h"
#include "formats/timeline/units.h"

namespace torchprof::formats {
namespace {

// One behind the last span inside of it.
uint32_t end_of(const std::vector<TimelineSpan>& spans, uint32_t span) {
  uint32_t i = span + 1;
  while (i < spans.size() && spans[i].parent != kNoSpan && spans[i].parent >= span) ++i;
  return i;
}

// Moves what the steps did on their threads to a row of their own, if these are several.
void gather(Timeline& timeline) {
  std::vector<CallAt> steps;
  std::map<uint32_t, std::set<uint32_t>> by_row;
  for (const StepSpan& step : timeline.steps)
    for (uint32_t row = 0; row < timeline.rows.size(); ++row) {
      const auto& spans = timeline.rows[row].spans;
      auto at = std::ranges::lower_bound(spans, step.begin, {}, &TimelineSpan::begin);
      while (at != spans.end() && at->begin == step.begin && at->end != step.end) ++at;
      if (at == spans.end() || at->begin != step.begin) continue;
      steps.push_back({row, static_cast<uint32_t>(at - spans.begin())});
      by_row[row].insert(steps.back().span);
      break;
    }
  if (by_row.size() < 2 || steps.size() != timeline.steps.size()) return;
  TimelineRow gathered;
  gathered.thread = timeline.rows[by_row.begin()->first].thread + " and " + std::to_string(by_row.size() - 1) +
                    (by_row.size() == 2 ? " other thread" : " other threads");
  for (const auto& [row, span] : steps) {
    const auto& spans = timeline.rows[row].spans;
    const auto first = static_cast<uint32_t>(gathered.spans.size());
    for (uint32_t i = span, end = end_of(spans, span); i < end; ++i) {
      gathered.spans.push_back(spans[i]);
      gathered.spans.back().parent = i == span ? kNoSpan : spans[i].parent - span + first;
    }
  }
  for (const auto& [row, moved] : by_row) {
    std::vector<TimelineSpan>& spans = timeline.rows[row].spans;
    std::vector<uint32_t> now(spans.size());
    uint32_t kept = 0;
    for (uint32_t i = 0; i < spans.size(); ++i) {
      if (moved.contains(i)) {
        i = end_of(spans, i) - 1;
        continue;
      }
      now[i] = kept;
      TimelineSpan span = spans[i];
      if (span.parent != kNoSpan) span.parent = now[span.parent];
      spans[kept++] = span;
    }
    spans.resize(kept, TimelineSpan{});
  }
  timeline.rows.push_back(std::move(gathered));
  timeline.link_calls();
}

// Of all threads. What the interpreter collects at its end is no work either.
int64_t end_of_work(const Timeline& timeline) {
  int64_t end = timeline.begin;
  for (const TimelineRow& row : timeline.rows) {
    const int64_t until = row_works_until(timeline, row);
    for (const TimelineSpan& s : row.spans)
      if (s.kind != SpanKind::kGc) end = std::max(end, std::min(s.end, until));
  }
  for (const TimelineWork& w : timeline.work) end = std::max(end, w.end);
  return std::min(end, timeline.end);
}

}  // namespace

int64_t row_works_until(const Timeline& timeline, const TimelineRow& row) {
  int64_t end = INT64_MIN;
  for (const TimelineSpan& s : row.spans)
    if (is_main_module(s, timeline.text(s.name))) end = std::max(end, s.end);
  return end == INT64_MIN ? timeline.end : std::min(end, timeline.end);
}

ImportTime imports_of(const Timeline& timeline) {
  struct Import {
    int64_t begin, end;
    uint32_t name;
  };
  std::vector<Import> imports;
  int64_t first_operator = timeline.end, program = timeline.end;
  for (const TimelineRow& row : timeline.rows) {
    int64_t end = INT64_MIN;  // of the latest import
    for (const TimelineSpan& s : row.spans) {
      if (s.begin < end) continue;
      if (s.kind == SpanKind::kOperator) first_operator = std::min(first_operator, s.begin);
      if (is_main_module(s, timeline.text(s.name))) program = std::min(program, s.begin);
      if (row.is_overflow || !is_import(s, timeline.text(s.name))) continue;
      end = s.end;
      imports.push_back({s.begin, s.end, s.name});
    }
  }
  ImportTime result{.until = timeline.begin};
  if (imports.empty()) return result;
  std::ranges::sort(imports, {}, &Import::begin);
  int64_t end = timeline.begin;
  for (const Import& i : imports) {
    add_to(result.ns, std::max<int64_t>(0, i.end - std::max(end, i.begin)));
    end = std::max(end, i.end);
  }
  // What the interpreter does before the program's main module is no work of the program, however long it pauses
  // between two imports. Those that begin after the program's work has begun are its own.
  if (program == timeline.end) program = imports.front().begin;
  const int64_t most_between = std::max<int64_t>(0, timeline.end - timeline.begin - result.ns) / 10;
  int64_t between = 0;
  std::map<uint32_t, int64_t> by_name;
  if (first_operator < imports.front().begin) return result;
  result.until = imports.front().begin;
  for (const Import& i : imports) {
    add_to(between, std::max<int64_t>(0, i.begin - std::max(result.until, program)));
    if (between > most_between || i.begin > first_operator) break;
    add_to(result.first_ns, std::max<int64_t>(0, i.end - std::max(result.until, i.begin)));
    add_to(by_name[i.name], i.end - i.begin);
    result.until = std::max(result.until, i.end);
  }
  const auto most = std::ranges::max_element(by_name, {}, [](const auto& each) { return each.second; });
  if (timeline.text(most->first).starts_with("import ")) result.most = timeline.text(most->first);
  return result;
}

Steps steps_of(const RecurringUnit& unit) {
  Steps steps{.count = unit.count, .spans = unit.spans, .ended_by = unit.name};
  for (const StepSpan& span : unit.spans) steps.ns.push_back(span.end - span.begin);
  return steps;
}

void use_unit(Timeline& timeline, const RecurringUnit& unit) {
  timeline.imports = imports_of(timeline);
  timeline.unit = unit.name;
  timeline.unit_is_part = unit.is_part;
  if (unit.name.empty()) {
    timeline.begin = std::min(timeline.imports.until, timeline.end);
    timeline.end = std::max(timeline.begin, end_of_work(timeline));
    return;
  }
  timeline.steps = chosen_steps(unit.spans, 0);
  if (!unit.is_pass) gather(timeline);
}

}  // namespace torchprof::formats
