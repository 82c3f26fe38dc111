#include "formats/advice/thread_use.h"

#include <algorithm>
#include <charconv>

#include "formats/io/median.h"
#include "formats/io/sum.h"
#include "formats/timeline/thread_looks.h"

namespace torchprof::formats {
namespace {

std::optional<int64_t> typical(const std::vector<int64_t>& by_step, const std::vector<bool>& is_known) {
  std::vector<int64_t> known;
  for (size_t i = 0; i < by_step.size(); ++i)
    if (is_known[i]) known.push_back(by_step[i]);
  if (known.empty() || known.size() * 2 < by_step.size()) return std::nullopt;
  return median_of(std::move(known));
}

int64_t share(int64_t ns, int64_t part, int64_t whole) {
  return static_cast<int64_t>(static_cast<double>(ns) * static_cast<double>(part) / static_cast<double>(whole));
}

// What looks at the thread in steps tell of the time that it had no processor.
void ask_looks(const StepView& view, ThreadUse& use) {
  const ThreadLooks looks(view.timeline(), view.main());
  ThreadAccount account;
  for (const TimelineSample* look : looks.all())
    if (view.begins_in_step(look->end)) looks.add(*look, look->begin, look->end, account);
  const int64_t all = account.all_ns();
  if (!account.is_enough() || all <= 0) return;
  use.queued_share = static_cast<double>(account.queued_ns) / static_cast<double>(all);
  use.looked_queued = share(view.typical_ns(), account.queued_ns, all);
}

}  // namespace

std::optional<int64_t> ThreadUse::typical_queued() const {
  const std::optional<int64_t> known = typical(queued, is_known);
  return known ? known : looked_queued;
}
std::optional<int64_t> ThreadUse::typical_slept() const { return typical(slept, is_known); }

ThreadUse thread_use_of(const StepView& view) {
  const Timeline& timeline = view.timeline();
  const std::vector<StepSpan>& steps = view.steps();
  ThreadUse use{.queued = std::vector<int64_t>(steps.size()),
                .slept = std::vector<int64_t>(steps.size()),
                .is_known = std::vector<bool>(steps.size())};
  if (!view.has_main()) return use;
  const std::string& thread = timeline.rows[view.main()].thread;  // "4711 (name)"
  uint32_t tid = 0;
  std::from_chars(thread.data(), thread.data() + thread.size(), tid);
  std::vector<int64_t> covered(steps.size());
  int64_t wall = 0, ran = 0;
  for (const StepUse& u : timeline.step_use) {
    if (u.tid != tid || !u.knows_queued || u.ns() <= 0) continue;
    auto step = std::ranges::upper_bound(steps, u.begin, {}, &StepSpan::end);
    for (; step != steps.end() && step->begin < u.end; ++step) {
      const auto at = static_cast<size_t>(step - steps.begin());
      const int64_t part = std::min(u.end, step->end) - std::max(u.begin, step->begin);
      add_to(covered[at], part);
      add_to(use.queued[at], share(u.queued_ns, part, u.ns()));
      add_to(use.slept[at], share(u.slept_ns(), part, u.ns()));
      add_to(wall, part);
      add_to(ran, share(u.process_ran_ns, part, u.ns()));
    }
  }
  for (size_t i = 0; i < steps.size(); ++i) use.is_known[i] = covered[i] * 10 >= (steps[i].end - steps[i].begin) * 9;
  int64_t queued = 0;
  for (const int64_t ns : use.queued) add_to(queued, ns);
  if (wall > 0) {
    use.process_ran = static_cast<double>(ran) / static_cast<double>(wall);
    use.queued_share = static_cast<double>(queued) / static_cast<double>(wall);
  }
  int64_t machine = 0, others = 0, of_process = 0;
  for (const MachineUse& m : timeline.machine_use) {
    const int64_t part = view.in_steps(m.begin, m.end);
    if (part <= 0 || m.ns() <= 0) continue;
    add_to(machine, part);
    add_to(others, share(m.others_ns(), part, m.ns()));
    add_to(of_process, share(m.process_ran_ns, part, m.ns()));
    use.operator_threads = std::max(use.operator_threads, m.operator_threads);
    use.processors = m.allowed != 0 ? std::min(m.allowed, m.processors) : m.processors;
  }
  if (machine == 0) return use;
  use.others_ran = static_cast<double>(others) / static_cast<double>(machine);
  if (typical(use.queued, use.is_known)) return use;
  use.process_ran = static_cast<double>(of_process) / static_cast<double>(machine);
  ask_looks(view, use);
  return use;
}

double busy_share_of(const StepView& view) {
  if (!view.has_main()) return 0;
  const RowView& row = view.rows()[view.main()];
  const std::vector<TimelineSpan>& spans = view.timeline().rows[view.main()].spans;
  int64_t worked = 0, recorded = 0;
  for (size_t i = 0; i < spans.size(); ++i) {
    if (row.activity[i] != Activity::kWaiting) add_to(worked, row.own[i]);
    if (spans[i].parent == kNoSpan) add_to(recorded, view.in_steps(spans[i].begin, spans[i].end));
  }
  return recorded <= 0 ? 0 : static_cast<double>(worked) / static_cast<double>(recorded);
}

}  // namespace torchprof::formats
