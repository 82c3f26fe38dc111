// Blocks of memory by their address, with their sizes. The caller holds a lock.
#pragma once

#include <cstdint>

#include "tracer/process/open_table.h"

namespace torchprof::inject {

class BlockTable {
 public:
  // nullptr: it is not there.
  int64_t* find(const void* address) noexcept {
    Block* block = place_of(address);
    return block && block->bytes != 0 ? &block->bytes : nullptr;
  }
  // False: there is no memory for it.
  bool put(const void* address, int64_t bytes) noexcept {
    if (Block* known = place_of(address)) {
      known->bytes = bytes;
      return true;
    }
    return table_.add({address, bytes}) != nullptr;
  }
  void clear() noexcept { table_.clear(); }

 private:
  struct Block {
    const void* address;
    int64_t bytes;  // 0: gone

    uint64_t hash() const noexcept { return hash_of_address(address); }
    bool is_free() const noexcept { return !address; }
    bool is_dead() const noexcept { return bytes == 0; }
  };
  Block* place_of(const void* address) noexcept {
    return table_.find(hash_of_address(address), [&](const Block& block) { return block.address == address; });
  }

  OpenTable<Block> table_;
};

}  // namespace torchprof::inject
