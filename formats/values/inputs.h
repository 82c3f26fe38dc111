// The inputs of operators: from the recorder's encoding (tracer/objects/values.h) to what Kineto writes of them.
//
// The text is torch 2.14's (torch/csrc/profiler/collection.cpp, InputOutputEncoder). Types of tensors have their C++
// names, a scalar is "Scalar", lists are "ScalarList" or "TensorList", anything else is "". Scalars and lists of at
// most 30 scalars have concrete values. A list of optional tensors (in aten::index) is "anything else" for torch; its
// sizes get a member of their own. A symbolic number is "?". Keyword inputs become arguments with their own names, as
// in torch 2.6 and 2.14; values that JSON cannot hold ("1.", "inf") are changed so that it can. A hostile encoding
// gives less, and is never read past its end.
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
  std::vector<Tensor> tensors{};    // one, or those of a list (None: an empty one); none if it is undefined
  std::string text{};               // of a scalar or a list of scalars
  std::vector<int64_t> integers{};  // of an integer, a truth value, or a list of these
  std::string word{};               // a string, or as much of it as was kept
  uint64_t left_out = 0;            // elements at the end of a list that are not here
};

std::vector<Input> decode_inputs(std::string_view encoded);
// More inputs follow that are not in decode_inputs(), or one of these has elements left out.
bool is_cut(std::string_view encoded);

// The shapes alone, as Kineto's "Input Dims": "[[2,3],[]]". What is_cut() is marked: "[[[2,3],"+7"],"+"]" stands for
// seven more tensors in that list, and more inputs behind it.
std::string dims_json(std::string_view encoded);

struct KeywordInput {
  std::string name{};
  std::string json{};  // a number, true, false, a string or a list of these; "": Kineto leaves it out
};

std::vector<KeywordInput> decode_keywords(std::string_view encoded);

// The members of an operator's arguments:
//
//   ,"Input Dims":[...],"Input Strides":[...],"Input type":[...],"Concrete Inputs":[...]
//                                            unless there are only keywords
//   ,"Optional Input Dims":[[],[[],[2]]]     if there is a list of optional tensors: one entry an input; [] for None
//                                            and for any other input
//   ,"Inputs left out":[44,0,"more"]         if not all of it was kept: of each input how many of its last elements are
//                                            missing; "more" at the end: inputs are missing, too
//   ,"NAME":VALUE                            for each keyword
//
// Of a text above `most` bytes lists of tensors become shorter, then there are fewer inputs.
std::string inputs_json(std::string_view encoded, size_t most = SIZE_MAX);

}  // namespace torchprof::formats
