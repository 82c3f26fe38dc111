// What the names in the names of kernels mean: of kernels, and of the functors, wrappers and functions that are their
// template arguments. One row each; what is not here gets its name by the general rules of kernel_names.cpp.
#pragma once

#include <string>
#include <string_view>

namespace torchprof::formats {

constexpr int kNoTypes = -1;
constexpr int kAnyFlag = 100;

struct KnownName {
  std::string_view name;  // without namespaces and template arguments
  // What to say. "%" is what another template argument says: that with number `op`; without one that of operator(), or
  // the kernel's next one if this is its functor; or how many inputs the function's lambda takes. A text with "->" has
  // the type before it or behind it; other texts have it at their end or before " (".
  std::string_view text;
  int op = -1;
  // The types are those of the first `ins` template arguments and, behind "->", of number `out`. 0: any that is found.
  // kNoTypes: what is found is an index.
  int ins = 0;
  int out = -1;
  // Said instead of `text` if template argument number `flag` is true.
  std::string_view otherwise{};
  int flag = -1;  // kAnyFlag: if any argument is a LoadWithCast, LogSoftMax..., less_equal
};

// Null: not known.
const KnownName* find_known_name(std::string_view name);

// The general rule for functions and functors of torch: "leaky_relu_backward_kernel" is "leaky_relu bwd".
std::string deed_of(std::string_view name);

// What a lambda does, where a function has several that do different things. `numbers`: which lambda it is, and which
// one inside that: "2.3". Empty: not known.
std::string_view lambda_text(std::string_view function, std::string_view numbers);

// A kernel that is only there to run its first template argument: cutlass::Kernel<X>.
bool is_entry_point(std::string_view name);

// How to call the library with this namespace: "cudnn". Empty: none that is worth to be named.
std::string_view library_of(std::string_view name_space);

}  // namespace torchprof::formats
