// The process is sealed once the program enters seccomp in a way that would kill it for our own system calls: from then
// on we make none, on any thread. Memory that was mapped before is still written to. There is no way back, unless the
// kernel refused the filter.
//
// Code that would make a system call asks is_sealed() first. A filter may be put on all threads at once; another thread
// may then be between that question and its call. Code where this can happen holds a Calls, and seal() waits until
// nobody does.
//
// Threads of our own have ended by then (own_thread.h).
//
// Any thread; errno is kept.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstddef>

namespace torchprof::seal {

namespace detail {
extern std::atomic<bool> g_is_sealed;
extern std::atomic<int> g_calling;
}  // namespace detail

// Pairs with seal(), as does the constructor of Calls: one side writes g_calling and then reads g_is_sealed, the other
// writes g_is_sealed and then reads g_calling. All four are sequentially consistent, so at least one sees the other.
inline bool is_sealed() noexcept { return detail::g_is_sealed.load(std::memory_order_seq_cst); }

// System calls may be made while it lives, if it is true.
class Calls {
 public:
  Calls() noexcept {
    detail::g_calling.fetch_add(1, std::memory_order_seq_cst);  // pairs with seal()'s load
    is_allowed_ = !is_sealed();
  }
  ~Calls() { detail::g_calling.fetch_sub(1, std::memory_order_release); }  // pairs with seal()'s load
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;
  explicit operator bool() const noexcept { return is_allowed_; }

 private:
  bool is_allowed_;
};

// Must not be called from within a Calls. Waits at most a second for those of other threads.
void seal() noexcept;
void unseal() noexcept;
// In a forked child: the other threads are gone, and their Calls with them.
void after_fork_in_child() noexcept;

// Zeroed memory of our own; nullptr: there is none, or the process is sealed. In a sealed process unmap() does nothing.
inline void* map(size_t bytes) noexcept {
  const Calls calls;
  if (!calls) return nullptr;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}
inline void unmap(void* memory, size_t bytes) noexcept {
  if (const Calls calls; calls) munmap(memory, bytes);
}

}  // namespace torchprof::seal
