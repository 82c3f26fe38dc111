#include "tracer/strings.h"

#include <algorithm>
#include <cstddef>
#include <new>

#include "tracer/process/seal.h"

namespace torchprof {
namespace {

constexpr size_t kArena = size_t{256} << 10;
constexpr uint64_t kFirstSlots = 4096;

// Not malloc: the program's allocator may be the one that called us.
void* map(size_t bytes) noexcept { return seal::map(bytes); }

}  // namespace

void* StringTable::allocate(size_t bytes) noexcept {
  bytes = (bytes + 7) & ~size_t{7};
  if (bytes > arena_left_) {
    const size_t size = std::max(bytes, kArena);
    void* block = map(size);
    if (!block) return nullptr;
    arena_ = static_cast<char*>(block);
    arena_left_ = size;
  }
  void* p = arena_;
  arena_ += bytes;
  arena_left_ -= bytes;
  return p;
}

bool StringTable::grow() noexcept {
  const Table* old = table_.load(std::memory_order_relaxed);
  const uint64_t slots = old ? (old->mask + 1) * 2 : kFirstSlots;
  void* memory = map(sizeof(Table) + slots * sizeof(std::atomic<Entry*>));
  if (!memory) return false;
  auto* table = static_cast<Table*>(memory);  // zeroed by the kernel: every slot is null
  table->mask = slots - 1;
  if (old) {
    for (uint64_t k = 0; k <= old->mask; ++k) {
      Entry* entry = old->slots[k].load(std::memory_order_relaxed);
      if (!entry) continue;
      uint64_t i = entry->hash;
      while (table->slots[i & table->mask].load(std::memory_order_relaxed)) ++i;
      table->slots[i & table->mask].store(entry, std::memory_order_relaxed);
    }
  }
  // The old table is never freed: a reader may be in it. All tables together are twice as large as the last one.
  table_.store(table, std::memory_order_release);  // pairs with the load of table_ in find()
  return true;
}

void StringTable::prepare() noexcept {
  const Table* current = table_.load(std::memory_order_relaxed);
  if (!current || count_ * 4 > current->mask) grow();
  if (arena_left_ >= kArena / 2) return;
  if (void* block = map(kArena)) {
    arena_ = static_cast<char*>(block);
    arena_left_ = kArena;
  }
}

const StringTable::Entry* StringTable::add(std::string_view text, uint64_t hash, StringId id) noexcept {
  const Table* current = table_.load(std::memory_order_relaxed);
  if ((!current || count_ * 2 > current->mask) && !grow()) return nullptr;
  void* memory = allocate(offsetof(Entry, text) + text.size() + 1);  // zeroed by the kernel: the NUL is there
  if (!memory) return nullptr;
  auto* entry = static_cast<Entry*>(memory);
  entry->hash = hash;
  entry->id = id;
  entry->length = static_cast<uint32_t>(text.size());
  memcpy(entry->text, text.data(), text.size());
  Table* table = table_.load(std::memory_order_relaxed);
  uint64_t i = hash;
  while (table->slots[i & table->mask].load(std::memory_order_relaxed)) ++i;
  table->slots[i & table->mask].store(entry, std::memory_order_release);  // pairs with the load of the slot in find()
  ++count_;
  return entry;
}

}  // namespace torchprof
