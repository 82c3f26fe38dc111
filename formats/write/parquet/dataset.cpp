#include "formats/write/parquet/dataset.h"

#include <algorithm>
#include <map>
#include <optional>
#include <system_error>
#include <unordered_map>

#include "formats/analysis/statistics.h"
#include "formats/gpu/activity.h"
#include "formats/io/error.h"
#include "formats/io/parallel.h"
#include "formats/replay/replay.h"
#include "formats/replay/slice_kind.h"
#include "formats/trace/distributed.h"
#include "formats/trace/gpu_index.h"
#include "formats/values/inputs.h"
#include "formats/write/parquet/collectives.h"
#include "formats/write/parquet/dataset_schema.h"

namespace torchprof::formats {
namespace {

using namespace parquet;

constexpr size_t at(SliceColumn c) { return static_cast<size_t>(c); }
constexpr size_t at(StepColumn c) { return static_cast<size_t>(c); }
constexpr size_t at(ProcessColumn c) { return static_cast<size_t>(c); }

std::optional<int64_t> or_none(uint64_t value) {
  return value == 0 ? std::nullopt : std::optional(static_cast<int64_t>(value));
}

// A number that `make` gives once for each index.
class Once {
 public:
  template <class Make>
  int64_t operator()(size_t index, Make make) {
    if (index >= made_.size()) made_.resize(std::max(index + 1, made_.size() * 2), -1);
    if (made_[index] < 0) made_[index] = make();
    return made_[index];
  }

 private:
  std::vector<int64_t> made_;  // -1: not made yet
};

class Slices final : public Sink {
 public:
  Slices(const Process& process, std::optional<int64_t> rank, const std::vector<StepSpan>& steps, Output& out)
      : process_(process), rank_(rank), steps_(steps), replay_(process), file_(out, slice_columns(), about("slices")) {}

  void run() {
    replay_.run(*this);
    flush();
    file_.finish();
  }

  void slice(const Slice& s) override {
    Row& row = add(s.row, s.name, s.begin, s.end, kind_of(s, replay_.names().role(s.name)), s.module);
    row.self = s.self_ns - s.calls_ns;
    row.is_backward = s.is_backward;
    row.is_outermost = s.outermost;
    if (s.kind != SliceKind::kOperator) return;
    row.op = or_none(s.external_id);
    if (s.inputs && s.inputs.value < process_.strings.size())
      row.shapes = shapes_(s.inputs.value, [&] { return file_.text(dims_json(process_.string(s.inputs))); });
  }

  void gpu_call(const GpuCall& c) override {
    Row& row = add(c.row, c.name, c.begin, c.end, "cuda_call", c.module);
    row.is_backward = c.is_backward;
    row.op = or_none(c.external_id);
    row.correlation = or_none(c.api->correlation);
  }

  void gpu_activity(const GpuActivity& a) override {
    if (!runs_on_device(a.kind)) return;
    const std::string_view kind = a.kind == Kind::GpuKernel ? "kernel" : a.kind == Kind::GpuCopy ? "memcpy" : "memset";
    const GpuCall* call = a.call;
    Row& row = add({}, a.name, a.begin, a.end, kind, call != nullptr ? call->module : ObjectId{});
    row.is_backward = call != nullptr && call->is_backward;
    row.op = or_none(call != nullptr ? call->external_id : 0);
    row.correlation = or_none(a.correlation);
    row.device = a.device;
    if (a.stream != kNoGpuNumber) row.stream = a.stream;
  }

 private:
  struct Row {
    int64_t begin, duration, self;
    std::optional<int64_t> tid, module, op, correlation, device, stream, shapes;
    int64_t name, kind;
    bool is_backward = false, is_outermost = true;
  };

