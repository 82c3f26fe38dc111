// What one process found, and what of it the others are compared with.
#include <algorithm>
#include <functional>
#include <unordered_map>

#include "formats/advice/advice.h"
#include "formats/analysis/step_parts.h"
#include "formats/io/source_line.h"
#include "formats/io/sum.h"
#include "formats/timeline/parts.h"
#include "formats/trace/names.h"

namespace torchprof::formats {
namespace {

constexpr size_t kMostCosts = 200;

void add_costs(const StepView& view, ProcessAdvice& advice) {
  if (!view.has_main()) return;
  const RowView& row = view.rows()[view.main()];
  const auto& spans = view.timeline().rows[view.main()].spans;
  std::unordered_map<uint64_t, int64_t> sums;  // by place and name
  PlaceSums collectives;
  for (size_t i = 0; i < row.own.size(); ++i) {
    if (row.own[i] == 0) continue;
    const bool is_python = row.activity[i] == Activity::kProgram;
    // The program's own Python has the line that called its function, and is named by the function.
    const bool is_own = is_python && row.place[i] == spans[i].name && spans[i].called_from != 0;
    const uint32_t place = is_own ? spans[i].called_from : row.place[i];
    add_to(sums[uint64_t{place} << 32 | (is_python && !is_own ? 0 : spans[i].name)], row.own[i]);
    if (row.activity[i] == Activity::kCollective) add_to(collectives[row.place[i]].ns, row.own[i]);
  }
  std::vector<std::pair<int64_t, uint64_t>> largest;
  for (const auto& [key, ns] : sums) largest.emplace_back(ns, key);
  std::ranges::sort(largest, std::greater<>());
  largest.resize(std::min(largest.size(), kMostCosts));
  for (const auto& [ns, key] : largest)
    add_to(advice.costs[{std::string(view.text(static_cast<uint32_t>(key >> 32))),
                         std::string(view.text(static_cast<uint32_t>(key)))}],
           view.per_step(ns));
  advice.collective_place = view.where(most_of(collectives));
}

}  // namespace

std::string source_of(const Timeline& timeline, std::string_view place) {
  const std::string_view file = timeline.file_of(place);
  if (file.empty()) return {};
  std::string text = source_line(std::string(file), split_place(place).line, timeline.begin);
  for (const std::string_view head : {"def ", "async def ", "class ", "@"})
    if (text.starts_with(head)) return {};
  return text;
}

ProcessAdvice advice_of(const Timeline& timeline, const std::vector<MemoryGrowth>& growth, const ProcessFacts& facts) {
  const StepView view(timeline);
  ProcessAdvice advice;
  advice.has_steps = view.has_steps();
  advice.unit = timeline.unit;
  for (const TimelineSample& s : timeline.samples)
    advice.looked_ran_ns = sum(advice.looked_ran_ns.value_or(0), s.ran_ns);
  advice.steps = view.steps().size();
  advice.step_ns = view.typical_ns();
  advice.mean_step_ns = view.step_ns();
  advice.spans = view.steps();
  if (view.has_steps() && view.has_main()) advice.input = step_input_of(timeline, view.main(), view.steps());
  for (const RowView& row : view.rows())
    for (size_t i = 0; i < row.own.size(); ++i)
      if (row.activity[i] == Activity::kOperator || row.activity[i] >= Activity::kCollective)
        add_to(advice.worked_ns, row.own[i]);
  add_to(advice.worked_ns, view.busy_ns());
  int64_t communication = 0;
  for (const StepParts& parts : step_parts_of(timeline, view.steps()))
    add_to(communication, parts.ns[StepPart::kCommunication]);
  advice.communication_ns = view.per_step(communication);
  Intervals nccl;
  for (const TimelineWork& w : timeline.work)
    if (is_communication_kernel(timeline.text(w.name))) nccl.add(w.begin, w.end);
  nccl.settle();
  advice.nccl_ns = view.per_step(view.in_steps(nccl));
  advice.gpu_ns = view.per_step(view.busy_ns());
  add_costs(view, advice);
  if (facts.is_loader) {
    advice.loader = loader_work_of(view);
    advice.loader.source = source_of(timeline, advice.loader.busiest.where);
  }
  advice.use = thread_use_of(view);
  advice.threads = advice.use.operator_threads != 0 ? advice.use.operator_threads : facts.threads.value_or(0);
  advice.processors = facts.processors.value_or(advice.use.processors);
  // Of another number than that of the environment the program itself decides.
  const bool sets_threads = advice.use.operator_threads != 0 && advice.use.operator_threads != facts.threads;
  advice.sharing = sharing_places_of(view, sets_threads && advice.threads > advice.processors);
  advice.busy = busy_share_of(view);
  advice.has_torch = facts.has_torch;
  advice.is_first_step = facts.is_run && timeline.steps.size() == 1 && timeline.steps.front().number == 0;
  Subject subject{view, facts.threads, facts.processors, growth, facts.knows_growth, advice.use, facts.torch_major};
  // Beside a GPU operators cost what they keep it waiting for, which other rules tell.
  if (!view.has_gpu()) subject.claimed = find_in_operators(subject, advice.findings);
  find_on_the_host(subject, advice.findings);
  find_on_gpus(subject, advice.findings);
  find_in_python(subject, advice.findings);
  find_by_looks(subject, advice.findings);
  find_growth(subject, advice.findings);
  if (advice.is_first_step) advice.findings.clear();
  // What a short script could gain is nothing beside its imports. Stretches of coroutines, between two waits, are no
  // latency of anything: little in all is nothing to gain.
  const bool is_brief = !view.has_steps() && view.step_ns() < timeline.imports.ns / 20;
  const bool is_idle = timeline.unit_is_part && view.all_ns() < (timeline.end - timeline.begin) / 20;
  if (is_brief || is_idle) std::erase_if(advice.findings, [](const Finding& f) { return f.cost_ns > 0; });
  for (Finding& f : advice.findings) f.source = source_of(timeline, f.where);
  if (!timeline.unit.empty() || timeline.steps.empty()) {
    advice.imports_ns = timeline.imports.first_ns;
    advice.imports_most = timeline.imports.most;
  }
  return advice;
}

}  // namespace torchprof::formats
