#include "formats/timeline/unit_names.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "formats/analysis/step_parts.h"
#include "formats/trace/name_role.h"
#include "formats/trace/names.h"

namespace torchprof::formats {

bool is_import(const TimelineSpan& s, std::string_view name) {
  if (s.kind != SpanKind::kPython) return false;
  return name.starts_with("import ") || (name.find("importlib") != name.npos && name.ends_with("): _find_and_load"));
}

bool is_main_module(const TimelineSpan& s, std::string_view name) {
  if (s.kind != SpanKind::kPython || s.parent != kNoSpan) return false;
  return name.ends_with("): <module>") || name.ends_with("): _run_module_as_main");
}

bool is_backward_call(std::string_view name) {
  return name.ends_with("): backward") &&
         (name.find("torch/_tensor.py(") != name.npos || name.find("torch/autograd/__init__.py(") != name.npos);
}

bool is_torchs_range(std::string_view name) {
  switch (role_of_name(name)) {
    case NameRole::kProfilerStep:
    case NameRole::kOptimizerStep:
    case NameRole::kZeroGrad:
    case NameRole::kLoading:
      return true;
    default:
      break;
  }
  constexpr std::array<std::string_view, 12> kBegins = {"autograd::",
                                                        "DistributedDataParallel",
                                                        "FullyShardedDataParallel",
                                                        "FSDP",
                                                        "TorchDynamo ",
                                                        "Torch-Compiled ",
                                                        "## Call CompiledFx",
                                                        "CompiledFunction",
                                                        "record_param_comms",
                                                        "PyTorch Profiler",
                                                        "Pregraph ",
                                                        "Window #"};
  return is_communication(name) || std::ranges::any_of(kBegins, [name](auto begin) { return name.starts_with(begin); });
}

FunctionText split_function(std::string_view text) {
  const PlaceParts place = split_place(text);
  return {place.file.substr(place.file.rfind('/') + 1), place.name};
}

std::string_view module_class(std::string_view name) {
  name = without_role(name, role_of_name(name));
  return name.substr(0, name.rfind('_'));
}

}  // namespace torchprof::formats
