#include "formats/report/report.h"

#include <charconv>
#include <chrono>
#include <deque>
#include <functional>
#include <iterator>
#include <set>
#include <system_error>
#include <utility>

#include "formats/io/cells.h"
#include "formats/io/error.h"
#include "formats/io/nearest.h"
#include "formats/io/parallel.h"
#include "formats/io/text.h"
#include "formats/ranks/align.h"
#include "formats/read/read_trace.h"
#include "formats/report/run_estimate.h"
#include "formats/timeline/build.h"
#include "formats/timeline/parts.h"
#include "formats/trace/distributed.h"
#include "formats/trace/endings.h"
#include "formats/trace/gpu_index.h"
#include "formats/trace/roles.h"

namespace torchprof::formats {
namespace {

std::string command_text(const Process& p) {
  std::string text;
  for (const std::string_view argument : p.command) text.append(text.empty() ? "" : " ").append(argument);
  return text.empty() ? "(unknown command)" : text;
}

void add_recorder(ReportPart& part, const Process& p, std::chrono::steady_clock::time_point begun) {
  const auto took = std::chrono::steady_clock::now() - begun;
  std::error_code error;
  const auto bytes = std::filesystem::file_size(p.file, error);
  part.recorder = {.counts = p.counts,
                   .spool_bytes = error ? 0 : bytes,
                   .lost = p.lost_events(),
                   .recycled_bytes = p.recycled_bytes,
                   .damaged_bytes = p.damage.bytes,
                   .read_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(took).count()};
}

void add_estimates(Report& report, const ReportPart& part, const Process& process) {
  const StepSamples& samples = part.statistics.samples;
  constexpr size_t kFewest = 3;
  if (!part.run || samples.step_ns.size() < kFewest) return;
  const auto steps = static_cast<double>(part.run->count);
  const std::vector<uint32_t> clusters = clusters_of(process, samples);
  report.typical_steps += samples.steps;
  for (size_t kind = 0; kind < kSampledKinds; ++kind) {
    for (const auto& [name, s] : samples.by_name[kind]) {
      const Estimate one = estimate_of(s.ns, clusters);
      RunEstimate& estimate = report.in_run[kind][name];
      estimate.ns += one.mean * steps;
      estimate.error_ns += one.error.value_or(0) * steps;
      estimate.has_error = estimate.has_error && one.error;
    }
  }
}

std::optional<uint32_t> whole_number(std::string_view text) {
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size() && number != 0 ? std::optional(number) : std::nullopt;
}

uint32_t major_of(std::string_view version) { return whole_number(version.substr(0, version.find('.'))).value_or(0); }

bool has_torch(const Process& process) { return !process.meta("torch.version").empty(); }

ProcessFacts facts_of_process(const Process& process, std::span<const StepSpan> steps) {
  return {.threads = whole_number(process.meta("torch.threads")),
          .processors = whole_number(process.meta("processors")),
          .is_loader = is_loader(process.role),
          .has_torch = has_torch(process),
          .torch_major = major_of(process.meta("torch.version")),
          .is_run = true,
          .knows_growth = shows_growth(process, steps)};
}

// `jobs`: of each part; empty: they are all of one.
Advice advice_for(const std::vector<ReportPart>& parts, const std::vector<ProcessAdvice>& advice,
                  const std::vector<uint32_t>& jobs) {
  std::vector<AdvisedProcess> processes;
  for (size_t i = 0; i < advice.size(); ++i) {
    const ReportPart& part = parts[i];
    processes.push_back({part.role.empty() ? "process " + part.pid : part.role, is_loader(part.role),
                         jobs.empty() ? 0 : jobs[i], &advice[i], &part.statistics.comms, part.typical});
  }
  return advice_of(processes);
}

// Of "rank 3"; none: it has another role, or none.
std::optional<int64_t> rank_in(std::string_view role) {
  constexpr std::string_view kRank = "rank ";
  int64_t rank = 0;
  if (!role.starts_with(kRank)) return std::nullopt;
  const auto [end, error] = std::from_chars(role.data() + kRank.size(), role.data() + role.size(), rank);
  return error == std::errc{} && end == role.data() + role.size() ? std::optional(rank) : std::nullopt;
}

// ", 2 hosts on one clock within 58.000 us"; empty: there is but one.
std::string hosts_text(const Trace& trace) {
  std::set<uint32_t> references;
  int64_t error = 0;
  for (const Machine& machine : trace.machines) {
    references.insert(machine.reference);
    error = std::max(error, machine.error_ns);
  }
  if (trace.machines.size() < 2) return {};
  return ", " + plural(trace.machines.size(), "host") +
         (references.size() == 1 ? " on one clock within " + duration_text(static_cast<double>(error))
                                 : ", whose clocks differ");
}

// Steps that are units are steps in all tables.
void take_unit(ReportPart& part, const Process& p, const StatisticsRequest& request, const SecondPassRequest& second,
               const Timeline& timeline, const RecurringUnit& unit) {
  Statistics& statistics = part.statistics;
  statistics.steps = steps_of(unit);
  // Those of training are not meant.
  part.run.reset();
  part.all_steps = {};
  if (request.has_step_parts) statistics.step_parts = step_parts_of(timeline, statistics.steps.spans);
  if (second.has_memory_growth) statistics.growth = growth_of(p, statistics.steps.spans);
}

// Of what --step names, for when no process of a file has it.
class UnitNames {
 public:
  void add(const Timeline& timeline, const std::string& chosen, bool is_found) {
    chosen_ = chosen;
    has_found_ = has_found_ || is_found;
    if (!chosen.empty() && !has_found_) add_unit_names(timeline, names_);
  }
  void check() const {
    if (chosen_.empty() || has_found_) return;
    const std::vector<std::string> names(names_.begin(), names_.end());
    throw Error("--step: no function, module or range '" + chosen_ + "' was called" + did_you_mean(chosen_, names));
  }

