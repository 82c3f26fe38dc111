// From the moment at which the program enters seccomp in a way that our own system calls would not survive, we make
// none in this process, on whatever thread: the process is sealed. What is mapped by then is still written to. There is
// no way back, but for a filter that the kernel refused.
//
// Whoever would make a system call asks is_sealed() first. Where the filter comes upon all threads at once, others may
// be between that question and the call: those that can be are inside of a Calls, and seal() waits until there is none.
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

// Sequentially consistent: either seal() sees a Calls, or that Calls sees the seal.
inline bool is_sealed() noexcept { return detail::g_is_sealed.load(std::memory_order_seq_cst); }

// While it lives and says true, system calls may be made.
class Calls {
 public:
  Calls() noexcept {
    detail::g_calling.fetch_add(1, std::memory_order_seq_cst);
    is_allowed_ = !is_sealed();
  }
  ~Calls() { detail::g_calling.fetch_sub(1, std::memory_order_release); }
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;
  explicit operator bool() const noexcept { return is_allowed_; }

 private:
  bool is_allowed_;
};

// From outside of every Calls. A thread that stays in one for a second is waited for no longer.
void seal() noexcept;
void unseal() noexcept;
// In a forked child: the other threads' Calls are over.
void after_fork_in_child() noexcept;

// Zeroed memory of our own; nullptr where it cannot be had. unmap() lets it lie where the process is sealed.
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
