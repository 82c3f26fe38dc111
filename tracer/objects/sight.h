// What one object of torch looks like, told from its bytes: its class, and what a row of layouts.h makes of it. For the
// search (search.h), which lays many objects beside all rows.
//
// The class is told by the type information of the object's vtable (Itanium C++ ABI: the word before the first virtual
// function leads to {vptr, name}), which stands in the same place in every torch.
//
// Off the hot path: system calls for each object. Nothing of torch is called, nothing is written. Any address may come.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tracer/objects/layouts.h"

namespace torchprof::torch {

// The kernel says that it can be read. False as well where the kernel must not be asked (process/seal.h).
bool can_read(const void* address, size_t size) noexcept;
// Copies what can be read: all or nothing.
bool read_safely(const void* address, void* out, size_t size) noexcept;

enum class Class : uint8_t { kUnknown, kTensor, kUndefinedTensor, kStorage, kList, kString };
Class class_of(const void* object) noexcept;

enum class Sight : uint8_t {
  kNo,         // no tensor looks like this
  kUndefined,  // has no device
  kElsewhere,  // has its sizes elsewhere
  kPlain,
};
struct Tensor {
  Sight sight = Sight::kNo;
  uint64_t elements = 0;
  uint64_t end = 0;  // bytes of the storage that it needs
};

// What the row makes of the bytes of a TensorImpl, of which `size` are there.
Tensor look_at(const ObjectRow& row, const unsigned char* impl, size_t size) noexcept;
// The object's storage is a c10::StorageImpl that holds what the tensor needs.
bool is_storage_of(const ObjectRow& row, const unsigned char* impl, const Tensor& tensor) noexcept;
// It is what the constructor of c10::UndefinedTensorImpl leaves: one dimension of no elements, stride 1, no storage, no
// device and the type that stands for none.
bool is_undefined(const ObjectRow& row, const unsigned char* impl, size_t size) noexcept;

}  // namespace torchprof::torch
