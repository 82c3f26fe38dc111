// What modules cost besides the CPU time of their calls, which is in modules.h.
//
//   GPU forward   time of the kernels, copies and sets that were launched in calls of the module (self: not in calls of
//                 other modules inside). GPU backward: that of the operators whose forward operator it called. GPU
//                 recompute: that of its calls that a backward makes
//   optimizer     time of the optimizers' steps (GPU: of what they launch), split by bytes of parameters: a step works
//                 on all parameters at once, so the share of one module is not known
//   peak          the most bytes alive at one time of those allocated in its calls, forward and backward
//
// All values but GPU forward and the self values include the modules that are part of it, by their paths
// (module_tree.h).
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
  // `bytes` were allocated in `module`, or (negative) freed again.
  void memory(ObjectId module, bool is_cpu, int64_t bytes);
  // Adds the costs to the tallies of modules that were called.
  void put_into(ModuleTallies& tallies);

 private:
  struct Cost {
    int64_t gpu_forward_self = 0, gpu_forward_total = 0, gpu_backward_self = 0, gpu_backward_total = 0;
    int64_t gpu_recompute_self = 0, gpu_recompute_total = 0;
    double optimizer_ns = 0, optimizer_gpu_ns = 0;
    std::array<int64_t, 2> held{}, peak{};  // on the CPU; on GPUs and others
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
  std::vector<Cost> costs_;                                 // by module's object id
  std::unordered_map<uint32_t, OptimizerTime> optimizers_;  // by object id
};

}  // namespace torchprof::formats
