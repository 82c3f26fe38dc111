#include "inject/exec_memory.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <new>

namespace torchprof::inject {
namespace {

// All zeros is a piece that nobody owns. It has no constructor, which would have to run before all others.
alignas(ExecMemory) constinit std::byte g_first[sizeof(ExecMemory)] = {};

}  // namespace

ExecMemory* ExecMemory::first() noexcept { return reinterpret_cast<ExecMemory*>(g_first); }

ExecMemory* ExecMemory::take_quietly() noexcept {
  constexpr pid_t kSomebody = -1;
  // Pairs with the compare_exchange of next_ in take(): the piece is constructed.
  for (ExecMemory* piece = first(); piece; piece = piece->next_.load(std::memory_order_acquire)) {
    pid_t owner = 0;
    // Pairs with give_back(): the owner before us is done with the piece.
    if (piece->owner_.compare_exchange_strong(owner, kSomebody, std::memory_order_acquire) ||
        piece->thread_.load(std::memory_order_relaxed) == pthread_self())
      return piece;
  }
  return nullptr;
}

ExecMemory* ExecMemory::take() noexcept {
  const pid_t me = getpid(), parent = getppid();
  const pthread_t thread = pthread_self();  // its vfork child's, too
  ExecMemory* last = nullptr;
  // Pairs with the compare_exchange of next_ below, in another thread: the piece is constructed.
  for (ExecMemory* piece = first(); piece; piece = piece->next_.load(std::memory_order_acquire)) {
    last = piece;
    pid_t owner = 0;
    // Pairs with give_back(): the owner before us is done with the piece.
    if (piece->owner_.compare_exchange_strong(owner, me, std::memory_order_acquire)) {
      piece->thread_.store(thread, std::memory_order_relaxed);
      return piece;
    }
    // A piece that this thread has already. Owner is this process: we are in a handler that interrupted the wrapper.
    // Owner is our parent: we may be its vfork child, made in such a handler. Otherwise: a vfork child that is over.
    if (piece->thread_.load(std::memory_order_relaxed) != thread || owner == me || owner == parent) continue;
    piece->owner_.store(me, std::memory_order_relaxed);
    return piece;
  }
  const int saved = errno;
  void* memory = mmap(nullptr, sizeof(ExecMemory), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  errno = saved;
  if (memory == MAP_FAILED) return nullptr;
  auto* piece = new (memory) ExecMemory;
  piece->owner_.store(me, std::memory_order_relaxed);
  piece->thread_.store(thread, std::memory_order_relaxed);
  ExecMemory* none = nullptr;
  // Pairs with the loads of next_ above and in take_quietly(); where it fails, with itself in another thread.
  while (!last->next_.compare_exchange_weak(none, piece, std::memory_order_acq_rel)) {
    if (none) last = none;
    none = nullptr;
  }
  return piece;
}

}  // namespace torchprof::inject
