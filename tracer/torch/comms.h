// What torch's collectives say about themselves: torch::ParamCommsDebugInfo, which ProcessGroupNCCL and others keep on
// the thread around the range `record_param_comms`. Gloo and MPI keep none.
//
// Source: torch/csrc/distributed/c10d/ParamCommsUtils.hpp, c10/util/ThreadLocalDebugInfo.h, 1.13 to 2.14; measured on
// 1.13.1, 2.6.0 and 2.14.1. The row (objects/layouts.h) is chosen by the constructor that torch exports, since its
// parameters are the members of the class. If the constructor is not known, collectives have no arguments, and a note
// says so.
//
// Encoding, a string of bytes that is interned, read by formats/values/collectives.h:
//
//     info := text name, text group, text description, zigzag rank, zigzag size, byte type, zigzag in, zigzag out,
//             list in_split, list out_split, zigzag start, zigzag stride, list ranks, byte asynchronous
//     text := n bytes*
//     list := n zigzag*       n may be above kMaxListed: then the first numbers and the very last are there
//
// type: c10::ScalarType; in, out: elements; size, start, stride: -1 if unknown; asynchronous: 0, 1 or 2 (unknown).
#pragma once

#include <atomic>

#include "tracer/objects/abi.h"
#include "tracer/thread_buffer.h"

namespace torchprof::torch {

inline constexpr size_t kMaxListed = 30;  // also Kineto's limit

// Once, when torch has been found.
void find_comms(const Api& api) noexcept;

namespace detail {
extern std::atomic<bool> g_reads_comms;  // off for good once a layout turned out not to hold
}  // namespace detail

// Whether the operator is the range of a collective. Called for every operator.
inline bool is_collective(const RecordFunction& function, const Row& row) noexcept {
  if (!detail::g_reads_comms.load(std::memory_order_relaxed)) return false;
  if (field_at<uint8_t>(&function, kFunctionOffset + row.string) != 0) [[likely]]
    return false;  // it has a schema
  return strcmp(field_at<const char*>(&function, kFunctionOffset), "record_param_comms") == 0;
}

// To be called in its start callback, after the records of its begin.
void record_collective(ThreadBuffer& buffer, Ticks time) noexcept;

}  // namespace torchprof::torch
