#include "formats/diff/checks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "formats/diff/budget.h"
#include "formats/io/cells.h"
#include "formats/io/error.h"
#include "formats/io/text.h"

namespace torchprof::formats {
namespace {

const char* meaning(Metric metric) {
  static constexpr std::array<const char*, 10> kMeanings = {"time", "self time", "self time", "own time",  "GPU time",
                                                            "time", "self time", "calls",     "allocated", "peak"};
  return kMeanings[static_cast<size_t>(metric)];
}

constexpr const char* kNoSteps =
    "the metric step needs steps in both runs, besides the first ones, which do not count (--warmup); without steps "
    "use "
    "the metric total";

const std::string& name_of(Metric metric) { return metric_names()[static_cast<size_t>(metric)]; }

// The sums are one table; of its rows only one belongs to a metric.
bool is_of(Metric metric, const DiffRow& row) {
  if (metric == Metric::kStep) return row.name == "step";
  if (metric == Metric::kTotal) return row.name == "operators";
  return true;
}

bool is_counted(Metric metric) {
  return metric == Metric::kCalls || metric == Metric::kAllocated || metric == Metric::kMemory;
}

// What there was of the metric in BASE: what a name adds that was not there is judged by it. Times by the step.
double whole_of(const Diff& diff, Metric metric) {
  const bool is_of_step = diff.by_step && !is_counted(metric);
  const auto table = std::ranges::find(diff.tables, is_of_step ? Metric::kStep : table_of(metric), &DiffTable::metric);
  double whole = 0;
  for (const DiffRow& row : table->rows)
    if (!is_of_step || row.name == "step") whole += quantity(metric, row).base;
  return whole;
}

// In percent, by which a limit is judged. `whole`: see whole_of().
double change_of(const Quantity& q, double whole) {
  if (q.base != 0) return q.change() * 100;
  return whole > 0 ? 100 * q.now / whole : std::numeric_limits<double>::infinity();
}

std::string what_changed(Metric metric, const DiffRow& row, bool by_step, double whole) {
  const Quantity& q = quantity(metric, row);
  std::string text = meaning(metric);
  if (by_step && metric != Metric::kStep && metric != Metric::kMemory) text += " per step";
  text.append(" ").append(amount_text(metric, q.base)).append(" -> ").append(amount_text(metric, q.now));
  text.append(", ").append(change_text(q, row.fate));
  if (q.base == 0 && whole > 0) {
    text.append(print(", %+.1f %% of ", change_of(q, whole)));
    text.append(by_step && !is_counted(metric) ? "the step" : "all " + name_of(metric));
  }
  if (q.p) text.append(", p ").append(p_text(q));
  if (!q.p && !is_counted(metric)) text += ", not tested";
  return text;
}

void check_limit(Diff& diff, Metric metric, double percent) {
  const std::string& suite = name_of(metric);
  if (metric == Metric::kStep && !diff.by_step) throw Error(kNoSteps);
  const size_t before = diff.checks.size();
  const double whole = whole_of(diff, metric);
  for (const DiffTable& table : diff.tables) {
    if (table.metric != table_of(metric)) continue;
    for (const DiffRow& row : table.rows) {
      const Quantity& q = quantity(metric, row);
      if (!is_of(metric, row) || q.is_minor || row.fate == Fate::kVanished) continue;
      if (q.base == 0 && (q.now == 0 || metric == Metric::kMemory)) continue;
      const bool is_past = q.is_real() && change_of(q, whole) > percent;
      diff.checks.push_back({suite, printable(row.name),
                             what_changed(metric, row, diff.by_step, whole) + ", limit " + print("%g %%", percent),
                             !is_past});
    }
  }
  if (diff.checks.size() == before)
    diff.notes.push_back("nothing of the metric " + suite + " is in both runs to be judged");
}

void check_most(Diff& diff, Metric metric, const DiffRow& row, const std::optional<double>& most) {
  if (!most) return;
  const double now = quantity(metric, row).now;
  diff.checks.push_back(
      {"budget", name_of(metric) + ": " + printable(row.name),
       std::string(meaning(metric)) + " " + amount_text(metric, now) + ", budget " + amount_text(metric, *most),
       now <= *most});
}

void check_budget(Diff& diff, const Budget& budget) {
  for (const auto& [metric, percent] : budget.fail_over) check_limit(diff, metric, percent);
  for (const auto& [metric, names] : budget.names)
    for (const auto& [name, most] : names) {
      if (metric == Metric::kStep && !diff.by_step) throw Error(kNoSteps);
      const auto table = std::ranges::find(diff.tables, table_of(metric), &DiffTable::metric);
      const auto row = std::ranges::find(table->rows, name, &DiffRow::name);
      if (row == table->rows.end() || row->fate == Fate::kVanished) {
        diff.notes.push_back("the budget's " + name_of(metric) + " '" + printable(name) + "' is not in NEW");
        continue;
      }
      check_most(diff, metric, *row, metric == Metric::kMemory ? std::nullopt : most.time);
      check_most(diff, Metric::kCalls, *row, most.calls);
      check_most(diff, metric == Metric::kMemory ? Metric::kMemory : Metric::kAllocated, *row, most.bytes);
    }
}

}  // namespace

const Quantity& quantity(Metric metric, const DiffRow& row) {
  if (metric == Metric::kCalls) return row.calls;
  return metric == Metric::kAllocated || metric == Metric::kMemory ? row.bytes : row.time;
}

Metric table_of(Metric metric) {
  if (metric == Metric::kTotal) return Metric::kStep;
  return metric == Metric::kCalls || metric == Metric::kAllocated ? Metric::kOps : metric;
}

std::string change_text(const Quantity& q, Fate fate) {
  if (fate == Fate::kNew) return "new";
  if (fate == Fate::kVanished) return "gone";
  if (q.base == 0 && q.now != 0) return "from 0";
  const double percent = std::round(q.change() * 1000) / 10;
  return percent == 0 ? "0.0 %" : print("%+.1f %%", percent);
}

std::string p_text(const Quantity& q) {
  if (!q.p) return "-";
  return *q.p < 0.001 ? "<0.001" : print("%.3f", *q.p);
}

std::string amount_text(Metric metric, double value) {
  if (metric == Metric::kCalls) return print("%.6g", value);
  if (metric == Metric::kAllocated || metric == Metric::kMemory) return memory_text(std::llround(value));
  return duration_text(value);
}

void add_checks(Diff& diff, const DiffOptions& options) {
  std::vector<Metric> metrics = options.metrics;
  if (metrics.empty()) metrics.push_back(diff.by_step ? Metric::kStep : Metric::kTotal);
  if (options.fail_over) {
    for (const Metric metric : metrics) check_limit(diff, metric, *options.fail_over);
  }
  if (options.budget) check_budget(diff, *options.budget);
}

}  // namespace torchprof::formats
