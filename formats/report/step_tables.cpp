// Tables of steps: how long they took, and of those that were captured what they took it for.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>

#include "formats/io/cells.h"
#include "formats/io/median.h"
#include "formats/io/sum.h"
#include "formats/io/text.h"
#include "formats/report/columns.h"
#include "formats/report/step_remarks.h"
#include "formats/report/tables.h"

namespace torchprof::formats {
namespace {

// Where it has detail, or a process has no more steps, a step has a row; other rows stand for several.
constexpr size_t kMostStepRows = 50'000;    // of a process
constexpr size_t kMostRowsOfRun = 400'000;  // of all
constexpr size_t kFewestStepRows = 1'000;   // of a process, however many there are

// A row to be.
struct StepLine {
  uint64_t step;
  const StepParts* parts;  // null: without detail
  int64_t ns;              // 0: not known
};

// The parts of steps that were captured, by the times of all steps. A program that begins to count anew has steps of
// the same number: each has the parts of the mark that ends the nearest to it.
class DetailedSteps {
 public:
  explicit DetailedSteps(const std::vector<StepParts>& parts) {
    for (const StepParts& s : parts) parts_.emplace(s.step.number, &s);
  }
  const StepParts* take(const StepTime& step) {
    const auto [first, last] = parts_.equal_range(step.step);
    const auto distance = [&](const auto& entry) {
      return std::abs(difference(entry.second->step.end, step.end.value));
    };
    const auto nearest =
        std::min_element(first, last, [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
    if (nearest == last) return nullptr;
    const StepParts* found = nearest->second;
    parts_.erase(nearest);
    return found;
  }

 private:
  std::multimap<uint64_t, const StepParts*> parts_;
};

size_t rows_of_process(const std::vector<ReportPart>& parts) {
  const auto runs =
      static_cast<size_t>(std::ranges::count_if(parts, [](const ReportPart& part) { return !part.all_steps.empty(); }));
  return std::clamp(kMostRowsOfRun / std::max<size_t>(1, runs), kFewestStepRows, kMostStepRows);
}

// Interpolates between the two nearest values; `sorted` must not be empty.
double quantile(const std::vector<int64_t>& sorted, double part) {
  const double place = part * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const auto low = static_cast<double>(sorted[below]);
  return low + (place - static_cast<double>(below)) *
                   (static_cast<double>(sorted[std::min(below + 1, sorted.size() - 1)]) - low);
}

// Of processes whose steps are the same thing, as those of ranks, the mean.
void add_typical(const std::vector<ReportPart>& parts, ReportTable& table) {
  constexpr size_t kMostKinds = 4;
  std::map<std::string_view, std::pair<PartTimes, int64_t>> kinds;  // the sum and its processes, by what steps end with
  for (const ReportPart& part : parts) {
    if (part.typical.sum() <= 0) continue;
    auto& [sum, processes] = kinds[part.statistics.steps.ended_by];
    sum += part.typical;
    ++processes;
  }
  if (kinds.size() > kMostKinds) return;
  for (const auto& [ends_with, kind] : kinds)
    table.remarks.push_back("a typical step" + (kinds.size() == 1 ? "" : " (" + printable(ends_with) + ")") + ": " +
                            parts_text(kind.first / kind.second));
}

}  // namespace

ReportTable steps_table(const std::vector<ReportPart>& parts, bool is_text) {
  ReportTable table = make_table("steps", "Steps");
  for (const ReportPart& part : parts) {
    const Steps& steps = part.statistics.steps;
    if (steps.count == 0 && !part.run) continue;
    std::vector<int64_t> ns;
    if (!part.run) ns = steps.ns;
    for (const StepTime& step : part.all_steps)
      if (step.ns > 0) ns.push_back(step.ns);
    std::ranges::sort(ns);
    const auto of = [&ns](double place) { return ns.empty() ? Cell{} : Cell(quantile(ns, place)); };
    table.rows.push_back({part.key(), count(part.run ? part.run->count : steps.count),
                          part.run ? count(part.run->captured) : Cell{}, of(0.5), of(0.9), of(0.99), of(0), of(1),
                          part.run ? Cell{} : count(steps.jumps), text_or_missing(steps.ended_by)});
  }
  table.remarks = step_remarks(parts, is_text);
  show_if_any(table, "jumps", {"jumps"});
  show_if_any(table, "captured", {"captured", "p99_ns"});
  return table;
}

void begin_with_slowest(ReportTable& table, const std::vector<ReportPart>& parts) {
  constexpr double kSlow = 1.1;  // of the middle one: a host that is worth a name
  constexpr size_t kFewestHosts = 2;
  const size_t column = table.column("median_ns");
  const auto row_median = [column](const std::vector<Cell>& row) {
    const double* ns = std::get_if<double>(&row[column]);
    return ns != nullptr ? *ns : 0;
  };
  std::vector<int64_t> medians;
  for (const std::vector<Cell>& row : table.rows)
    if (row_median(row) > 0) medians.push_back(std::llround(row_median(row)));
  if (medians.empty()) return;
  std::ranges::sort(medians);
  std::ranges::stable_sort(table.rows, std::ranges::greater{}, row_median);
  table.remarks.push_back("of " + plural(medians.size(), "process") + " the median steps take " +
                          duration_text(quantile(medians, 0.5)) + " in the middle, " +
                          duration_text(quantile(medians, 0.1)) + " to " + duration_text(quantile(medians, 0.9)) +
                          " of eight in ten; the slowest stand first");
  std::map<std::string, std::vector<int64_t>> of_hosts;
  for (const ReportPart& part : parts) {
    std::vector<int64_t> ns = part.run ? std::vector<int64_t>() : part.statistics.steps.ns;
    for (const StepTime& step : part.all_steps)
      if (step.ns > 0) ns.push_back(step.ns);
    if (!ns.empty()) of_hosts[part.host].push_back(median_of(std::move(ns)));
  }
  if (of_hosts.size() < kFewestHosts) return;
  std::vector<int64_t> hosts;
  std::pair<int64_t, std::string> slowest;
  for (auto& [host, ns] : of_hosts) {
    hosts.push_back(median_of(std::move(ns)));
    slowest = std::max(slowest, {hosts.back(), host});
  }
  const int64_t middle = median_of(std::move(hosts));
  if (static_cast<double>(slowest.first) > kSlow * static_cast<double>(middle))
    table.remarks.push_back("the slowest of " + plural(of_hosts.size(), "host") + " is " + printable(slowest.second) +
                            ": " + duration_text(static_cast<double>(slowest.first)) + ", where the middle one has " +
                            duration_text(static_cast<double>(middle)));
}

ReportTable step_times_table(const std::vector<ReportPart>& parts, size_t most, const TrimRows& trim) {
  ReportTable table = make_table("step_times", "What steps took");
  PartTimes sum;
  bool has_runs = false;
  const size_t most_of_process = rows_of_process(parts);
  for (const ReportPart& part : parts) {
    const std::span<const StepTime> steps = part.all_steps;
    has_runs |= !steps.empty();
    DetailedSteps detailed(part.statistics.step_parts);
    std::vector<StepLine> lines;
    const auto add = [&](const StepParts& s) {
      const int64_t ns = s.step.end - s.step.begin;
      lines.push_back({s.step.number, &s, ns});
      sum += s.ns;
    };
    if (steps.empty()) std::ranges::for_each(part.statistics.step_parts, add);
    const size_t together = std::max<size_t>(1, (steps.size() + most_of_process - 1) / most_of_process);
    if (together > 1)
      table.remarks.push_back("a row without detail stands for the longest of " + count_text(together) + " steps");
    for (size_t i = 0; i < steps.size(); i += together) {
      const StepTime* longest = nullptr;
      for (size_t k = i; k < std::min(i + together, steps.size()); ++k)
        if (const StepParts* s = steps[k].in_full ? detailed.take(steps[k]) : nullptr)
          add(*s);  // of a step that was captured in part the spool has the whole time
        else if (longest == nullptr || steps[k].ns > longest->ns)
          longest = &steps[k];
      if (longest != nullptr) lines.push_back({longest->step, nullptr, longest->ns});
    }
    std::ranges::stable_sort(lines, {}, &StepLine::step);
    for (const StepLine& line : lines) {
      if (table.rows.size() >= most) {
        ++table.left_out;
        continue;
      }
      std::vector<Cell> row{part.key(), count(line.step), line.ns > 0 ? Cell(line.ns) : Cell{}};
      for (size_t i = 0; i < kStepParts; ++i) row.push_back(line.parts ? Cell(line.parts->ns.all()[i]) : Cell{});
      row.push_back(line.parts == nullptr ? Cell(std::string("no")) : part.run ? Cell(std::string("yes")) : Cell{});
      row.push_back(line.parts && line.parts->is_outlier ? Cell(std::string("outlier")) : Cell{});
      table.rows.push_back(std::move(row));
      if (trim) trim(table);
    }
  }
  if (has_runs) table.show("in_full", true);
  if (table.rows.empty()) return table;
  table.totals = {{"ns", sum.sum()}};
  for (size_t i = 0; i < kStepParts; ++i) {
    table.totals.emplace_back(kStepPartTexts[i].key, sum.all()[i]);
    // Text leaves out what nothing was spent on.
    table.show(kStepPartTexts[i].key, sum.all()[i] != 0);
  }
  add_typical(parts, table);
  return table;
}

}  // namespace torchprof::formats
