// What modules cost beyond CPU time in their calls: formats/analysis/modules.h has that.
//
//   GPU forward   time of the kernels, copies and sets that are launched in a call of it (self: not in a call of
//                 another module inside that); as its backward, of operators whose forward operator it called
//   optimizer     time of the optimizers' steps (GPU: of what they launch), shared out by the bytes of parameters: one
//                 step works on all of them, so what a single module's take is not known
//   peak          the most bytes that lived at one time of those that were allocated in its calls, forward and backward
//
// All but the GPU's forward and what is called self have the modules in it as part of it, by their paths
// (formats/analysis/module_tree.h).
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "formats/analysis/module_tree.h"
#include "formats/analysis/modules.h"
#include "formats/replay/replay.h"
#include "formats/trace/names.h"

namespace torchprof::formats {

class ModuleCostCollector {
 public:
  ModuleCostCollector(const Process& process, Names& names) : process_(process), names_(names), tree_(process) {}

  void slice(const Slice& slice);
  void gpu(const GpuActivity& activity);
  // `bytes` came (negative: went), of memory that was allocated in `module`.
  void memory(ObjectId module, bool is_cpu, int64_t bytes);
  // To those that are there already: the modules that were called.
  void put_into(ModuleTallies& tallies);

 private:
  struct Cost {
    int64_t gpu_forward_self = 0, gpu_forward_total = 0, gpu_backward_self = 0, gpu_backward_total = 0;
    double optimizer_ns = 0, optimizer_gpu_ns = 0;
    std::array<int64_t, 2> held{}, peak{};  // of the CPU; of GPUs and others
  };
  struct OptimizerTime {
    int64_t ns = 0, gpu_ns = 0;
  };
  Cost& at(ObjectId module);
  bool is_optimizer(ObjectId object) const;
  void roll_up();

  const Process& process_;
  Names& names_;
  ModuleTree tree_;
  std::vector<Cost> costs_;                                 // by module
  std::unordered_map<uint32_t, OptimizerTime> optimizers_;  // by object
};

}  // namespace torchprof::formats
