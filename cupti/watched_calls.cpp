#include "cupti/watched_calls.h"

#include "cupti/cupti_abi.h"
#include "cupti/recorded_calls.h"
#include "cupti/source.h"
#include "tracer/process/lock.h"

namespace torchprof::cupti {
namespace {

// Launches of CUDA's first years, which no program makes now that they have been replaced.
constexpr uint32_t kAlwaysRuntime = 13, kAlwaysDriver = 115;  // cudaLaunch, cuLaunch

bool is_always(GpuApiKind api, uint32_t cbid) noexcept {
  return cbid == (api == GpuApiKind::kRuntime ? kAlwaysRuntime : kAlwaysDriver);
}

int enable(GpuApiKind api, uint32_t cbid, bool on) noexcept {
  const Api& functions = source().api;
  return api == GpuApiKind::kRuntime ? functions.enable_runtime_call(cbid, on) : functions.enable_driver_call(cbid, on);
}

constexpr uint32_t kind_of(GpuApiKind api) noexcept {
  return api == GpuApiKind::kRuntime ? abi::kRuntime : abi::kDriver;
}

bool other_has(uint32_t kind) noexcept { return (source().wishes.of(kTheirs) & kind_bit(kind)) != 0; }
bool other_had(uint32_t kind) noexcept { return (source().wishes.ever(kTheirs) & kind_bit(kind)) != 0; }

// With the lock `wishing`.
bool is_wanted_by_us(GpuApiKind api, uint32_t cbid) noexcept {
  return is_always(api, cbid) || (source().enabled.load(std::memory_order_relaxed) && is_recorded_call(api, cbid));
}

// The runtime's, of any device. Within cuInit the driver knows no device yet.
bool has_context() noexcept {
  const Api& api = source().api;
  if (!api.device || !api.context_state) return false;
  int device = 0, is_active = 0;
  unsigned flags = 0;
  for (int ordinal = 0; api.device(&device, ordinal) == 0; ++ordinal)
    if (api.context_state(device, &flags, &is_active) == 0 && is_active != 0) return true;
  return false;
}

}  // namespace

bool can_watch_calls() noexcept {
  const Source& s = source();
  if (!s.api.enable_runtime_call || !s.api.enable_driver_call || has_context()) return false;
  const Lock lock(source().wishing);
  return !other_had(abi::kRuntime) && !other_had(abi::kDriver) &&
         enable(GpuApiKind::kRuntime, kAlwaysRuntime, true) == abi::kSuccess &&
         enable(GpuApiKind::kDriver, kAlwaysDriver, true) == abi::kSuccess;
}

void check_watched_calls() noexcept {
  constexpr uint64_t kMany = 64;  // the calls of a few may come later
  Source& s = source();
  const Lock switching(s.switching);
  if (state() != State::kOn || !s.watches_calls) return;
  {
    const Lock writing(s.writing);
    const bool are_missing = s.tally.calls == 0 && s.tally.launched >= kMany;
    const bool were_missing = s.calls_are_missing;
    s.calls_are_missing = are_missing;
    if (!are_missing || !were_missing) return;
  }
  s.watches_calls = false;
  {
    const Lock wishing(s.wishing);
    s.wishes.list_ours(false);
  }
  const bool is_open = s.enabled.load(std::memory_order_relaxed);
  for (const uint32_t kind : {abi::kRuntime, abi::kDriver})
    if (is_open || other_has(kind)) s.api.enable(kind);
  note_on();
}

void watch_our_calls() noexcept {
  for (const RecordedCall& call : recorded_calls()) enable(call.api, call.cbid, true);
}

void forget_our_calls() noexcept {
  Source& s = source();
  for (const RecordedCall& call : recorded_calls()) {
    if (is_always(call.api, call.cbid)) continue;
    const Lock switching(s.switching);
    // CUPTI may have been finalized, and be ours again without single calls.
    if (s.enabled.load(std::memory_order_relaxed) || state() != State::kOn || !s.watches_calls) return;
    const Lock wishing(s.wishing);
    if (s.wishes.other_asked(call.api, call.cbid)) continue;
    if (other_has(kind_of(call.api)) && s.wishes.other_wants(call.api, call.cbid)) continue;
    enable(call.api, call.cbid, false);
  }
}

int watch_all_calls(uint32_t kind, bool on) noexcept {
  const GpuApiKind api = api_of(kind);
  const Lock lock(source().wishing);
  for (uint32_t cbid = 1; cbid < CallSet::kMost; ++cbid) {
    source().wishes.other_wants(api, cbid, true);
    if (is_wanted_by_us(api, cbid)) continue;
    const int result = enable(api, cbid, on);
    if (result != abi::kSuccess) return cbid == 1 ? result : abi::kSuccess;  // after the last call that it knows
  }
  return abi::kSuccess;
}

int watch_call(uint32_t kind, uint32_t cbid, bool on) noexcept {
  const GpuApiKind api = api_of(kind);
  const Lock lock(source().wishing);
  source().wishes.other_wants(api, cbid, on);
  source().wishes.other_asks(api, cbid, on);
  return is_wanted_by_us(api, cbid) ? abi::kSuccess : enable(api, cbid, on);
}

}  // namespace torchprof::cupti
