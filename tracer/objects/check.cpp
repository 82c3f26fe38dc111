#include "tracer/objects/check.h"

#include <algorithm>

namespace torchprof::torch {
namespace {

constexpr uint64_t kMaxHandle = uint64_t{1} << 48;  // handles, threads and sequence numbers count from 0 or 1
constexpr size_t kMaxArguments = 1000;

// No function of torch returns these numbers: their values are checked instead.
const char* check_fields(const Row& row, const RecordFunction& function) noexcept {
  if (field_at<uint8_t>(&function, kScopeOffset) > 9) return "an operator has an impossible scope";
  if (field_at<uint8_t>(&function, row.is_async) > 1) return "an operator's flag is neither true nor false";
  const auto sequence = field_at<int64_t>(&function, row.sequence);
  if (sequence < -1 || sequence > static_cast<int64_t>(kMaxHandle))
    return "an operator has an impossible sequence number";
  if (field_at<uint64_t>(&function, row.fwd_thread) > kMaxHandle) return "a forward operator has an impossible thread";
  const auto handle = field_at<uint64_t>(&function, row.handle);
  return handle == 0 || handle > kMaxHandle ? "an operator has an impossible handle" : nullptr;
}

const char* check_function(const Api& api, const Row& row, const RecordFunction& function) noexcept {
  if (field_at<uint8_t>(&function, kFunctionOffset + row.string) > 1)
    return "an operator is neither a name nor a schema";
  return read_name(function, row).name == api.name(&function) ? nullptr
                                                              : "an operator's name is not where it should be";
}

// std::unordered_map of libstdc++:
// {buckets, bucket count, first node, elements, {float load factor, next resize}, the single bucket of an empty map}
const char* check_keywords(const Row& row, const RecordFunction& function) noexcept {
  const char* map = reinterpret_cast<const char*>(&function) + row.keywords;
  const auto* buckets = field_at<const char*>(map, 0);
  const auto elements = field_at<size_t>(map, 24);
  const bool is_fresh = buckets == map + 48 && field_at<size_t>(map, 8) == 1;
  const bool has_first = field_at<const void*>(map, 16) != nullptr;
  return field_at<float>(map, 32) == 1.0f && has_first == (elements != 0) && (is_fresh || buckets != nullptr) &&
                 elements < kMaxArguments
             ? nullptr
             : "an operator's keyword inputs are not a map";
}

const char* check_inputs(const Api& api, const Row& row, const ValueRow& values,
                         const RecordFunction& function) noexcept {
  const auto* inputs = field_at<const char*>(&function, row.inputs);
  const auto length = field_at<size_t>(&function, row.inputs + 8);
  if (length == 0) return nullptr;
  if (!inputs || reinterpret_cast<uintptr_t>(inputs) % 8 != 0 || length > kMaxArguments)
    return "an operator's inputs are something else";
  const size_t count = std::min(length, api.num_inputs(&function));
  for (size_t i = length - count; i < length; ++i) {
    const void* value = inputs + i * kValueSize;
    const auto tag = field_at<uint32_t>(value, 8);
    const PlainTensor tensor = read_tensor(values, value);
    const bool is_object = tensor.sizes || tag == values.list || tag == values.string;
    if (is_object && !has_header(values, field_at<const void*>(value, 0))) return "an object has another header";
    if (tag == values.list)
      if (const char* found = check_list(values, field_at<const void*>(value, 0))) return found;
    if (!tensor.sizes) continue;
    // We take it for a plain tensor: then the shims read it without a virtual call.
    int64_t dims = 0;
    const int64_t *sizes = nullptr, *strides = nullptr;
    int32_t type = 0;
    if (api.tensor_dim && (api.tensor_dim(value, &dims) != 0 || dims != static_cast<int64_t>(tensor.dims)))
      return "a tensor has another number of dimensions";
    if (api.tensor_sizes && (api.tensor_sizes(value, &sizes) != 0 || sizes != tensor.sizes))
      return "a tensor's sizes lie elsewhere";
    if (api.tensor_strides && tensor.strides && (api.tensor_strides(value, &strides) != 0 || strides != tensor.strides))
      return "a tensor's strides lie elsewhere";
    if (api.tensor_type && (api.tensor_type(value, &type) != 0 || type != tensor.type))
      return "a tensor has another type";
  }
  return nullptr;
}

}  // namespace

Findings check(const Api& api, const Row& row, const ValueRow* values, const RecordFunction& function) noexcept {
  Findings found;
  found.fields = check_fields(row, function);
  if (found.fields) return found;
  found.function = check_function(api, row, function);
  if (row.keywords) found.keywords = check_keywords(row, function);
  if (values) found.inputs = check_inputs(api, row, *values, function);
  return found;
}

}  // namespace torchprof::torch
