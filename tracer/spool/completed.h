// Which chunks of events are complete, and which of them may be written anew. Offsets are those in the file.
//
// Threads: any; a lock is held for a few instructions, or for as long as it takes to look once at all that is complete.
// Memory: mapped by prepare(), which is called once before the rest; a child after fork calls abandon(), since another
// thread of the parent may have held the lock.
#pragma once

#include <pthread.h>

#include <cstdint>

namespace torchprof {

// The order in which chunks were completed (--keep last).
class Completed {
 public:
  bool prepare(uint64_t capacity) noexcept;
  void push(uint64_t offset) noexcept;
  // Takes the first one, and after it those that follow it in the file without a gap, up to `most` in all. Returns how
  // many; 0: there is none.
  uint32_t pop(uint64_t& offset, uint32_t most) noexcept;
  void abandon() noexcept { *this = Completed{}; }

 private:
  pthread_mutex_t lock_ = PTHREAD_MUTEX_INITIALIZER;
  uint64_t* offsets_ = nullptr;  // a ring
  uint64_t capacity_ = 0;
  uint64_t first_ = 0;
  uint64_t count_ = 0;
};

// The chunks of each window (-w auto): they are free once their window is given up. A chunk of a window that was given
// up before is free at once.
class WindowChunks {
 public:
  bool prepare(uint64_t capacity) noexcept;
  void push(uint64_t offset, uint16_t window) noexcept;
  void push_free(uint64_t offset) noexcept;  // nobody wrote to it
  void give_up(uint16_t window) noexcept;
  // As Completed::pop(), from the free ones.
  uint32_t pop(uint64_t& offset, uint32_t most) noexcept;
  void abandon() noexcept;

 private:
  struct Chunk {
    uint64_t offset;
    uint64_t window;
  };
  bool is_given_up(uint16_t window) const noexcept { return given_up_[window / 64] >> window % 64 & 1; }
  void push_locked(uint64_t offset) noexcept;

  pthread_mutex_t lock_ = PTHREAD_MUTEX_INITIALIZER;
  Chunk* kept_ = nullptr;     // in no order
  uint64_t* free_ = nullptr;  // a stack
  uint64_t capacity_ = 0;
  uint64_t kept_count_ = 0;
  uint64_t free_count_ = 0;
  uint64_t given_up_[1024] = {};  // a bit each
};

}  // namespace torchprof
