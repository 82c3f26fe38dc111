// Tables of steps: how long they took, and of those that were captured what they took it for.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <map>
#include <utility>

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

struct StepTimeRow {
  const ReportPart& part;
  const StepLine& line;

  Cell in_full() const {
    if (line.parts == nullptr) return "no";
    return part.run ? Cell("yes") : Cell{};
  }
};

template <size_t part>
constexpr RowColumn<StepTimeRow> step_part_column() {
  return {{kStepPartTexts[part].key, kStepPartTexts[part].title, Unit::kTime},
          [](auto& r) { return r.line.parts ? Cell(r.line.parts->ns.all()[part]) : Cell{}; }};
}

template <size_t... parts>
constexpr auto step_time_columns(std::index_sequence<parts...>) {
  return std::to_array<RowColumn<StepTimeRow>>({
      kPidColumn<StepTimeRow, true>,
      {{"step", "step", Unit::kCount}, [](auto& r) { return count(r.line.step); }},
      {{"ns", "time", Unit::kTime}, [](auto& r) { return r.line.ns > 0 ? Cell(r.line.ns) : Cell{}; }},
      step_part_column<parts>()...,
      {{"in_full", "in full", Unit::kText, kHidden}, [](auto& r) { return r.in_full(); }},
      {{"outlier", "", Unit::kText, true, false, ""},
       [](auto& r) { return r.line.parts && r.line.parts->is_outlier ? Cell("outlier") : Cell{}; }},
  });
}
constexpr auto kStepTimeColumns = step_time_columns(std::make_index_sequence<kStepParts>());
constexpr RowTable<StepTimeRow> kStepTimes{"step_times", kStepTimeColumns};

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

struct StepsRow {
  const ReportPart& part;
  const Steps& steps;
  const std::vector<int64_t>& ns;  // sorted

  Cell quantile_of(double place) const { return ns.empty() ? Cell{} : Cell(quantile(ns, place)); }
};

constexpr RowColumn<StepsRow> kStepsColumns[] = {
    kPidColumn<StepsRow, true>,
    {{"steps", "steps", Unit::kCount}, [](auto& r) { return count(r.part.run ? r.part.run->count : r.steps.count); }},
    {{"captured", "in full", Unit::kCount, kHidden},
     [](auto& r) { return r.part.run ? count(r.part.run->captured) : Cell{}; }},
    {{"median_ns", "median", Unit::kTime}, [](auto& r) { return r.quantile_of(0.5); }},
    {{"p90_ns", "p90", Unit::kTime}, [](auto& r) { return r.quantile_of(0.9); }},
    {{"p99_ns", "p99", Unit::kTime, kHidden}, [](auto& r) { return r.quantile_of(0.99); }},
    {{"min_ns", "min", Unit::kTime}, [](auto& r) { return r.quantile_of(0); }},
    {{"max_ns", "max", Unit::kTime}, [](auto& r) { return r.quantile_of(1); }},
    {{"jumps", "jumps", Unit::kCount, kHidden}, [](auto& r) { return r.part.run ? Cell{} : count(r.steps.jumps); }},
    {{"ends_with", "a step ends with"}, [](auto& r) { return text_or_missing(r.steps.ended_by); }},
};
constexpr RowTable<StepsRow> kSteps{"steps", kStepsColumns};

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

std::vector<ReportTable> empty_step_tables() { return {kSteps.make(), kStepTimes.make()}; }

ReportTable steps_table(const std::vector<ReportPart>& parts, bool is_text) {
  ReportTable table = kSteps.make("Steps");
  for (const ReportPart& part : parts) {
    const Steps& steps = part.statistics.steps;
    if (steps.count == 0 && !part.run) continue;
    std::vector<int64_t> ns;
    if (!part.run) ns = steps.ns;
    for (const StepTime& step : part.all_steps)
      if (step.ns > 0) ns.push_back(step.ns);
    std::ranges::sort(ns);
    kSteps.add(table, {part, steps, ns});
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
  ReportTable table = kStepTimes.make("What steps took");
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
      kStepTimes.add(table, {part, line});
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
