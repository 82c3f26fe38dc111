#include "formats/analysis/activity.h"

#include <algorithm>
#include <array>

#include "formats/gpu/cuda_api.h"
#include "formats/trace/name_role.h"
#include "formats/trace/waiting.h"

namespace torchprof::formats {
namespace {

// torch.compile's own frames: convert_frame.py of torch._dynamo, 2.0 to 2.14; and the brief form of our recording
// (formats/trace/names.h).
bool is_compilation(std::string_view name) {
  if (name.find("): compile ") != name.npos) return true;
  const bool is_dynamo = name.find("torch/_dynamo/convert_frame.py(") != name.npos;
  return is_dynamo && (name.ends_with(": _compile") || name.ends_with(": compile_inner"));
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

Activity activity_of_python(std::string_view name) {
  if (is_compilation(name)) return Activity::kCompiling;
  // torch 1.13 to 2.15. It starts the workers.
  if (name.find("torch/utils/data/dataloader.py(") != name.npos && name.ends_with("): _get_iterator"))
    return Activity::kLoading;
  if (is_waiting(name)) return Activity::kWaiting;
  // What the engine of autograd does between operators is the backward's. torch/autograd/__init__.py until 2.2, then
  // graph.py.
  if (name.find("torch/autograd/") != name.npos &&
      (name.ends_with("): backward") || name.ends_with("): _engine_run_backward")))
    return Activity::kOperator;
  // Calls of collectives, which wait in them for their end.
  if (name.find("torch/distributed/distributed_c10d.py(") != name.npos) return Activity::kCollective;
  return Activity::kProgram;
}

Activity activity_of_operation(std::string_view name, bool is_annotation) {
  if (role_of_name(name) == NameRole::kLoading) return Activity::kLoading;
  if (is_communication(name)) return Activity::kCollective;
  return is_annotation ? Activity::kProgram : Activity::kOperator;
}

Activity activity_of_call(std::string_view name) {
  switch (call_effect(name)) {
    case CallEffect::kLaunches:
      return Activity::kLaunches;
    case CallEffect::kWaits:
      return Activity::kWaitsForGpu;
    case CallEffect::kAllocates:
      return Activity::kAllocates;
    case CallEffect::kOther:
      break;
  }
  return Activity::kOtherCall;
}

}  // namespace torchprof::formats
