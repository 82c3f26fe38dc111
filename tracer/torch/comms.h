// What torch's collectives say of themselves: torch::ParamCommsDebugInfo, which ProcessGroupNCCL and its like leave on
// the thread around the range `record_param_comms`. Gloo and MPI leave none.
//
// Source: torch/csrc/distributed/c10d/ParamCommsUtils.hpp, c10/util/ThreadLocalDebugInfo.h, 1.13 to 2.14; measured on
// 1.13.1, 2.6.0 and 2.14.1. The row (objects/layouts.h) is chosen by the constructor that torch exports: its parameters
// are the class's members. No constructor that is known: collectives have no arguments, a note says so.
//
// Encoding, a string of bytes that is interned, read by formats/collectives.*:
//
//     text name | text group | text description | zigzag rank | zigzag size | byte type | zigzag in | zigzag out
//     | list split of in | list split of out | zigzag start | zigzag stride | list ranks | byte asynchronous
//
//     text := n bytes*         list := n zigzag*: of more than kMaxListed the first and the very last
//
// type: c10::ScalarType; in, out: elements; size, start, stride: -1 if unknown; asynchronous: 0, 1 or 2 (unknown).
#pragma once

#include <atomic>

#include "tracer/objects/abi.h"
#include "tracer/thread_buffer.h"

namespace torchprof::torch {

inline constexpr size_t kMaxListed = 30;  // Kineto's limit as well

// Once, when torch has been found.
void find_comms(const Api& api) noexcept;

namespace detail {
extern std::atomic<bool> g_reads_comms;  // off for good once a layout turned out not to hold
}  // namespace detail

// The range of a collective. Called for every operator.
inline bool is_collective(const RecordFunction& function, const Row& row) noexcept {
  if (!detail::g_reads_comms.load(std::memory_order_relaxed)) return false;
  if (field_at<uint8_t>(&function, kFunctionOffset + row.string) != 0) [[likely]]
    return false;  // it has a schema
  return strcmp(field_at<const char*>(&function, kFunctionOffset), "record_param_comms") == 0;
}

// After the records of its begin, in its start callback.
void record_collective(ThreadBuffer& buffer, Ticks time) noexcept;

}  // namespace torchprof::torch
