// Interning of names by content: the same bytes have the same StringId for the life of the process, and the definition
// is committed to the spool before the id is given out.
//
// find() is for the hot path: no lock, no allocation; 10 to 25 ns for the name of an operator. intern() takes the
// recorder's lock only at the first sight of a name. Names are kept for ever (they are the definitions); their number
// is bounded by the size of the spool.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "tracer/spool/ids.h"

namespace torchprof {

class StringTable {
 public:
  struct Entry {
    uint64_t hash;
    StringId id;
    uint32_t length;
    char text[1];  // `length` bytes and a NUL
  };

  // nullptr: not there. Any thread; an entry lives as long as the process.
  const Entry* find(std::string_view text, uint64_t hash) const noexcept {
    const Table* table = table_.load(std::memory_order_acquire);  // pairs with the release in grow(): slots are filled
    if (!table) return nullptr;
    for (uint64_t i = hash;; ++i) {
      // Pairs with the release in add(): the entry's text and id are set.
      const Entry* entry = table->slots[i & table->mask].load(std::memory_order_acquire);
      if (!entry) return nullptr;
      if (entry->hash == hash && entry->length == text.size() && memcmp(entry->text, text.data(), text.size()) == 0)
        return entry;
    }
  }

  // Under the recorder's lock. nullptr: out of memory. The text must not be in the table yet.
  const Entry* add(std::string_view text, uint64_t hash, StringId id) noexcept;

  // Before the process is sealed: makes room for later names. Under the recorder's lock.
  void prepare() noexcept;

  static uint64_t hash(std::string_view text) noexcept {
    // Multiply and fold, eight bytes at a time: names are short, and the table compares contents anyway.
    uint64_t h = 0x9e3779b97f4a7c15u ^ text.size();
    const char* p = text.data();
    size_t n = text.size();
    const auto mix = [&h](uint64_t word) {
      h = (h ^ word) * 0xff51afd7ed558ccdu;
      h ^= h >> 32;
    };
    for (; n >= 8; p += 8, n -= 8) {
      uint64_t word;
      memcpy(&word, p, 8);
      mix(word);
    }
    uint64_t tail = 0;
    memcpy(&tail, p, n);
    mix(tail);
    return h;
  }

 private:
  struct Table {
    uint64_t mask;
    std::atomic<Entry*> slots[1];  // mask + 1 of them
  };

  bool grow() noexcept;
  void* allocate(size_t bytes) noexcept;

  std::atomic<Table*> table_{nullptr};
  uint64_t count_ = 0;
  char* arena_ = nullptr;
  size_t arena_left_ = 0;
};

}  // namespace torchprof