 private:
  std::string chosen_;
  bool has_found_ = false;
  std::set<std::string> names_;
};

// The job of each process, by its place.
std::vector<uint32_t> jobs_in_order(const Trace& trace) {
  const std::vector<uint32_t> numbers = job_numbers(trace.processes);
  std::vector<uint32_t> jobs(numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i) jobs[trace.processes[i].place - 1] = numbers[i];
  return jobs;
}

// Of one process, for which no other is needed.
void add_own_sums(TimelineSums& sums, const Timeline& timeline, const SecondPassRequest& request) {
  if (!request.has_gpu && !request.has_launches) return;
  const TimelineIndex index(timeline);
  if (request.has_gpu) sums.gpu = gpu_times_of(index);
  if (request.has_launches) sums.launches = launches_of(index);
}

// A path goes from process to process.
void add_paths(Report& report, const std::vector<const Timeline*>& timelines) {
  std::vector<TimelineIndex> indices;
  std::vector<const TimelineIndex*> all;
  indices.reserve(timelines.size());
  for (const Timeline* timeline : timelines) all.push_back(&indices.emplace_back(*timeline));
  std::vector<PathSums> paths = path_sums_of(all);
  for (size_t i = 0; i < all.size(); ++i) report.parts[i].timeline.path = std::move(paths[i]);
}

// What the report has of one process.
struct ReplayedPart {
  ReportPart part;
  std::optional<ProcessAdvice> advice{};
  std::optional<Timeline> timeline{};  // for paths through all processes
  uint64_t too_deep = 0;
};

// Adds to `part`, which has its statistics. The timeline, if it is wanted.
std::optional<Timeline> second_pass_of(const Process& p, const StatisticsRequest& request,
                                       const SecondPassRequest& second, ReportPart& part) {
  Statistics& statistics = part.statistics;
  const std::vector<StepSpan>& steps = statistics.steps.spans;
  const bool has_categories = second.has_memory_categories && !statistics.memory.empty();
  const bool has_timeline = second.has_timelines() || (second.has_units && wants_unit(p, steps));
  if (!second.has_memory_growth && !has_categories && !has_timeline) return std::nullopt;
  Replay replay(p);
  RecurringUnit unit;
  std::unique_ptr<Analysis<std::vector<MemoryGrowth>>> growth;
  std::unique_ptr<Analysis<PeakCategories>> categories;
  std::unique_ptr<Analysis<Timeline>> building;
  if (second.has_memory_growth) growth = find_growth(p, replay, steps);
  if (has_categories) categories = find_peak_categories(p, replay, statistics.memory);
  if (has_timeline) building = build_timeline(p, replay, usual_of(p, steps, std::identity()), &unit);
  if (growth || categories || building) replay.run();
  if (growth) statistics.growth = growth->finish();
  if (categories) statistics.memory_categories = categories->finish();
  if (!building) return std::nullopt;
  Timeline timeline = building->finish();
  if (!unit.name.empty()) take_unit(part, p, request, second, timeline, unit);
  return timeline;
}

// Of several processes at once (parallel.h).
ReplayedPart replay_for_report(const Process& p, const StatisticsRequest& request, const SecondPassRequest& second) {
  const auto begun = std::chrono::steady_clock::now();
  ReplayedPart out{
      {std::to_string(p.pid), command_text(p), ending_text(p), p.counts.records, p.role, statistics_of(p, request)}};
  ReportPart& part = out.part;
  part.run = run_steps_of(p);
  if (part.run) part.all_steps = p.steps;
  part.group = shown_group(p);
  part.group_name = p.group_name;
  part.host = p.host;
  part.rank = distributed_of(p).rank;
  add_recorder(part, p, begun);
  if (std::optional<Timeline> timeline = second_pass_of(p, request, second, part)) {
    out.too_deep = timeline->too_deep;
    if (second.has_advice)
      out.advice = advice_of(*timeline, part.statistics.growth, facts_of_process(p, part.statistics.steps.spans));
    add_own_sums(part.timeline, *timeline, second);
    if (second.has_path) out.timeline = std::move(*timeline);
  }
  part.typical = typical_parts_of(p, part.statistics.step_parts);
  p.spool->release();
  return out;
}

Captured captured_of(const Trace& trace) {
  Captured captured{.is_run = true};
  std::set<std::string, std::less<>> on;
  for (const Process& p : trace.processes) {
    captured.has_torch = captured.has_torch || has_torch(p);
    for (const Source& s : p.sources) {
      if (s.state == SourceState::kOn) on.emplace(s.name);
      captured.without.emplace(s.name, printable(s.detail));
    }
    p.spool->release();
  }
  std::erase_if(captured.without, [&on](const auto& source) { return on.contains(source.first); });
  return captured;
}

void add_depth_note(Report& report, uint64_t too_deep) {
  if (too_deep != 0)
    report.notes.push_back(plural(too_deep, "slice") + " inside of " + count_text(kDeepestSpan) +
                           " others: not in advice, the critical path and launches");
}

}  // namespace

// Keeps names only for the processes that tables show: those of thousands of processes would fill the memory.
ReportPart& Report::add(ReportPart part) {
  all += part.statistics;
  Statistics& own = part.statistics;
  const bool is_new_row = part.group == 0 || groups_.insert(part.group).second;
  const bool is_shown = rows_ < kShownProcesses;
  rows_ += is_new_row;
  if (part.group != 0 && (is_new_row ? is_shown : group_operators.contains(part.group)))
    for (const auto& [name, tally] : own.operators) group_operators[part.group][name] += tally;
  if (parts.size() >= kShownProcesses && (part.group != 0 || !is_shown)) own.operators = {};
  own.python = {};
  own.calls = {};
  own.op_groups = {};
  own.lines = {};
  own.modules = {};
  own.samples = {};
  part.index = parts.size();
  return parts.emplace_back(std::move(part));
}

Report report_of(const Trace& trace, const StatisticsRequest& request, const SecondPassRequest& second) {
  Report report;
  std::vector<ProcessAdvice> advice;
  std::deque<Timeline> of_processes;
  std::vector<const Timeline*> all;
  report.start = trace.start;
  uint64_t too_deep = 0, unfinished = 0;
  EventCounts counts;
  const std::vector<const Process*> by_place = in_shown_order(trace.processes);
  const auto replayed = [&](size_t i) { return replay_for_report(*by_place[i], request, second); };
  in_order(by_place.size(), replayed, [&](size_t i, ReplayedPart one) {
    counts += by_place[i]->counts;
    too_deep += one.too_deep;
    add_estimates(report, one.part, *by_place[i]);
    if (one.advice) advice.push_back(std::move(*one.advice));
    if (one.timeline) all.push_back(&of_processes.emplace_back(std::move(*one.timeline)));
    // Threads that wait for ever are open at the end of every program: of one that ended by itself that says nothing.
    if (!by_place[i]->clean_exit) unfinished += one.part.statistics.unfinished;
    report.add(std::move(one.part));
  });
  if (second.has_path) add_paths(report, all);
  const std::vector<uint32_t> jobs = jobs_in_order(trace);
  for (size_t i = 0; i < report.parts.size(); ++i) put_into_job(report.parts[i].statistics.comms, jobs[i]);
  uint64_t kernels = 0;
  report.headline = plural(trace.processes.size(), "process") + ", " +
                    duration_text(static_cast<double>(trace.end - trace.start)) + ": " +
                    plural(counts.operators, "operator") + ", " + plural(counts.python, "Python call");
  if (counts.c_calls != 0) report.headline += ", " + plural(counts.c_calls, "C call");
  for (const Process& p : trace.processes) {
    if (p.gpu && p.gpu->kernels() != 0) kernels += p.gpu->kernels();
  }
  if (kernels != 0) report.headline += ", " + plural(kernels, "GPU kernel");
  for (const std::string& line : clock_lines(trace)) report.notes.push_back(line);
  std::ranges::move(notes_of(trace), std::back_inserter(report.notes));
  if (unfinished != 0)
    report.notes.push_back("the ends of " + plural(unfinished, "call") +
                           " that had not returned when the recording broke off: in tables they last until then");
  add_depth_note(report, too_deep);
  if (second.has_advice) report.advice = advice_for(report.parts, advice, jobs);
  report.gpu_remarks = gpu_remarks_of(trace);
  report.captured = captured_of(trace);
  uint64_t steps = 0, captured = 0;
  for (const ReportPart& part : report.parts) {
    if (!part.run || part.run->count <= steps) continue;
    steps = part.run->count;
    captured = part.run->captured;
  }
  report.headline += hosts_text(trace);
  if (steps != 0) report.headline += ", " + count_text(captured) + " of " + plural(steps, "step") + " in full";
  return report;
}

Report report_of(const std::filesystem::path& trace_file, const SecondPassRequest& second, const std::string& step) {
  TraceFile file = read_trace(trace_file, {.step = step, .has_timelines = true, .has_inputs = second.has_advice});
  return report_of(file, trace_file.filename().string(), second);
}

Report report_of(TraceFile& file, const std::string& name, const SecondPassRequest& second) {
  Report report;
  report.start = file.start;
  uint64_t slices = 0;
  std::vector<ProcessAdvice> advice;
  std::vector<const Timeline*> all;
  uint64_t too_deep = 0;
  UnitNames unit_names;
  for (auto& part : file.processes) {
    too_deep += part.timeline.too_deep;
    unit_names.add(part.timeline, file.step, !part.timeline.unit.empty());
    if (second.has_advice)
      advice.push_back(advice_of(part.timeline, part.statistics.growth, {.is_loader = is_loader(part.role)}));
    slices += part.statistics.slices;
    all.push_back(&part.timeline);
    ReportPart& added =
        report.add({printable(part.pid), part.name, "", {}, printable(part.role), std::move(part.statistics)});
    add_own_sums(added.timeline, part.timeline, second);
    added.typical = typical_parts(added.statistics.step_parts);
    added.rank = rank_in(added.role);
  }
  unit_names.check();
  if (second.has_path) add_paths(report, all);
  if (second.has_advice) report.advice = advice_for(report.parts, advice, {});
  report.headline = plural(report.parts.size(), "process") + ", " + duration_text(static_cast<double>(file.wall_ns)) +
                    ": " + plural(slices, "slice") + " in " + printable(name);
  add_depth_note(report, too_deep);
  if (file.has_others)
    report.notes.push_back("the file has more than " + count_text(kMostProcesses) +
                           " processes: those that came later are taken as one, 'others'");
  if (file.impossible != 0)
    report.notes.push_back(plural(file.impossible, "event") +
                           " left out for impossible times (out of range, or an end before the begin)");
  if (file.unread != 0)
    report.notes.push_back(plural(file.unread, "slice") + " of categories that are not known left out, the first of " +
                           "them of '" + printable(file.unread_category) + "'");
  if (file.is_unfinished)
    report.notes.push_back(
        "the file has no end: what wrote it was stopped, or is not ready. All that is there is shown");
  return report;
}

}  // namespace torchprof::formats
