// Which kinds of records CUPTI is asked for, and when.
#include <cstdio>
#include <iterator>

#include "cupti/cupti_abi.h"
#include "cupti/source.h"
#include "tracer/process/lock.h"
#include "tracer/session.h"

namespace torchprof::cupti {
namespace {

constexpr uint32_t kAlways[] = {abi::kDevice, abi::kContext};  // few records; contexts are made before windows open
constexpr uint32_t kInWindow[] = {abi::kConcurrentKernel, abi::kMemcpy,          abi::kMemcpyPeer, abi::kMemset,
                                  abi::kRuntime,          abi::kDriver,          abi::kOverhead,   abi::kCudaEvent,
                                  abi::kMemory2,          abi::kSynchronization, abi::kMemoryPool, abi::kEnvironment};

void wish(uint64_t kinds) noexcept {
  Source& s = source();
  const uint64_t now = cupti_now();
  const Lock lock(s.wishing);
  s.wishes.change(kOurs, kinds, now);
}

uint64_t theirs() noexcept {
  const Lock lock(source().wishing);
  return source().wishes.of(kTheirs);
}

uint64_t always() noexcept {
  uint64_t kinds = 0;
  for (const uint32_t kind : kAlways) kinds |= kind_bit(kind);
  return kinds;
}

}  // namespace

int register_ourselves() noexcept {
  Source& s = source();
  const int result = s.api.register_callbacks(on_request, on_completed);
  if (result != abi::kSuccess) return result;
  if (s.has_foreign_clock) {
    const BothClocks now = s.clocks_now();
    const Lock lock(s.wishing);
    if (now.is_read) s.clock.gets(now.realtime, now.other, 0);
  }
  s.is_registered = true;
  for (const uint32_t kind : kAlways) s.api.enable(kind);
  wish(always());
  return abi::kSuccess;
}

int enable_all() noexcept {
  Source& s = source();
  if (const int result = s.api.enable(kInWindow[0]); result != abi::kSuccess) return result;
  uint64_t kinds = always() | kind_bit(kInWindow[0]);
  for (size_t i = 1; i < std::size(kInWindow); ++i) {
    if (s.api.enable(kInWindow[i]) == abi::kSuccess)
      kinds |= kind_bit(kInWindow[i]);
    else
      s.not_there |= 1u << i;
  }
  wish(kinds);
  s.enabled.store(true, std::memory_order_relaxed);
  s.was_enabled.store(true, std::memory_order_relaxed);
  return abi::kSuccess;
}

void disable_all() noexcept {
  Source& s = source();
  wish(always());
  for (const uint32_t kind : kInWindow)
    if ((theirs() & kind_bit(kind)) == 0) s.api.disable(kind);
  s.enabled.store(false, std::memory_order_relaxed);
}

void note_on() noexcept {
  const Source& s = source();
  char text[session::kNoteSize];
  int used = snprintf(text, sizeof(text), "CUPTI's activity records, version %u", s.api.version);
  for (size_t i = 1; i < std::size(kInWindow); ++i)
    if (s.not_there >> i & 1 && used > 0 && static_cast<size_t>(used) + 24 < sizeof(text))
      used += snprintf(text + used, sizeof(text) - static_cast<size_t>(used), "; not kind %u", kInWindow[i]);
  session::note_source("gpu", SourceState::kOn, text);
}

}  // namespace torchprof::cupti
