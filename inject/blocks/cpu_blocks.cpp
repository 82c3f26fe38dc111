#include "inject/blocks/cpu_blocks.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstddef>

#include "inject/blocks/block_table.h"
#include "inject/blocks/fork_safe.h"
#include "tracer/process/diag.h"
#include "tracer/process/lock.h"
#include "tracer/process/seal.h"

namespace torchprof::inject {
namespace {

constexpr size_t kWays = 4;
constexpr int kGroupBits = 14;

// Free: its key is 0 or of an earlier window. The key is the address, which has 48 bits, above 16 bits of the window's
// number. kTaken while its size is written.
constexpr uint64_t kTaken = UINT64_MAX;
struct Place {
  std::atomic<uint64_t> key;
  std::atomic<int64_t> bytes;
};
struct alignas(64) Group {
  Place places[kWays];
};
static_assert(sizeof(Group) == 64, "a block is looked for in one cache line");

constinit Group g_groups[size_t{1} << kGroupBits];  // no memory until they are used

// What a thread has allocated less what it has freed. Each thread has a place of its own, to which it alone adds, since
// a locked addition takes 6 ns; those after the first kOwn share the last one.
constexpr uint32_t kOwn = 255;
struct alignas(64) Balance {
  std::atomic<uint64_t> bytes;
};
constinit Balance g_balances[kOwn + 1];
constinit std::atomic<uint32_t> g_threads{0};
constinit thread_local uint32_t t_balance __attribute__((tls_model("initial-exec"))) = 0;  // its place + 1; 0: none yet

// What found no place.
pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
BlockTable g_others;
uint32_t g_others_of = 0;                        // the window that they are from
constinit std::atomic<size_t> g_have_others{0};  // how many there are

uint64_t key_of(const void* address, uint32_t window) noexcept {
  return reinterpret_cast<uintptr_t>(address) << 16 | (window & 0xffff);
}
// Whether the window of a key, or of g_others, is one of the next few after `window`: this thread comes late.
bool is_later(uint64_t key, uint32_t window) noexcept {
  constexpr uint16_t kFew = 16;
  const auto ahead = static_cast<uint16_t>(key - window);
  return ahead != 0 && ahead <= kFew;
}
Group& group_of(const void* address) noexcept {
  return g_groups[reinterpret_cast<uintptr_t>(address) * 0x9e3779b97f4a7c15u >> (64 - kGroupBits)];
}

[[gnu::noinline, gnu::cold]] void add_to_others(const void* address, int64_t bytes, uint32_t window) noexcept {
  const KeepErrno keep;
  if (const seal::Calls calls; calls) survive_fork<g_lock>();
  const Lock lock(g_lock);
  if (is_later(g_others_of, window)) return;
  if (g_others_of != window) {
    g_others.clear();
    g_have_others.store(0, std::memory_order_relaxed);
  }
  g_others_of = window;
  const int64_t* known = g_others.find(address);
  if (g_others.put(address, bytes) && !known) g_have_others.fetch_add(1, std::memory_order_relaxed);
}

[[gnu::noinline, gnu::cold]] int64_t take_from_others(const void* address, uint32_t window) noexcept {
  const Lock lock(g_lock);
  int64_t* known = g_others_of == window ? g_others.find(address) : nullptr;
  if (!known) return 0;
  const int64_t bytes = *known;
  *known = 0;
  g_have_others.fetch_sub(1, std::memory_order_relaxed);
  return bytes;
}

void put(const void* address, int64_t bytes, uint32_t window) noexcept {
  const uint64_t key = key_of(address, window);
  Group& group = group_of(address);
  for (;;) {
    Place* free = nullptr;
    uint64_t was = 0;
    for (Place& place : group.places) {
      const uint64_t there = place.key.load(std::memory_order_relaxed);
      // Its end was not told to us, and the address has come again.
      if (there == key) return place.bytes.store(bytes, std::memory_order_relaxed);
      const bool is_of_earlier = there != kTaken && ((there ^ key) & 0xffff) != 0 && !is_later(there, window);
      if (!free && (there == 0 || is_of_earlier)) free = &place, was = there;
    }
    if (!free) return add_to_others(address, bytes, window);
    // Pairs with the release in take(): the size that was here has been read.
    if (!free->key.compare_exchange_strong(was, kTaken, std::memory_order_acquire, std::memory_order_relaxed)) continue;
    free->bytes.store(bytes, std::memory_order_relaxed);
    return free->key.store(key, std::memory_order_release);  // pairs with take()
  }
}

int64_t take(const void* address, uint32_t window) noexcept {
  const uint64_t key = key_of(address, window);
  for (Place& place : group_of(address).places) {
    uint64_t there = place.key.load(std::memory_order_acquire);  // pairs with the release in put()
    if (there != key) continue;
    const int64_t bytes = place.bytes.load(std::memory_order_relaxed);
    // Pairs with the acquire in put(). False: a later window has taken the place.
    return place.key.compare_exchange_strong(there, 0, std::memory_order_release, std::memory_order_relaxed) ? bytes
                                                                                                             : 0;
  }
  return g_have_others.load(std::memory_order_relaxed) == 0 ? 0 : take_from_others(address, window);
}

[[gnu::noinline, gnu::cold]] uint32_t choose_balance() noexcept {
  // Not fetch_add: a program that starts threads for ever would come round to the first ones.
  uint32_t place = g_threads.load(std::memory_order_relaxed);
  while (place < kOwn && !g_threads.compare_exchange_weak(place, place + 1, std::memory_order_relaxed)) {
  }
  return t_balance = place + 1;
}

void add_to_balance(int64_t bytes) noexcept {
  uint32_t mine = t_balance;
  if (mine == 0) [[unlikely]]
    mine = choose_balance();
  std::atomic<uint64_t>& balance = g_balances[mine - 1].bytes;
  const auto size = static_cast<uint64_t>(bytes);
  if (mine <= kOwn) [[likely]]
    return balance.store(balance.load(std::memory_order_relaxed) + size, std::memory_order_relaxed);
  balance.fetch_add(size, std::memory_order_relaxed);
}

}  // namespace

void add_block(const void* address, int64_t bytes, uint32_t window) noexcept {
  put(address, bytes, window);
  add_to_balance(bytes);
}

int64_t free_block(const void* address, uint32_t window) noexcept {
  const int64_t bytes = take(address, window);
  if (bytes != 0) add_to_balance(-bytes);
  return bytes;
}

uint64_t total_of_blocks() noexcept {
  uint64_t total = g_balances[kOwn].bytes.load(std::memory_order_relaxed);
  const uint32_t threads = std::min(g_threads.load(std::memory_order_relaxed), kOwn);
  for (uint32_t i = 0; i < threads; ++i) total += g_balances[i].bytes.load(std::memory_order_relaxed);
  // Below 0 where a block came after its thread was looked at, and went before that of another one was.
  return total <= uint64_t{INT64_MAX} ? total : 0;
}

}  // namespace torchprof::inject
