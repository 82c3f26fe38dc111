// What a piece of a program's time belongs to, by its kind and name: the one classification that the account of a step
// (step_parts.h) and advice are made by.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace torchprof::formats {

enum class Activity : uint8_t {
  kUnseen,
  kProgram,      // Python, and whatever is nothing else
  kWaiting,      // a function that only waits (formats/trace/waiting.h)
  kOperator,     // an operator; inside it, what belongs to it
  kLoading,      // a DataLoader's __next__, and the start of its workers
  kCompiling,    // torch.compile compiles
  kCollecting,   // Python's garbage collector
  kImporting,    // an import that loads a module, which happens once
  kCollective,   // an operator or a range of torch.distributed
  kWaitsForGpu,  // these are calls of CUDA
  kAllocates,
  kLaunches,  // kernels, copies and sets
  kOtherCall,
};
inline constexpr size_t kActivities = 13;

// Of a Python function, a module or a C call.
Activity activity_of_python(std::string_view name);
// Of an operator or, where `is_annotation`, a range.
Activity activity_of_operation(std::string_view name, bool is_annotation);
// Of a call of CUDA.
Activity activity_of_call(std::string_view name);

// Whether all that is inside belongs to it.
constexpr bool covers(Activity activity) {
  return activity == Activity::kLoading || activity == Activity::kCompiling || activity == Activity::kCollecting ||
         activity == Activity::kImporting || activity == Activity::kCollective;
}

// Whether it is a range or an operator of torch.distributed, of any backend.
bool is_communication(std::string_view name);
// Whether it is a kernel of NCCL or RCCL.
bool is_communication_kernel(std::string_view name);

}  // namespace torchprof::formats
