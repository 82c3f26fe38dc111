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

struct OpRow {
  const std::string& name;
  const Tally& t;
  const Tally& sum;
  int64_t operator_ns;
  OpGrouping::By by = OpGrouping::By::kName;
  const OpGroup* group = nullptr;  // null: operators are not grouped
};

// What operators are grouped by beside their names.
template <OpGrouping::By by>
constexpr RowColumn<OpRow> detail_column(std::string_view key, std::string_view title) {
  return {{key, title, Unit::kText, kHidden, kAppended, ""},
          [](auto& r) { return r.by == by && r.group ? text_or_missing(r.group->detail) : Cell{}; }};
}

constexpr RowColumn<OpRow> kOpColumns[] = {
    {{"self_cpu_ns", "self", Unit::kTime}, [](auto& r) { return r.t.self_ns; }},
    {{"self_cpu_percent", "self %", Unit::kPercent}, [](auto& r) { return percent(r.t.self_ns, r.operator_ns); }},
    {{"cpu_total_ns", "total", Unit::kTime}, [](auto& r) { return r.t.total_ns; }},
    {{"cpu_total_percent", "total %", Unit::kPercent, kHidden},
     [](auto& r) { return percent(r.t.total_ns, r.operator_ns); }},
    {{"calls", "calls", Unit::kCount}, [](auto& r) { return count(r.t.calls); }},
    {{"cpu_avg_ns", "average", Unit::kTime}, [](auto& r) { return average_of(r.t.total_ns, r.t.calls); }},
    {{"self_cuda_ns", "self CUDA", Unit::kTime, kHidden}, [](auto& r) { return r.t.gpu_self_ns; }},
    {{"self_cuda_percent", "self CUDA %", Unit::kPercent, kHidden},
     [](auto& r) { return percent(r.t.gpu_self_ns, r.sum.gpu_self_ns); }},
    {{"cuda_total_ns", "total CUDA", Unit::kTime, kHidden}, [](auto& r) { return r.t.gpu_total_ns; }},
    {{"cuda_avg_ns", "average CUDA", Unit::kTime, kHidden},
     [](auto& r) { return average_of(r.t.gpu_total_ns, r.t.calls); }},
    {{"self_cpu_mem_bytes", "self CPU mem", Unit::kBytes, kHidden}, [](auto& r) { return r.t.cpu_bytes; }},
    {{"cpu_mem_bytes", "CPU mem", Unit::kBytes, kHidden}, [](auto& r) { return r.t.cpu_total_bytes; }},
    {{"self_cuda_mem_bytes", "self GPU mem", Unit::kBytes, kHidden}, [](auto& r) { return r.t.device_bytes; }},
    {{"cuda_mem_bytes", "GPU mem", Unit::kBytes, kHidden}, [](auto& r) { return r.t.device_total_bytes; }},
    {{"flops", "GFLOPs", Unit::kFlops, kHidden, false, ""},
     [](auto& r) { return r.t.flops == 0 ? Cell{} : count(r.t.flops); }},
    {{"name", "name"}, [](auto& r) { return r.name; }},
    detail_column<OpGrouping::By::kShape>("input_shapes", "shapes"),
    detail_column<OpGrouping::By::kModule>("module", "module"),
    detail_column<OpGrouping::By::kThread>("thread", "thread"),
    detail_column<OpGrouping::By::kOverload>("overload", "overload"),
    detail_column<OpGrouping::By::kStack>("stack", "stack"),
    detail_column<OpGrouping::By::kLine>("line", "line"),
    {{"source", "source", Unit::kText, kHidden, kAppended, ""},
     [](auto& r) { return r.group ? text_or_missing(r.group->source) : Cell{}; }},
};
constexpr RowTable<OpRow> kOps{"ops", kOpColumns};

void set_totals(ReportTable& operators, const Tally& sum) {
  operators.totals = {{"self_cpu_ns", sum.self_ns}, {"self_cuda_ns", sum.gpu_self_ns}, {"calls", count(sum.calls)}};
}

}  // namespace

ReportTable ops_table(const Tallies& operators, int64_t operator_ns, std::string title, const TrimRows& trim) {
  ReportTable table = kOps.make(std::move(title));
  Tally sum;
  for (const auto& [name, tally] : operators) sum += tally;
  for (const auto& [name, tally] : operators) {
    kOps.add(table, {name, tally, sum, operator_ns});
    if (trim) trim(table);
  }
  set_totals(table, sum);
  return table;
}

