#include "formats/report/tables.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <set>
#include <utility>

#include "formats/gpu/cuda_api.h"
#include "formats/gpu/distinct_names.h"
#include "formats/io/cells.h"
#include "formats/io/sum.h"
#include "formats/report/columns.h"
#include "formats/trace/waiting.h"

namespace torchprof::formats {
namespace {

bool is_something(const Cell& cell) {
  if (const auto* whole = std::get_if<int64_t>(&cell)) return *whole != 0;
  if (const auto* text = std::get_if<std::string>(&cell)) return !text->empty();
  return std::holds_alternative<double>(cell);
}

}  // namespace

void show_if_any(ReportTable& table, std::string_view key, const std::vector<std::string_view>& columns) {
  const size_t i = table.column(key);
  if (!std::ranges::any_of(table.rows, [i](const auto& row) { return is_something(row[i]); })) return;
  for (const std::string_view column : columns) table.show(column, true);
}

namespace {

void add_row(ReportTable& table, std::vector<Cell> row, const TrimRows& trim) {
  table.rows.push_back(std::move(row));
  if (trim) trim(table);
}

std::vector<Cell> operator_row(const Tally& t, int64_t operator_ns, const Tally& sum, const std::string& name) {
  return {t.self_ns,
          percent(t.self_ns, operator_ns),
          t.total_ns,
          percent(t.total_ns, operator_ns),
          count(t.calls),
          average_of(t.total_ns, t.calls),
          t.gpu_self_ns,
          percent(t.gpu_self_ns, sum.gpu_self_ns),
          t.gpu_total_ns,
          average_of(t.gpu_total_ns, t.calls),
          t.cpu_bytes,
          t.cpu_total_bytes,
          t.device_bytes,
          t.device_total_bytes,
          t.flops == 0 ? Cell{} : count(t.flops),
          name};
}

void set_totals(ReportTable& operators, const Tally& sum) {
  operators.totals = {{"self_cpu_ns", sum.self_ns}, {"self_cuda_ns", sum.gpu_self_ns}, {"calls", count(sum.calls)}};
}

}  // namespace

ReportTable ops_table(const Tallies& operators, int64_t operator_ns, std::string title, const TrimRows& trim) {
  ReportTable table = make_table("ops", std::move(title));
  Tally sum;
  for (const auto& [name, tally] : operators) sum += tally;
  for (const auto& [name, tally] : operators) {
    std::vector<Cell> row = operator_row(tally, operator_ns, sum, name);
    row.resize(table.columns.size());
    add_row(table, std::move(row), trim);
  }
  set_totals(table, sum);
  return table;
}

ReportTable ops_table(const OpGroups& operators, const OpGrouping& grouping, int64_t operator_ns, std::string title,
                      const TrimRows& trim) {
  ReportTable table = make_table("ops", std::move(title));
  Tally sum;
  for (const auto& [key, group] : operators) sum += group.tally;
  const size_t detail = grouping.by == OpGrouping::By::kName ? table.columns.size() : table.column(grouping.column());
  const size_t source = table.column("source");
  for (const auto& [key, group] : operators) {
    std::vector<Cell> row = operator_row(group.tally, operator_ns, sum, group.name);
    row.resize(table.columns.size());
    if (detail < row.size()) row[detail] = text_or_missing(group.detail);
    row[source] = text_or_missing(group.source);
    add_row(table, std::move(row), trim);
  }
  if (detail < table.columns.size()) table.columns[detail].is_shown = true;
  set_totals(table, sum);
  return table;
}

namespace {

// The rows of a table that only wait, apart from the others: they are no part of the shares.
class Waits {
 public:
  // `all_ns`: the self times of all rows.
  template <class Tallies>
  Waits(const Tallies& tallies, int64_t all_ns, bool is_shown) : is_shown_(is_shown) {
    for (const auto& [name, t] : tallies)
      if (is_waiting(name) && names_.insert(name).second) add_to(waiting_ns_, t.self_ns);
    working_ns_ = all_ns > waiting_ns_ ? all_ns - waiting_ns_ : 0;
  }

