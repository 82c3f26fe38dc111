// What an operator of torch does, by its name, as rules of advice tell it.
//
// Source: native_functions.yaml of torch, 1.13 to 2.15. An operator of "aten::" that is not known is kOther,
// anything else kNetwork: a custom function, an operator of a library, a region of torch.compile may do what a network
// has to.
#pragma once

#include <cstdint>
#include <string_view>

namespace torchprof::formats {

enum class OperatorKind : uint8_t {
  kNetwork,  // products, convolutions, attention, norms, activations, losses, arithmetic; views
  kProduct,  // matrix products, of kNetwork
  kMoves,    // copies and gathers elements
  kSelects,  // gathers elements by indices or joins tensors, as most programs have to
  kSparse,   // from dense to sparse and back
  kLinalg,   // decompositions, inverses, transforms
  kSorts,    // sorts, searches, counts
  kMakes,    // fills new tensors with what is known before
  kRandom,
  kReads,  // a value, for Python
  kOther,
};

OperatorKind kind_of_operator(std::string_view name);
// Arithmetic on each element: it reads and writes memory and little else.
bool is_elementwise(std::string_view name);
// Takes one part of a tensor, without a copy.
inline bool takes_a_part(std::string_view name) { return name == "aten::select" || name == "aten::slice"; }
// Reads one value for Python: item(), bool() and their like.
bool reads_value(std::string_view name);

}  // namespace torchprof::formats
