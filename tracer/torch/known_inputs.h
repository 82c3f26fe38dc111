// Inputs of operators that a thread has met lately, and their ids. Most operators come again with tensors of the same
// shapes, and to compare what was read of them takes a third of the time of encoding and interning it
// (objects/values.h).
//
// The key of a list of inputs is a few words: of a tensor its type, device, sizes and strides, of a scalar its value.
// Equal keys have equal encodings; addresses and data are in neither. Lists, strings, complex numbers, tensors of more
// than five dimensions and those whose sizes lie elsewhere have no key.
//
// An operator's set is that of its name, and has eight ways. A way remembers which one came after it: the layers of a
// model follow each other in the same order in each step. Belongs to one thread. 100 KiB, of which a program touches
// what it uses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tracer/objects/values.h"
#include "tracer/source_memory.h"
#include "tracer/spool/ids.h"

namespace torchprof::torch {

inline constexpr size_t kMostKeyWords = 21;

// Words written to `key`; 0: the inputs have none.
inline size_t key_of_inputs(const ValueRow& row, const void* values, size_t count,
                            uint64_t (&key)[kMostKeyWords]) noexcept {
  // Of the eight bytes at kType: the type, the device and the policy. The others take the dimensions and the tag.
  static_assert(kDevice == kType + 2 && kPolicy == kType + 6);
  constexpr uint64_t kRead = 0x00ff'00ff'ffff'ffff;
  constexpr int kDeviceAt = 16, kDimsAt = 40, kPolicyAt = 48, kTagAt = 56;
  constexpr uint64_t kTensorKey = uint64_t{1} << kTagAt, kScalarKey = uint64_t{2} << kTagAt;
  constexpr uint64_t kSpecial = uint64_t{kPolicyBits | kSymbolic} << kPolicyAt;
  const uint64_t has_device = uint64_t{0xff} << (kDeviceAt + (row.device == DeviceOrder::kFlagFirst ? 0 : 16));
  constexpr size_t kMostWords = 1 + 2 * kMaxInlineDims;  // of one input
  uint64_t* at = key;
  for (size_t i = 0; i < count; ++i) {
    if (at > key + kMostKeyWords - kMostWords) return 0;
    const char* value = static_cast<const char*>(values) + i * kValueSize;
    const auto tag = field_at<uint32_t>(value, 8);
    if (tag == kTensorTag) {
      const char* sizes = field_at<const char*>(value, 0) + row.sizes;
      const uint64_t kind = field_at<uint64_t>(sizes, kType) & kRead;
      const auto dims = field_at<uint64_t>(sizes, kDims);
      if (dims > kMaxInlineDims || (kind & kSpecial) != 0 || (kind & has_device) == 0) return 0;
      *at++ = kind | dims << kDimsAt | kTensorKey;
      for (size_t d = 0; d < dims; ++d) {
        at[d] = field_at<uint64_t>(sizes, kInline + d * 8);
        at[dims + d] = field_at<uint64_t>(sizes, kInline + (kMaxInlineDims + d) * 8);
      }
      at += 2 * dims;
    } else if (tag == row.integer || tag == row.real) {
      *at++ = tag | kScalarKey;
      *at++ = field_at<uint64_t>(value, 0);
    } else if (tag == row.boolean) {
      *at++ = tag | kScalarKey;
      *at++ = field_at<uint8_t>(value, 0);
    } else if (tag == 0) {  // None
      *at++ = kScalarKey;
    } else {
      return 0;
    }
  }
  return static_cast<size_t>(at - key);
}

class KnownInputs {
 public:
  static constexpr Mapping kMapping = Mapping::kTorchInputs;

  // None: not known.
  StringId find(StringId name, const uint64_t* key, size_t words) noexcept {
    Set& set = sets_[name.value % kSets];
    const uint8_t expected = set.next[set.last];
    if (is(set.ways[expected], name, key, words)) [[likely]] {
      set.last = expected;
      return set.ways[expected].inputs;
    }
    for (uint8_t i = 0; i < kWays; ++i) {
      if (!is(set.ways[i], name, key, words)) continue;
      set.next[set.last] = i;
      set.last = i;
      return set.ways[i].inputs;
    }
    return {};
  }
  // They are not known yet. The oldest ones of the set are forgotten.
  void keep(StringId name, const uint64_t* key, size_t words, StringId inputs) noexcept {
    Set& set = sets_[name.value % kSets];
    const auto i = static_cast<uint8_t>(set.oldest++ % kWays);
    Way& way = set.ways[i];
    way.name = name;
    way.inputs = inputs;
    way.words = words;
    memcpy(way.key, key, words * sizeof(*key));
    set.next[set.last] = i;
    set.last = i;
  }

 private:
  static constexpr size_t kSets = 64, kWays = 8;
  struct Way {
    StringId name;  // none: the way is free
    StringId inputs;
    uint64_t words;
    uint64_t key[kMostKeyWords];
  };
  struct Set {
    uint8_t last, oldest;
    uint8_t next[kWays];  // the way that came after this one
    Way ways[kWays];
  };
  static bool is(const Way& way, StringId name, const uint64_t* key, size_t words) noexcept {
    if (way.name != name || way.words != words) return false;
    uint64_t differ = 0;
    for (size_t i = 0; i < words; ++i) differ |= way.key[i] ^ key[i];
    return differ == 0;
  }

  Set sets_[kSets];
};

}  // namespace torchprof::torch
