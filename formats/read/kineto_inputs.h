// What an operator was given, out of the arguments of its event in Kineto's JSON: "Input Dims", "Input Strides",
// "Input type", "Concrete Inputs" (torch/csrc/profiler/collection.cpp; formats/values/inputs.h writes the same) and our
// "Inputs left out". The devices of tensors are not in it.
//
// While the file is parsed the lists are only put together as text, since most operators are given what others were
// given before; each different text is decoded once. Of an operator with more than kMostText bytes of them nothing is
// known.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/values/inputs.h"

namespace torchprof::formats {

class KinetoInputs {
 public:
  enum class List : uint8_t { kDims, kStrides, kTypes, kConcrete, kLeftOut };
  static constexpr size_t kMostText = size_t{1} << 16;

  void clear();
  void begin(List list);                        // its outermost array begins
  bool is_open() const { return depth_ != 0; }  // and while it is, all tokens belong to it:
  void start_array();
  void end_array();
  void number(std::string_view text);
  void string(std::string_view text);
  // All lists in one text; empty: there are none, or too much.
  std::string text() const;

 private:
  void element(std::string_view json);

  std::array<std::string, 5> lists_{};
  size_t at_ = 0, depth_ = 0;
};

// Of KinetoInputs::text(); empty for what it cannot be.
std::vector<Input> inputs_of_kineto(std::string_view text);

}  // namespace torchprof::formats
