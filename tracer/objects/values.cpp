#include "tracer/objects/values.h"

#include <cstring>

#include "tracer/spool/varint.h"

namespace torchprof::torch {

namespace {

constexpr uint8_t kNone = 0, kTensor = kTensorTag;
constexpr size_t kEnd = 120;  // of a TensorImpl, relative to its sizes; a derived class has its own members there

// c10::detail::ListImpl {counted, std::vector<c10::IValue>, c10::TypePtr of its elements, whose first word is the
// c10::Type*}; Type {vptr, TypeKind}. TypeKind::TensorType: [M] 1.13.1, 2.6.0, 2.14.1; check.h compares it with the
// elements.
constexpr size_t kListType = 24, kTypeKind = 8;
constexpr int32_t kTensorKind = 3;

Wrappers g_wrappers;  // written before the first operator is seen

bool is_of(const void* object, const void* vtable) noexcept {
  constexpr size_t kFunctions = 16;  // after the offset to the whole object and the pointer to its type information
  return vtable && field_at<const char*>(object, 0) == static_cast<const char*>(vtable) + kFunctions;
}
bool is_batched(const void* impl) noexcept {
  return is_of(impl, g_wrappers.batched) || is_of(impl, g_wrappers.legacy_batched);
}

enum Strides : uint8_t { kStridesFollow, kStridesContiguous, kStridesNone };

// std::unordered_map of libstdc++: offset of the first node; a node is {next node, key, value}.
constexpr size_t kMapFirst = 16, kNodeNext = 0, kNodeKey = 8;
constexpr size_t kMaxKey = 64, kMaxText = 256;  // bytes of a keyword's name, and of a string that it holds
constexpr size_t kMostListed = 30;              // elements of a list of numbers that a reader looks at

class Encoder {
 public:
  Encoder(const ValueRow& row, unsigned char* out, size_t room = kMaxInputs) noexcept
      : row_(row), begin_(out), at_(out), end_(out + room - kReserve) {}

  // Whoever returns false has found the row to be wrong.

  // Everything. is_full(): it was too much, and something is missing.
  bool inputs(const void* values, size_t count, const void* map, size_t string_size) noexcept {
    for (size_t i = 0; i < count && !is_full(); ++i)
      if (!value(input(values, i), true)) return false;
    return is_full() || !map || keywords(map, string_size);
  }

  // What fits, where everything was too much. Numbers and types come first: they say what the operator does. Lists of
  // tensors share the room that these leave, each by the number of its elements.
  [[gnu::noinline, gnu::cold]] bool inputs_that_fit(const void* values, size_t count, const void* map,
                                                    size_t string_size) noexcept {
    if (map && !keywords(map, string_size)) return false;
    no_room_ = false;
    const size_t of_keywords = std::min(size(), static_cast<size_t>(end_ - begin_) / 2);
    end_ -= of_keywords;
    const auto room = static_cast<size_t>(end_ - begin_);
    size_t fixed = 0, elements = 0;
    for (size_t i = 0; i < count && fixed < room; ++i) {
      at_ = begin_;
      const List list = list_in(input(values, i));
      if (!list.is_of_tensors()) {
        if (!brief_value(input(values, i), list)) return false;
      } else {
        begin_list(list);
        mark_cut();
        elements += list.count;
      }
      fixed += size();
    }
    at_ = begin_;
    size_t spare = room - std::min(room, fixed);
    for (size_t i = 0; i < count; ++i) {
      unsigned char* const before = at_;
      const List list = list_in(input(values, i));
      no_room_ = false;
      if (!list.is_of_tensors()) {
        if (!brief_value(input(values, i), list)) return false;
      } else {
        begin_list(list);
        const unsigned char* const first = at_;
        const size_t share = elements ? spare * list.count / elements : 0;
        if (!elements_of(list, list.count, std::min<const unsigned char*>(end_, at_ + share))) return false;
        no_room_ = false;
        spare -= std::min(spare, static_cast<size_t>(at_ - first));
        elements -= std::min(elements, list.count);
      }
      if (!is_full()) continue;
      at_ = before;
      mark_cut();
      break;
    }
    end_ += of_keywords;
    no_room_ = false;
    return !map || keywords(map, string_size);
  }

