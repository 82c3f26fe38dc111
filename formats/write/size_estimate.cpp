#include "formats/write/size_estimate.h"

namespace torchprof::formats {
namespace {

// Mean bytes, with name and newline, in the traces of examples/cnn.py and transformer.py, and of a GPT-2 on an H100
// (tests/e2e/files/golden).
constexpr uint64_t kPython = 213, kCCall = 246;
constexpr uint64_t kOperator = 250, kInputs = 120;  // an operator's shapes, types and values
constexpr uint64_t kMemory = 243;
constexpr uint64_t kStack = 880;                     // 10 to 20 frames of C++
constexpr uint64_t kGpuWork = 1180, kGpuCall = 275;  // each with its half of the arrow between them

}  // namespace

uint64_t json_size_estimate(Processes processes) {
  uint64_t bytes = 0;
  for (const Process& process : processes) {
    const EventCounts& n = process.counts;
    bytes += n.python * kPython + n.c_calls * kCCall + n.operators * kOperator + n.inputs * kInputs +
             n.memory * kMemory + n.stacks * kStack + n.gpu_work * kGpuWork + n.gpu_calls * kGpuCall;
  }
  return bytes;
}

}  // namespace torchprof::formats
