// The inputs of operators, from the recorder's encoding (tracer/objects/values.h) to what Kineto writes of them.
//
// Text as torch 2.14 writes it: types by their C++ names, a scalar as "Scalar", lists as "ScalarList" and "TensorList",
// anything else as ""; concrete values of scalars and of lists of at most 30 scalars
// (torch/csrc/profiler/collection.cpp, InputOutputEncoder). It asks of a list whether its type is that of a list of
// tensors, so one of optional tensors (those of aten::index) is "anything else"; their sizes stand in a member of their
// own. A symbolic number is "?". Keyword inputs become arguments
// of their own names, as in torch 2.6 and 2.14; numbers that are no JSON ("1.", "inf") are made some. A hostile
// encoding gives less, never a read outside of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "formats/values/tensor.h"

namespace torchprof::formats {

struct Input {
  enum class Kind : uint8_t { kTensor, kTensorList, kOptionalTensorList, kScalar, kScalarList, kOther };
  Kind kind = Kind::kOther;
  std::vector<Tensor> tensors{};    // one, or those of the list, an empty one for None; none for an undefined tensor
  std::string text{};               // of a scalar or a list of scalars
  std::vector<int64_t> integers{};  // of an integer or truth value, or a list of them
  std::string word{};               // a string, as much of it as was kept
};

std::vector<Input> decode_inputs(std::string_view encoded);

// The shapes alone, as Kineto's "Input Dims": "[[2,3],[]]".
std::string dims_json(std::string_view encoded);

struct KeywordInput {
  std::string name{};
  std::string json{};  // a number, true, false, a string or a list of them; "" for what Kineto leaves out
};

std::vector<KeywordInput> decode_keywords(std::string_view encoded);

// `,"Input Dims":[...],"Input Strides":[...],"Input type":[...],"Concrete Inputs":[...]` and one member for each
// keyword; without the four lists where there are keywords alone. With a list of optional tensors also
// `"Optional Input Dims":[[],[[],[2]]]`, an entry an input: [] of None and of what is no such list.
std::string inputs_json(std::string_view encoded);

}  // namespace torchprof::formats