  bool tensor_with_storage(const void* impl) noexcept {
    if (!tensor(impl)) return false;
    if (*begin_ != 'T') return true;
    if (!has_header(row_, impl)) return false;
    const auto storage = field_at<const void*>(impl, row_.refcounted);
    varint(storage ? field_at<uint64_t>(storage, row_.refcounted) : 0);
    zigzag(field_at<int64_t>(impl, row_.sizes + kStorageOffset));
    return true;
  }

  bool arguments(const PlainValue* arguments, size_t count, const void* tensors) noexcept {
    size_t in_list = 0;
    for (size_t i = 0, seen = 0; i < count; ++i) {
      unsigned char* const before = at_;
      if (arguments[i].kind != PlainValue::Kind::kTensor)
        plain(arguments[i]);
      else if (!value(input(tensors, seen++), false))
        return false;
      if (is_full()) {
        at_ = before;
        mark_cut();
        if (in_list > 0) mark_cut();  // of the list, then of all
        return true;
      }
      if (in_list > 0)
        --in_list;
      else if (arguments[i].kind == PlainValue::Kind::kList)
        in_list = static_cast<size_t>(arguments[i].integer);
    }
    return true;
  }

  bool is_full() const noexcept { return no_room_ || at_ > end_; }
  size_t size() const noexcept { return static_cast<size_t>(at_ - begin_); }

 private:
  // Room behind end_ for the longest single value that is written without asking for room. Tensors and texts ask.
  static constexpr size_t kReserve = 64;

  struct List {
    const char* begin;
    size_t count;
    char tag;  // as it is encoded; 0: the value is no list
    bool is_of_tensors() const noexcept { return tag == '(' || tag == 'O'; }
  };

  static const char* input(const void* values, size_t i) noexcept {
    return static_cast<const char*>(values) + i * kValueSize;
  }
  void mark_cut() noexcept { byte('+'); }
  void byte(uint8_t value) noexcept { *at_++ = value; }
  void varint(uint64_t value) noexcept { at_ = put_varint(at_, value); }
  void zigzag(int64_t value) noexcept { varint(zigzag_of(value)); }

  bool value(const void* value, bool may_nest) noexcept {
    const auto tag = field_at<uint32_t>(value, 8);
    if (tag == kTensor) return tensor(field_at<const void*>(value, 0));
    if (tag == row_.integer) {
      byte('I');
      zigzag(field_at<int64_t>(value, 0));
    } else if (tag == row_.real) {
      byte('D');
      memcpy(at_, value, 8);
      at_ += 8;
    } else if (tag == kNone) {
      byte('N');
    } else if (tag == row_.complex) {  // ComplexHolder {counted, alignas(16) double[2]}
      byte('C');
      memcpy(at_, field_at<const char*>(value, 0) + ((row_.refcounted + 15) & ~size_t{15}), 16);
      at_ += 16;
    } else if (is_symbolic(tag)) {
      byte('Y');
    } else if (tag == row_.boolean) {
      byte('B');
      byte(field_at<uint8_t>(value, 0));
    } else if (tag == row_.list && may_nest) {
      const List list = list_at(field_at<const void*>(value, 0));
      begin_list(list);
      return elements_of(list, list.count, end_);
    } else if (tag == row_.string) {
      string(field_at<const void*>(value, 0), kReserve / 2);
    } else {
      byte('?');
    }
    return true;
  }

  void plain(const PlainValue& value) noexcept {
    switch (value.kind) {
      case PlainValue::Kind::kNone:
        return byte('N');
      case PlainValue::Kind::kInteger:
        byte('I');
        return zigzag(value.integer);
      case PlainValue::Kind::kBoolean:
        byte('B');
        return byte(value.integer != 0);
      case PlainValue::Kind::kReal:
      case PlainValue::Kind::kComplex: {
        const bool is_real = value.kind == PlainValue::Kind::kReal;
        byte(is_real ? 'D' : 'C');
        memcpy(at_, value.number, is_real ? 8 : 16);
        at_ += is_real ? 8 : 16;
        return;
      }
      case PlainValue::Kind::kList:
        byte('[');
        return varint(static_cast<uint64_t>(value.integer));
      case PlainValue::Kind::kTensor:
      case PlainValue::Kind::kOther:
        return byte('?');
    }
  }

