#include "formats/gpu/inductor.h"

#include <doctest/doctest.h>

#include <string>

namespace inductor_test {

using namespace torchprof::formats;

namespace {

// As torch 2.11 writes it; the rest of a comment is longer.
constexpr const char* kModule = R"(# AOT ID: ['0_forward']
from torch._inductor.async_compile import AsyncCompile
async_compile = AsyncCompile()


# kernel path: /tmp/torchinductor_me/cz/cczp.py
# Topologically Sorted Source Nodes: [add, y, mul], Original ATen: [aten.add, aten.relu]
# Source node to ATen node mapping:
#   add => add
#   y => relu
# Graph fragment:
#   %add : Tensor "f32[64, 256][256, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.add.Tensor]
triton_poi_fused_add_relu_0 = async_compile.triton('triton_poi_fused_add_relu_0', '''
import triton
# Source Nodes: [no], Original ATen: [none]
@triton.jit
def triton_poi_fused_add_relu_0(in_ptr0): pass
''', device_str='cuda')


# Source Nodes: [old], Original ATen: [aten.old]
cpp_fused_old_1 = async_compile.cpp_pybinding(['float*'], '''
async_compile.wait(globals())
)";

}  // namespace

TEST_CASE("inductor's comments are those of the kernel below them") {
  const InductorKernels kernels = inductor_kernels(kModule);
  CHECK(kernels.size() == 2);
  const InductorKernel& kernel = kernels.at("triton_poi_fused_add_relu_0");
  CHECK(kernel.file == "/tmp/torchinductor_me/cz/cczp.py");
  CHECK(kernel.source_nodes == "add, y, mul");
  CHECK(kernel.original_aten == "aten.add, aten.relu");
  CHECK(kernels.at("cpp_fused_old_1").source_nodes == "old");
  CHECK(
      inductor_json(kernel) ==
      R"(,"kernel_file":"/tmp/torchinductor_me/cz/cczp.py","Source nodes":"add, y, mul","Original ATen":"aten.add, aten.relu")");
  CHECK(inductor_json({}) == "");
}

TEST_CASE("whatever the file says, the result is short and in UTF-8") {
  std::string text = "# Source Nodes: [" + std::string(1'000'000, '\xff') + "], Original ATen: [";
  text += "\n# kernel path: \xc3\nx = async_compile.triton(\n = async_compile.\n# File: a\nx y = async_compile.z\n";
  const InductorKernels kernels = inductor_kernels(text);
  REQUIRE(kernels.size() == 1);
  CHECK(inductor_json(kernels.at("x")).size() < 20'000);
  CHECK(inductor_kernels("").empty());
  CHECK(inductor_kernels("# Source Nodes: [a]").empty());
}

TEST_CASE("a module that cannot be read says nothing") {
  InductorModules modules;
  CHECK(modules.find("/nonexistent/module.py", "triton_") == nullptr);
  CHECK(modules.find("/dev/zero", "triton_") == nullptr);
  CHECK(modules.find("", "triton_") == nullptr);
}

}  // namespace inductor_test
