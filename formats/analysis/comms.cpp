#include "formats/analysis/comms.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "formats/io/sum.h"
#include "formats/values/collectives.h"
#include "formats/values/inputs.h"

namespace torchprof::formats {
namespace {

constexpr uint64_t kMostBytesOfCall = uint64_t{1} << 50;  // more than that comes from a damaged record

uint64_t bytes_of(int64_t elements, uint8_t type) {
  return elements <= 0 ? 0 : std::min(static_cast<uint64_t>(elements), kMostBytesOfCall) * element_size(type);
}

// 0: not known.
uint64_t bytes_of(std::string_view inputs) {
  if (is_cut(inputs)) return 0;
  uint64_t bytes = 0;
  for (const Input& input : decode_inputs(inputs)) {
    for (const Tensor& tensor : input.tensors) {
      uint64_t elements = element_size(tensor.type);
      for (const int64_t size : tensor.sizes) {
        if (size <= 0) elements = 0;
        if (elements == 0) break;
        elements = static_cast<uint64_t>(size) > kMostBytesOfCall / elements ? kMostBytesOfCall
                                                                             : elements * static_cast<uint64_t>(size);
      }
      bytes = std::min(kMostBytesOfCall, bytes + elements);
    }
  }
  return bytes;
}

}  // namespace

bool is_backend_range(std::string_view name) {
  constexpr std::array<std::string_view, 3> kBackends = {"gloo:", "mpi:", "ucc:"};
  return std::ranges::any_of(kBackends, [name](std::string_view backend) { return name.starts_with(backend); });
}

bool is_work_range(std::string_view name) {
  return is_backend_range(name) || name.starts_with("nccl:") || name.starts_with("xccl:");
}

void CommsCollector::slice(const Slice& s, std::string_view name) {
  if (s.kind != SliceKind::kOperator) return;
  if (s.collective) {
    Collective c;
    if (!decode_collective(process_.string(s.collective), c)) return;
    // The step of the call, not of its kernels: these run behind it, not equally far in all processes.
    CommsCall call{s.begin.value, s.end.value, bytes_of(std::max(c.in_elements, c.out_elements), c.type),
                   step_of(s.begin.value)};
    if (const auto kernels = kernels_.find(s.external_id); kernels != kernels_.end()) {
      std::tie(call.begin, call.end) = kernels->second;
      kernels_.erase(kernels);
    }
    const std::string ranks = text_of(c.ranks);
    calls_[{c.name, c.description.empty() ? c.group : c.description, c.group + ":" + ranks, ranks}].push_back(call);
    return;
  }
  if (s.name.value >= is_range_.size()) is_range_.resize(std::max<size_t>(s.name.value + 1, is_range_.size() * 2));
  int8_t& is_range = is_range_[s.name.value];
  if (is_range == 0) {
    is_range = is_backend_range(name) ? 1 : -1;
  }
  if (is_range < 0) return;
  calls_[{std::string(name)}].push_back(
      {s.begin.value, s.end.value, bytes_of(process_.string(s.inputs)), step_of(s.begin.value)});
}

void CommsCollector::gpu(const GpuActivity& a) {
  if (a.call == nullptr || !a.call->collective) return;
  const auto [it, is_first] = kernels_.try_emplace(a.call->external_id, a.begin.value, a.end.value);
  if (is_first) return;
  it->second.first = std::min(it->second.first, a.begin.value);
  it->second.second = std::max(it->second.second, a.end.value);
}

int64_t CommsCollector::step_of(int64_t begin) const {
  if (process_.windows.empty() || process_.timed_steps().empty()) return 0;
  const auto step = std::ranges::upper_bound(process_.steps, begin, {}, [](const StepTime& s) { return s.end.value; });
  constexpr uint64_t kMostSteps = uint64_t{1} << 48;  // more than that comes from a damaged record
  return step != process_.steps.end() && step->in_full && step->step < kMostSteps ? static_cast<int64_t>(step->step) + 1
                                                                                  : -1;
}

CommsCalls CommsCollector::finish() {
  for (auto& [kind, calls] : calls_) std::ranges::stable_sort(calls, {}, &CommsCall::begin);
  return std::move(calls_);
}

namespace {

using StepCalls = std::vector<const CommsCall*>;

struct ProcessCalls {
  size_t process;
  const std::vector<CommsCall>* calls;
  std::map<int64_t, StepCalls> steps{};  // without -1
};

struct Compared {
  size_t process;
  uint64_t was_last = 0;
  Intervals waits{};
};

// The nth calls of one step, as far as all processes have them. `compared`: one for each process.
void compare_step(const std::vector<const StepCalls*>& lists, const CommsCounts& counts, CommsTally& tally,
                  std::vector<Compared>& compared) {
  const size_t shared = (*std::ranges::min_element(lists, {}, [](const StepCalls* l) { return l->size(); }))->size();
  StepCalls calls(lists.size());
  for (size_t n = 0; n < shared; ++n) {
    for (size_t i = 0; i < lists.size(); ++i) calls[i] = (*lists[i])[n];
    const auto last = std::ranges::max_element(calls, {}, [](const CommsCall* c) { return c->begin; });
    Compared& slowest = compared[static_cast<size_t>(last - calls.begin())];
    if (counts && !counts(slowest.process, (*last)->begin)) continue;
    ++tally.compared;
    ++slowest.was_last;
    for (size_t i = 0; i < lists.size(); ++i) {
      const int64_t waited = std::min((*last)->begin, calls[i]->end) - calls[i]->begin;
      add_to(tally.waiting_ns, waited);
      compared[i].waits.add(calls[i]->begin, calls[i]->begin + waited);
    }
  }
}

}  // namespace

std::map<CommsKind, CommsTally> compare(const std::vector<const CommsCalls*>& processes, const CommsCounts& counts) {
  std::map<CommsKind, CommsTally> tallies;
  std::map<CommsKind, std::vector<ProcessCalls>> kinds;
  for (size_t i = 0; i < processes.size(); ++i)
    for (const auto& [kind, calls] : *processes[i]) kinds[kind].push_back({i, &calls});
  for (auto& [kind, lists] : kinds) {
    CommsTally& tally = tallies[kind];
    for (const ProcessCalls& list : lists) {
      tally.calls += list.calls->size();
      for (const CommsCall& call : *list.calls) {
        tally.bytes += call.bytes;
        add_to(tally.total_ns, call.end - call.begin);
      }
    }
    if (lists.size() < 2) continue;
    std::vector<Compared> compared;
    for (ProcessCalls& list : lists) {
      compared.push_back({list.process});
      for (const CommsCall& call : *list.calls)
        if (call.step >= 0) list.steps[call.step].push_back(&call);
    }
    for (const auto& [step, first] : lists.front().steps) {
      std::vector<const StepCalls*> those;
      for (const ProcessCalls& list : lists)
        if (const auto calls = list.steps.find(step); calls != list.steps.end()) those.push_back(&calls->second);
      if (those.size() == lists.size()) compare_step(those, counts, tally, compared);
    }
    const auto slowest = std::ranges::max_element(compared, {}, &Compared::was_last);
    tally.slowest = slowest->process;
    tally.slowest_calls = slowest->was_last;
    for (Compared& each : compared) {
      each.waits.settle();
      tally.waits.push_back({each.process, std::move(each.waits)});
    }
  }
  return tallies;
}

}  // namespace torchprof::formats
