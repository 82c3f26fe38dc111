#include "tracer/process/seal.h"

#include <time.h>

#include <cerrno>

namespace torchprof::seal {

namespace detail {
constinit std::atomic<bool> g_is_sealed{false};
constinit std::atomic<int> g_calling{0};
}  // namespace detail

void seal() noexcept {
  const int saved = errno;
  detail::g_is_sealed.store(true, std::memory_order_seq_cst);  // pairs with is_sealed()
  constexpr timespec kPause = {.tv_sec = 0, .tv_nsec = 1'000'000};
  // Pairs with Calls(): after the store above it must not read an older count. Pairs with ~Calls() as an acquire.
  for (int tries = 0; tries < 1000 && detail::g_calling.load(std::memory_order_seq_cst) > 0; ++tries)
    nanosleep(&kPause, nullptr);
  errno = saved;
}

// Pairs with is_sealed().
void unseal() noexcept { detail::g_is_sealed.store(false, std::memory_order_seq_cst); }

void after_fork_in_child() noexcept { detail::g_calling.store(0, std::memory_order_relaxed); }

}  // namespace torchprof::seal
