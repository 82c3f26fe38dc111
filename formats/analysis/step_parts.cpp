#include "formats/analysis/step_parts.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <span>
#include <utility>

#include "formats/analysis/comms.h"
#include "formats/io/median.h"
#include "formats/io/sum.h"
#include "formats/replay/thread_stack.h"

namespace torchprof::formats {
namespace {

void find_outliers(std::vector<StepParts>& steps) {
  constexpr size_t kFewest = 5;  // fewer steps have no outliers
  if (steps.size() < kFewest) return;
  std::vector<int64_t> ns;
  ns.reserve(steps.size());
  for (const StepParts& s : steps) ns.push_back(s.step.end - s.step.begin);
  const int64_t middle = median_of(ns);
  for (int64_t& each : ns) each = std::abs(each - middle);
  const double deviation = 1.48 * static_cast<double>(median_of(ns));
  for (StepParts& s : steps) {
    const auto more = static_cast<double>(difference(s.step.end - s.step.begin, middle));
    s.is_outlier = more > 4 * deviation && more > 0.2 * static_cast<double>(middle);
  }
}

}  // namespace

// Ranges of the backends, and operators of c10d (torch/csrc/distributed/c10d, 1.13 to 2.14).
bool is_communication(std::string_view name) {
  constexpr std::array<std::string_view, 6> kPrefixes = {
      "gloo:", "mpi:", "ucc:", "c10d::", "_c10d_functional::", "record_param_comms"};
  return std::ranges::any_of(kPrefixes, [name](std::string_view prefix) { return name.starts_with(prefix); });
}

// "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", before NCCL 2.19 "ncclKernel_...", and
// with a result type before 2.8: "void ncclKernel_...".
bool is_communication_kernel(std::string_view name) {
  if (name.starts_with("void ")) name.remove_prefix(5);
  return name.starts_with("nccl") || name.starts_with("rccl");
}

StepPartsCollector::Part StepPartsCollector::part_of(uint32_t name_id, std::string_view name, bool is_annotation) {
  if (name_id >= parts_.size()) parts_.resize(std::max<size_t>(name_id + size_t{1}, parts_.size() * 2));
  Part& part = parts_[name_id];
  if (part == Part::kUnseen) {
    part = is_backend_range(name)            ? Part::kCommunication
           : is_communication(name)          ? Part::kCollectiveCall
           : name.starts_with(kLoaderPrefix) ? Part::kLoading
           : is_annotation                   ? Part::kNone
                                             : Part::kCompute;
  }
  return part;
}

void StepPartsCollector::slice(const Slice& s, std::string_view name) {
  if (s.depth == 0) host_.add(s.begin.value, s.end.value);
  if (s.kind != SliceKind::kOperator) return;
  const auto around = std::span(s.around, s.depth);
  operation(s.begin.value, s.end.value, s.name.value, name, is_annotation(s.scope),
            std::ranges::any_of(around, [](const Span& span) { return span.is_real_op(); }));
}

void StepPartsCollector::operation(int64_t begin, int64_t end, uint32_t name_id, std::string_view name,
                                   bool is_annotation, bool is_in_operator) {
  const Part part = part_of(name_id, name, is_annotation);
  // Only outermost operators are added: they cover those inside.
  if (part == Part::kNone || (part == Part::kCompute && is_in_operator)) return;
  (part == Part::kCompute          ? operators_
   : part == Part::kCommunication  ? communication_
   : part == Part::kCollectiveCall ? collective_calls_
                                   : loading_)
      .add(begin, end);
}

void StepPartsCollector::work(int64_t begin, int64_t end, std::string_view name) {
  const bool is_nccl = is_communication_kernel(name);
  has_nccl_ = has_nccl_ || is_nccl;
  (is_nccl ? communication_ : gpu_).add(begin, end);
}

std::vector<StepParts> StepPartsCollector::finish(const std::vector<StepSpan>& steps) {
  // Where kernels do the work a call only starts them.
  (has_nccl_ ? host_ : communication_).add(collective_calls_);
  // Each set includes the ones before it, so that a part is the difference of two lengths.
  host_.add(operators_);
  Intervals& compute = gpu_.empty() ? operators_ : gpu_;
  communication_.add(compute);
  loading_.add(communication_);
  host_.add(loading_);
  for (Intervals* intervals : {&compute, &communication_, &loading_, &host_}) intervals->settle();
  std::vector<StepParts> result;
  for (const StepSpan& step : steps) {
    int64_t before = 0;
    const auto more = [&step, &before](const Intervals& intervals) {
      const int64_t all = intervals.length(step.begin, step.end);
      return all - std::exchange(before, all);
    };
    StepParts& parts = result.emplace_back(StepParts{.step = step});
    parts.compute_ns = more(compute);
    parts.communication_ns = more(communication_);
    parts.loading_ns = more(loading_);
    parts.host_ns = more(host_);
    parts.idle_ns = difference(step.end - step.begin, before);
  }
  find_outliers(result);
  return result;
}

}  // namespace torchprof::formats
