// Which kinds of records CUPTI is asked for, and when.
#include <cstdio>
#include <iterator>

#include "cupti/cupti_abi.h"
#include "cupti/source.h"
#include "cupti/watched_calls.h"
#include "tracer/process/lock.h"
#include "tracer/session.h"

namespace torchprof::cupti {
namespace {

constexpr uint32_t kAlways[] = {abi::kDevice, abi::kContext};  // few records; contexts are made before windows open
struct InWindow {
  uint32_t kind;
  GpuMode least;  // from which on it is recorded
};
// What these cost: watched_calls.h. Records of events and of waits add 4.4 and 4.3 ms to a step of 450 launches, and
// tell little more than the calls that record events and that wait.
constexpr InWindow kInWindow[] = {
    {abi::kConcurrentKernel, GpuMode::kKernels},
    {abi::kMemcpy, GpuMode::kKernels},
    {abi::kMemcpyPeer, GpuMode::kKernels},
    {abi::kMemset, GpuMode::kKernels},
    {abi::kRuntime, GpuMode::kOn},
    {abi::kDriver, GpuMode::kOn},
    {abi::kOverhead, GpuMode::kOn},
    {abi::kMemory2, GpuMode::kOn},
    {abi::kMemoryPool, GpuMode::kOn},
    {abi::kEnvironment, GpuMode::kOn},
    {abi::kCudaEvent, GpuMode::kFull},
    {abi::kSynchronization, GpuMode::kFull},
};

bool other_asked_any(uint32_t kind) noexcept {
  const Lock lock(source().wishing);
  return is_api(kind) && source().wishes.other_asked_any(api_of(kind));
}

uint64_t always() noexcept {
  uint64_t kinds = 0;
  for (const uint32_t kind : kAlways) kinds |= kind_bit(kind);
  return kinds;
}

// Gives CUPTI our clock. Another client may have given it another one, and keeps it.
void begin_clock(bool is_first) noexcept {
  Source& s = source();
  if (is_first) begin_own_clock();
  if (!s.has_foreign_clock && s.api.set_clock && s.api.set_clock(own_clock) == abi::kSuccess) s.has_own_clock = true;
  if (!s.has_foreign_clock) return;
  s.has_own_clock = true;
  const BothClocks now = s.clocks_now();
  const Lock lock(s.wishing);
  if (now.is_read) s.clock.gets(now.own, now.other);
}

}  // namespace

int register_ourselves() noexcept {
  Source& s = source();
  // Again, after another client's cuptiFinalize, there are contexts, and calls cannot be watched one by one.
  const bool is_first = !s.was_registered;
  s.was_registered = true;
  const int result = s.api.register_callbacks(on_request, on_completed);
  if (result != abi::kSuccess) return result;
  begin_clock(is_first);
  s.watches_calls = session::config().gpu == GpuMode::kOn && is_first && can_watch_calls();
  {
    const Lock lock(s.wishing);
    s.wishes.list_ours(s.watches_calls);
  }
  s.is_registered = true;
  for (const uint32_t kind : kAlways) s.api.enable(kind);
  wish(kOurs, always());
  return abi::kSuccess;
}

void wish(Party party, uint64_t kinds) noexcept {
  Source& s = source();
  const uint64_t now = cupti_now();
  const Lock lock(s.wishing);
  s.wishes.change(party, kinds, now);
}

uint64_t wishes_of(Party party) noexcept {
  const Lock lock(source().wishing);
  return source().wishes.of(party);
}

int enable_all(bool with_calls) noexcept {
  Source& s = source();
  if (const int result = s.api.enable(kInWindow[0].kind); result != abi::kSuccess) return result;
  uint64_t kinds = always() | kind_bit(kInWindow[0].kind);
  for (size_t i = 1; i < std::size(kInWindow); ++i) {
    const auto [kind, least] = kInWindow[i];
    if (least > session::config().gpu) continue;
    if ((is_api(kind) && s.watches_calls) || s.api.enable(kind) == abi::kSuccess)
      kinds |= kind_bit(kind);
    else
      s.not_there |= 1u << i;
  }
  if (s.watches_calls && with_calls) watch_our_calls();
  wish(kOurs, kinds);
  s.enabled.store(true, std::memory_order_relaxed);
  s.was_enabled.store(true, std::memory_order_relaxed);
  return abi::kSuccess;
}

void disable_all() noexcept {
  Source& s = source();
  wish(kOurs, always());
  for (const auto [kind, least] : kInWindow)
    if (least <= session::config().gpu && !(is_api(kind) && s.watches_calls) &&
        (wishes_of(kTheirs) & kind_bit(kind)) == 0 && !other_asked_any(kind))
      s.api.disable(kind);
  s.enabled.store(false, std::memory_order_relaxed);
  s.must_forget.store(s.watches_calls, std::memory_order_relaxed);  // our thread does it
}

void note_on() noexcept {
  const Source& s = source();
  char text[session::kNoteSize];
  int used = snprintf(text, sizeof(text), "CUPTI's activity records, version %u", s.api.version);
  for (size_t i = 1; i < std::size(kInWindow); ++i)
    if (s.not_there >> i & 1 && used > 0 && static_cast<size_t>(used) + 24 < sizeof(text))
      used += snprintf(text + used, sizeof(text) - static_cast<size_t>(used), "; not kind %u", kInWindow[i].kind);
  if (session::config().gpu == GpuMode::kOn && !s.watches_calls && used > 0 && static_cast<size_t>(used) < sizeof(text))
    snprintf(text + used, sizeof(text) - static_cast<size_t>(used), "; all calls, as it cannot watch single ones");
  session::note_source("gpu", SourceState::kOn, text);
}

}  // namespace torchprof::cupti