ReportTable ops_table(const OpGroups& operators, const OpGrouping& grouping, int64_t operator_ns, std::string title,
                      const TrimRows& trim) {
  ReportTable table = kOps.make(std::move(title));
  Tally sum;
  for (const auto& [key, group] : operators) sum += group.tally;
  for (const auto& [key, group] : operators) {
    kOps.add(table, {group.name, group.tally, sum, operator_ns, grouping.by, &group});
    if (trim) trim(table);
  }
  if (grouping.by != OpGrouping::By::kName) table.show(grouping.column(), true);
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

// Of a function or of a line.
template <class Counted>
struct PythonRow {
  const std::string& name;
  const Counted& t;
  const Waits& waits;
};

// `own`: the column that the others do not have.
template <class Counted>
constexpr auto python_columns(const RowColumn<PythonRow<Counted>>& own) {
  return std::to_array<RowColumn<PythonRow<Counted>>>({
      {{"self_ns", "self", Unit::kTime}, [](auto& r) { return r.t.self_ns; }},
      {{"self_percent", "self %", Unit::kPercent}, [](auto& r) { return r.waits.share(r.name, r.t.self_ns); }},
      {{"total_ns", "total", Unit::kTime}, [](auto& r) { return r.t.total_ns; }},
      {{"calls", "calls", Unit::kCount}, [](auto& r) { return count(r.t.calls); }},
      own,
      {{"waits", "waits", Unit::kText, kHidden, false, ""}, [](auto& r) { return r.waits.mark(r.name); }},
      {{"name", "name"}, [](auto& r) { return r.name; }},
  });
}
constexpr auto kPythonColumns = python_columns<CallTally>(
    {{"avg_ns", "average", Unit::kTime}, [](auto& r) { return average_of(r.t.total_ns, r.t.calls); }});
constexpr RowTable<PythonRow<CallTally>> kPython{"python", kPythonColumns};
constexpr auto kPythonLineColumns = python_columns<LineTally>(
    {{"self_cuda_ns", "self CUDA", Unit::kTime, kHidden}, [](auto& r) { return r.t.gpu_ns; }});
constexpr RowTable<PythonRow<LineTally>> kPythonLines{"python_lines", kPythonLineColumns};

struct GpuRow {
  const ReportPart& part;
  const GpuDeviceUse& use;
};

constexpr RowColumn<GpuRow> kGpuColumns[] = {
    kPidColumn<GpuRow>,
    {{"gpu", "GPU", Unit::kCount}, [](auto& r) { return count(r.use.device); }},
    {{"busy_percent", "busy %", Unit::kPercent}, [](auto& r) { return percent(r.use.busy_ns, r.use.captured_ns); }},
    {{"busy_ns", "busy", Unit::kTime}, [](auto& r) { return r.use.busy_ns; }},
    {{"captured_ns", "captured", Unit::kTime, kHidden}, [](auto& r) { return r.use.captured_ns; }},
    {{"kernels", "kernels", Unit::kCount}, [](auto& r) { return count(r.use.kernels); }},
    {{"kernel_ns", "in kernels", Unit::kTime}, [](auto& r) { return r.use.kernel_ns; }},
    {{"copies", "copies, sets", Unit::kCount}, [](auto& r) { return count(r.use.copies); }},
    {{"copy_ns", "in them", Unit::kTime}, [](auto& r) { return r.use.copy_ns; }},
    {{"name", "name"}, [](auto& r) { return text_or_missing(r.use.name); }},
};
constexpr RowTable<GpuRow> kGpus{"gpus", kGpuColumns};

struct KernelRow {
  const std::string& name;
  const std::string& short_name;
  const GpuTally& t;
  int64_t sum_ns;  // of all

  Cell mean(double total, double scale) const {
    return t.is_kernel && total > 0 ? Cell(scale * total / static_cast<double>(t.calls)) : Cell{};
  }
};

constexpr RowColumn<KernelRow> kKernelColumns[] = {
    {{"total_ns", "total", Unit::kTime}, [](auto& r) { return r.t.total_ns; }},
    {{"share_percent", "share", Unit::kPercent}, [](auto& r) { return percent(r.t.total_ns, r.sum_ns); }},
    {{"calls", "calls", Unit::kCount}, [](auto& r) { return count(r.t.calls); }},
    {{"avg_ns", "average", Unit::kTime}, [](auto& r) { return average_of(r.t.total_ns, r.t.calls); }},
    {{"min_ns", "min", Unit::kTime}, [](auto& r) { return r.t.min_ns; }},
    {{"max_ns", "max", Unit::kTime}, [](auto& r) { return r.t.max_ns; }},
    {{"blocks_per_sm", "blocks/SM", Unit::kNumber, true, false, "-", 2},
     [](auto& r) { return r.mean(r.t.blocks_per_sm, 1); }},
    {{"occupancy_percent", "occupancy", Unit::kPercent, true, false, "-", 0},
     [](auto& r) { return r.mean(r.t.occupancy, 100); }},
    {{"name", "full name", Unit::kText, kHidden}, [](auto& r) { return r.name; }},
    {{"short_name", "name"}, [](auto& r) { return r.short_name; }},
};
constexpr RowTable<KernelRow> kKernels{"kernels", kKernelColumns};

struct CallRow {
  const std::string& name;
  const CallTally& t;
  int64_t sum_ns;  // of all
};

constexpr RowColumn<CallRow> kCallColumns[] = {
    {{"total_ns", "total", Unit::kTime}, [](auto& r) { return r.t.total_ns; }},
    {{"share_percent", "share", Unit::kPercent}, [](auto& r) { return percent(r.t.self_ns, r.sum_ns); }},
    {{"calls", "calls", Unit::kCount}, [](auto& r) { return count(r.t.calls); }},
    {{"avg_ns", "average", Unit::kTime}, [](auto& r) { return average_of(r.t.total_ns, r.t.calls); }},
    {{"kind", "does", Unit::kText}, [](auto& r) { return std::string(effect_text(call_effect(r.name))); }},
    {{"name", "name"}, [](auto& r) { return r.name; }},
};
constexpr RowTable<CallRow> kCalls{"calls", kCallColumns};

}  // namespace

