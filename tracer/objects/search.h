// Which rows of torch's tables (layouts.h) hold is found by what lies in the process; no version is asked.
//
// Every row is a candidate. What is looked at are the program's own objects: the inputs of its operators, the tensors
// that its modules hold, and c10::UndefinedTensorImpl's one object, which torch exports and whose contents are known.
// sight.h tells the class of one of them, and what a row makes of it.
//
//     a row is out      when one object contradicts it: a c10::TensorImpl whose elements are not the product of its
//                       sizes, a counted object without the row's header, a value with the tag of a list that leads to
//                       none
//     an object shows   the row when no part of it could be chance: a tensor of two elements or more whose storage is a
//                       c10::StorageImpl that holds as many bytes as they need; a list or a string, told by its class.
//                       The undefined tensor, of which all is known, counts twice
//     a row is found    when it was shown several times and all the others are out
//
// Until then an operator is read only where the row was shown twice or more and all that are still in read it alike:
// nothing untrue is recorded. What else is held back, the caller counts.
//
// Off the hot path: some system calls an object. Nothing of torch is called, nothing is written; memory is read after
// the kernel was asked whether it can be. Any thread, also several at once; no lock, no allocation, so that a fork
// leaves nothing behind. errno is kept.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tracer/objects/layouts.h"

namespace torchprof::torch {

class Search {
 public:
  static constexpr uint32_t kShown = 2;        // so often, and an operator may be read
  static constexpr uint32_t kFound = 4;        // so often, and the search is over
  static constexpr uint32_t kPatience = 1000;  // operators; of what comes later, one in kLater is looked at
  static constexpr uint32_t kLater = 64;

  // First. The tables must outlive it; of each at most kMostRows rows are used.
  void use(std::span<const ObjectRow> objects, std::span<const TagRow> tags) noexcept;

  // c10::UndefinedTensorImpl::_singleton and its size, nullptr: not exported. It is looked at later: its constructor
  // may not have run.
  void set_undefined(const void* object, size_t size) noexcept;

  // Of an operator: `count` values (c10::IValue[]). By which row it may be read; nullptr: by none yet.
  const ValueRow* see_operator(const void* values, size_t count, bool has_keywords) noexcept;
  // A torch.Tensor, as Python holds it. With the GIL held.
  void see_python_tensor(const void* object) noexcept;

  // For tensors alone: their row as soon as it was shown and all others are out. Tags in it do not count.
  const ValueRow* object_row() const noexcept;
  // Both rows, when the search is over. Where no row of tags is left, its tags are unknown: 255.
  const ValueRow* found() const noexcept;
  bool is_hopeless() const noexcept;  // no layout of tensors is left

  // How it stands, for people: "tensors as in torch 2.3 to 2.11 (seen 4 times), values as in torch 2.0 to 2.8 (...)".
  void describe(char* text, size_t size) const noexcept;

 private:
  static constexpr size_t kMostRows = 8;
  static constexpr size_t kCommon = kMostRows, kUnknown = kMostRows + 1, kMostTags = kMostRows + 2;
  using Mask = uint32_t;  // a bit a row

  void see_undefined() noexcept;
  Mask see_tensor(const void* impl, Mask rows, const void* python_object) noexcept;
  Mask see_value(const void* value, Mask rows, bool may_nest) noexcept;
  Mask see_list(const void* list, Mask rows) noexcept;
  Mask see_header(const unsigned char* object, Mask rows) noexcept;

  Mask objects_in() const noexcept { return all_objects_ & ~objects_out_.load(std::memory_order_relaxed); }
  Mask tags_in() const noexcept;  // once one was shown, those that were not are out
  uint32_t shown(size_t object) const noexcept;
  size_t shown_object() const noexcept;
  const ValueRow* common_row() const noexcept;
  const ValueRow* agreed(const void* values, size_t count) const noexcept;

  std::span<const ObjectRow> objects_;
  std::span<const TagRow> tags_;
  Mask all_objects_ = 0, all_tags_ = 0;
  TagRow common_{}, unknown_{};  // what all rows have in common; nothing
  ValueRow rows_[kMostRows][kMostTags]{};
  const void* undefined_ = nullptr;
  size_t impl_size_ = 0;  // sizeof(TensorImpl); 0: unknown

  // Only ever set, or added to; relaxed: each stands for itself.
  std::atomic<Mask> objects_out_{0}, tags_out_{0}, undefined_shows_{0};
  std::atomic<uint32_t> objects_shown_[kMostRows]{}, tags_shown_[kMostRows]{};
  std::atomic<uint32_t> operators_{0};
  std::atomic<bool> has_seen_undefined_{false};
};

// Of this process; prepared by attach_if_loaded() (torch/operators.h).
Search& search() noexcept;

}  // namespace torchprof::torch
