#include "formats/analysis/module_costs.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "formats/io/sum.h"
#include "formats/replay/thread_stack.h"

namespace torchprof::formats {

ModuleCostCollector::Cost& ModuleCostCollector::at(ObjectId module) {
  if (module.value >= costs_.size()) costs_.resize(std::max<size_t>(module.value + size_t{1}, costs_.size() * 2));
  return costs_[module.value];
}

bool ModuleCostCollector::is_optimizer(ObjectId object) const {
  const ObjectDef* def = object ? names_.object(object) : nullptr;
  return def != nullptr && def->kind == ObjectKind::kOptimizer;
}

void ModuleCostCollector::slice(const Slice& s) {
  if (s.kind == SliceKind::kPython && s.outermost && is_optimizer(s.object))
    add_to(optimizers_[s.object.value].ns, s.end - s.begin);
}

void ModuleCostCollector::gpu(const GpuActivity& a) {
  if (a.call == nullptr) return;
  const int64_t ns = a.end - a.begin;
  const ThreadStack& stack = *a.call->stack;
  if (names_.object(a.call->module) != nullptr) {
    Cost& cost = at(a.call->module);
    add_to(a.call->is_backward    ? cost.gpu_backward_self
           : a.call->is_recompute ? cost.gpu_recompute_self
                                  : cost.gpu_forward_self,
           ns);
  }
  for (int32_t i = stack.top_python(); i >= 0; i = stack[i].below_python) {
    const Span& span = stack[i];
    if (!span.object || !span.outermost) continue;
    if (span.is_module_call && !span.is_recompute && !a.call->is_backward && !a.call->is_recompute)
      add_to(at(span.object).gpu_forward_total, ns);
    if (is_optimizer(span.object)) add_to(optimizers_[span.object.value].gpu_ns, ns);
  }
}

void ModuleCostCollector::memory(ObjectId module, bool is_cpu, int64_t bytes) {
  for (ObjectId m = module; names_.object(m) != nullptr; m = tree_.holder(m)) {
    Cost& cost = at(m);
    int64_t &held = cost.held[is_cpu ? 0 : 1], &peak = cost.peak[is_cpu ? 0 : 1];
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 4;
    held = std::clamp(held + std::clamp(bytes, -kMost, kMost), -kMost, kMost);
    peak = std::max(peak, held);
  }
}

void ModuleCostCollector::roll_up() {
  const auto add_up = [this](int64_t Cost::*self, int64_t Cost::*total) {
    for (uint32_t i = 1; i < costs_.size(); ++i)
      if (const int64_t ns = costs_[i].*self; ns != 0)
        for (ObjectId m{i}; m; m = tree_.holder(m)) add_to(at(m).*total, ns);
  };
  add_up(&Cost::gpu_backward_self, &Cost::gpu_backward_total);
  add_up(&Cost::gpu_recompute_self, &Cost::gpu_recompute_total);
  for (const auto& [optimizer, time] : optimizers_) {
    for (const auto& [module, share] : tree_.shares({optimizer})) {
      at(module).optimizer_ns += share * static_cast<double>(time.ns);
      at(module).optimizer_gpu_ns += share * static_cast<double>(time.gpu_ns);
    }
  }
}

void ModuleCostCollector::put_into(ModuleTallies& tallies) {
  roll_up();
  for (uint32_t i = 1; i < process_.objects.size(); ++i) {
    const ObjectDef* def = names_.object({i});
    if (def == nullptr || def->kind != ObjectKind::kModule) continue;
    const auto tally = tallies.find(std::string(names_.text(names_.function({}, {i}))));
    if (tally == tallies.end()) continue;
    const ModuleTree::Holding holding = tree_.holding({i});
    const Cost cost = i < costs_.size() ? costs_[i] : Cost{};
    tally->second.costs = ModuleCosts{.gpu_forward_self_ns = cost.gpu_forward_self,
                                      .gpu_forward_total_ns = cost.gpu_forward_total,
                                      .gpu_backward_self_ns = cost.gpu_backward_self,
                                      .gpu_backward_total_ns = cost.gpu_backward_total,
                                      .gpu_recompute_self_ns = cost.gpu_recompute_self,
                                      .gpu_recompute_total_ns = cost.gpu_recompute_total,
                                      .optimizer_ns = std::llround(cost.optimizer_ns),
                                      .optimizer_gpu_ns = std::llround(cost.optimizer_gpu_ns),
                                      .parameters = holding.parameters,
                                      .own_parameters = holding.own,
                                      .parameter_bytes = holding.bytes,
                                      .cpu_peak_bytes = cost.peak[0],
                                      .gpu_peak_bytes = cost.peak[1]};
  }
}

}  // namespace torchprof::formats
