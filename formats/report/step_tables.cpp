// Tables of steps: how long they took, and of those that were captured what they took it for.
#include <algorithm>
#include <set>

#include "formats/io/cells.h"
#include "formats/io/sum.h"
#include "formats/io/text.h"
#include "formats/report/columns.h"
#include "formats/report/step_remarks.h"
#include "formats/report/tables.h"

namespace torchprof::formats {
namespace {

constexpr size_t kMostStepRows = 50'000;  // of a process

// Interpolates between the two nearest values; `sorted` must not be empty.
double quantile(const std::vector<int64_t>& sorted, double part) {
  const double place = part * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const auto low = static_cast<double>(sorted[below]);
  return low + (place - static_cast<double>(below)) *
                   (static_cast<double>(sorted[std::min(below + 1, sorted.size() - 1)]) - low);
}

}  // namespace

ReportTable steps_table(const std::vector<ReportPart>& parts, bool is_text) {
  ReportTable table = make_table("steps", "Steps");
  for (const ReportPart& part : parts) {
    const Steps& steps = part.statistics.steps;
    if (steps.count == 0 && !part.run) continue;
    std::vector<int64_t> ns = steps.ns;
    if (part.run) {
      ns.clear();
      for (const StepTime& step : part.all_steps)
        if (step.ns > 0) ns.push_back(step.ns);
    }
    std::ranges::sort(ns);
    const auto of = [&ns](double place) { return ns.empty() ? Cell{} : Cell(quantile(ns, place)); };
    table.rows.push_back({part.pid, count(part.run ? part.run->count : steps.count),
                          part.run ? count(part.run->captured) : Cell{}, of(0.5), of(0.9), of(0.99), of(0), of(1),
                          part.run ? Cell{} : count(steps.jumps), text_or_missing(steps.ended_by)});
  }
  table.remarks = step_remarks(parts, is_text);
  show_if_any(table, "jumps", {"jumps"});
  show_if_any(table, "captured", {"captured", "p99_ns"});
  return table;
}

ReportTable step_times_table(const std::vector<ReportPart>& parts) {
  ReportTable table = make_table("step_times", "What steps took");
  StepParts sum{};
  int64_t all = 0;
  bool has_runs = false;
  for (const ReportPart& part : parts) {
    const std::vector<StepTime>& steps = part.all_steps;
    has_runs |= !steps.empty();
    std::set<uint64_t> in_full;
    for (const StepTime& step : steps)
      if (step.in_full) in_full.insert(step.step);
    const size_t first_row = table.rows.size();
    for (const StepParts& s : part.statistics.step_parts) {
      // Of a step that was captured in part the spool has the whole time.
      if (!steps.empty() && !in_full.contains(s.step.number)) continue;
      const int64_t ns = s.step.end - s.step.begin;
      table.rows.push_back({part.pid, count(s.step.number), ns, s.compute_ns, s.communication_ns, s.loading_ns,
                            s.host_ns, s.idle_ns, part.run ? Cell(std::string("yes")) : Cell{},
                            s.is_outlier ? Cell(std::string("outlier")) : Cell{}});
      add_to(all, ns);
      add_to(sum.compute_ns, s.compute_ns);
      add_to(sum.communication_ns, s.communication_ns);
      add_to(sum.loading_ns, s.loading_ns);
      add_to(sum.host_ns, s.host_ns);
      add_to(sum.idle_ns, s.idle_ns);
    }
    const size_t together = (steps.size() + kMostStepRows - 1) / kMostStepRows;
    if (together > 1)
      table.remarks.push_back("a row without detail stands for the longest of " + count_text(together) + " steps");
    for (size_t i = 0; i < steps.size(); i += std::max<size_t>(1, together)) {
      const StepTime* longest = nullptr;
      for (size_t k = i; k < std::min(i + together, steps.size()); ++k)
        if (!steps[k].in_full && steps[k].ns > 0 && (longest == nullptr || steps[k].ns > longest->ns))
          longest = &steps[k];
      if (longest == nullptr) continue;
      table.rows.push_back({part.pid, count(longest->step), longest->ns, Cell{}, Cell{}, Cell{}, Cell{}, Cell{},
                            std::string("no"), Cell{}});
    }
    std::stable_sort(table.rows.begin() + static_cast<ptrdiff_t>(first_row), table.rows.end(),
                     [](const auto& a, const auto& b) { return std::get<int64_t>(a[1]) < std::get<int64_t>(b[1]); });
  }
  if (has_runs) table.show("in_full", true);
  if (table.rows.empty()) return table;
  table.totals = {{"ns", all},
                  {"compute_ns", sum.compute_ns},
                  {"communication_ns", sum.communication_ns},
                  {"loading_ns", sum.loading_ns},
                  {"host_ns", sum.host_ns},
                  {"idle_ns", sum.idle_ns}};
  table.remarks.push_back(std::string(has_runs ? "those in full" : "all") + ": compute " +
                          percent_text(sum.compute_ns, all) + ", communication " +
                          percent_text(sum.communication_ns, all) + ", loading " + percent_text(sum.loading_ns, all) +
                          ", host gap " + percent_text(sum.host_ns, all) + ", idle " + percent_text(sum.idle_ns, all));
  return table;
}

}  // namespace torchprof::formats