  bool is_symbolic(uint32_t tag) const noexcept { return tag < row_.boolean && tag + row_.symbols >= row_.boolean; }

  List list_in(const void* value) const noexcept {
    return field_at<uint32_t>(value, 8) == row_.list ? list_at(field_at<const void*>(value, 0)) : List{};
  }
  List list_at(const void* list) const noexcept {
    const auto begin = field_at<const char*>(list, row_.refcounted);
    const auto end = field_at<const char*>(list, row_.refcounted + 8);
    const auto count = static_cast<size_t>(end - begin) / kValueSize;
    return {begin, count, is_list_of_tensors(row_, list) ? '(' : has_tensors(begin, count) ? 'O' : '['};
  }
  void begin_list(const List& list) noexcept {
    byte(static_cast<uint8_t>(list.tag));
    varint(list.count);
  }
  // The first `most` elements, as far as they end before `limit`.
  bool elements_of(const List& list, size_t most, const unsigned char* limit) noexcept {
    for (size_t i = 0; i < list.count; ++i) {
      unsigned char* const before = at_;
      if (i < most && !value(list.begin + i * kValueSize, false)) return false;
      if (i < most && !no_room_ && at_ <= limit) continue;
      at_ = before;
      mark_cut();
      no_room_ = true;
      break;
    }
    return true;
  }
  // One that is no list of tensors; `list`: list_in() of it.
  bool brief_value(const void* value, const List& list) noexcept {
    if (!list.tag) return this->value(value, false);
    begin_list(list);
    if (!elements_of(list, kMostListed, end_)) return false;
    no_room_ = false;
    return true;
  }

  bool keywords(const void* map, size_t string_size) noexcept {
    size_t left = field_at<size_t>(map, kMapSize);
    for (const void* node = field_at<const void*>(map, kMapFirst); node && left > 0; --left) {
      unsigned char* const before = at_;
      byte('K');
      text(field_at<const char*>(node, kNodeKey), kMaxKey);
      if (!is_full() && !keyword_value(static_cast<const char*>(node) + kNodeKey + string_size)) return false;
      if (is_full()) {
        at_ = before;
        mark_cut();
        no_room_ = true;
        return true;
      }
      node = field_at<const void*>(node, kNodeNext);
    }
    return true;
  }

  bool keyword_value(const char* held) noexcept {
    const auto tag = field_at<uint32_t>(held, 8);
    if (tag == kTensor)
      byte('?');  // its sizes are not shown
    else if (tag == row_.string)
      string(field_at<const void*>(held, 0), kMaxText);
    else
      return value(held, true);
    return true;
  }

  // Whether the first element that is not None is a tensor.
  static bool has_tensors(const char* begin, size_t count) noexcept {
    size_t i = 0;
    while (i < count && field_at<uint32_t>(begin + i * kValueSize, 8) == kNone) ++i;
    return i < count && field_at<uint32_t>(begin + i * kValueSize, 8) == kTensor;
  }

  // ivalue::ConstantString {counted, std::string}: in both string ABIs the first word points to the text; the NUL shows
  // its length.
  void string(const void* string, size_t most) noexcept {
    byte('S');
    text(field_at<const char*>(string, row_.refcounted), most);
  }
  void text(const char* text, size_t most) noexcept {
    const size_t length = strnlen(text, most);
    if (at_ + length + 2 > end_ + kReserve) {
      no_room_ = true;
      return;
    }
    varint(length);
    memcpy(at_, text, length);
    at_ += length;
  }

