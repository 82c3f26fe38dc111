// torch's layouts and symbols: one table, and the probe that verifies it in the process. No header of torch is used.
//
// Source: aten/src/ATen/record_function.{h,cpp} of torch 1.13, 2.2, 2.6, 2.14 and main, and measurements
// on 1.13.1, 2.6.0 (both string ABIs) and 2.14.1. What is the same in all of them:
//     RecordFunctionCallback   40 bytes, trivially copyable, passed by value:
//                              +0 start, +8 end, +16 double sampling probability, +24 bool scopes[10], +34
//                              needs_inputs, +35 needs_outputs, +36 needs_ids
//     RecordFunction           +88 torch's number of the thread, +96 scope; then a part whose length depends on the
//     string ABI and on
//                              kwinputs_ (2.4): the four rows of kRows in torch_abi.cpp
// The row is chosen by what at::RecordFunction::_setAsync() does to a buffer of ours: it stores one byte, at
// row.is_async. Any other place is a layout that we do not know: then names, scopes and threads are recorded, sequence
// numbers and handles are not.
#pragma once

#include <cstddef>
#include <cstdint>

namespace torchprof::torch {

struct RecordFunction;  // at::RecordFunction

// unique_ptr<at::ObserverContext>, always empty here. A destructor that is not trivial makes the C++ ABI return it in
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

struct Row {
  size_t sequence;    // int64, -1 if none
  size_t fwd_thread;  // uint64
  size_t handle;      // uint64
  size_t is_async;    // bool
  size_t inputs;      // c10::ArrayRef<const c10::IValue> {pointer, length}; valid inside the start callback only
  const char* name;   // for people
};

inline constexpr size_t kThreadOffset = 88;  // uint64, torch's number of the thread
inline constexpr size_t kScopeOffset = 96;   // uint8

struct Api {
  uint64_t (*add_callback)(Callback) = nullptr;           // at::addGlobalCallback
  const char* (*name)(const RecordFunction*) = nullptr;   // at::RecordFunction::name() const
  uint64_t (*current_thread)() = nullptr;                 // at::RecordFunction::currentThreadId()
  size_t (*num_inputs)(const RecordFunction*) = nullptr;  // at::RecordFunction::num_inputs() const
  const Row* row = nullptr;                               // nullptr: layout unknown
  unsigned version = 0;                                   // major * 100 + minor, 0: unknown
  char library[256] = "";                                 // path of libtorch_cpu
};

// libtorch_cpu, or what holds its symbols, is in the process. Microseconds.
bool loaded() noexcept;

// True once libtorch_cpu (or what holds its symbols) is in the process. Fills the table on the first such call; `why`
// is set when something that should be there is not. Walks the loaded objects; microseconds. Not for the hot path; one
// thread at a time.
bool find(Api& api, const char** why) noexcept;

}  // namespace torchprof::torch
