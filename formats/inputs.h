// The inputs of operators, from the recorder's encoding (tracer/torch_values.h) to what Kineto writes of them.
//
// Text as torch 2.14 writes it: types by their C++ names, a scalar as "Scalar", lists as "ScalarList" and "TensorList",
// anything else as ""; concrete values of scalars and of lists of at most 30 scalars
// (torch/csrc/profiler/collection.cpp, InputOutputEncoder). A hostile encoding gives less, never a read outside of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "formats/tensor.h"

namespace torchprof::formats {

struct Input {
  enum class Kind : uint8_t { kTensor, kTensorList, kScalar, kScalarList, kOther };
  Kind kind = Kind::kOther;
  std::vector<Tensor> tensors{};  // one, or those of the list; none for an undefined tensor
  std::string text{};             // of a scalar or a list of scalars
};

std::vector<Input> decode_inputs(std::string_view encoded);

// `,"Input Dims":[...],"Input Strides":[...],"Input type":[...],"Concrete Inputs":[...]`
std::string inputs_json(const std::vector<Input>& inputs);

}  // namespace torchprof::formats
