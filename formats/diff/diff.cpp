#include "formats/diff/diff.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <set>

#include "formats/analysis/module_name.h"
#include "formats/diff/checks.h"
#include "formats/diff/rank_test.h"
#include "formats/io/cells.h"
#include "formats/read/read_trace.h"
#include "formats/trace/name_role.h"
#include "formats/trace/names.h"
#include "formats/trace/waiting.h"

namespace torchprof::formats {
namespace {

bool has_every_step(const Measured& run) { return run.sum.samples.every_ns.size() >= kMinSteps; }

// A peak within a window says less than that of a whole run.
bool are_counted_apart(const Measured& base, const Measured& now, const std::string& device) {
  const auto b = base.peaks.find(device), n = now.peaks.find(device);
  return b != base.peaks.end() && n != now.peaks.end() && b->second.is_of_window != n->second.is_of_window;
}

constexpr const char* kOwnStep = "ProfilerStep*";

// The values of one name in one run: one for each step, or one for the whole run.
struct Item {
  std::vector<double> ns;
  double calls = 0;
  double bytes = 0;
  bool is_waiting = false;
  Item& operator+=(const Item& other) {
    ns.resize(std::max(ns.size(), other.ns.size()));
    for (size_t i = 0; i < other.ns.size(); ++i) ns[i] += other.ns[i];
    calls += other.calls;
    bytes += other.bytes;
    is_waiting |= other.is_waiting;
    return *this;
  }
};
using Items = std::map<std::string, Item>;

// "train.py: step" of "train.py(12): step".
std::string without_line(const std::string& name) {
  const PlaceParts place = split_place(name);
  return place.file.empty() ? name : std::string(place.file).append(": ").append(place.name);
}

std::string key_of(Sampled kind, const std::string& name) {
  return kind == Sampled::kPython ? without_line(name) : name;
}

bool only_waits(Sampled kind, const std::string& name) { return kind == Sampled::kPython && is_waiting(name); }

// Steps and modules have tables of their own, so the tables of operators and functions leave them out.
bool is_shown(Sampled kind, const std::string& name) {
  if (kind == Sampled::kOperator) return name != kOwnStep;
  return kind != Sampled::kPython || role_of_name(name) != NameRole::kModule;
}

Items items_by_step(const StepSamples& samples, Sampled kind) {
  Items items;
  const auto steps = static_cast<double>(samples.steps);
  for (const auto& [name, s] : samples.of(kind))
    if (is_shown(kind, name))
      items[key_of(kind, name)] += {s.ns, static_cast<double>(s.calls) / steps,
                                    static_cast<double>(s.allocated) / steps, only_waits(kind, name)};
  return items;
}

Items items_of_all(const Statistics& sum, Sampled kind) {
  Items items;
  const auto add = [&](const std::string& name, int64_t ns, uint64_t calls) {
    if (is_shown(kind, name))
      items[key_of(kind, name)] += {{static_cast<double>(ns)}, static_cast<double>(calls), 0, only_waits(kind, name)};
  };
  switch (kind) {
    case Sampled::kOperator:
      for (const auto& [name, t] : sum.operators) add(name, t.self_ns, t.calls);
      break;
    case Sampled::kPython:
      for (const auto& [name, t] : sum.python) add(name, t.self_ns, t.calls);
      break;
    case Sampled::kModule:
      for (const auto& [name, t] : sum.modules) add(stable_module_name(name, t.path), t.self_ns(), t.calls);
      break;
    case Sampled::kCall:
      for (const auto& [name, t] : sum.calls) add(name, t.self_ns, t.calls);
      break;
    case Sampled::kKernel:
      for (const auto& [name, t] : sum.gpu.work) add(name, t.total_ns, t.calls);
      break;
  }
  return items;
}

double mean(const std::vector<double>& values) {
  return values.empty() ? 0 : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

Quantity typical(const std::vector<double>& base, const std::vector<double>& now) {
  Quantity q{.base = median(base), .now = median(now)};
  if (q.base <= 0 || q.now <= 0) q = {.base = mean(base), .now = mean(now)};
  return q;
}

class Comparison {
 public:
  Comparison(const Measured& base, const Measured& now, const DiffOptions& options)
      : base_(base),
        now_(now),
        options_(options),
        by_step_(base.sum.samples.steps != 0 && now.sum.samples.steps != 0),
        has_memory_(base.peaks.empty() == now.peaks.empty()),
        is_tested_(by_step_ && std::min(base.sum.samples.step_ns.size(), now.sum.samples.step_ns.size()) >= kMinSteps) {
  }

  std::vector<DiffTable> tables() const {
    std::vector<DiffTable> tables{{Metric::kStep, sums()}};
    static constexpr std::array<std::pair<Metric, Sampled>, kSampledKinds> kTables = {
        {{Metric::kOps, Sampled::kOperator},
         {Metric::kModules, Sampled::kModule},
         {Metric::kKernels, Sampled::kKernel},
         {Metric::kCuda, Sampled::kCall},
         {Metric::kPython, Sampled::kPython}}};
    for (const auto& [metric, kind] : kTables) tables.push_back({metric, rows(items(base_, kind), items(now_, kind))});
    tables.push_back({Metric::kMemory, peaks()});
    return tables;
  }

  bool by_step() const { return by_step_; }
  bool has_memory() const { return has_memory_; }
  bool is_tested() const { return is_tested_; }

 private:
  Items items(const Measured& run, Sampled kind) const {
    Items items = by_step_ ? items_by_step(run.sum.samples, kind) : items_of_all(run.sum, kind);
    if (!has_memory_)
      for (auto& [name, item] : items) item.bytes = 0;
    return items;
  }

  // All samples of a run have the same length, whether a name came in each step or not.
  std::vector<DiffRow> rows(const Items& base, const Items& now, bool are_sums = false) const {
    std::set<std::string> names;
    for (const Items* items : {&base, &now})
      for (const auto& [name, item] : *items) names.insert(name);
    std::vector<DiffRow> rows;
    std::vector<double> p;
    std::vector<Quantity*> tested;
    static const Item kNone;
    rows.reserve(names.size());
    for (const std::string& name : names) {
      const auto b = base.find(name), n = now.find(name);
      const Item &old = b == base.end() ? kNone : b->second, &item = n == now.end() ? kNone : n->second;
      DiffRow& row = rows.emplace_back();
      row.name = name;
      row.fate = b == base.end() ? Fate::kNew : n == now.end() ? Fate::kVanished : Fate::kBoth;
      row.time = typical(old.ns, item.ns);
      row.calls = {.base = old.calls, .now = item.calls};
      row.bytes = {.base = old.bytes, .now = item.bytes};
      row.is_left_out = !options_.has_waits && (old.is_waiting || item.is_waiting);
    }
    if (!are_sums) {
      mark_minor(rows, &DiffRow::time);
      mark_minor(rows, &DiffRow::bytes);
      for (DiffRow& row : rows) row.calls.is_minor = row.time.is_minor;
    }
    for (DiffRow& row : rows) {
      if (!is_tested_ || row.fate == Fate::kVanished || row.time.is_minor) continue;
      const std::vector<double> none(row.fate == Fate::kNew ? base_.sum.samples.step_ns.size() : 0);
      p.push_back(rank_test(row.fate == Fate::kNew ? none : base.at(row.name).ns, now.at(row.name).ns));
      tested.push_back(&row.time);
    }
    const std::vector<double> corrected = holm(p);
    for (size_t i = 0; i < tested.size(); ++i) tested[i]->p = corrected[i];
    std::ranges::stable_sort(rows, std::greater<>{},
                             [](const DiffRow& row) { return std::abs(row.time.now - row.time.base); });
    return rows;
  }

  void mark_minor(std::vector<DiffRow>& rows, Quantity DiffRow::*which) const {
    double base = 0, now = 0;
    for (const DiffRow& row : rows) {
      if (row.is_left_out) continue;
      base += (row.*which).base;
      now += (row.*which).now;
    }
    for (DiffRow& row : rows) {
      Quantity& q = row.*which;
      q.is_minor = row.is_left_out || (q.base < base * options_.share / 100 && q.now < now * options_.share / 100);
    }
  }

  // The step as a whole, all operators with the calls of CUDA, all work of GPUs.
  std::vector<DiffRow> sums() const {
    Items base, now;
    const auto add = [&](const char* name, Sampled kind) {
      for (const auto& [run, out] : {std::pair(&base_, &base), std::pair(&now_, &now)})
        for (auto& [each, item] : items(*run, kind)) {
          if (kind == Sampled::kCall) item.calls = 0;  // they count in time alone
          (*out)[name] += item;
        }
    };
    add("operators", Sampled::kOperator);
    add("operators", Sampled::kCall);
    add("GPU work", Sampled::kKernel);
    if (by_step_) {
      base["step"].ns = step_times(base_);
      now["step"].ns = step_times(now_);
    }
    std::vector<DiffRow> sums = rows(base, now, true);
    std::ranges::sort(sums, std::greater<>{}, &DiffRow::name);  // step, operators, GPU work
    return sums;
  }

  // Of every step, if both runs have that. Steps to which a window has added something are not compared with others.
  const std::vector<double>& step_times(const Measured& run) const {
    return has_every_step(base_) && has_every_step(now_) ? run.sum.samples.every_ns : run.sum.samples.step_ns;
  }

  std::vector<DiffRow> peaks() const {
    std::map<std::string, DiffRow> rows;
    if (!has_memory_) return {};
    for (const auto& [device, peak] : base_.peaks) rows[device].bytes.base = static_cast<double>(peak.bytes);
    for (const auto& [device, peak] : now_.peaks) rows[device].bytes.now = static_cast<double>(peak.bytes);
    std::vector<DiffRow> result;
    for (auto& [device, row] : rows) {
      row.name = device;
      if (!base_.peaks.contains(device)) row.fate = Fate::kNew;
      if (!now_.peaks.contains(device)) row.fate = Fate::kVanished;
      row.bytes.is_minor = row.fate == Fate::kBoth && are_counted_apart(base_, now_, device);
      result.push_back(std::move(row));
    }
    return result;
  }

  const Measured& base_;
  const Measured& now_;
  const DiffOptions& options_;
  bool by_step_;
  bool has_memory_;  // both runs have it, or none counts
  bool is_tested_;
};

std::string steps_text(const StepSamples& samples) {
  std::string text = samples.steps == 0 ? "no steps" : plural(samples.steps, "step");
  if (samples.every_steps != 0) text += " captured and the times of " + count_text(samples.every_steps) + " others";
  return text;
}

std::string head_line(const char* which, const Measured& run, size_t warmup) {
  std::string line = std::string(which) + "  " + run.name + ": " + plural(run.processes, "process");
  const uint64_t steps = run.sum.samples.steps;
  line.append(", ").append(steps_text(run.sum.samples));
  if (warmup != 0 && steps != 0) line += " without the first";
  if (warmup > 1 && steps != 0) line.append(" ").append(count_text(warmup));
  return line;
}

std::vector<std::string> notes_of(const Measured& base, const Measured& now, const Comparison& comparison) {
  std::vector<std::string> notes;
  if (!comparison.has_memory())
    notes.push_back(std::string(base.peaks.empty() ? "BASE" : "NEW") +
                    " says nothing of memory (recorded without, or a file that has none): it is not compared");
  if (comparison.has_memory())
    for (const auto& [device, peak] : now.peaks)
      if (are_counted_apart(base, now, device))
        notes.push_back(device + ": " + (peak.is_of_window ? "NEW" : "BASE") + " has its peak within a window, " +
                        (peak.is_of_window ? "BASE" : "NEW") + " that of the whole run: they are not judged");
  if (!comparison.by_step()) {
    notes.emplace_back("without steps in both runs the totals are compared, and nothing can be tested: noise counts");
    return notes;
  }
  if (has_every_step(base) != has_every_step(now))
    notes.push_back(std::string(has_every_step(base) ? "NEW" : "BASE") +
                    " does not have the times of all its steps: the steps that were captured are compared");
  if (!comparison.is_tested())
    notes.push_back("with fewer than " + std::to_string(kMinSteps) +
                    " steps in each run nothing can be tested: noise counts");
  for (const auto& [which, run] : {std::pair("BASE", &base), std::pair("NEW", &now)})
    if (run->without_steps != 0)
      notes.push_back(std::string(which) + ": " + plural(run->without_steps, "process") +
                      " without steps not compared, but for peaks of memory");
  return notes;
}

// How much waiting the table of Python functions leaves out; empty: none.
std::string waits_text(const std::vector<DiffTable>& tables, bool by_step) {
  size_t functions = 0;
  double base = 0, now = 0;
  for (const DiffTable& table : tables)
    for (const DiffRow& row : table.rows) {
      if (!row.is_left_out) continue;
      ++functions;
      base += row.time.base;
      now += row.time.now;
    }
  if (functions == 0) return "";
  return plural(functions, "Python function") + " that only wait" + (functions == 1 ? "s" : "") + " left out (" +
         duration_text(base) + " -> " + duration_text(now) + (by_step ? " per step" : "") +
         "): --waits shows and judges them";
}

void add_peaks(Measured& run, const Statistics& statistics) {
  for (const DeviceMemory& device : statistics.memory) {
    DevicePeak& peak = run.peaks[device_text(device.type, device.index)];
    peak.bytes = std::max(peak.bytes, device.peak_bytes);
    // A GPU's allocator counts always.
    peak.is_of_window |= device.type == 0 && device.has_windows;
  }
}

void add_process(Measured& run, const Statistics& statistics, const PartTimes& typical) {
  ++run.processes;
  run.typical += typical;
  if (statistics.samples.steps == 0) ++run.without_steps;
  add_peaks(run, statistics);
  run.sum += statistics;
}

}  // namespace

Measured measure(const Trace& trace, const std::string& name, size_t warmup) {
  Measured run{.name = name};
  for (const Process& process : trace.processes) {
    const Statistics statistics = sampled_statistics_of(process, warmup);
    add_process(run, statistics, typical_parts_of(process, statistics.step_parts));
  }
  return run;
}

Measured measure(const std::filesystem::path& trace_file, const std::string& name, size_t warmup) {
  Measured run{.name = name};
  for (const TraceFile::ProcessPart& part : read_trace(trace_file, {.warmup = warmup, .has_timelines = true}).processes)
    add_process(run, part.statistics, typical_parts(part.statistics.step_parts));
  return run;
}

const std::vector<std::string>& metric_names() {
  static const std::vector<std::string> names{"step", "total",  "ops",   "modules",   "kernels",
                                              "cuda", "python", "calls", "allocated", "memory"};
  return names;
}

std::optional<Metric> metric_named(std::string_view name) {
  const auto it = std::ranges::find(metric_names(), name);
  if (it == metric_names().end()) return {};
  return static_cast<Metric>(it - metric_names().begin());
}

double Quantity::change() const {
  if (base == now) return 0;
  return base == 0 ? std::numeric_limits<double>::infinity() : now / base - 1;
}

size_t Diff::failed() const { return static_cast<size_t>(std::ranges::count(checks, false, &Check::is_passed)); }

Diff compare(const Measured& base, const Measured& now, const DiffOptions& options) {
  const Comparison comparison(base, now, options);
  Diff diff;
  for (const auto& [which, run] : {std::pair("BASE", &base), std::pair("NEW ", &now)}) {
    diff.head.push_back(head_line(which, *run, options.warmup));
    if (const std::string parts = parts_text(run->typical); !parts.empty())
      diff.head.push_back("      a typical step: " + parts);
  }
  diff.by_step = comparison.by_step();
  diff.tables = comparison.tables();
  diff.notes = notes_of(base, now, comparison);
  if (std::string waits = waits_text(diff.tables, diff.by_step); !waits.empty()) diff.notes.push_back(std::move(waits));
  add_checks(diff, options);
  return diff;
}

}  // namespace torchprof::formats
