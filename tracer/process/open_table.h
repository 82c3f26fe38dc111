// A table of small entries that are found by a hash: open addressing, at most half full.
//
//     struct Entry {
//       uint64_t hash() const noexcept;   // of its key; the low bits have to be spread
//       bool is_free() const noexcept;    // true of one that is all zeros
//       bool is_dead() const noexcept;    // its place is used again when the table is made anew
//     };
//     if (Entry* known = table.find(hash, [&](const Entry& entry) { return entry.key == key; })) ...
//
// The memory is mapped, not allocated: the caller may stand inside the program's allocator. One thread at a time, under
// a lock or the GIL. Entries are copied as bytes, and move when one is added. errno is kept. For tables that are read
// without a lock see strings.h and native/tree.h; their entries never move and never die.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "tracer/process/diag.h"
#include "tracer/process/seal.h"

namespace torchprof {

template <class Entry>
class OpenTable {
 public:
  static_assert(std::is_trivially_copyable_v<Entry>);

  // The entry of this hash that `is_it` holds of; nullptr: there is none. Dead entries are shown to `is_it` as well.
  template <class IsIt>
  Entry* find(uint64_t hash, IsIt&& is_it) const noexcept {
    if (!entries_) return nullptr;
    for (uint64_t i = hash;; ++i) {
      Entry& entry = entries_[i & mask_];
      if (entry.is_free()) return nullptr;
      if (is_it(entry)) return &entry;
    }
  }

  // Makes room for one more. False: there is no memory.
  bool reserve() noexcept { return (entries_ && (used_ + 1) * 2 <= mask_ + 1) || grow(); }

  // One that is not in the table yet. nullptr: there is no memory.
  Entry* add(const Entry& entry) noexcept {
    if (!reserve()) return nullptr;
    Entry& place = free_place(entry.hash());
    ++used_;
    return &(place = entry);
  }

  void clear() noexcept {
    if (entries_) seal::unmap(entries_, bytes());
    *this = {};
  }

 private:
  static constexpr uint64_t kFirst = 1024;  // a power of two, as every size

  Entry& free_place(uint64_t hash) noexcept {
    uint64_t i = hash;
    while (!entries_[i & mask_].is_free()) ++i;
    return entries_[i & mask_];
  }
  size_t bytes() const noexcept { return (mask_ + 1) * sizeof(Entry); }

  // Four times what is alive, so that it is a while until the next time.
  bool grow() noexcept {
    const KeepErrno keep;
    const OpenTable old = *this;
    uint64_t alive = 0;
    for (uint64_t k = 0; old.entries_ && k <= old.mask_; ++k) alive += is_alive(old.entries_[k]);
    uint64_t size = kFirst;
    while (size < (alive + 1) * 4) size *= 2;
    void* memory = seal::map(size * sizeof(Entry));
    if (!memory) return false;
    entries_ = static_cast<Entry*>(memory);  // zeroed by the kernel: all are free
    mask_ = size - 1;
    used_ = alive;
    for (uint64_t k = 0; old.entries_ && k <= old.mask_; ++k)
      if (is_alive(old.entries_[k])) free_place(old.entries_[k].hash()) = old.entries_[k];
    if (old.entries_) seal::unmap(old.entries_, old.bytes());
    return true;
  }
  static bool is_alive(const Entry& entry) noexcept { return !entry.is_free() && !entry.is_dead(); }

  Entry* entries_ = nullptr;
  uint64_t mask_ = 0;
  uint64_t used_ = 0;  // not free: alive or dead
};

// Of an object's address, whose low bits are always the same.
inline uint64_t hash_of_address(const void* address) noexcept {
  return (reinterpret_cast<uintptr_t>(address) >> 4) * 0x9e3779b97f4a7c15u;
}

}  // namespace torchprof
