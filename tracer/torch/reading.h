// What is read of torch's operators: which parts, by which layout, and what turned out not to hold. Of torch/ alone:
// operators.cpp starts it, callbacks.cpp asks for every operator.
//
// Any thread. What is wrong switches a part off for good, with one line and a note; the others go on.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tracer/objects/abi.h"
#include "tracer/objects/values.h"

namespace torchprof::torch {

extern constinit Api g_api;  // once attach_if_loaded() has found torch (operators.h)

// Parts go off when they turn out not to hold, never on again. One cache line.
struct alignas(64) Reading {
  std::atomic<const Row*> row{nullptr};          // nullptr: names, scopes and threads alone
  std::atomic<const ValueRow*> values{nullptr};  // nullptr: no inputs
  std::atomic<bool> function{false};             // fn_ is read, not asked for; gives overload names
  std::atomic<bool> keywords{false};
  std::atomic<bool> searches{false};  // while values is nullptr: their rows are being looked for
  std::atomic<int> checks_left{0};
};
extern constinit Reading g_reading;

// Inputs are wanted: from the first operator on their layout is looked for. Before start_reading().
void start_inputs() noexcept;
// All that g_api.row tells. Once, before the first operator comes.
void start_reading() noexcept;
// Inputs are no longer read, because of what was found: "a tensor looks otherwise".
[[gnu::noinline, gnu::cold]] void stop_inputs(const char* found) noexcept;

// One of the first operators, in its start callback: what is read of it beside what torch says (objects/check.h).
[[gnu::noinline, gnu::cold]] void check_reading(const RecordFunction& function) noexcept;

// Unique while the operator is open: torch's handle, or where its layout is unknown the object's address.
inline uint64_t key_of(const RecordFunction& function, const Row* row) noexcept {
  return row ? field_at<uint64_t>(&function, row->handle) : reinterpret_cast<uintptr_t>(&function);
}

struct Inputs {  // of an operator
  const char* values;
  size_t count;
  const void* keywords;  // nullptr: there are none, or they are not read
};
inline Inputs inputs_in(const RecordFunction& function, const Row& row) noexcept {
  const auto* inputs = field_at<const char*>(&function, row.inputs);
  const auto length = field_at<size_t>(&function, row.inputs + 8);
  const void* keywords = row.keywords ? reinterpret_cast<const char*>(&function) + row.keywords : nullptr;
  if (keywords && (!has_keywords(keywords) || !g_reading.keywords.load(std::memory_order_relaxed))) keywords = nullptr;
  // A boxed call passes the interpreter's whole stack: its own inputs are the last ones.
  const size_t count = length ? std::min(length, g_api.num_inputs(&function)) : 0;
  return {inputs + (length - count) * kValueSize, count, keywords};
}

// By which layout this operator's inputs may be read; nullptr: by none yet. In its start callback alone: what they
// point to is gone when it ends. `is_counted`: it is one of those that are told when it goes without.
[[gnu::noinline, gnu::cold]] const ValueRow* look_for_values(const RecordFunction& function, const Row& row,
                                                             bool is_counted) noexcept;
inline const ValueRow* values_of(const RecordFunction& function, const Row* row, bool is_counted) noexcept {
  if (!row) return nullptr;
  const ValueRow* values = g_reading.values.load(std::memory_order_relaxed);
  if (values) [[likely]]
    return values;
  return g_reading.searches.load(std::memory_order_relaxed) ? look_for_values(function, *row, is_counted) : nullptr;
}

}  // namespace torchprof::torch
