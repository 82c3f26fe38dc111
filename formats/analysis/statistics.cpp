#include "formats/analysis/statistics.h"

#include <algorithm>
#include <optional>
#include <span>

#include "formats/analysis/module_costs.h"
#include "formats/gpu/cuda_api.h"
#include "formats/gpu/occupancy.h"
#include "formats/io/sum.h"
#include "formats/memory/owners.h"
#include "formats/replay/replay.h"
#include "formats/replay/thread_stack.h"
#include "formats/trace/gpu_index.h"
#include "formats/trace/name_role.h"
#include "formats/trace/windows.h"
#include "formats/values/flops.h"

namespace torchprof::formats {
namespace {

class CollectingSink final : public Sink {
 public:
  CollectingSink(const Process& process, Replay& replay, const StatisticsRequest& request,
                 std::optional<StepSampler> sampler)
      : flops_(process), process_(process), replay_(replay) {
    if (!request.grouping.is_plain()) groups_.emplace(process, replay, request.grouping);
    if (request.has_step_parts) step_parts_.emplace();
    if (request.has_comms) comms_.emplace(process);
    if (request.has_threads) threads_.emplace();
    if (request.has_lines && PythonLines::are_in(process)) lines_.emplace(process, replay);
    if (request.has_module_costs) {
      module_costs_.emplace(process, replay.names());
      memory_.on_change = [this](uint32_t module, bool is_cpu, int64_t bytes) {
        module_costs_->memory(owners_.module(module), is_cpu, bytes);
      };
    }
    collector_.sampler = std::move(sampler);
    if (process.counts.python != 0) collector_.has_calls();
  }
  void slice(const Slice& s) override {
    collector_.add(s.kind == SliceKind::kOperator, s.name.value, replay_.names().text(s.name), s.begin.value,
                   s.end.value, s.self_ns - s.calls_ns, s.outermost);
    if (!s.finished) collector_.cut_last();
    const uint64_t flops = flops_.of(s.name, replay_.names().text(s.name), s.inputs);
    if (flops != 0) collector_.add_flops(s.name.value, flops);
    if (groups_ && s.kind == SliceKind::kOperator) groups_->slice(s, flops);
    if (step_parts_) step_parts_->slice(s, replay_.names().text(s.name));
    if (comms_) comms_->slice(s, replay_.names().text(s.name));
    if (threads_) threads_->slice(s);
    if (module_costs_) module_costs_->slice(s);
    if (lines_) lines_->slice(s);
    add_module(s);
  }
  void memory(const MemoryEvent& e) override {
    memory_.add(change_of(e, owners_.of(e)));
    if (e.is_out_of_memory) return;
    if (collector_.sampler)
      if (const uint32_t m = module(e.module); m != 0) collector_.sample_module_memory(m, e.time.value, e.bytes);
    if (!e.op) return;
    if (groups_) groups_->memory(e);
    collector_.add_memory(e.op.value, e.time.value, e.bytes, e.device_type == 0);
    const ThreadStack& stack = *e.stack;
    for (int32_t i = stack.innermost_op(); i >= 0; i = stack.op_around(i))
      if (stack[i].outermost) collector_.add_memory_total(stack[i].name.value, e.bytes, e.device_type == 0);
  }
  void python_memory(const MemoryEvent& e) override { memory_.add(change_of(e, owners_.of(e))); }
  void gpu_call(const GpuCall& c) override {
    const int64_t ns = c.end - c.begin;
    if (step_parts_ && c.stack->size() == 0)
      step_parts_->add({.kind = StepPartsCollector::Kind::kOther,
                        .thread = c.row,
                        .name = c.name.value,
                        .begin = c.begin.value,
                        .end = c.end.value,
                        .is_outermost = true,
                        .is_in_operator = false},
                       {});
    collector_.add_call(c.name.value, replay_.names().text(c.name), c.begin.value, c.end.value, ns,
                        c.stack->innermost_op() >= 0 ? ns : 0);
    const FirstUse use = first_use(c.api->api, c.api->cbid);
    if (use != FirstUse::kNone && c.op >= 0)
      collector_.add_first_use((*c.stack)[c.op].name.value, c.end - c.begin, use == FirstUse::kLoads);
  }
  void gpu_activity(const GpuActivity& a) override {
    if (!runs_on_device(a.kind)) return;
    if (step_parts_)
      step_parts_->work(a.begin.value, a.end.value, a.kind == Kind::GpuKernel, replay_.names().text(a.name));
    if (comms_) comms_->gpu(a);
    if (threads_) threads_->gpu(a);
    if (module_costs_) module_costs_->gpu(a);
    if (lines_) lines_->gpu(a);
    Occupancy occupancy;
    if (a.kind == Kind::GpuKernel) {
      const auto& devices = process_.gpu->devices();
      const auto device = devices.find(a.device);
      occupancy = occupancy_of(a.as<GpuKernel>(), device == devices.end() ? nullptr : &device->second);
    }
    gpu_.add({.name = a.name.value,
              .device = a.device,
              .is_kernel = a.kind == Kind::GpuKernel,
              .begin = a.begin.value,
              .end = a.end.value,
              .blocks_per_sm = occupancy.blocks_per_sm,
              .occupancy = occupancy.achieved});
    collector_.sample_kernel(a.name.value, a.begin.value, a.end - a.begin);
    if (a.call == nullptr) return;
    const ThreadStack& stack = *a.call->stack;
    if (groups_) groups_->gpu(stack, a.call->row, a.call->op, a.end - a.begin);
    if (a.call->op >= 0) collector_.add_gpu_self(stack[a.call->op].name.value, a.end - a.begin);
    // Annotations, too: a CUDA graph and a kernel of Triton's may be launched in no operator.
    for (int32_t i = stack.innermost_op(); i >= 0; i = stack.op_around(i))
      if (stack[i].outermost) collector_.add_gpu_total(stack[i].name.value, a.end - a.begin);
  }
  GpuStatistics finish_gpu() {
    int64_t captured = 0;
    for (const Window& w : process_.windows) add_to(captured, w.end - w.begin);
    if (process_.windows.empty()) captured = process_.capture_end - process_.start;
    GpuStatistics gpu = gpu_.finish(captured, [this](uint32_t name) { return replay_.names().text({name}); });
    for (GpuDeviceUse& use : gpu.devices) {
      const auto device = process_.gpu->devices().find(use.device);
      if (device != process_.gpu->devices().end()) use.name = process_.string(device->second.name);
    }
    return gpu;
  }
  Statistics finish() {
    std::vector<DeviceMemory> devices = memory_.finish([this](uint32_t id) { return owners_.text(id); });
    Statistics result = collector_.finish({}, std::move(devices),
                                          [this](uint32_t name) { return std::string(replay_.names().text({name})); });
    const Names& names = replay_.names();
    for (NameId name{1}; name.value <= names.size(); ++name.value)
      if (names.is_program(name)) result.own_functions.emplace(names.text(name));
    if (groups_) result.op_groups = groups_->finish();
    if (step_parts_) result.step_parts = step_parts_->finish(result.steps.spans);
    if (comms_) result.comms = comms_->finish();
    if (threads_) result.threads = threads_->finish(replay_.rows());
    if (module_costs_) module_costs_->put_into(result.modules);
    if (lines_) result.lines = lines_->finish();
    return result;
  }
  void step(const StepMark& m) override {
    const std::string_view by = m.ended_by ? replay_.names().text(m.ended_by) : std::string_view{};
    collector_.step(m.number, m.begin.value, m.end.value, by);
  }