  bool tensor(const void* impl, bool may_wrap = true) noexcept {
    const char* sizes = static_cast<const char*>(impl) + row_.sizes;
    const auto type = field_at<uint16_t>(sizes, kType);
    const DeviceBytes device = read_device(row_.device, sizes + kDevice);
    const auto dims = field_at<uint64_t>(sizes, kDims);
    if (!device.has) {  // c10::UndefinedTensorImpl: one dimension of size 0
      if (dims > 1 || field_at<uint64_t>(sizes, kNumel) != 0) return false;
      byte('U');
      return true;
    }
    const auto policy = field_at<uint8_t>(sizes, kPolicy);
    if (!has_plain_sizes(policy)) {
      if (const void* inner = may_wrap && !(policy & kSymbolic) ? functionalized(impl) : nullptr)
        return tensor(inner, false);
      byte('X');
      byte(static_cast<uint8_t>(type));
      byte(device.type);
      byte(device.index);
      return true;
    }
    if (dims > kMaxDims || type > 255) return false;
    const char* data = dims <= kMaxInlineDims ? sizes + kInline : field_at<const char*>(sizes, kInline);
    const size_t stride_offset = dims <= kMaxInlineDims ? kMaxInlineDims * 8 : dims * 8;
    uint64_t numel = 1;
    // Where a size is 1, the stride of a tensor that torch calls contiguous may be anything: strides are left out only
    // if they are exactly the expected ones.
    const bool has_strides = (policy & kPolicyBits) != kStridesElsewhere || is_batched(impl);
    Strides strides = has_strides ? kStridesContiguous : kStridesNone;
    uint64_t expected = 1;
    for (size_t i = dims; i-- > 0;) {
      const auto size = field_at<int64_t>(data, i * 8);
      if (strides == kStridesContiguous && field_at<uint64_t>(data, stride_offset + i * 8) != expected)
        strides = kStridesFollow;
      numel *= static_cast<uint64_t>(size);
      expected *= size > 1 ? static_cast<uint64_t>(size) : 1;
    }
    if (numel != field_at<uint64_t>(sizes, kNumel)) return false;
    if (at_ + dims * 20 > end_ + kReserve - 16) {
      no_room_ = true;
      return true;
    }
    byte('T');
    byte(static_cast<uint8_t>(type));
    byte(device.type);
    byte(device.index);
    byte(strides);
    varint(dims);
    for (size_t i = 0; i < dims; ++i) varint(static_cast<uint64_t>(field_at<int64_t>(data, i * 8)));
    if (strides == kStridesFollow)
      for (size_t i = 0; i < dims; ++i) zigzag(field_at<int64_t>(data, stride_offset + i * 8));
    return true;
  }

  // The tensor inside an at::FunctionalTensorWrapper {TensorImpl, at::Tensor}, which has the wrapper's sizes and
  // strides. nullptr: `impl` is no such wrapper, or what is inside has another type or device.
  const void* functionalized(const void* impl) const noexcept {
    if (!is_of(impl, g_wrappers.functional)) return nullptr;
    const auto inner = field_at<const char*>(impl, row_.sizes + kEnd);
    constexpr uintptr_t kNoAddress = 1 << 16;
    const auto address = reinterpret_cast<uintptr_t>(inner);
    if (address < kNoAddress || address % alignof(void*) != 0) return nullptr;
    constexpr size_t kTypeAndDevice = kDevice + 3 - kType;
    const char* outer = static_cast<const char*>(impl);
    return memcmp(inner + row_.sizes + kType, outer + row_.sizes + kType, kTypeAndDevice) == 0 ? inner : nullptr;
  }

