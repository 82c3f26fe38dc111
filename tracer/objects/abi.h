// torch's layouts and symbols, and the probe that verifies them in the process. No header of torch is used.
//
// Source: aten/src/ATen/record_function.{h,cpp}, aten/src/ATen/core/function_schema.h of torch 1.13, 2.2, 2.6, 2.14 and
// main, and measurements on 1.13.1, 2.6.0 (both string ABIs) and 2.14.1. What is the same in all of them:
//     RecordFunctionCallback   40 bytes, trivially copyable, passed by value: +0 start, +8 end, +16 double sampling
//                              probability, +24 bool scopes[10], +34 needs_inputs, +35 needs_outputs, +36 needs_ids
//     RecordFunction           +88 torch's number of the thread, +96 scope, +160 variant of a string and a pointer to a
//                              schema; then a part whose length depends on the string ABI and on kwinputs_ (2.4): the
//                              four rows of record_function_rows() (layouts.h)
//     FunctionSchema           two strings, name and overload name, then a vector of arguments
//     std::string              begins with the pointer to its text, 32 bytes long (C++11 ABI) or 8 (old ABI)
//
// The process itself proves the layout, twice. The row is chosen by what at::RecordFunction::_setAsync() does to a
// buffer of ours: it stores one byte, at row.is_async. If that is at any other place, the layout is unknown: then
// names, scopes and threads are recorded, but no sequence numbers, handles and inputs. And at the first operators, what
// we read is compared with what torch's own functions say of the same operator (check.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tracer/objects/layouts.h"

namespace torchprof::torch {

struct RecordFunction;  // at::RecordFunction

// unique_ptr<at::ObserverContext>, always empty here. Because its destructor is not trivial, the C++ ABI returns it in
// memory, as torch expects.
struct Context {
  void* pointer = nullptr;
  Context() = default;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() {}  // "= default" would be trivial
};

struct Callback {
  Context (*start)(const RecordFunction&);
  void (*end)(const RecordFunction&, void* context);
  double sampling;
  bool scopes[10];
  bool needs_inputs;
  bool needs_outputs;
  bool needs_ids;
};
static_assert(sizeof(Callback) == 40 && offsetof(Callback, scopes) == 24 && offsetof(Callback, needs_ids) == 36);

inline constexpr size_t kThreadOffset = 88;  // uint64, torch's number of the thread
inline constexpr size_t kScopeOffset = 96;   // uint8
inline constexpr size_t kFunctionOffset = 160;

template <class T>
T field_at(const void* base, size_t offset) noexcept {
  T value;
  memcpy(&value, static_cast<const char*>(base) + offset, sizeof(T));
  return value;
}

// What RecordFunction::fn_ says. The texts are valid only while the operator runs.
struct FunctionName {
  const char* name;
  const char* overload;  // nullptr: fn_ is a string; "": the schema has none
};
inline FunctionName read_name(const RecordFunction& function, const Row& row) noexcept {
  const bool is_schema = field_at<uint8_t>(&function, kFunctionOffset + row.string) == 1;
  if (!is_schema) return {field_at<const char*>(&function, kFunctionOffset), nullptr};
  const auto* schema = field_at<const char*>(&function, kFunctionOffset);
  return {field_at<const char*>(schema, 0), field_at<const char*>(schema, row.string)};
}

// The functions of torch that we call, all in libtorch_cpu.
struct Api {
  uint64_t (*add_callback)(Callback) = nullptr;           // at::addGlobalCallback
  void (*remove_callback)(uint64_t) = nullptr;            // at::removeCallback; nullptr: it is not exported
  const char* (*name)(const RecordFunction*) = nullptr;   // at::RecordFunction::name() const
  uint64_t (*current_thread)() = nullptr;                 // at::RecordFunction::currentThreadId()
  size_t (*num_inputs)(const RecordFunction*) = nullptr;  // at::RecordFunction::num_inputs() const
  // For checks alone. The shims take an at::Tensor* (an IValue that holds a tensor is one), catch what is thrown and
  // return 0 on success; nullptr before 2.6, or where they are missing.
  int (*tensor_dim)(const void* tensor, int64_t* out) = nullptr;
  int (*tensor_sizes)(const void* tensor, const int64_t** out) = nullptr;
  int (*tensor_strides)(const void* tensor, const int64_t** out) = nullptr;
  int (*tensor_type)(const void* tensor, int32_t* out) = nullptr;

  const void* undefined = nullptr;  // c10::UndefinedTensorImpl::_singleton; nullptr: it is not exported
  size_t undefined_size = 0;        // sizeof(c10::TensorImpl)
  // Vtables, nullptr where they are not exported.
  const void* batched = nullptr;         // at::functorch::BatchedTensorImpl
  const void* legacy_batched = nullptr;  // at::BatchedTensorImpl
  const void* functional = nullptr;      // at::FunctionalTensorWrapper

  const Row* row = nullptr;         // nullptr: layout unknown
  long async_at = -1;               // the byte that _setAsync() stored; -1: none, several, or no such function
  unsigned version = 0;             // major * 100 + minor, 0: unknown. For people: no layout is chosen by it
  const char* version_source = "";  // for people
  char library[256] = "";           // path of libtorch_cpu
  void* symbols = nullptr;          // its handle, for dlsym(); never closed. RTLD_DEFAULT: it has no file of its own
  char missing[200] = "";           // symbols that are not exported, for people
};

// Whether libtorch_cpu, or another object with its symbols, is in the process. Microseconds.
bool loaded() noexcept;

// True once libtorch_cpu (or another object with its symbols) is in the process. Fills the table on the first such
// call; `why` is set when something is missing that should be there. Walks the loaded objects; microseconds. Not for
// the hot path; one thread at a time.
bool find(Api& api, const char** why) noexcept;

}  // namespace torchprof::torch