  Row& add(std::optional<uint32_t> row, NameId name, UnixNs begin, UnixNs end, std::string_view kind, ObjectId module) {
    if (rows_.size() == kRowGroup) flush();
    Row& out = rows_.emplace_back();
    out.begin = begin.value;
    out.duration = out.self = end - begin;
    if (row) {
      const formats::Row& thread = replay_.rows()[*row];
      out.tid = thread.is_overflow ? thread.sort_tid : thread.tid;
    }
    out.name = names_(name.value, [&] { return file_.text(replay_.names().text(name)); });
    const auto known = std::ranges::find(kinds_, kind, &std::pair<std::string_view, int64_t>::first);
    out.kind = known != kinds_.end() ? known->second : kinds_.emplace_back(kind, file_.text(kind)).second;
    if (module && replay_.names().object(module) != nullptr)
      out.module = modules_(module.value, [&] {
        const std::string_view path = process_.path(module);
        return file_.text(path.empty() ? replay_.names().text(replay_.names().function({}, module)) : path);
      });
    return out;
  }

  void flush() {
    std::ranges::stable_sort(rows_, {}, &Row::begin);
    for (const Row& row : rows_) {
      file_.add(at(SliceColumn::kRank), rank_);
      file_.add(at(SliceColumn::kPid), process_.pid);
      file_.add(at(SliceColumn::kTid), row.tid);
      file_.add(at(SliceColumn::kStart), row.begin);
      file_.add(at(SliceColumn::kDuration), row.duration);
      file_.add(at(SliceColumn::kSelf), row.self);
      file_.add(at(SliceColumn::kName), row.name);
      file_.add(at(SliceColumn::kKind), row.kind);
      file_.add(at(SliceColumn::kModule), row.module);
      file_.add(at(SliceColumn::kStep), step_at(steps_, row.begin));
      file_.add(at(SliceColumn::kIsBackward), row.is_backward);
      file_.add(at(SliceColumn::kIsOutermost), row.is_outermost);
      file_.add(at(SliceColumn::kOperator), row.op);
      file_.add(at(SliceColumn::kCorrelation), row.correlation);
      file_.add(at(SliceColumn::kDevice), row.device);
      file_.add(at(SliceColumn::kStream), row.stream);
      file_.add(at(SliceColumn::kShapes), row.shapes);
    }
    rows_.clear();
    file_.end_row_group();
  }

