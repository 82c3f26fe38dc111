// Inputs of operators that a thread has met lately, and their ids. Most operators come again with tensors of the same
// shapes, and to compare what was read of them takes a third of the time of encoding and interning it
// (objects/values.h).
//
// The key of an operator's inputs is a few words: of a tensor its type, device, sizes and strides, of a number its
// value, of a list its elements, of what is not looked into its tag alone. Equal keys have equal encodings; addresses
// and data are in neither. Strings, complex numbers, tensors of more than five dimensions, those whose sizes lie
// elsewhere and those of sizes or strides beyond 32 bits have no key.
//
// A table of 512 sets of two, found by the operator's name and the key. The one that came first makes way. Belongs to
// one thread. 256 KiB, of which a program touches what it uses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tracer/objects/values.h"
#include "tracer/source_memory.h"
#include "tracer/spool/ids.h"

namespace torchprof::torch {

inline constexpr size_t kMostKeyWords = 30;

class InputsKey {
 public:
  explicit InputsKey(const ValueRow& row) noexcept : row_(row) {}

  // Words written; 0: the inputs have no key.
  size_t write(const char* values, size_t count) noexcept {
    for (size_t i = 0; i < count; ++i)
      if (!add(values + i * kValueSize, true)) return 0;
    return size_;
  }
  const uint64_t* words() const noexcept { return words_; }

 private:
  static constexpr int kDeviceAt = 16, kDimsAt = 40, kPolicyAt = 48, kKindAt = 56;
  static constexpr uint64_t kMostHalf = UINT32_MAX;
  enum Kind : uint64_t {
    kTensor = uint64_t{1} << kKindAt,
    kInteger = uint64_t{2} << kKindAt,
    kLargeInteger = uint64_t{3} << kKindAt,  // the next word has it
    kReal = uint64_t{4} << kKindAt,
    kBoolean = uint64_t{5} << kKindAt,
    kOther = uint64_t{6} << kKindAt,
    kIntegers = uint64_t{7} << kKindAt,
    kList = uint64_t{8} << kKindAt,
    kListOfTensors = uint64_t{9} << kKindAt,
  };

  size_t room() const noexcept { return kMostKeyWords - size_; }
  bool put(uint64_t word) noexcept {
    words_[size_++] = word;
    return true;
  }

  bool add(const char* value, bool may_nest) noexcept {
    const auto tag = field_at<uint32_t>(value, 8);
    if (tag == kTensorTag) return add_tensor(field_at<const char*>(value, 0) + row_.sizes);
    if (room() < 2) return false;
    if (tag == row_.integer) {
      const auto integer = field_at<uint64_t>(value, 0);
      return integer <= kMostHalf ? put(kInteger | integer) : put(kLargeInteger) && put(integer);
    }
    if (tag == row_.real) return put(kReal) && put(field_at<uint64_t>(value, 0));
    if (tag == row_.boolean) return put(kBoolean | field_at<uint8_t>(value, 0));
    if (tag == row_.list && may_nest) return add_list(field_at<const char*>(value, 0));
    if (tag == row_.complex || tag == row_.string) return false;
    return put(kOther | tag);  // None among them
  }

  // A word for the type, then one for each dimension: its size and its stride.
  bool add_tensor(const char* sizes) noexcept {
    // Of the eight bytes at kType: the type, the device and the policy. The others take the dimensions and the kind.
    static_assert(kDevice == kType + 2 && kPolicy == kType + 6);
    constexpr uint64_t kRead = 0x00ff'00ff'ffff'ffff;
    constexpr uint64_t kSpecial = uint64_t{kPolicyBits | kSymbolic} << kPolicyAt;
    const uint64_t has_device = uint64_t{0xff} << (kDeviceAt + (row_.device == DeviceOrder::kFlagFirst ? 0 : 16));
    const uint64_t kind = field_at<uint64_t>(sizes, kType) & kRead;
    const auto dims = field_at<uint64_t>(sizes, kDims);
    if (dims > kMaxInlineDims || (kind & kSpecial) != 0 || (kind & has_device) == 0 || room() < 1 + dims) return false;
    put(kind | dims << kDimsAt | kTensor);
    uint64_t all = 0;
    for (size_t d = 0; d < dims; ++d) {
      const auto size = field_at<uint64_t>(sizes, kInline + d * 8);
      const auto stride = field_at<uint64_t>(sizes, kInline + (kMaxInlineDims + d) * 8);
      put(size | stride << 32);
      all |= size | stride;
    }
    return all <= kMostHalf;
  }

  bool add_list(const char* list) noexcept {
    const auto begin = field_at<const char*>(list, row_.refcounted);
    const auto end = field_at<const char*>(list, row_.refcounted + 8);
    const auto count = static_cast<size_t>(end - begin) / kValueSize;
    const bool is_of_tensors = is_list_of_tensors(row_, list);
    if (count >= room()) return false;
    if (count > 0 && !is_of_tensors && field_at<uint32_t>(begin, 8) == row_.integer) {
      put(kIntegers | count);
      for (size_t i = 0; i < count; ++i) {
        if (field_at<uint32_t>(begin, i * kValueSize + 8) != row_.integer) return false;
        put(field_at<uint64_t>(begin, i * kValueSize));
      }
      return true;
    }
    put(count | (is_of_tensors ? kListOfTensors : kList));
    for (size_t i = 0; i < count; ++i)
      if (!add(begin + i * kValueSize, false)) return false;
    return true;
  }

  const ValueRow& row_;
  uint64_t words_[kMostKeyWords];
  size_t size_ = 0;
};

class KnownInputs {
 public:
  static constexpr Mapping kMapping = Mapping::kTorchInputs;

  // None: not known.
  StringId find(StringId name, const uint64_t* key, size_t words) noexcept {
    const Set& set = set_of(name, key, words);
    for (const Way& way : set.ways)
      if (is(way, name, key, words)) return way.inputs;
    return {};
  }
  // They are not known yet.
  void keep(StringId name, const uint64_t* key, size_t words, StringId inputs) noexcept {
    Set& set = set_of(name, key, words);
    uint16_t& next = set.ways[0].next;
    Way& way = set.ways[next & 1];
    ++next;
    way.name = name;
    way.inputs = inputs;
    way.words = static_cast<uint16_t>(words);
    memcpy(way.key, key, words * sizeof(*key));
  }

 private:
  static constexpr size_t kSets = 512;
  struct alignas(64) Way {
    StringId name;  // none: the way is free
    StringId inputs;
    uint16_t words;
    uint16_t next;  // of the first of a set: the lowest bit says which one makes way next
    uint64_t key[kMostKeyWords];
  };
  struct Set {
    Way ways[2];
  };

  // Words times odd numbers that have nothing to do with each other: one multiplication does not wait for another.
  Set& set_of(StringId name, const uint64_t* key, size_t words) noexcept {
    constexpr uint64_t kFactor = 0x9e3779b97f4a7c15;  // 2^64 divided by the golden ratio
    uint64_t hash = name.value * kFactor, factor = kFactor;
    for (size_t i = 0; i < words; ++i) {
      factor += kFactor << 1;
      hash += key[i] * factor;
    }
    hash *= kFactor;
    return sets_[hash >> 32 & (kSets - 1)];
  }
  static bool is(const Way& way, StringId name, const uint64_t* key, size_t words) noexcept {
    if (way.name != name || way.words != words) return false;
    uint64_t differ = 0;
    for (size_t i = 0; i < words; ++i) differ |= way.key[i] ^ key[i];
    return differ == 0;
  }

  Set sets_[kSets];
};

}  // namespace torchprof::torch
