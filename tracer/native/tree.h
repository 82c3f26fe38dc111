// The tree of native frames: (the frame that it returns to, return address) -> id.
//
// frame() is for the hot path where the frame is known: no lock, no allocation. At first sight it takes the recorder's
// lock, and the definition is committed before the id is given out. Frames are kept for ever, bounded by the size of
// the spool.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tracer/session.h"
#include "tracer/spool/ids.h"

namespace torchprof::native {

class FrameTree {
 public:
  constexpr FrameTree() = default;

  // Stands for a Python function and the line that it runs, in the place of an address.
  static uintptr_t python_frame(FunctionId function, uint32_t line) noexcept {
    return uintptr_t{1} << 63 | uintptr_t{function.value} << 32 | line;
  }

  // `caller` none: the outermost. None: nothing can be recorded any more.
  NativeFrameId frame(NativeFrameId caller, uintptr_t pc) noexcept;

  // From here on addresses mean something else: a stack that is built from the outermost frame on finds none of the
  // frames that were defined so far. Relaxed: the age is only a part of a key; g_unloads (stack.cpp) publishes it.
  void begin_anew(session::DefinitionLock&) noexcept { age_.fetch_add(1, std::memory_order_relaxed); }

 private:
  struct Slot {
    uintptr_t pc;
    uint32_t caller;           // of the outermost: its age, with the highest bit
    std::atomic<uint32_t> id;  // 0: free
  };
  struct Table {
    uint64_t mask;
    Slot slots[1];  // mask + 1 of them
  };
  static uint64_t hash(uint32_t caller, uintptr_t pc) noexcept {
    uint64_t h = (pc ^ uint64_t{caller} << 40) * 0xff51afd7ed558ccdu + caller;
    return h ^ h >> 32;
  }
  static uint32_t find(const Table* table, uint32_t caller, uintptr_t pc) noexcept;
  NativeFrameId add(uint32_t caller, uintptr_t pc) noexcept;
  bool grow() noexcept;
  static void put(Table& table, uint32_t caller, uintptr_t pc, uint32_t id) noexcept;

  std::atomic<Table*> table_{nullptr};
  std::atomic<uint32_t> age_{0};
  uint32_t count_ = 0;
};

}  // namespace torchprof::native
