// Floating-point operations of an operator, estimated from the shapes of its inputs; a multiplication and an addition
// count as two, as in torch. One table of formulas: flops.cpp.
//
// Where torch.profiler has a formula (with_flops: mm, addmm, bmm, baddbmm, conv2d, add, mul; computeFlops in
// torch/csrc/profiler/util.cpp, the same from 1.13 to 2.14) the number is torch's, its simplifications included: `add`
// and `mul` count the elements of their first input, whatever it is broadcast to. The others follow
// torch/utils/flop_counter.py. The number is that of the whole operator with everything inside: aten::linear and the
// aten::addmm inside it have the same, so they must not be added up.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "formats/trace/names.h"
#include "formats/trace/trace.h"
#include "formats/values/inputs.h"

namespace torchprof::formats {

// 0: there is no formula for it, or its inputs do not say enough.
uint64_t flops_of(std::string_view op, const std::vector<Input>& inputs);
bool has_flops(std::string_view op);

// FLOPs of the operators of one process, computed once for each pair of name and inputs.
class Flops {
 public:
  explicit Flops(const Process& process);

  bool is_on() const { return is_on_; }  // --flops
  uint64_t of(NameId name, std::string_view text, StringId inputs);

 private:
  const Process& process_;
  bool is_on_ = true;
  std::vector<int8_t> has_;  // by name, whether it has a formula: 1 yes, -1 no, 0 not looked up yet
  std::unordered_map<uint64_t, uint64_t> known_;
};

}  // namespace torchprof::formats