std::vector<ReportTable> empty_tables() {
  return {kOps.make(), kPython.make(), kPythonLines.make(), kGpus.make(), kKernels.make(), kCalls.make()};
}

ReportTable python_table(const CallTallies& functions, int64_t python_ns, bool has_waits, const TrimRows& trim) {
  ReportTable table = kPython.make("Python functions");
  const Waits waits(functions, python_ns, has_waits);
  for (const auto& [name, t] : functions) {
    if (waits.is_left_out(name)) continue;
    kPython.add(table, {name, t, waits});
    if (trim) trim(table);
  }
  table.totals = {{"self_ns", python_ns}};
  waits.finish(table, "function");
  return table;
}

ReportTable python_lines_table(const LineTallies& tallies, bool has_waits) {
  ReportTable table = kPythonLines.make("Lines of Python");
  int64_t sum = 0;
  for (const auto& [name, t] : tallies.lines) add_to(sum, t.self_ns);
  const Waits waits(tallies.lines, sum, has_waits);
  for (const auto& [name, t] : tallies.lines)
    if (!waits.is_left_out(name)) kPythonLines.add(table, {name, t, waits});
  show_if_any(table, "self_cuda_ns", {"self_cuda_ns"});
  table.totals = {{"self_ns", sum}, {"unknown_ns", tallies.unknown_ns}};
  waits.finish(table, "line");
  return table;
}

ReportTable gpus_table(const std::vector<ReportPart>& parts) {
  ReportTable table = kGpus.make("GPUs");
  std::string first_pid;
  for (const ReportPart& part : parts) {
    for (const GpuDeviceUse& use : part.statistics.gpu.devices) {
      if (table.rows.empty()) first_pid = part.key();
      if (first_pid != part.key()) table.show("pid", true);
      kGpus.add(table, {part, use});
    }
  }
  return table;
}

ReportTable kernels_table(const GpuTallies& work) {
  ReportTable table = kKernels.make("GPU kernels");
  int64_t sum = 0;
  std::vector<std::string_view> names;
  for (const auto& [name, t] : work) {
    add_to(sum, t.total_ns);
    names.push_back(name);
  }
  const std::vector<std::string> short_names = distinct_kernel_names(names);
  size_t row = 0;
  for (const auto& [name, t] : work) kKernels.add(table, {name, short_names[row++], t, sum});
  table.totals = {{"total_ns", sum}};
  return table;
}

ReportTable calls_table(const CallTallies& calls) {
  ReportTable table = kCalls.make("Calls of CUDA");
  int64_t sum = 0;
  for (const auto& [name, t] : calls) add_to(sum, t.self_ns);
  for (const auto& [name, t] : calls) kCalls.add(table, {name, t, sum});
  table.totals = {{"total_ns", sum}};
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
    row.reserve(row.size() + has_hosts + has_ranks);
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
