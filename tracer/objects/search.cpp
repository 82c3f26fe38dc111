#include "tracer/objects/search.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>

#include "tracer/objects/sight.h"
#include "tracer/objects/values.h"

namespace torchprof::torch {
namespace {

constexpr size_t kMostImpl = 72 + kImplEnd;  // bytes of a TensorImpl that any row reads
constexpr size_t kMostElements = kMaxInputs / 2;
constexpr size_t kLeastHeader = 16;
constexpr uint32_t kNoTag = 255;
constexpr uint32_t kFirstTag = 6;  // lower tags are the same in all rows: None, tensors, numbers
constexpr uint32_t kMostTag = 64;  // no torch has half as many
constexpr uint32_t kUndefinedShows = 2;
constexpr uintptr_t kLeastAddress = 4096;  // of an object: the first page is never mapped

template <class F>
void for_each_bit(uint32_t mask, F f) noexcept {
  for (; mask != 0; mask &= mask - 1) f(static_cast<size_t>(std::countr_zero(mask)));
}

constexpr uint32_t bit(size_t i) noexcept { return uint32_t{1} << i; }
// What the row says of a value with this tag: it points to a counted object. From the symbols to the list all do, but
// for Bool (aten/src/ATen/core/ivalue.h of 1.13 to 2.15: SymInt, SymFloat, SymBool, Tuple, String, Blob, GenericList),
// and the pointer is never null.
constexpr bool is_object(const TagRow& row, uint32_t tag) noexcept {
  return tag + row.symbols >= row.boolean && tag <= row.list && tag != row.boolean;
}
constexpr bool is_one(uint32_t mask) noexcept { return std::has_single_bit(mask); }
size_t first_of(uint32_t mask) noexcept { return static_cast<size_t>(std::countr_zero(mask)); }

void count(std::atomic<uint32_t>* shown, uint32_t rows) noexcept {
  for_each_bit(rows, [shown](size_t i) { shown[i].fetch_add(1, std::memory_order_relaxed); });
}

}  // namespace

void Search::use(std::span<const ObjectRow> objects, std::span<const TagRow> tags) noexcept {
  all_objects_ = all_tags_ = 0;
  objects_ = objects.first(std::min(objects.size(), kMostRows));
  tags_ = tags.first(std::min(tags.size(), kMostRows));
  // A row with impossible numbers is not used (tests overwrite rows).
  for (size_t i = 0; i < objects_.size(); ++i)
    if (objects_[i].refcounted >= kLeastHeader && objects_[i].sizes > objects_[i].refcounted) all_objects_ |= bit(i);
  for (size_t i = 0; i < tags_.size(); ++i)
    if (std::min({tags_[i].boolean, tags_[i].string, tags_[i].list}) >= kFirstTag) all_tags_ |= bit(i);
  unknown_ = {kNoTag, kNoTag, kNoTag, kNoTag, kNoTag, kNoTag, 0, "no known one"};
  common_ = all_tags_ == 0 ? unknown_ : tags_[first_of(all_tags_)];
  common_.symbols = 0;
  common_.name = "all";
  for_each_bit(all_tags_, [&](size_t i) {
    for (uint32_t TagRow::*tag :
         {&TagRow::real, &TagRow::complex, &TagRow::integer, &TagRow::boolean, &TagRow::string, &TagRow::list})
      if (tags_[i].*tag != common_.*tag) common_.*tag = kNoTag;
  });
  for (size_t i = 0; i < objects_.size(); ++i) {
    for (size_t k = 0; k < tags_.size(); ++k) rows_[i][k] = compose(objects_[i], tags_[k]);
    rows_[i][kCommon] = compose(objects_[i], common_);
    rows_[i][kUnknown] = compose(objects_[i], unknown_);
  }
}

void Search::set_undefined(const void* object, size_t size) noexcept {
  undefined_ = object;
  impl_size_ = size;
}

void Search::see_undefined() noexcept {
  if (!undefined_ || has_seen_undefined_.load(std::memory_order_relaxed)) return;
  if (class_of(undefined_) != Class::kUndefinedTensor) return;  // not yet
  if (has_seen_undefined_.exchange(true, std::memory_order_relaxed)) return;
  unsigned char impl[kMostImpl];
  const size_t size = std::min(impl_size_, sizeof(impl));
  if (!read_safely(undefined_, impl, size)) return;
  Mask shown = 0;
  for_each_bit(all_objects_, [&](size_t i) { shown |= is_undefined(objects_[i], impl, size) ? bit(i) : 0; });
  undefined_shows_.store(shown, std::memory_order_relaxed);
  objects_out_.fetch_or(all_objects_ & ~shown, std::memory_order_relaxed);
}

uint32_t Search::shown(size_t object) const noexcept {
  const bool by_undefined = undefined_shows_.load(std::memory_order_relaxed) & bit(object);
  return objects_shown_[object].load(std::memory_order_relaxed) + (by_undefined ? kUndefinedShows : 0);
}

Search::Mask Search::tags_in() const noexcept {
  const Mask in = all_tags_ & ~tags_out_.load(std::memory_order_relaxed);
  Mask shown = 0;
  for_each_bit(in, [&](size_t i) { shown |= tags_shown_[i].load(std::memory_order_relaxed) ? bit(i) : 0; });
  return shown ? shown : in;
}

// The header of a counted object puts out the rows that it contradicts. Returns those that are left.
Search::Mask Search::see_header(const unsigned char* object, Mask rows) noexcept {
  Mask wrong = 0;
  for_each_bit(rows, [&](size_t i) { wrong |= has_header(rows_[i][kUnknown], object) ? 0 : bit(i); });
  objects_out_.fetch_or(wrong, std::memory_order_relaxed);
  return rows & ~wrong;
}

// This one and the next two return the rows, of `rows`, by which the object may be read, and count what it shows.
Search::Mask Search::see_tensor(const void* impl, Mask rows, const void* python_object) noexcept {
  unsigned char bytes[kMostImpl];
  const size_t size = impl_size_ ? std::min(impl_size_, sizeof(bytes)) : sizeof(bytes);
  if (reinterpret_cast<uintptr_t>(impl) % alignof(void*) != 0 || !read_safely(impl, bytes, size)) return 0;
  const Class what = class_of(impl);
  // Less is known of other classes (sparse tensors, functorch's), so they decide nothing.
  const bool is_plain = what == Class::kTensor || what == Class::kUndefinedTensor;
  if (what == Class::kTensor) rows = see_header(bytes, rows);
  Mask wrong = 0, shown = 0, unread = 0;
  for_each_bit(rows, [&](size_t i) {
    const Tensor tensor = look_at(objects_[i], bytes, size);
    // PyObjectSlot's pointer leads back to the Python object; its lowest bit says which of the two owns the other (1.13
    // to 2.9).
    const auto back = field_at<uintptr_t>(bytes, objects_[i].sizes - sizeof(void*)) & ~uintptr_t{1};
    const bool is_lost = python_object && back != reinterpret_cast<uintptr_t>(python_object);
    const bool has_no_device = tensor.sight == Sight::kUndefined && what != Class::kUndefinedTensor;
    const bool has_storage = field_at<uintptr_t>(bytes, objects_[i].refcounted) != 0;
    if (tensor.sight == Sight::kNo || is_lost || (has_no_device && has_storage))
      wrong |= bit(i);
    else if (has_no_device)
      unread |= bit(i);
    else if (what == Class::kTensor && tensor.sight == Sight::kPlain && tensor.elements >= 2 &&
             is_storage_of(objects_[i], bytes, tensor))
      shown |= bit(i);
  });
  if (is_plain) {
    objects_out_.fetch_or(wrong, std::memory_order_relaxed);
    count(objects_shown_, shown);
  }
  return rows & ~wrong & ~unread;
}

Search::Mask Search::see_list(const void* list, Mask rows) noexcept {
  unsigned char bytes[48];
  if (!read_safely(list, bytes, sizeof(bytes))) return 0;
  rows = see_header(bytes, rows);
  Mask readable = 0;
  for_each_bit(rows, [&](size_t i) {
    const auto* begin = field_at<const unsigned char*>(bytes, objects_[i].refcounted);
    const auto* end = field_at<const unsigned char*>(bytes, objects_[i].refcounted + 8);
    const auto size = static_cast<size_t>(end - begin);
    const size_t elements = std::min(size / kValueSize, kMostElements);
    if (end < begin || size % kValueSize != 0 || (size > 0 && !can_read(begin, elements * kValueSize))) return;
    Mask left = bit(i);
    for (size_t k = 0; k < elements && left; ++k) left = see_value(begin + k * kValueSize, left, false);
    readable |= left;
  });
  return readable;
}

Search::Mask Search::see_value(const void* value, Mask rows, bool may_nest) noexcept {
  const auto tag = field_at<uint32_t>(value, 8);
  const auto* object = field_at<const unsigned char*>(value, 0);
  if (tag == kTensorTag) return see_tensor(object, rows, nullptr);
  if (tag >= kMostTag) {  // no value has this tag: the list was none
    objects_out_.fetch_or(may_nest ? 0 : rows, std::memory_order_relaxed);
    return 0;
  }
  if (tag < kFirstTag) return rows;
  const Class what = class_of(object);
  const bool is_no_address = reinterpret_cast<uintptr_t>(object) < kLeastAddress;
  Mask wrong = 0, shown = 0;
  for_each_bit(tags_in(), [&](size_t i) {
    const bool is_list = tag == tags_[i].list, is_string = tag == tags_[i].string;
    if ((is_list && what != Class::kList) || (is_string && what != Class::kString) ||
        (tag == tags_[i].boolean && field_at<uint8_t>(value, 0) > 1) || (is_object(tags_[i], tag) && is_no_address))
      wrong |= bit(i);
    else if (is_list || is_string)
      shown |= bit(i);
  });
  tags_out_.fetch_or(wrong, std::memory_order_relaxed);
  count(tags_shown_, shown);
  if (what == Class::kList && may_nest) return see_list(object, rows);
  if (what != Class::kString) return rows;
  unsigned char bytes[32];
  if (!read_safely(object, bytes, sizeof(bytes))) return 0;
  rows = see_header(bytes, rows);
  Mask readable = 0;
  for_each_bit(rows, [&](size_t i) {
    readable |= can_read(field_at<const void*>(bytes, objects_[i].refcounted), 1) ? bit(i) : 0;
  });
  return readable;
}

void Search::see_python_tensor(const void* object) noexcept {
  see_undefined();
  // THPVariable: see tensor_of().
  const auto first = field_at<uintptr_t>(object, 16);
  const auto* impl = first > 1 ? reinterpret_cast<const void*>(first) : field_at<const void*>(object, 24);
  see_tensor(impl, objects_in(), object);
}

const ValueRow* Search::see_operator(const void* values, size_t count, bool has_keywords) noexcept {
  const uint32_t number = operators_.fetch_add(1, std::memory_order_relaxed);
  if (number >= kPatience && number % kLater != 0) return common_row();
  see_undefined();
  Mask readable = all_objects_;
  for (size_t i = 0; i < count; ++i)
    readable &= see_value(static_cast<const char*>(values) + i * kValueSize, objects_in(), true);
  if (shown_object() == kMostRows || (objects_in() & ~readable) != 0) return nullptr;
  if (has_keywords && (!is_one(objects_in()) || std::popcount(tags_in()) > 1)) return nullptr;
  return agreed(values, count);
}

// A row that is not out and was shown; kMostRows: none.
size_t Search::shown_object() const noexcept {
  size_t best = kMostRows;
  for_each_bit(objects_in(), [&](size_t i) {
    if (shown(i) >= kShown) best = std::min(best, i);
  });
  return best;
}

// The row by which any operator may be read while the row of tags is not found.
const ValueRow* Search::common_row() const noexcept {
  const Mask in = objects_in();
  if (!is_one(in) || shown_object() == kMostRows) return nullptr;
  return &rows_[first_of(in)][tags_in() != 0 ? kCommon : kUnknown];
}

// The row by which it may be read: all rows that are not out must read it alike.
const ValueRow* Search::agreed(const void* values, size_t count) const noexcept {
  const Mask objects = objects_in(), tags = tags_in();
  const size_t first = shown_object();
  if (first == kMostRows) return nullptr;
  if (tags == 0) return is_one(objects) ? &rows_[first][kUnknown] : nullptr;
  const ValueRow& row = rows_[first][first_of(tags)];
  if (is_one(objects) && is_one(tags)) return &row;
  unsigned char expected[kMaxInputs], other[kMaxInputs];
  const size_t size = encode_inputs(row, values, count, nullptr, 0, expected);
  bool is_same = size != 0 || count == 0;
  for_each_bit(objects, [&](size_t i) {
    for_each_bit(tags, [&](size_t k) {
      if (!is_same) return;
      is_same =
          encode_inputs(rows_[i][k], values, count, nullptr, 0, other) == size && memcmp(expected, other, size) == 0;
    });
  });
  return is_same ? &row : nullptr;
}

const ValueRow* Search::object_row() const noexcept { return common_row(); }

const ValueRow* Search::found() const noexcept {
  const Mask objects = objects_in(), tags = tags_in();
  if (!is_one(objects) || shown(first_of(objects)) < kFound) return nullptr;
  if (tags == 0) return &rows_[first_of(objects)][kUnknown];
  if (!is_one(tags) || tags_shown_[first_of(tags)].load(std::memory_order_relaxed) < kShown) return nullptr;
  return &rows_[first_of(objects)][first_of(tags)];
}

bool Search::is_hopeless() const noexcept { return objects_in() == 0; }

void Search::describe(char* text, size_t size) const noexcept {
  const Mask objects = objects_in(), tags = tags_in();
  if (objects == 0) {
    snprintf(text, size, "no layout that is known fits the tensors of this torch");
    return;
  }
  const size_t object = shown_object();
  if (object == kMostRows) {
    snprintf(text, size, "nothing has shown the layout of tensors yet");
    return;
  }
  char values[100] = ", no list or text yet";
  if (tags == 0)
    snprintf(values, sizeof(values), ", other values as in none that is known: left out");
  else if (const uint32_t times = tags_shown_[first_of(tags)].load(std::memory_order_relaxed); is_one(tags) && times)
    snprintf(values, sizeof(values), ", values as in torch %s (seen %u times)", tags_[first_of(tags)].name, times);
  const bool by_undefined = undefined_shows_.load(std::memory_order_relaxed) != 0;
  snprintf(text, size, "tensors as in torch %s%s (seen %u times%s)%s", objects_[object].name,
           is_one(objects) ? "" : " or another", objects_shown_[object].load(std::memory_order_relaxed),
           by_undefined ? ", and in the undefined one" : "", values);
}

Search& search() noexcept {
  constinit static Search search;
  return search;
}

}  // namespace torchprof::torch
