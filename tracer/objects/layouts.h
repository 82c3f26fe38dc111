// The numbers of torch that differ from version to version: tables, a row for each layout.
//
// A row is chosen by what the process shows, never by a version. Each row says for people in which versions it was
// seen, and where the numbers come from ([M] measured in a process of that version, [S] read in the source). What is
// the same in all versions stands beside the code that reads it (abi.h, values.cpp). Tests: check.h in every process,
// tests/unit/tracer/search_test.cpp and values_test.cpp on images of each layout, tests/e2e on 1.13.1, 2.6.0 and
// 2.14.1, tests/e2e/torch/test_unknown_torch.py without the rows.
//
// The tables are data in a file of their own, so that no compiler folds a row into the code that looks for it: support
// for one more torch can be tried by overwriting a row in the library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace torchprof::torch {

// at::RecordFunction. The row is chosen by `is_async`, which torch itself shows (abi.h).
struct Row {
  size_t sequence;    // int64, -1 if none
  size_t fwd_thread;  // uint64
  size_t handle;      // uint64
  size_t is_async;    // bool
  size_t inputs;      // c10::ArrayRef<const c10::IValue> {pointer, length}; valid inside the start callback only
  size_t keywords;    // std::unordered_map<std::string, c10::IValue>; 0: there is none
  size_t string;      // sizeof(std::string)
  const char* name;   // for people
};

// TensorImpl::device_opt_, three bytes. c10::optional has its flag first, std::optional last.
enum class DeviceOrder : uint8_t { kFlagFirst, kFlagLast };

// at::TensorImpl and every counted object. The row is found by objects of the process (search.h).
struct ObjectRow {
  size_t refcounted;  // sizeof(c10::intrusive_ptr_target), with which every counted object begins
  size_t sizes;       // of TensorImpl::sizes_and_strides_; the word before it is its slot for a PyObject
  DeviceOrder device;
  const char* name;  // for people
};

// Tags of c10::IValue. The row is found by values of the process (search.h). No tag is 255.
struct TagRow {
  uint32_t real, complex, integer;  // Double, ComplexDouble, Int
  uint32_t boolean, string, list;   // Bool, String, GenericList
  uint32_t symbols;                 // how many of SymInt, SymFloat, SymBool come right before Bool
  const char* name;                 // for people
};

// The numbers by which values are read, copied from the two rows.
struct ValueRow {
  const ObjectRow* object;
  const TagRow* tag;
  size_t refcounted, sizes;
  DeviceOrder device;
  uint8_t real, complex, integer, boolean, string, list, symbols;
};

// torch::ParamCommsDebugInfo (torch/comms.h): offsets of its members; 0: this torch has no such member.
struct CommsRow {
  const char* constructor;    // the row holds where this is exported
  size_t group_number;        // int, the group's name
  size_t group, description;  // std::string
  size_t rank, size;          // int
  size_t name;                // std::string
  size_t in;                  // elements sent; right after it, elements received
  bool is_long;               // both are int64, otherwise int
  size_t type;                // c10::ScalarType, int8
  size_t in_split;            // std::vector<int64_t> of what is sent; right after it, that of what is received
  size_t start;               // int: first global rank; right after it, int stride, std::vector<int64_t> of all ranks
  size_t is_async;            // bool
  size_t sequence;            // int64
  unsigned sequence_version;  // the version of torch that has it there
  const char* label;          // for people
};
inline constexpr size_t kVector = 24;  // sizeof(std::vector)

std::span<const Row> record_function_rows() noexcept;
std::span<const CommsRow> comms_rows() noexcept;
std::span<const ObjectRow> object_rows() noexcept;
std::span<const TagRow> tag_rows() noexcept;
ValueRow compose(const ObjectRow& object, const TagRow& tag) noexcept;

}  // namespace torchprof::torch
