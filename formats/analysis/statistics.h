// Adds up slices by name and by step. Self, total, calls and step are defined in formats/report/summary.h.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "formats/analysis/gpu_statistics.h"
#include "formats/analysis/modules.h"
#include "formats/analysis/op_groups.h"
#include "formats/analysis/python_lines.h"
#include "formats/analysis/step_parts.h"
#include "formats/analysis/tally.h"
#include "formats/analysis/thread_statistics.h"
#include "formats/io/sum.h"
#include "formats/memory/categories.h"
#include "formats/memory/growth.h"
#include "formats/memory/memory.h"
#include "formats/ranks/calls.h"
#include "formats/replay/step_samples.h"
#include "formats/replay/steps.h"
#include "formats/trace/trace.h"

namespace torchprof::formats {

struct Statistics {
  Tallies operators;                              // and annotations; all ProfilerStep#N are one, "ProfilerStep*"
  CallTallies python;                             // functions, module and optimizer calls, C calls
  std::unordered_set<std::string> own_functions;  // those of them that are the program's (formats/trace/names.h)
  CallTallies calls;                              // of the CUDA runtime and driver; self: without calls inside
  OpGroups op_groups;                             // as asked for
  LineTallies lines;
  ModuleTallies modules;
  Steps steps;
  uint64_t slices = 0;
  uint64_t unfinished = 0;
  int64_t operator_ns = 0;  // sum of self times, with calls of CUDA in operators
  int64_t python_ns = 0;
  GpuStatistics gpu;
  // Empty in a sum over processes.
  std::vector<DeviceMemory> memory;
  // Those of a run want to know its steps or its peaks: a report makes them by a replay after this one.
  std::vector<MemoryGrowth> growth;
  PeakCategories memory_categories;
  std::vector<StepParts> step_parts;
  CommsCalls comms;
  std::vector<ThreadTally> threads;
  StepSamples samples;  // if asked for; of a run in windows of -w auto always, of its typical steps
  // Makes a sum over processes. Steps: times and jumps of all; the count is that of the process with the most steps.
  Statistics& operator+=(const Statistics& other);
};

// Parts that cost time or memory of their own and are made only on request.
struct StatisticsRequest {
  OpGrouping grouping{};  // kName: no op_groups
  bool has_step_parts = false;
  bool has_comms = false;
  bool has_threads = false;
  bool has_module_costs = false;
  bool has_lines = false;
};

// Whether the step lies in a window that opened because something was unusual.
bool lies_in_unusual_window(const Process& process, const StepSpan& span);
// The steps, or what else has a span `span_of`, that do not lie in such a window; all, if fewer than two do not.
template <class T, class SpanOf>
std::vector<T> usual_of(const Process& process, const std::vector<T>& all, SpanOf span_of) {
  std::vector<T> usual = all;
  std::erase_if(usual, [&](const T& each) { return lies_in_unusual_window(process, std::invoke(span_of, each)); });
  return usual.size() < 2 ? all : usual;
}

// The account of a typical step. Those in windows that opened because something was unusual do not count, if there are
// others.
PartTimes typical_parts_of(const Process& process, const std::vector<StepParts>& parts);

// By one replay.
Statistics statistics_of(const Process& process, const StatisticsRequest& request = {});
// With samples of all steps but the first `warmup` ones. Replays the process twice.
Statistics sampled_statistics_of(const Process& process, size_t warmup);

// Collects slices. Names are small dense numbers of the caller's choice.
class Collector {
 public:
  // `text` counts only the first time that `name` comes. Slices of one thread come in the order of their ends.
  void add(bool is_operator, uint32_t name, std::string_view text, int64_t begin, int64_t end, int64_t self_ns,
           bool outermost);
  // A call of CUDA. `self_ns`: without calls inside; of this `in_operator_ns` lie in an operator.
  void add_call(uint32_t name, std::string_view text, int64_t begin, int64_t end, int64_t self_ns,
                int64_t in_operator_ns);
  // Time of calls of CUDA in operators, where add_call() was not told.
  void add_calls_in_operators(int64_t ns) { add_to(in_operators_ns_, ns); }
  // Memory that operator `name` allocated or (negative) freed itself.
  void add_memory(uint32_t name, int64_t time, int64_t bytes, bool is_cpu) {
    if (sampler && bytes > 0) sampler->allocated(Sampled::kOperator, name, time, static_cast<uint64_t>(bytes));
    named(true, name).tally.add_self_bytes(bytes, is_cpu);
  }
  // The same, by operator `name` or one inside it.
  void add_memory_total(uint32_t name, int64_t bytes, bool is_cpu) {
    named(true, name).tally.add_total_bytes(bytes, is_cpu);
  }
  void add_flops(uint32_t name, uint64_t flops) { named(true, name).tally.flops += flops; }
  // GPU time of work that operator `name` launched itself; total: it or an operator inside it.
  void add_gpu_self(uint32_t name, int64_t ns) { add_to(named(true, name).tally.gpu_self_ns, ns); }
  void add_gpu_total(uint32_t name, int64_t ns) { add_to(named(true, name).tally.gpu_total_ns, ns); }
  // Time of a call of CUDA in operator `name` that makes it ready, or (`loads`) loads code.
  void add_first_use(uint32_t name, int64_t ns, bool loads) {
    Tally& tally = named(true, name).tally;
    add_to(loads ? tally.loads_ns : tally.initialises_ns, ns);
  }
  void step(uint64_t number, int64_t begin, int64_t end, std::string_view ended_by) {
    steps_.add(number, begin, end, ended_by);
  }
  // The slice that was added last had not ended when the recording did.
  void cut_last() {
    if (is_mark_last_) steps_.cut_last();
  }
  // Python calls are among the slices.
  void has_calls() { steps_.has_calls = true; }
  // The calls of modules among the slices.
  ModuleCollector modules;
  // Self time of a module for the samples, in a call of it or in its backward.
  void sample_module(uint32_t module, int64_t begin, int64_t ns, bool is_call) {
    if (sampler) sampler->time(Sampled::kModule, module, begin, ns, is_call);
  }
  // Memory that was allocated in a module, for the samples.
  void sample_module_memory(uint32_t module, int64_t time, int64_t bytes) {
    if (sampler && bytes > 0) sampler->allocated(Sampled::kModule, module, time, static_cast<uint64_t>(bytes));
  }
  void sample_kernel(uint32_t name, int64_t begin, int64_t ns) {
    if (sampler) sampler->time(Sampled::kKernel, name, begin, ns);
  }
  std::optional<StepSampler> sampler;  // if set, finish() gives samples
  // `slices`: see StepTimes::finish(). `memory`: the process's devices; the steps of their peaks are filled in.
  // `kernel`: gives the texts for names of sample_kernel().
  Statistics finish(const StepTimes::Slices& slices, std::vector<DeviceMemory> memory,
                    const std::function<std::string(uint32_t)>& kernel);

 private:
  enum class Role : uint8_t { kUnseen, kPlain, kProfilerStep, kStepEnd, kProfilerCall };
  struct Named {
    Role role = Role::kUnseen;
    Tally tally;
    std::string text;
  };
  Named& named(bool is_operator, uint32_t name);
  std::string sampled_text(Sampled kind, uint32_t name) const;

  std::vector<Named> named_[2];  // Python, operators; by name
  struct Called {
    std::string text;
    CallTally tally;
  };
  std::vector<Called> calls_;  // by name
  int64_t in_operators_ns_ = 0;
  StepTimes steps_;
  bool is_mark_last_ = false;
  uint64_t slices_ = 0;
};

}  // namespace torchprof::formats