  bool is_left_out(const std::string& name) const { return !is_shown_ && names_.contains(name); }
  Cell share(const std::string& name, int64_t self_ns) const {
    return names_.contains(name) ? Cell{} : percent(self_ns, working_ns_);
  }
  Cell mark(const std::string& name) const { return names_.contains(name) ? Cell(std::string("yes")) : Cell{}; }

  // `what`: what a row is.
  void finish(ReportTable& table, const std::string& what) const {
    table.totals.emplace_back("waiting_ns", waiting_ns_);
    if (names_.empty()) return;
    table.show("waits", is_shown_);
    table.remarks.push_back(duration_text(static_cast<double>(waiting_ns_)) + " of waiting in " +
                            plural(names_.size(), what) + ", no part of self %" +
                            (is_shown_ ? "" : ": left out, --waits shows it"));
  }

 private:
  bool is_shown_;
  std::set<std::string_view> names_{};
  int64_t waiting_ns_ = 0, working_ns_ = 0;
};

}  // namespace

ReportTable python_table(const CallTallies& functions, int64_t python_ns, bool has_waits, const TrimRows& trim) {
  ReportTable table = make_table("python", "Python functions");
  const Waits waits(functions, python_ns, has_waits);
  for (const auto& [name, t] : functions)
    if (!waits.is_left_out(name))
      add_row(table,
              {t.self_ns, waits.share(name, t.self_ns), t.total_ns, count(t.calls), average_of(t.total_ns, t.calls),
               waits.mark(name), name},
              trim);
  table.totals = {{"self_ns", python_ns}};
  waits.finish(table, "function");
  return table;
}

ReportTable python_lines_table(const LineTallies& tallies, bool has_waits) {
  ReportTable table = make_table("python_lines", "Lines of Python");
  int64_t sum = 0;
  for (const auto& [name, t] : tallies.lines) add_to(sum, t.self_ns);
  const Waits waits(tallies.lines, sum, has_waits);
  for (const auto& [name, t] : tallies.lines)
    if (!waits.is_left_out(name))
      table.rows.push_back(
          {t.self_ns, waits.share(name, t.self_ns), t.total_ns, count(t.calls), t.gpu_ns, waits.mark(name), name});
  show_if_any(table, "self_cuda_ns", {"self_cuda_ns"});
  table.totals = {{"self_ns", sum}, {"unknown_ns", tallies.unknown_ns}};
  waits.finish(table, "line");
  return table;
}

ReportTable gpus_table(const std::vector<ReportPart>& parts) {
  ReportTable table = make_table("gpus", "GPUs");
  std::string first_pid;
  for (const ReportPart& part : parts) {
    for (const GpuDeviceUse& use : part.statistics.gpu.devices) {
      if (table.rows.empty()) first_pid = part.key();
      if (first_pid != part.key()) table.show("pid", true);
      table.rows.push_back({part.key(), count(use.device), percent(use.busy_ns, use.captured_ns), use.busy_ns,
                            use.captured_ns, count(use.kernels), use.kernel_ns, count(use.copies), use.copy_ns,
                            text_or_missing(use.name)});
    }
  }
  return table;
}

ReportTable kernels_table(const GpuTallies& work) {
  ReportTable table = make_table("kernels", "GPU kernels");
  int64_t sum = 0;
  std::vector<std::string_view> names;
  for (const auto& [name, t] : work) {
    add_to(sum, t.total_ns);
    names.push_back(name);
  }
  std::vector<std::string> short_names = distinct_kernel_names(names);
  size_t row = 0;
  for (const auto& [name, t] : work) {
    const auto calls = static_cast<double>(t.calls);
    const auto mean = [&t = t, calls](double total, double scale) {
      return t.is_kernel && total > 0 ? Cell(scale * total / calls) : Cell{};
    };
    table.rows.push_back({t.total_ns, percent(t.total_ns, sum), count(t.calls), average_of(t.total_ns, t.calls),
                          t.min_ns, t.max_ns, mean(t.blocks_per_sm, 1), mean(t.occupancy, 100), name,
                          std::move(short_names[row++])});
  }
  table.totals = {{"total_ns", sum}};
  return table;
}

ReportTable calls_table(const CallTallies& calls) {
  ReportTable table = make_table("calls", "Calls of CUDA");
  int64_t sum = 0;
  for (const auto& [name, t] : calls) add_to(sum, t.self_ns);
  for (const auto& [name, t] : calls)
    table.rows.push_back({t.total_ns, percent(t.self_ns, sum), count(t.calls), average_of(t.total_ns, t.calls),
                          std::string(effect_text(call_effect(name))), name});
  table.totals = {{"total_ns", sum}};
  return table;
}

ReportTable processes_table(const std::vector<PartGroup>& groups) {
  ReportTable table = make_table("processes", "Processes");
  for (const PartGroup& group : groups) {
    uint64_t events = 0, steps = 0;
    for (const ReportPart* part : group.parts) {
      events += part->events.value_or(part->statistics.slices);
      steps += part->run ? part->run->count : part->statistics.steps.count;
    }
    table.rows.push_back({group.pid(), text_or_missing(group.role()), count(events), group.operator_ns(), count(steps),
                          text_or_missing(group.ended()), group.first().command,
                          text_or_missing(group.is_one() ? group.first().group_name : "")});
  }
  show_if_any(table, "role", {"role"});
  return table;
}

ReportTable processes_of_many_table(const std::vector<PartGroup>& groups) {
  ReportTable table = processes_table(groups);
  const size_t column = table.column("ended");
  std::map<Cell, size_t> ends;
  for (const std::vector<Cell>& row : table.rows) ++ends[row[column]];
  if (ends.size() < 2) return table;
  const Cell most = std::ranges::max_element(ends, {}, &std::pair<const Cell, size_t>::second)->first;
  std::stable_partition(table.rows.begin(), table.rows.end(),
                        [&](const std::vector<Cell>& row) { return row[column] != most; });
  std::string text;
  for (const auto& [how, times] : ends) {
    const std::string* ended = std::get_if<std::string>(&how);
    text.append(text.empty() ? "" : ", ").append(count_text(times)).append(" ").append(ended ? *ended : "not known");
  }
  table.remarks.push_back("they ended: " + text);
  return table;
}

namespace {

// The part whose key it is, which becomes the process id; null: it is of a group, or no process.
const ReportPart* take_part(Cell& cell, const std::vector<ReportPart>& parts) {
  auto* text = std::get_if<std::string>(&cell);
  const size_t at = text == nullptr ? std::string::npos : text->rfind('\x1f');
  if (at == std::string::npos) return nullptr;
  size_t index = 0;
  const auto [end, error] = std::from_chars(text->data() + at + 1, text->data() + text->size(), index);
  if (error != std::errc{} || end != text->data() + text->size() || index >= parts.size()) return nullptr;
  text->resize(at);
  return &parts[index];
}

}  // namespace

void name_processes(ReportTable& table, const std::vector<ReportPart>& parts) {
  const auto pid = std::ranges::find(table.columns, "pid", &Column::key);
  if (pid == table.columns.end()) return;
  const auto at = pid - table.columns.begin();
  const auto owner = std::ranges::find(table.columns, "in_pid", &Column::key) - table.columns.begin();
  std::set<int64_t> ranks;
  std::set<std::string_view> hosts;
  for (const ReportPart& part : parts) {
    if (part.rank) ranks.insert(*part.rank);
    if (!part.host.empty()) hosts.insert(part.host);
  }
  const bool has_ranks = ranks.size() > 1, has_hosts = hosts.size() > 1, is_shown = pid->is_shown;
  for (std::vector<Cell>& row : table.rows) {
    if (owner < std::ssize(row)) take_part(row[static_cast<size_t>(owner)], parts);
    const ReportPart* part = take_part(row[static_cast<size_t>(at)], parts);
    if (has_hosts) row.insert(row.begin() + at + 1, part == nullptr ? Cell{} : text_or_missing(part->host));
    if (has_ranks) row.insert(row.begin() + at + 1, part == nullptr || !part->rank ? Cell{} : Cell(*part->rank));
  }
  if (has_hosts) table.columns.insert(table.columns.begin() + at + 1, {"host", "host", Unit::kText, is_shown});
  if (has_ranks) table.columns.insert(table.columns.begin() + at + 1, {"rank", "rank", Unit::kCount, is_shown});
}

namespace {

struct EmptyReason {
  std::string_view table;
  std::string_view missing;  // what rows are made of
  std::string_view source;   // of the recorder, without which there are none; empty: none
  bool is_of_torch;          // only torch has it
  std::string_view wants;    // what would make rows, where the source was on
};

constexpr std::string_view kGpuWants =
    "the program did no work on a GPU while it was recorded; `torchprof doctor` says what would be captured";
constexpr std::string_view kGpuSteps = "none in the steps that count (all but the first)";

constexpr std::string_view kStepsWant =
    "no optimizer made any and nothing recurs; --step FUNCTION, MODULE or range=NAME says what a step is";

constexpr std::array<EmptyReason, 17> kEmptyReasons{{
    {"ops", "operators", "operators", true, "none was called while the program was recorded"},
    {"kernels", "GPU kernels or copies", "gpu", false, kGpuWants},
    {"calls", "calls of CUDA", "gpu", false,
     "the program made none while it was recorded, or ran with --gpu kernels; --gpu on (the default) or full has them"},
    {"modules", "calls of nn.Module", "python", true,
     "none was called while the program was recorded; --python modules or functions (the default) has them"},
    {"python", "Python functions", "python", false, "none was called while the program was recorded"},
    {"memory", "allocations of torch's", "memory", true,
     "none was made while the program was recorded; memory of NumPy and of Python itself is not in it"},
    {"steps", "steps", "", false, kStepsWant},
    {"critical", "steps", "", false, kStepsWant},
    {"critical_names", "steps", "", false, kStepsWant},
    {"comms", "collectives", "collectives", true,
     "torch.distributed was not used while the program was recorded, as jobs of several ranks do (torchrun)"},
    {"threads", "threads", "", false, "nothing ran while the program was recorded"},
    {"processes", "processes", "", false, "nothing was recorded"},
    {"profiler", "records", "", false, "nothing was recorded"},
    {"gpu", "work of GPUs", "gpu", false, kGpuWants},
    {"streams", "work of GPUs", "gpu", false, kGpuWants},
    {"launches", "work of GPUs with its calls", "gpu", false, kGpuWants},
    {"copies", "copies or sets of GPUs", "gpu", false, kGpuWants},
}};

}  // namespace

std::string why_empty(std::string_view table, const Report& report) {
  for (const EmptyReason& reason : kEmptyReasons) {
    if (reason.table != table) continue;
    const std::string none = "no " + std::string(reason.missing) + ": ";
    const bool is_of_steps = table == "gpu" || table == "streams" || table == "launches" || table == "copies";
    if (is_of_steps && !report.all.gpu.work.empty()) return none + std::string(kGpuSteps);
    if (!report.captured.is_run) return "no " + std::string(reason.missing) + " in this file";
    const auto source = report.captured.without.find(reason.source);
    const bool has_said_why = source != report.captured.without.end();
    // Without torch most sources have nothing to say; what the user has switched off comes first.
    if (has_said_why) return none + source->second;
    if (reason.is_of_torch && !report.captured.has_torch) return none + "the program did not load torch";
    return none + std::string(reason.wants);
  }
  return {};
}

}  // namespace torchprof::formats