 private:
  uint32_t module(ObjectId id) {
    if (!id || replay_.names().object(id) == nullptr) return 0;
    const NameId name = replay_.names().function({}, id);
    if (!collector_.modules.is_defined(name.value)) {
      const ObjectId root = process_.root(id);
      collector_.modules.define(name.value, replay_.names().text(name), process_.path(id),
                                root ? replay_.names().text(replay_.names().function({}, root)) : std::string_view{});
    }
    return name.value;
  }

  void add_module(const Slice& s) {
    if (s.kind == SliceKind::kOperator) {
      if (!s.is_backward) return;
      const uint32_t m = module(s.module);
      if (m == 0) return;
      collector_.modules.backward(m, s.self_ns - s.recompute_ns);
      collector_.sample_module(m, s.begin.value, s.self_ns - s.recompute_ns, false);
    } else if (s.kind == SliceKind::kPython && s.object && s.object == s.module) {
      const uint32_t m = module(s.object);
      if (m == 0) return;
      collector_.sample_module(m, s.begin.value, s.module_self_ns, !s.is_recompute);
      if (s.is_recompute) return collector_.modules.recompute(m, module(s.calling_module), s.module_self_ns);
      collector_.modules.call(m, module(s.calling_module), s.end - s.begin, s.module_self_ns, s.outermost);
    }
  }

