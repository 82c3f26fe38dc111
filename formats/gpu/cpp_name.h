// A C++ name as demanglers write it, taken apart at its brackets: the form of binutils ("{lambda(float)#1}",
// "(anonymous namespace)", "4ul") and that of nsys and ncu ("[lambda(float) (instance 1)]", "<unnamed>", "(int)4").
//
// Nothing here fails: in a text that is no such name it finds what it can. Where a bracket ends is found once for all,
// and every function steps over whole brackets, so each takes time linear in the text that it is given.
//
// All pieces are parts of the text that the constructor was given, which must outlive them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace torchprof::formats {

class CppName {
 public:
  explicit CppName(std::string_view text);

  struct Part {               // of "a::b<x, y>(z)::c"
    std::string_view name{};  // "b"; "{lambda(float)#1}"; "(int)4"
    std::string_view args{};  // between < and >: "x, y"
    std::string_view params{};

    bool is_lambda() const;
    uint32_t number() const;  // of a lambda, from 1 on
  };

  // The parts of the last name in `piece`: what stands before it, its return type, is left out. Never empty.
  std::vector<Part> path(std::string_view piece) const;
  // Cut at its commas, without spaces around. At most the first kMost.
  std::vector<std::string_view> list(std::string_view piece) const;
  // The parameters of a lambda or a function.
  std::vector<std::string_view> parameters(const Part& lambda) const;
  // "64" of "64u", "64ul" and "(unsigned int)64", "true" of "(bool)1".
  std::string_view value(std::string_view piece) const;

  static constexpr size_t kMost = 32;

 private:
  // What the bracket at `open` holds, and its length with both brackets; if it never ends, to the end of the piece.
  std::pair<std::string_view, size_t> inside(std::string_view piece, size_t open) const;
  size_t past(std::string_view piece, size_t open) const;

  std::string_view text_;
  std::vector<uint32_t> closing_;  // where the bracket at this place ends; 0: there is no bracket, or it never ends
};

// The type of a tensor's elements as people write it, for the C++ types of torch, CUDA and CUTLASS: "bf16", "fp32",
// "int64", "complex64"; of torch's OpaqueType<4> "4B", because such a kernel copies any type of 4 bytes. `const`, `&`
// and `*` are passed over. Empty: some other type.
std::string_view element_type(std::string_view cpp_type);
bool is_floating(std::string_view element_type);  // complex included

}  // namespace torchprof::formats
