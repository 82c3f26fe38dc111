// What torch.compile's inductor writes above each kernel of the modules that it generates:
//
//     # kernel path: /tmp/torchinductor_me/xg/cxgt....py
//     # Topologically Sorted Source Nodes: [add, y], Original ATen: [aten.add, aten.relu]
//     ...
//     triton_poi_fused_add_relu_0 = async_compile.triton('triton_poi_fused_add_relu_0', '''
//
// and, where torch knows it, lines `# File: train.py:12 in forward, code: y = relu(x + 1)`. Source nodes are named
// after variables of the program. Source: torch/_inductor/utils.py (get_kernel_metadata), 2.0 to 2.14; torch 2.0 says
// "Source Nodes" alone.
//
// The files are those of inductor's cache on this machine; where they are gone, kernels have no such arguments.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace torchprof::formats {

struct InductorKernel {
  std::string file;           // of the kernel alone; empty: not said
  std::string source_nodes;   // "add, y"
  std::string original_aten;  // "aten.add, aten.relu"
  std::string lines;          // "train.py:12 in forward; train.py:13 in forward"; empty: not said
};

using InductorKernels = std::map<std::string, InductorKernel, std::less<>>;
InductorKernels inductor_kernels(std::string_view module_text);

// Reads each module once. Pointers stay valid as long as the object.
class InductorModules {
 public:
  // Null: the file cannot be read, or says nothing of this kernel.
  const InductorKernel* find(std::string_view module_file, std::string_view kernel);

 private:
  std::map<std::string, InductorKernels, std::less<>> modules_;
};

// `,"kernel_file":"...","Source nodes":"add, y","Original ATen":"...","Source lines":"..."`: those that are known.
std::string inductor_json(const InductorKernel& kernel);

}  // namespace torchprof::formats