  Collector collector_;
  GpuCollector gpu_;
  Flops flops_;
  std::optional<OpGroupCollector> groups_;
  std::optional<StepPartsCollector> step_parts_;
  std::optional<CommsCollector> comms_;
  std::optional<ThreadCollector> threads_;
  std::optional<ModuleCostCollector> module_costs_;
  std::optional<LineCollector> lines_;
  MemoryCollector memory_;
  const Process& process_;
  Replay& replay_;
  MemoryOwners owners_{process_, replay_.names()};
};

}  // namespace

Statistics& Statistics::operator+=(const Statistics& other) {
  for (const auto& [name, tally] : other.operators) operators[name] += tally;
  for (const auto& [name, tally] : other.python) python[name] += tally;
  own_functions.insert(other.own_functions.begin(), other.own_functions.end());
  for (const auto& [name, tally] : other.calls) calls[name] += tally;
  merge(op_groups, other.op_groups);
  lines += other.lines;
  for (const auto& [name, tally] : other.modules) modules[name] += tally;
  if (other.steps.count > steps.count) {
    steps.count = other.steps.count;
    steps.ended_by = other.steps.ended_by;
  }
  steps.ns.insert(steps.ns.end(), other.steps.ns.begin(), other.steps.ns.end());
  steps.jumps += other.steps.jumps;
  slices += other.slices;
  unfinished += other.unfinished;
  add_to(operator_ns, other.operator_ns);
  add_to(python_ns, other.python_ns);
  gpu += other.gpu;
  samples += other.samples;
  return *this;
}

Collector::Named& Collector::named(bool is_operator, uint32_t name) {
  auto& list = named_[is_operator];
  if (name >= list.size()) list.resize(std::max<size_t>(name + 1, list.size() * 2));
  return list[name];
}

namespace {

// "torch/profiler/profiler.py(811): step" or "torchprof/_profile.py(148): step", as tracer/python/code.cpp knows them.
bool is_profiler_call(std::string_view text) {
  constexpr std::string_view kFile = "torch/profiler/profiler.py(", kOwnFile = "torchprof/_profile.py(",
                             kName = "): step";
  return text.ends_with(kName) && (text.find(kFile) != text.npos || text.find(kOwnFile) != text.npos);
}

}  // namespace

void Collector::add(bool is_operator, uint32_t name, std::string_view text, int64_t begin, int64_t end, int64_t self_ns,
                    bool outermost) {
  Named& n = named(is_operator, name);
  if (n.role == Role::kUnseen) {
    n.text = text;
    n.role = Role::kPlain;
    const NameRole role = role_of_name(text);
    if (is_operator && role == NameRole::kProfilerStep) n.role = Role::kProfilerStep;
    if (role == (is_operator ? NameRole::kOptimizerStep : NameRole::kOptimizer)) n.role = Role::kStepEnd;
    if (!is_operator && is_profiler_call(text)) n.role = Role::kProfilerCall;
  }
  ++slices_;
  if (sampler) sampler->time(is_operator ? Sampled::kOperator : Sampled::kPython, name, begin, self_ns);
  if (n.tally.calls == 0) n.tally.first_ns = self_ns;
  n.tally.add_call(self_ns, outermost ? end - begin : 0);
  is_mark_last_ = n.role == Role::kProfilerStep;
  if (n.role == Role::kProfilerCall) steps_.add_profiler_call(begin, end);
  if (n.role == Role::kProfilerStep) steps_.add(step_number(text).value_or(0), begin, end, "ProfilerStep");
  if (n.role == Role::kStepEnd && outermost) steps_.add_end(is_operator, name, end);
}

void Collector::add_call(uint32_t name, std::string_view text, int64_t begin, int64_t end, int64_t self_ns,
                         int64_t in_operator_ns) {
  if (name >= calls_.size()) calls_.resize(std::max<size_t>(name + size_t{1}, calls_.size() * 2));
  Called& called = calls_[name];
  if (called.tally.calls == 0) called.text = text;
  called.tally.add_call(self_ns, end - begin);
  add_to(in_operators_ns_, in_operator_ns);
  if (sampler) sampler->time(Sampled::kCall, name, begin, self_ns);
}

std::string Collector::sampled_text(Sampled kind, uint32_t name) const {
  if (kind == Sampled::kModule) return modules.stable_name(name);
  if (kind == Sampled::kCall) return calls_[name].text;
  const Named& named = named_[kind == Sampled::kOperator][name];
  return named.role == Role::kProfilerStep ? "ProfilerStep*" : named.text;
}

Statistics Collector::finish(const StepTimes::Slices& slices, std::vector<DeviceMemory> memory,
                             const std::function<std::string(uint32_t)>& kernel) {
  Statistics result;
  if (sampler)
    result.samples = sampler->finish([&](Sampled kind, uint32_t name) {
      return kind == Sampled::kKernel ? kernel(name) : sampled_text(kind, name);
    });
  result.memory = std::move(memory);
  for (DeviceMemory& device : result.memory) device.step = steps_.number_at(device.peak.value);
  result.slices = slices_;
  result.modules = modules.finish();
  for (const bool is_operator : {false, true}) {
    for (Named& n : named_[is_operator]) {
      if (n.role == Role::kUnseen) continue;
      // Each of them has a name of its own, so all would be first ones.
      if (n.role == Role::kProfilerStep) n.tally.first_ns = 0;
      if (is_operator)
        result.operators[n.role == Role::kProfilerStep ? "ProfilerStep*" : n.text] += n.tally;
      else
        result.python[n.text] += n.tally;
      add_to(is_operator ? result.operator_ns : result.python_ns, n.tally.self_ns);
    }
  }
  add_to(result.operator_ns, in_operators_ns_);
  for (const Called& called : calls_)
    if (called.tally.calls != 0) result.calls[called.text] += called.tally;
  result.steps =
      steps_.finish(slices, [this](bool is_annotation, uint32_t name) { return named_[is_annotation][name].text; });
  return result;
}

bool lies_in_unusual_window(const Process& process, const StepSpan& span) {
  const Window* const window = window_after(process, span.begin);
  if (window == nullptr || window->begin.value >= span.end) return false;
  return window->reason != WindowReason::kNone && window->reason != WindowReason::kStart &&
         window->reason != WindowReason::kTypical && window->reason != WindowReason::kLast;
}

namespace {

Statistics collect(const Process& process, const StatisticsRequest& request, std::optional<StepSampler> sampler) {
  Replay replay(process);
  CollectingSink sink(process, replay, request, std::move(sampler));
  const ReplayStats stats = replay.run(sink);
  Statistics result = sink.finish();
  result.unfinished = stats.unfinished;
  result.gpu = sink.finish_gpu();
  return result;
}

// Only the steps to which windows have added nothing: what they add is not the program's.
void add_every_step(const Process& process, size_t warmup, StepSamples& samples) {
  if (process.windows.empty()) return;
  const std::span<const StepTime> steps = process.timed_steps();
  std::vector<int64_t> ns;
  for (size_t i = warmup; i < steps.size(); ++i)
    if (const StepTime& step = steps[i]; step.ns > 0 && step.is_free) {
      ns.push_back(step.ns);
      samples.every_steps += !step.in_full;
    }
  samples.every_ns = durations_of(ns);
}

}  // namespace

namespace {

// The steps that stand for all of a run of which -w auto kept a part: those of typical windows, or where they are too
// few also those of the beginning.
std::optional<StepSampler> typical_steps(const Process& process) {
  if (process.windows.empty() || process.timed_steps().empty()) return {};
  constexpr size_t kFewest = 6;
  std::vector<StepSpan> typical, early;
  for (const StepTime& step : process.steps) {
    if (!step.in_full || step.ns <= 0) continue;
    const auto window = std::ranges::lower_bound(process.windows, step.window, {}, &Window::number);
    if (window == process.windows.end() || window->number != step.window) continue;
    const StepSpan span{step.end.value - step.ns, step.end.value, step.step};
    if (window->reason == WindowReason::kTypical) typical.push_back(span);
    if (window->reason == WindowReason::kStart) early.push_back(span);
  }
  if (typical.size() < kFewest) typical.insert(typical.end(), early.begin(), early.end());
  return StepSampler(std::move(typical), 0);
}

}  // namespace

Statistics statistics_of(const Process& process, const StatisticsRequest& request) {
  return collect(process, request, typical_steps(process));
}

PartTimes typical_parts_of(const Process& process, const std::vector<StepParts>& parts) {
  return typical_parts(usual_of(process, parts, &StepParts::step));
}

Statistics sampled_statistics_of(const Process& process, size_t warmup) {
  std::vector<StepSpan> spans = collect(process, {}, {}).steps.spans;
  std::erase_if(spans, [&](const StepSpan& span) { return lies_in_unusual_window(process, span); });
  Statistics result = collect(process, {.has_step_parts = true}, StepSampler(std::move(spans), warmup));
  add_every_step(process, warmup, result.samples);
  return result;
}

}  // namespace torchprof::formats