  const ValueRow& row_;
  unsigned char* begin_;
  unsigned char* at_;
  unsigned char* end_;
  bool no_room_ = false;  // something was not written
};

}  // namespace

bool has_header(const ValueRow& row, const void* object) noexcept {
  constexpr size_t kSecondWord = 16;
  constexpr uint64_t kNoAddress = 1 << 16;  // vm.mmap_min_addr; nobody holds so many references
  const auto word = field_at<uint64_t>(object, kSecondWord);
  return row.refcounted > kSecondWord ? word > 0 && word < kNoAddress : word == 0 || word >= kNoAddress;
}

void know_wrappers(const Wrappers& wrappers) noexcept { g_wrappers = wrappers; }

bool is_list_of_tensors(const ValueRow& row, const void* list) noexcept {
  const auto type = field_at<const void*>(list, row.refcounted + kListType);
  return type && field_at<int32_t>(type, kTypeKind) == kTensorKind;
}

const char* check_list(const ValueRow& row, const void* list) noexcept {
  const auto begin = field_at<const char*>(list, row.refcounted);
  const auto end = field_at<const char*>(list, row.refcounted + 8);
  if (begin > end || (end - begin) % kValueSize != 0 || !field_at<const void*>(list, row.refcounted + kListType))
    return "a list is something else";
  if (begin == end) return nullptr;
  const bool has_tensor = field_at<uint32_t>(begin, 8) == kTensor;
  return !has_tensor && is_list_of_tensors(row, list) ? "a list has another type" : nullptr;
}

size_t encode_arguments(const ValueRow& row, const PlainValue* arguments, size_t count, const void* tensors,
                        unsigned char* out) noexcept {
  Encoder encoder(row, out);
  return encoder.arguments(arguments, count, tensors) ? encoder.size() : 0;
}

size_t encode_inputs(const ValueRow& row, const void* values, size_t count, const void* keywords, size_t string_size,
                     unsigned char* out) noexcept {
  Encoder encoder(row, out);
  if (!encoder.inputs(values, count, keywords, string_size)) return 0;
  if (!encoder.is_full()) [[likely]]
    return encoder.size();
  Encoder brief(row, out);
  return brief.inputs_that_fit(values, count, keywords, string_size) ? brief.size() : 0;
}

PlainTensor read_tensor(const ValueRow& row, const void* value) noexcept {
  if (field_at<uint32_t>(value, 8) != kTensor) return {};
  const char* sizes = field_at<const char*>(value, 0) + row.sizes;
  const auto policy = field_at<uint8_t>(sizes, kPolicy);
  if (!read_device(row.device, sizes + kDevice).has || !has_plain_sizes(policy)) return {};
  const auto dims = field_at<uint64_t>(sizes, kDims);
  const char* data = dims <= kMaxInlineDims ? sizes + kInline : field_at<const char*>(sizes, kInline);
  const auto* numbers = reinterpret_cast<const int64_t*>(data);
  const bool has_strides = (policy & kPolicyBits) != kStridesElsewhere;
  return {dims, numbers, has_strides ? numbers + (dims <= kMaxInlineDims ? kMaxInlineDims : dims) : nullptr,
          field_at<uint16_t>(sizes, kType)};
}

const void* tensor_of(const ValueRow& row, const void* python_object) noexcept {
  // After PyObject: MaybeOwned's flag, or the pointer itself.
  const auto first = field_at<uintptr_t>(python_object, 16);
  const auto impl = first > 1 ? reinterpret_cast<const void*>(first) : field_at<const void*>(python_object, 24);
  if (!impl || reinterpret_cast<uintptr_t>(impl) % alignof(void*) != 0) return nullptr;
  // The lowest bit says who owns whom (PyObjectSlot, 1.13 to 2.9).
  const auto back = field_at<uintptr_t>(impl, row.sizes - sizeof(void*)) & ~uintptr_t{1};
  return back == reinterpret_cast<uintptr_t>(python_object) ? impl : nullptr;
}

const void* gradient_of(const ValueRow& row, const void* impl) noexcept {
  constexpr size_t kName = 8, kEmptyName = kName + 16, kGradient = 40;
  if (!has_header(row, impl)) return nullptr;
  const auto meta = field_at<const char*>(impl, row.refcounted + sizeof(void*));
  if (!meta || field_at<const char*>(meta, kName) != meta + kEmptyName || field_at<uint64_t>(meta, kName + 8) != 0)
    return nullptr;
  const auto gradient = field_at<const void*>(meta, kGradient);
  if (!gradient) return nullptr;
  unsigned char probe[kMaxTensor];
  return encode_tensor(row, gradient, probe) != 0 && probe[0] != 'U' ? gradient : nullptr;
}

size_t encode_tensor(const ValueRow& row, const void* impl, unsigned char* out) noexcept {
  Encoder encoder(row, out, kMaxTensor);
  return encoder.tensor_with_storage(impl) ? encoder.size() : 0;
}

}  // namespace torchprof::torch
