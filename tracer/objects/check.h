// Lays what the tables of layouts say of an operator beside what torch's own functions say of the same operator.
//
// For the first operators of a process, off the hot path (torch/reading.h). Reads only, calls functions of torch that
// neither record nor throw, allocates nothing: the program cannot notice it. An operator of our own, made for the
// probe, could be noticed (it takes a handle and an import), and proves less: the program's operators come in more
// kinds.
#pragma once

#include "tracer/objects/abi.h"
#include "tracer/objects/values.h"

namespace torchprof::torch {

inline constexpr int kChecks = 64;  // operators that are looked at

// What does not hold; nullptr: holds as far as this operator tells. Each is one line for people.
struct Findings {
  const char* fields = nullptr;    // sequence number, handle, thread: the row itself
  const char* function = nullptr;  // name, overload name
  const char* keywords = nullptr;
  const char* inputs = nullptr;
};

// In the start callback. `values`: nullptr where inputs are not read.
Findings check(const Api& api, const Row& row, const ValueRow* values, const RecordFunction& function) noexcept;

}  // namespace torchprof::torch
