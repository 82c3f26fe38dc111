#include "tracer/objects/sight.h"

#include <cstring>

#include "tracer/objects/values.h"
#include "tracer/process/readable.h"
#include "tracer/process/seal.h"

namespace torchprof::torch {
namespace {

constexpr size_t kPage = 4096;

// As the C++ ABI writes their names: c10::TensorImpl ...
constexpr struct {
  const char* name;
  Class what;
} kClasses[] = {{"N3c1010TensorImplE", Class::kTensor},
                {"N3c1019UndefinedTensorImplE", Class::kUndefinedTensor},
                {"N3c1011StorageImplE", Class::kStorage},
                {"N3c106detail8ListImplE", Class::kList},
                {"N3c106ivalue14ConstantStringE", Class::kString}};

// Bytes of an element by c10::ScalarType: uint8, int8, int16, int32, int64, half, float, double, three complex, bool.
// Of later types it is one at least.
uint64_t element_size(uint64_t type) noexcept {
  constexpr uint8_t kSizes[] = {1, 1, 2, 4, 8, 2, 4, 8, 4, 8, 16, 1};
  return type < sizeof(kSizes) ? kSizes[type] : 1;
}

}  // namespace

bool can_read(const void* address, size_t size) noexcept {
  const seal::Calls calls;
  if (!calls) return false;
  const auto begin = reinterpret_cast<uintptr_t>(address);
  return begin >= kPage && begin + size >= begin && Readable().bytes(address, size);
}

// More than an object of some layouts has is read on purpose, which a program's AddressSanitizer would take for a fault
// in memcpy. `volatile` keeps the compiler from making one of it.
[[gnu::no_sanitize("address", "thread")]] bool read_safely(const void* address, void* out, size_t size) noexcept {
  if (!can_read(address, size)) return false;
  const auto* from = static_cast<const volatile unsigned char*>(address);
  for (size_t i = 0; i < size; ++i) static_cast<unsigned char*>(out)[i] = from[i];
  return true;
}

Class class_of(const void* object) noexcept {
  const char *vtable = nullptr, *information = nullptr, *name = nullptr;
  if (reinterpret_cast<uintptr_t>(object) % alignof(void*) != 0) return Class::kUnknown;
  if (!read_safely(object, &vtable, sizeof(vtable)) || reinterpret_cast<uintptr_t>(vtable) < kPage ||
      !read_safely(vtable - sizeof(void*), &information, sizeof(information)) || !information ||
      !read_safely(information + sizeof(void*), &name, sizeof(name)))
    return Class::kUnknown;
  for (const auto& known : kClasses) {
    char text[40];
    const size_t size = strlen(known.name) + 1;
    if (read_safely(name, text, size) && memcmp(text, known.name, size) == 0) return known.what;
  }
  return Class::kUnknown;
}

Tensor look_at(const ObjectRow& row, const unsigned char* impl, size_t size) noexcept {
  constexpr uint64_t kMostType = 127;
  if (row.sizes + kImplEnd > size) return {};
  const unsigned char* at = impl + row.sizes;
  const DeviceBytes device = read_device(row.device, at + kDevice);
  const auto dims = field_at<uint64_t>(at, kDims);
  const auto elements = field_at<uint64_t>(at, kNumel);
  const auto type = field_at<uint16_t>(at, kType);
  const auto policy = field_at<uint8_t>(at, kPolicy);
  if (device.has > 1 || type > kMostType) return {};
  if (!device.has) return dims <= 1 && elements == 0 ? Tensor{Sight::kUndefined} : Tensor{};
  // c10::Device: the CPU's index is -1 or 0, nobody has so many kinds or devices.
  if (device.type > 31 || (device.type == 0 && device.index != 0 && device.index != 0xff)) return {};
  if (!has_plain_sizes(policy)) return {Sight::kElsewhere};
  if (dims > kMaxDims) return {};
  int64_t numbers[2 * kMaxDims] = {};
  if (dims <= kMaxInlineDims)
    memcpy(numbers, at + kInline, 2 * kMaxInlineDims * sizeof(int64_t));
  else if (!read_safely(field_at<const void*>(at, kInline), numbers, 2 * dims * sizeof(int64_t)))
    return {};
  const int64_t* strides = numbers + (dims <= kMaxInlineDims ? kMaxInlineDims : dims);
  const auto offset = field_at<int64_t>(at, kStorageOffset);
  if (offset < 0) return {};
  Tensor tensor{Sight::kPlain, 1, 0};
  uint64_t last = static_cast<uint64_t>(offset);
  bool is_strided = (policy & kPolicyBits) == 0;
  for (size_t i = 0; i < dims; ++i) {
    if (numbers[i] < 0) return {};
    tensor.elements *= static_cast<uint64_t>(numbers[i]);
    is_strided = is_strided && strides[i] >= 0;
    if (is_strided && numbers[i] > 0) last += static_cast<uint64_t>(numbers[i] - 1) * static_cast<uint64_t>(strides[i]);
  }
  if (tensor.elements != elements) return {};
  if (is_strided) tensor.end = (last + 1) * element_size(type);
  return tensor;
}

// c10::StorageImpl {counted, DataPtr {void* ...} of 32 bytes, size in bytes}
bool is_storage_of(const ObjectRow& row, const unsigned char* impl, const Tensor& tensor) noexcept {
  constexpr size_t kSize = 32;
  constexpr uint64_t kMostBytes = uint64_t{1} << 47;
  const auto* storage = field_at<const char*>(impl, row.refcounted);
  uint64_t bytes = 0;
  return storage && class_of(storage) == Class::kStorage &&
         read_safely(storage + row.refcounted + kSize, &bytes, sizeof(bytes)) && tensor.end > 0 &&
         tensor.end <= bytes && bytes < kMostBytes;
}

bool is_undefined(const ObjectRow& row, const unsigned char* impl, size_t size) noexcept {
  if (look_at(row, impl, size).sight != Sight::kUndefined) return false;
  const unsigned char* at = impl + row.sizes;
  return field_at<uint64_t>(at, kDims) == 1 && field_at<int64_t>(at, kInline) == 0 &&
         field_at<int64_t>(at, kInline + kMaxInlineDims * 8) == 1 && field_at<int64_t>(at, kStorageOffset) == 0 &&
         field_at<uint16_t>(at, kType) != 0;
}

}  // namespace torchprof::torch
