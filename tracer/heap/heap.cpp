#include "tracer/heap/heap.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "tracer/process/diag.h"
#include "tracer/python/abi.h"
#include "tracer/python/site.h"
#include "tracer/session.h"
#include "tracer/window.h"

namespace torchprof::heap {
namespace {

using python::Allocator;
using python::api;
using python::kMemDomain;
using python::kObjectDomain;

constexpr char kSourceName[] = "python memory";

// ---- the sampled blocks that live ---------------------------------------------------------------------------------

// `address` is 0 where there is none, and kBeingTaken while the block is being put in. `bytes`: what it stands for,
// and in the highest 16 bits the epoch. Blocks of another epoch are forgotten.
struct LiveBlock {
  std::atomic<uint64_t> address;
  std::atomic<uint64_t> bytes;
};
constexpr uint64_t kBeingTaken = 1;
constexpr unsigned kEpochShift = 48;
constexpr uint64_t kBytesMask = (uint64_t{1} << kEpochShift) - 1;

// A block lies in one of the slots of its bucket, one cache line. A place is found by the address without its lowest
// bits: what Python frees soon after each other lies close together, here too.
struct alignas(64) BlockBucket {
  LiveBlock slots[4];
};
constexpr size_t kBlockBuckets = size_t{1} << 17;
constexpr unsigned kAlignmentShift = 4;  // of pymalloc's blocks

BlockBucket* g_block_buckets = nullptr;  // 8 MiB, of which only what is used takes memory
constinit std::atomic<uint64_t> g_block_epoch{1};
constinit std::atomic<uint32_t> g_block_epoch_of{0};  // of the session's turn and this window
constinit std::atomic<bool> g_blocks_are_full{false};

// Whoever comes first in a new window begins a new epoch. That two might is no harm.
uint64_t block_epoch() noexcept {
  const uint32_t live = live_of(session::turn(), static_cast<uint16_t>(window::number()));
  if (g_block_epoch_of.load(std::memory_order_relaxed) != live) {
    g_block_epoch_of.store(live, std::memory_order_relaxed);
    g_block_epoch.fetch_add(1, std::memory_order_relaxed);
  }
  return g_block_epoch.load(std::memory_order_relaxed) & 0xffff;
}

BlockBucket& block_bucket(uint64_t address) noexcept {
  return g_block_buckets[(address >> kAlignmentShift) % kBlockBuckets];
}

// False: there is no room.
bool keep_block(uint64_t address, uint64_t bytes, uint64_t epoch) noexcept {
  for (LiveBlock& slot : block_bucket(address).slots) {
    uint64_t other = slot.address.load(std::memory_order_relaxed);
    if (other == kBeingTaken) continue;
    if (other != 0 && slot.bytes.load(std::memory_order_relaxed) >> kEpochShift == epoch) continue;
    // Pairs with the loads in take_block() by the store below; here it only decides who has the slot.
    if (!slot.address.compare_exchange_strong(other, kBeingTaken, std::memory_order_relaxed)) continue;
    slot.bytes.store(bytes | epoch << kEpochShift, std::memory_order_relaxed);
    slot.address.store(address, std::memory_order_release);  // pairs with the acquire in take_block()
    return true;
  }
  return false;
}

// How many bytes the block stands for, which is forgotten; 0: it is not in the table.
uint64_t take_block(uint64_t address, uint64_t epoch) noexcept {
  for (LiveBlock& slot : block_bucket(address).slots) {
    uint64_t found = slot.address.load(std::memory_order_acquire);  // pairs with the release in keep_block()
    if (found != address) continue;
    const uint64_t bytes = slot.bytes.load(std::memory_order_relaxed);
    // Relaxed: nobody else frees this block.
    if (!slot.address.compare_exchange_strong(found, 0, std::memory_order_relaxed)) continue;
    if (bytes >> kEpochShift == epoch) return bytes & kBytesMask;
  }
  return 0;
}

bool may_be_live(uint64_t address) noexcept {
  const BlockBucket& bucket = block_bucket(address);
  bool found = false;
  // Relaxed: only whoever allocated the block, or got it from there, frees it.
  for (const LiveBlock& slot : bucket.slots) found |= slot.address.load(std::memory_order_relaxed) == address;
  return found;
}

// ---- records ------------------------------------------------------------------------------------------------------

bool put_block(ThreadBuffer& buffer, uint64_t address, int64_t bytes) noexcept {
  const Ticks now = session::now();
  if (bytes > 0) python::put_allocation_site(buffer, now);
  auto* record = buffer.append<Memory>(now);
  if (!record) return false;
  *record = {.header = record->header,
             .address = address,
             .bytes = bytes,
             .allocated = kNoTotal,
             .reserved = 0,
             .device_type = kPythonMemory,
             .device_index = -1,
             .pad = {}};
  buffer.commit();
  return true;
}

// Bytes up to the next point. One counter for all threads: they hold the GIL. Interpreters that have a GIL each may
// lose each other's bytes, a few of the points.
constinit std::atomic<int64_t> g_bytes_to_point{kSample};
constinit std::atomic<uint64_t> g_point_random{0x9e3779b97f4a7c15};

// From half of kSample to one and a half.
int64_t next_distance() noexcept {
  uint64_t x = g_point_random.load(std::memory_order_relaxed);
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  g_point_random.store(x, std::memory_order_relaxed);
  return kSample / 2 + static_cast<int64_t>(x % static_cast<uint64_t>(kSample));
}

[[gnu::noinline, gnu::cold]] void record_block(void* block, int64_t bytes) noexcept {
  const KeepErrno keep_errno;
  ThreadBuffer* const buffer = session::current_buffer();
  const auto address = reinterpret_cast<uint64_t>(block);
  if (!buffer) return;
  if (!keep_block(address, static_cast<uint64_t>(bytes), block_epoch())) {
    if (!g_blocks_are_full.exchange(true, std::memory_order_relaxed))
      session::note_source(kSourceName, SourceState::kFailed, "too many blocks live: some samples are left out");
    return;
  }
  if (!put_block(*buffer, address, bytes)) take_block(address, block_epoch());
}

[[gnu::noinline, gnu::cold]] void record_points(void* block, int64_t left) noexcept {
  int64_t points = 0;
  for (; left <= 0; ++points) left += next_distance();
  g_bytes_to_point.store(left, std::memory_order_relaxed);
  record_block(block, points * kSample);
}

[[gnu::noinline, gnu::cold]] void record_free(void* block) noexcept {
  const KeepErrno keep_errno;
  ThreadBuffer* const buffer = session::current_buffer();
  if (!buffer) return;
  const auto address = reinterpret_cast<uint64_t>(block);
  if (const uint64_t bytes = take_block(address, block_epoch()))
    put_block(*buffer, address, -static_cast<int64_t>(bytes));
}

inline void block_allocated(void* block, size_t size) noexcept {
  if (!block || !session::is_live()) return;
  if (python::t_own_work != 0) [[unlikely]]
    return;
  if (size >= static_cast<size_t>(kSample)) [[unlikely]]
    return record_block(block, static_cast<int64_t>(size));
  const int64_t left = g_bytes_to_point.load(std::memory_order_relaxed) - static_cast<int64_t>(size);
  if (left <= 0) [[unlikely]]
    return record_points(block, left);
  g_bytes_to_point.store(left, std::memory_order_relaxed);
}

inline void block_freed(void* block) noexcept {
  if (block && session::is_live() && may_be_live(reinterpret_cast<uint64_t>(block))) [[unlikely]]
    record_free(block);
}

// ---- the hooks ----------------------------------------------------------------------------------------------------

// What was there before us. They are set before the hooks are, and never change while the hooks can be called.
Allocator g_allocators_before[kObjectDomain + 1];
bool g_has_allocator_hooks = false;

void* hook_malloc(void* context, size_t size) {
  const Allocator& before = *static_cast<const Allocator*>(context);
  void* const block = before.malloc(before.context, size);
  block_allocated(block, size);
  return block;
}

void* hook_calloc(void* context, size_t count, size_t size) {
  const Allocator& before = *static_cast<const Allocator*>(context);
  void* const block = before.calloc(before.context, count, size);
  block_allocated(block, count * size);  // no overflow: there is a block
  return block;
}

void* hook_realloc(void* context, void* block, size_t size) {
  const Allocator& before = *static_cast<const Allocator*>(context);
  void* const other = before.realloc(before.context, block, size);
  if (!other) return nullptr;  // the block is what it was
  // Nobody gets the old address meanwhile: the caller holds the GIL.
  block_freed(block);
  block_allocated(other, size);
  return other;
}

void hook_free(void* context, void* block) {
  const Allocator& before = *static_cast<const Allocator*>(context);
  block_freed(block);
  before.free(before.context, block);
}

constexpr int kHookedDomains[] = {kMemDomain, kObjectDomain};

// kBeneath: somebody has wrapped them. kGone: whoever wraps an allocator puts back the one from before, and with it
// takes away hooks that came later.
enum class Hooks : uint8_t { kOutermost, kBeneath, kGone };

// The allocators of CPython itself have no context, or are those that we found.
Hooks hooks_of(int domain) noexcept {
  Allocator now{};
  api().get_allocator(domain, &now);
  if (now.malloc == hook_malloc) return Hooks::kOutermost;
  const Allocator& before = g_allocators_before[domain];
  const bool is_as_before = now.malloc == before.malloc && now.context == before.context;
  return now.context && !is_as_before ? Hooks::kBeneath : Hooks::kGone;
}

bool are_all(Hooks wanted) noexcept {
  return std::ranges::all_of(kHookedDomains, [wanted](int domain) { return hooks_of(domain) == wanted; });
}

void note_what_was_taken_away() noexcept {
  if (!g_has_allocator_hooks || !are_all(Hooks::kGone)) return;
  g_has_allocator_hooks = false;
  session::note_source(kSourceName, SourceState::kFailed,
                       "our hooks were taken away in the midst of the run, as the end of a tracemalloc does that had "
                       "begun before them: what came then is missing");
}

// Why it cannot be; nullptr: it can.
const char* prepare_hooks() noexcept {
  if (!api().get_allocator || !api().set_allocator) return "this interpreter does not let its allocator be wrapped";
  if (!api().plain_build) return "a debug or free-threaded build, whose allocator is not wrapped";
  if (g_block_buckets) return nullptr;
  void* const memory = mmap(nullptr, kBlockBuckets * sizeof(BlockBucket), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return "out of memory";
  // The child's table has its parent's blocks.
  pthread_atfork(nullptr, nullptr, [] { g_block_epoch.fetch_add(1, std::memory_order_relaxed); });
  g_block_buckets = static_cast<BlockBucket*>(memory);
  return nullptr;
}

}  // namespace

void start() noexcept {
  if (session::config().memory != MemoryMode::kPython) return;
  if (session::config().python == PythonLevel::kOff)
    return session::note_source(kSourceName, SourceState::kOff, "switched off with all of Python (--python off)");
  if (const char* const why = prepare_hooks()) return session::note_source(kSourceName, SourceState::kFailed, why);
  session::note_source(kSourceName, SourceState::kOn, "one sample in 32 KiB that Python's allocator gives out");
  if (g_has_allocator_hooks) return;
  static bool is_looked_at_the_end = false;
  if (api().at_exit && !std::exchange(is_looked_at_the_end, true)) api().at_exit(note_what_was_taken_away);
  g_has_allocator_hooks = true;
  for (const int domain : kHookedDomains) {
    api().get_allocator(domain, &g_allocators_before[domain]);
    Allocator hook{&g_allocators_before[domain], hook_malloc, hook_calloc, hook_realloc, hook_free};
    api().set_allocator(domain, &hook);
  }
}

void stop() noexcept {
  note_what_was_taken_away();
  if (!g_has_allocator_hooks || !are_all(Hooks::kOutermost)) return;
  for (const int domain : kHookedDomains) api().set_allocator(domain, &g_allocators_before[domain]);
  g_has_allocator_hooks = false;
}

}  // namespace torchprof::heap
