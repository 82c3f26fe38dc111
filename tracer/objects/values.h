// Reads what at::RecordFunction holds of an operator's inputs: c10::IValue and at::TensorImpl, without a header of
// torch.
//
// Two tables (layouts.h) have the numbers that differ from torch to torch; everything relative to them is the same from
// 1.13 to 2.14. Which rows hold is found in the process (search.h). Source: c10/core/TensorImpl.h,
// aten/src/ATen/core/ivalue.h of those versions, and measurements on 1.13.1, 2.6.0, 2.11.0 and 2.14.1. Each tensor that
// is read proves the row again: its number of elements must be the product of its sizes. The first for which that is
// not so turns inputs off for good, with a note. Nothing is kept alive: sizes are copied, no reference is taken.
//
// Encoding of inputs, a string of bytes that is interned (operators with equal inputs share it), read by
// formats/values/inputs.h:
//
//     inputs  := arg* ['+'] keyword* ['+']        '+': more follow that were not kept
//     arg     := 'T' tensor
//              | 'U'                              undefined tensor
//              | 'X' type device                  a tensor whose sizes must not be read: symbolic, nested ...
//              | '(' n arg*                       a list of tensors
//              | 'O' n arg*                       a list of tensors and None, where its type allows both
//              | '[' n arg*                       a list of anything else; all three kinds end early at '+', in the
//                                                 place of the first of the n that were not kept
//              | 'I' zigzag                       an integer
//              | 'B' byte                         a truth value
//              | 'D' 8 bytes                      a floating-point number
//              | 'C' 16 bytes                     a complex number
//              | 'S' n bytes*                     a string
//              | 'N'                              None
//              | 'Y'                              a symbolic number, as in torch.compile
//              | '?'                              anything else
//     tensor  := type device strides n size* [stride*]
//     device  := type index                       c10::DeviceType; index is signed
//     type    := byte                             c10::ScalarType
//     strides := byte                             0 they follow, 1 exactly contiguous, 2 none (sparse)
//     keyword := 'K' n bytes* arg                 name and value; the value is a scalar, a string or a list of these
//
// n and size are varints, zigzag and stride are zigzag varints.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tracer/objects/abi.h"

