// Compares what the tables of layouts say about an operator with what torch's own functions say about it.
//
// For the first operators of a process, off the hot path (torch/reading.h). It only reads, calls functions of torch
// that neither record nor throw, and allocates nothing: the program cannot notice it. An operator of our own, made for
// this check, could be noticed (it takes a handle and an import) and would prove less: the program's operators are of
// more kinds.
#pragma once

#include "tracer/objects/abi.h"
#include "tracer/objects/values.h"

namespace torchprof::torch {

inline constexpr int kChecks = 64;  // operators that are looked at

// What is wrong, in one line for people; nullptr: nothing, as far as this operator shows.
struct Findings {
  const char* fields = nullptr;    // sequence number, handle, thread: the row itself
  const char* function = nullptr;  // name, overload name
  const char* keywords = nullptr;
  const char* inputs = nullptr;
};

// In the start callback. `values`: nullptr where inputs are not read.
Findings check(const Api& api, const Row& row, const ValueRow* values, const RecordFunction& function) noexcept;

}  // namespace torchprof::torch
