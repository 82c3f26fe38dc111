// Finds out which rows of torch's tables (layouts.h) hold, from the objects in the process; no version is asked.
//
// At first every row is possible. We look at the program's own objects: the inputs of its operators, the tensors that
// its modules hold, and the one object of c10::UndefinedTensorImpl, which torch exports and whose contents are known.
// sight.h tells the class of one of them, and what a row makes of it.
//
//     a row is out      when one object contradicts it: a c10::TensorImpl whose elements are not the product of its
//                       sizes, a counted object without the row's header, a value with the tag of a list that is no
//                       list, or with that of an object that is no address: the first truth value decides
//     an object shows   the row when it cannot be chance: a tensor of two elements or more whose storage is a
//                       c10::StorageImpl that holds as many bytes as they need; a list or a string, by its class. The
//                       undefined tensor, of which everything is known, counts twice
//     a row is found    when it was shown several times and all the others are out
//
// Until then an operator is read only if a row was shown at least twice and all rows that are not out read it alike, so
// nothing wrong is recorded. The caller counts the operators that are not read.
//
// Not for the hot path: several system calls for each object. Nothing of torch is called, nothing is written; memory is
// read only after the kernel has said that it can be. Any thread, also several at once; no lock, no allocation, so that
// a fork leaves nothing half done. errno is kept.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tracer/objects/layouts.h"

namespace torchprof::torch {

class Search {
 public:
  static constexpr uint32_t kShown = 2;        // a row that was shown so often may be used
  static constexpr uint32_t kFound = 4;        // a row that was shown so often ends the search
  static constexpr uint32_t kPatience = 1000;  // operators that are all looked at; later only one in kLater is
  static constexpr uint32_t kLater = 64;

  // To be called first. The tables must outlive the object; of each at most kMostRows rows are used.
  void use(std::span<const ObjectRow> objects, std::span<const TagRow> tags) noexcept;

  // c10::UndefinedTensorImpl::_singleton and its size, nullptr: not exported. It is looked at later: its constructor
  // may not have run.
  void set_undefined(const void* object, size_t size) noexcept;

  // Looks at the `count` inputs (c10::IValue[]) of an operator. Returns the row by which they may be read; nullptr:
  // none yet.
  const ValueRow* see_operator(const void* values, size_t count, bool has_keywords) noexcept;
  // Looks at a torch.Tensor, as Python holds it. With the GIL held.
  void see_python_tensor(const void* object) noexcept;

  // For tensors only: their row, as soon as it was shown and all others are out. Its tags must not be used.
  const ValueRow* object_row() const noexcept;
  // Both rows, when the search is over. If no row of tags is left, all tags in it are 255 (unknown).
  const ValueRow* found() const noexcept;
  bool is_hopeless() const noexcept;  // every row of objects is out

  // The state of the search, for people: "tensors as in torch 2.3 to 2.11 (seen 4 times), values as in torch 2.0 to 2.8
  // (...)".
  void describe(char* text, size_t size) const noexcept;

 private:
  static constexpr size_t kMostRows = 8;
  static constexpr size_t kCommon = kMostRows, kUnknown = kMostRows + 1, kMostTags = kMostRows + 2;
  using Mask = uint32_t;  // one bit for each row

  void see_undefined() noexcept;
  Mask see_tensor(const void* impl, Mask rows, const void* python_object) noexcept;
  Mask see_value(const void* value, Mask rows, bool may_nest) noexcept;
  Mask see_list(const void* list, Mask rows) noexcept;
  Mask see_header(const unsigned char* object, Mask rows) noexcept;

  Mask objects_in() const noexcept { return all_objects_ & ~objects_out_.load(std::memory_order_relaxed); }
  Mask tags_in() const noexcept;  // once one was shown, only those that were
  uint32_t shown(size_t object) const noexcept;
  size_t shown_object() const noexcept;
  const ValueRow* common_row() const noexcept;
  const ValueRow* agreed(const void* values, size_t count) const noexcept;

  std::span<const ObjectRow> objects_;
  std::span<const TagRow> tags_;
  Mask all_objects_ = 0, all_tags_ = 0;
  TagRow common_{}, unknown_{};  // the tags that are the same in all rows; no tags at all
  ValueRow rows_[kMostRows][kMostTags]{};
  const void* undefined_ = nullptr;
  size_t impl_size_ = 0;  // sizeof(TensorImpl); 0: unknown

  // Bits and counts are only ever added. Relaxed: each stands for itself.
  std::atomic<Mask> objects_out_{0}, tags_out_{0}, undefined_shows_{0};
  std::atomic<uint32_t> objects_shown_[kMostRows]{}, tags_shown_[kMostRows]{};
  std::atomic<uint32_t> operators_{0};
  std::atomic<bool> has_seen_undefined_{false};
};

// Of this process; prepared by attach_if_loaded() (torch/operators.h).
Search& search() noexcept;

}  // namespace torchprof::torch
