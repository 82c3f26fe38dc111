#include "formats/analysis/modules.h"

#include <algorithm>
#include <utility>

#include "formats/analysis/module_name.h"
#include "formats/io/sum.h"

namespace torchprof::formats {

ModuleCosts& ModuleCosts::operator+=(const ModuleCosts& other) {
  add_to(gpu_forward_self_ns, other.gpu_forward_self_ns);
  add_to(gpu_forward_total_ns, other.gpu_forward_total_ns);
  add_to(gpu_backward_self_ns, other.gpu_backward_self_ns);
  add_to(gpu_backward_total_ns, other.gpu_backward_total_ns);
  add_to(gpu_recompute_self_ns, other.gpu_recompute_self_ns);
  add_to(gpu_recompute_total_ns, other.gpu_recompute_total_ns);
  add_to(optimizer_ns, other.optimizer_ns);
  add_to(optimizer_gpu_ns, other.optimizer_gpu_ns);
  parameters = std::max(parameters, other.parameters);
  own_parameters = std::max(own_parameters, other.own_parameters);
  parameter_bytes = std::max(parameter_bytes, other.parameter_bytes);
  cpu_peak_bytes = std::max(cpu_peak_bytes, other.cpu_peak_bytes);
  gpu_peak_bytes = std::max(gpu_peak_bytes, other.gpu_peak_bytes);
  return *this;
}

ModuleTally& ModuleTally::operator+=(const ModuleTally& other) {
  if (path.empty()) path = other.path;
  if (parent.empty()) parent = other.parent;
  calls += other.calls;
  add_to(forward_self_ns, other.forward_self_ns);
  add_to(forward_total_ns, other.forward_total_ns);
  add_to(backward_self_ns, other.backward_self_ns);
  add_to(backward_total_ns, other.backward_total_ns);
  add_to(recompute_self_ns, other.recompute_self_ns);
  add_to(recompute_total_ns, other.recompute_total_ns);
  if (other.costs) costs = costs ? * costs += *other.costs : *other.costs;
  return *this;
}

ModuleCollector::Module& ModuleCollector::at(uint32_t module) {
  if (module >= modules_.size()) modules_.resize(std::max<size_t>(module + size_t{1}, modules_.size() * 2));
  return modules_[module];
}

void ModuleCollector::define(uint32_t module, std::string_view name, std::string_view path, std::string_view root) {
  Module& m = at(module);
  if (!m.name.empty()) return;
  m.name = name;
  m.root = root;
  m.tally.path = path;
}

void ModuleCollector::call(uint32_t module, uint32_t caller, int64_t duration, int64_t self_ns, bool outermost) {
  Module& m = at(module);
  ++m.tally.calls;
  if (!std::exchange(m.is_called, true)) m.caller = caller;
  add_to(m.tally.forward_self_ns, self_ns);
  if (outermost) add_to(m.tally.forward_total_ns, duration);
}

void ModuleCollector::backward(uint32_t module, int64_t self_ns) { add_to(at(module).tally.backward_self_ns, self_ns); }

void ModuleCollector::recompute(uint32_t module, uint32_t caller, int64_t self_ns) {
  Module& m = at(module);
  if (!std::exchange(m.is_called, true)) m.caller = caller;
  add_to(m.tally.recompute_self_ns, self_ns);
}

std::string ModuleCollector::stable_name(uint32_t module) const {
  const Module& m = modules_[module];
  return stable_module_name(m.name, m.tally.path);
}

std::string ModuleCollector::place(std::string_view root, std::string_view path) {
  return std::string(root).append(1, '\0').append(path);
}

// The nearest module that holds it; 0: none. One without a path is held by the module that first called it.
uint32_t ModuleCollector::holder(uint32_t module, const Places& places) const {
  const Module& m = modules_[module];
  if (m.tally.path.empty()) return m.caller;
  return find_holder(m.tally.path, [&](std::string_view path) {
    const auto it = places.find(place(m.root, path));
    return it == places.end() ? 0 : it->second;
  });
}

// Adds `ns` to this total of the module and of all that it is part of.
void ModuleCollector::roll_up(uint32_t module, int64_t ns, int64_t ModuleTally::*total, const Places& places) {
  // First callers may form a cycle: each module gets the time once. No path is kDeepest long.
  constexpr int kDeepest = 256;
  std::vector<uint32_t> passed;
  for (uint32_t m = module; ns != 0 && m != 0 && passed.size() < kDeepest; m = holder(m, places)) {
    if (std::ranges::find(passed, m) != passed.end()) break;
    add_to(modules_[m].tally.*total, ns);
    passed.push_back(m);
  }
}

ModuleTallies ModuleCollector::finish() {
  Places places;
  for (uint32_t i = 1; i < modules_.size(); ++i) {
    if (!modules_[i].name.empty()) places.emplace(place(modules_[i].root, modules_[i].tally.path), i);
  }
  for (uint32_t i = 1; i < modules_.size(); ++i)
    if (const uint32_t parent = modules_[i].name.empty() ? 0 : holder(i, places); parent != 0)
      modules_[i].tally.parent = modules_[parent].name;
  for (uint32_t i = 1; i < modules_.size(); ++i) {
    roll_up(i, modules_[i].tally.backward_self_ns, &ModuleTally::backward_total_ns, places);
    roll_up(i, modules_[i].tally.recompute_self_ns, &ModuleTally::recompute_total_ns, places);
  }
  ModuleTallies tallies;
  for (Module& m : modules_) {
    if (!m.name.empty()) tallies[m.name] += m.tally;
  }
  return tallies;
}

}  // namespace torchprof::formats