namespace torchprof::torch {

inline constexpr uint8_t kTensorTag = 1;
// Offsets relative to ObjectRow::sizes: number of dimensions, first size, storage offset, number of elements, type,
// device, policy; the end of key_set_.
inline constexpr size_t kDims = 0, kInline = 8, kStorageOffset = 88, kNumel = 96, kType = 104, kDevice = 106,
                        kPolicy = 110, kImplEnd = 120;
inline constexpr uint64_t kMaxInlineDims = 5;
inline constexpr uint64_t kMaxDims = 64;
// Bits of the byte at kPolicy: SizesStridesPolicy (1: strides are elsewhere, as those of sparse tensors; 2: sizes,
// too), then symbolic sizes.
inline constexpr uint8_t kPolicyBits = 0x0c, kStridesElsewhere = 0x04, kSymbolic = 0x10;
constexpr bool has_plain_sizes(uint8_t policy) noexcept {
  return (policy & kPolicyBits) <= kStridesElsewhere && !(policy & kSymbolic);
}

struct DeviceBytes {
  uint8_t has;  // an undefined tensor has none
  uint8_t type, index;
};
// `at`: TensorImpl::device_opt_.
inline DeviceBytes read_device(DeviceOrder order, const void* at) noexcept {
  uint8_t b[3];
  memcpy(b, at, sizeof(b));
  return order == DeviceOrder::kFlagFirst ? DeviceBytes{b[0], b[1], b[2]} : DeviceBytes{b[2], b[0], b[1]};
}

inline constexpr size_t kValueSize = 16;  // sizeof(c10::IValue): payload, u32 tag
// Bytes of an encoding. Of more than that everything that no list of tensors holds is kept first; these lists share the
// room that is left. What does not fit is cut, with '+'.
inline constexpr size_t kMaxInputs = 2048;

// Encodes `count` inputs at `values` (c10::IValue[]), then those in `keywords` (a std::unordered_map<std::string,
// c10::IValue> whose strings have `string_size` bytes, or nullptr). Returns the bytes written; 0: one of them disproved
// the row, which must not be used again. Hot: no allocation, no lock, nothing of torch is called.
size_t encode_inputs(const ValueRow& row, const void* values, size_t count, const void* keywords, size_t string_size,
                     unsigned char* out) noexcept;

// A Python argument that is no tensor, as torch.profiler would record it.
struct PlainValue {
  enum class Kind : uint8_t { kTensor, kNone, kInteger, kBoolean, kReal, kComplex, kList, kOther };
  Kind kind = Kind::kOther;
  union {
    int64_t integer = 0;  // or a truth value; for a list, how many of the values that follow are its elements
    double number[2];     // real, imaginary
  };
};
// As encode_inputs(), for arguments in their order; each kTensor stands for the next of `tensors` (c10::IValue[]).
size_t encode_arguments(const ValueRow& row, const PlainValue* arguments, size_t count, const void* tensors,
                        unsigned char* out) noexcept;

// Vtables of classes whose sizes or strides need a second look; nullptr: libtorch_cpu does not export it. To be set
// once, before the first tensor is read.
//     at::functorch::BatchedTensorImpl, at::BatchedTensorImpl (vmap): strides_custom() returns the object's own
//     at::FunctionalTensorWrapper: sizes_custom() and strides_custom() return those of the tensor inside it
// Source: BatchedTensorImpl.cpp, LegacyBatchedTensorImpl.cpp, FunctionalTensorWrapper.cpp of 1.13 to 2.14; offsets [M]
// 1.13.1, 2.6.0, 2.14.1. at::functorch::TensorWrapper (grad, jvp) has both where any tensor has them.
struct Wrappers {
  const void* batched = nullptr;
  const void* legacy_batched = nullptr;
  const void* functional = nullptr;
};
void know_wrappers(const Wrappers& wrappers) noexcept;

inline constexpr size_t kMapSize = 24;  // offset in the map of the number of its elements
inline bool has_keywords(const void* map) noexcept { return field_at<size_t>(map, kMapSize) != 0; }

// Whether a counted object (a tensor that is defined, a list, a string) begins as the row says. Up to 2.2
// c10::intrusive_ptr_target ends with the count of weak references, a word of its own. Without it, that word is a
// pointer or nullptr: a tensor's storage, a list's first element, a string's text.
bool has_header(const ValueRow& row, const void* object) noexcept;

// Whether the type of a list (ListImpl) says that all its elements are tensors; also for an empty list.
bool is_list_of_tensors(const ValueRow& row, const void* list) noexcept;
// For check.cpp: what is wrong with a list, or nullptr.
const char* check_list(const ValueRow& row, const void* list) noexcept;

// What is read of a value by the row, for check.cpp.
struct PlainTensor {
  uint64_t dims = 0;
  const int64_t* sizes = nullptr;    // nullptr: not a tensor, or one whose sizes must not be read
  const int64_t* strides = nullptr;  // nullptr: it has none
  int type = 0;                      // c10::ScalarType
};
PlainTensor read_tensor(const ValueRow& row, const void* value) noexcept;

// ---- tensors that Python holds --------------------------------------------------------------------------------------
//
// To be called with the GIL held, so that the objects stay. THPVariable {PyObject, MaybeOwned<Tensor> {bool,
// TensorImpl*} (up to 2.9) or Tensor {TensorImpl*} ...}: python_variable.h. Every tensor proves the layout:
// TensorImpl's slot for its PyObject, the word before its sizes, leads back to the object. Measured on 1.13.1, 2.6.0,
// 2.14.1.

// The TensorImpl of a torch.Tensor; nullptr: it does not look as the row says.
const void* tensor_of(const ValueRow& row, const void* python_object) noexcept;

// The TensorImpl of its `.grad`; nullptr: it has none, or that cannot be found out. AutogradMeta is {vptr, std::string
// name, Tensor grad}; read only with an empty name in the C++11 string ABI, whose pointer into itself proves the
// layout.
const void* gradient_of(const ValueRow& row, const void* impl) noexcept;

// Encodes one tensor as encode_inputs() does. After 'T' tensor come the address of its storage's data (a varint, 0:
// none) and the tensor's offset in it, in elements (a zigzag varint). Returns the bytes written, at most kMaxTensor; 0:
// the row is wrong.
inline constexpr size_t kMaxTensor = 64 * 20 + 64;
size_t encode_tensor(const ValueRow& row, const void* impl, unsigned char* out) noexcept;

}  // namespace torchprof::torch