  const Process& process_;
  const std::optional<int64_t> rank_;
  const std::vector<StepSpan>& steps_;  // sorted, and apart
  Replay replay_;
  TableFile file_;
  std::vector<Row> rows_;
  Once names_, modules_, shapes_;
  std::vector<std::pair<std::string_view, int64_t>> kinds_;  // and their texts in the file
};

// A host's name as a part of a path that every reader takes for `host`.
std::string path_part(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool is_plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_';
    out.push_back(is_plain ? c : '_');
  }
  return out.empty() ? "unknown" : out;
}

std::string slices_name(const Process& process, std::optional<int64_t> rank, std::map<std::string, size_t>& times) {
  const bool is_rank = rank && process.role == "rank " + std::to_string(*rank);
  std::string name = "host=" + path_part(process.host) + "/" +
                     (is_rank ? "rank=" + std::to_string(*rank) : "process=" + std::to_string(process.pid));
  if (const size_t time = ++times[name]; time > 1) name.append("-").append(std::to_string(time));
  return name + ".parquet";
}

void add_steps(const Process& process, std::optional<int64_t> rank, const Steps& steps, TableFile& table) {
  const auto add = [&](uint64_t number, int64_t begin, int64_t end, bool in_full) {
    table.add(at(StepColumn::kRank), rank);
    table.add(at(StepColumn::kHost), table.text(process.host));
    table.add(at(StepColumn::kPid), process.pid);
    table.add(at(StepColumn::kStep), static_cast<int64_t>(number));
    table.add(at(StepColumn::kStart), begin);
    table.add(at(StepColumn::kDuration), end - begin);
    table.add(at(StepColumn::kInFull), in_full);
    table.add(at(StepColumn::kEndedBy), table.text(steps.ended_by));
  };
  std::unordered_map<uint64_t, bool> is_in_full;  // by number: those of a run with windows
  for (const StepTime& step : process.timed_steps()) is_in_full[step.step] = step.in_full;
  for (const StepSpan& step : steps.spans) {
    const auto known = is_in_full.find(step.number);
    add(step.number, step.begin, step.end, known == is_in_full.end() || known->second);
    if (known != is_in_full.end()) is_in_full.erase(known);
  }
  // Outside of windows the end and the time are all that is known.
  for (const StepTime& step : process.timed_steps())
    if (step.ns > 0 && is_in_full.contains(step.step)) add(step.step, step.end.value - step.ns, step.end.value, false);
  // Not for each process: what the end of the file says of a row group is longer than its few steps.
  if (table.rows_of_group() >= kRowGroup) table.end_row_group();
}

void add_process(const Process& process, std::optional<int64_t> rank, std::string_view file, TableFile& table) {
  std::string command;
  for (const std::string_view argument : process.command) command.append(command.empty() ? "" : " ").append(argument);
  table.add(at(ProcessColumn::kRank), rank);
  table.add(at(ProcessColumn::kHost), table.text(process.host));
  table.add(at(ProcessColumn::kPid), process.pid);
  table.add(at(ProcessColumn::kParentPid), process.parent_pid);
  table.add(at(ProcessColumn::kRole), table.text(process.role));
  table.add(at(ProcessColumn::kCommand), table.text(command));
  table.add(at(ProcessColumn::kStart), process.start.value);
  table.add(at(ProcessColumn::kEnd), process.end.value);
  table.add(at(ProcessColumn::kCleanExit), process.clean_exit);
  table.add(at(ProcessColumn::kLostEvents), static_cast<int64_t>(process.lost_events()));
  table.add(at(ProcessColumn::kFile), table.text(file));
}

}  // namespace

std::vector<std::string> write_dataset(const Trace& trace, Processes processes, const std::filesystem::path& directory,
                                       Existing existing) {
  std::vector<std::string> names = {"steps.parquet", "processes.parquet", "collectives.parquet"};
  Output steps_out(directory / names[0], existing), processes_out(directory / names[1], existing),
      collectives_out(directory / names[2], existing);
  TableFile steps_table(steps_out, step_columns(), about("steps"));
  TableFile processes_table(processes_out, process_columns(), about("processes"));
  Collectives collectives(trace);
  const size_t tables = names.size();
  std::map<std::string, size_t> times;
  for (const Process& process : processes) names.push_back(slices_name(process, distributed_of(process).rank, times));
  const auto written = [&](size_t i) {
    const Process& process = processes[i];
    const std::filesystem::path file = directory / names[tables + i];
    std::error_code error;
    std::filesystem::create_directories(file.parent_path(), error);
    if (error) throw Error(file.parent_path().string() + ": cannot make the directory: " + error.message());
    Statistics statistics = statistics_of(process, {.has_comms = true});
    std::ranges::sort(statistics.steps.spans, {}, &StepSpan::begin);
    Output out(file, existing);
    Slices(process, distributed_of(process).rank, statistics.steps.spans, out).run();
    out.commit();
    return statistics;
  };
  in_order(processes.size(), written, [&](size_t i, Statistics statistics) {
    const Process& process = processes[i];
    const std::optional<int64_t> rank = distributed_of(process).rank;
    add_steps(process, rank, statistics.steps, steps_table);
    add_process(process, rank, names[tables + i], processes_table);
    collectives.add(process, std::move(statistics.comms), std::move(statistics.steps.spans));
  });
  steps_table.finish();
  steps_out.commit();
  processes_table.finish();
  processes_out.commit();
  collectives.write(collectives_out);
  collectives_out.commit();
  return names;
}

}  // namespace torchprof::formats
