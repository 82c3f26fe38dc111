#include "formats/analysis/step_use.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "formats/io/sum.h"

namespace torchprof::formats {
namespace {

// Of a total that only grows; none: it did not.
std::optional<int64_t> grown(uint64_t before, uint64_t now) {
  if (now < before) return {};
  return static_cast<int64_t>(std::min<uint64_t>(now - before, kLatest));
}

// The last one at this time or before; null: there is none.
template <class T>
const T* last_at(const std::vector<T>& sorted, UnixNs at) {
  const auto after = std::ranges::upper_bound(sorted, at, {}, &T::at);
  return after == sorted.begin() ? nullptr : &*std::prev(after);
}

}  // namespace

std::vector<StepUse> step_use_of(const Process& process) {
  std::vector<StepUse> uses;
  std::unordered_map<uint32_t, const UsedByStep*> last;  // by tid
  for (const UsedByStep& now : process.used_by_steps) {
    const UsedByStep* const before = std::exchange(last[now.tid], &now);
    if (before == nullptr || now.at <= before->at) continue;
    const auto ran = grown(before->ran, now.ran), process_ran = grown(before->process_ran, now.process_ran);
    const auto queued = before->queued && now.queued ? grown(*before->queued, *now.queued) : std::nullopt;
    if (!ran || !process_ran) continue;
    StepUse& use = uses.emplace_back();
    use.begin = before->at.value;
    use.end = now.at.value;
    use.tid = now.tid;
    const auto steps_until = [&](UnixNs at) {
      return std::ranges::upper_bound(process.steps, at, {}, &StepTime::end) - process.steps.begin();
    };
    use.steps = static_cast<uint64_t>(std::max<int64_t>(0, steps_until(now.at) - steps_until(before->at)));
    use.ran_ns = std::min(*ran, use.ns());
    use.knows_queued = queued.has_value();
    use.queued_ns = std::min(queued.value_or(0), use.ns() - use.ran_ns);
    use.process_ran_ns = *process_ran;
    const ResidentSize* const resident = last_at(process.resident, now.at);
    use.resident_bytes = resident != nullptr ? resident->bytes : 0;
  }
  std::ranges::stable_sort(uses, {}, &StepUse::end);
  return uses;
}

std::vector<MachineUse> machine_use_of(const Process& process) {
  std::vector<MachineUse> uses;
  const UsedByMachine* before = nullptr;
  for (const UsedByMachine& now : process.used_by_machine) {
    const UsedByMachine* const first = std::exchange(before, &now);
    if (first == nullptr || now.at <= first->at || now.processors != first->processors) continue;
    const auto idle = grown(first->idle, now.idle);
    // Both were read right after the process's own.
    const UsedByStep* const from = last_at(process.used_by_steps, first->at);
    const UsedByStep* const to = last_at(process.used_by_steps, now.at);
    if (!idle || from == nullptr || to == nullptr) continue;
    const auto ran = grown(from->process_ran, to->process_ran);
    if (!ran) continue;
    MachineUse& use = uses.emplace_back();
    use.begin = first->at.value;
    use.end = now.at.value;
    use.processors = now.processors;
    use.allowed = now.allowed;
    use.operator_threads = now.operator_threads;
    int64_t all = 0;
    if (__builtin_mul_overflow(use.ns(), int64_t{now.processors}, &all)) all = kLatest;
    use.busy_ns = std::max<int64_t>(0, all - *idle);
    use.process_ran_ns = std::min(*ran, use.busy_ns);
  }
  return uses;
}

}  // namespace torchprof::formats
