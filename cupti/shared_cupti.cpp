#include "cupti/shared_cupti.h"

#include "cupti/cupti_abi.h"
#include "cupti/source.h"
#include "cupti/watched_calls.h"
#include "tracer/process/diag.h"
#include "tracer/process/lock.h"
#include "tracer/session.h"
#include "tracer/window.h"

namespace torchprof::cupti {
namespace {

constexpr uint32_t kForced = 1;  // CUPTI_ACTIVITY_FLAG_FLUSH_FORCED

bool is_shared() noexcept { return state() == State::kOn && source().is_registered; }

bool are_watched_calls(uint32_t kind) noexcept { return is_api(kind) && is_shared() && source().watches_calls; }

// Writes what was recorded so far, before the other client wants any records; then asks that client for a buffer.
void begin_session() noexcept {
  Source& s = source();
  {
    const Lock lock(s.writing);
    write_all(false);
  }
  pour_completed();
  if (s.other.begin()) {
    s.other.keep_buffer();
    s.other.end();
  }
}

// After cuptiFinalize. With the lock `switching`.
void come_back() noexcept {
  Source& s = source();
  if (register_ourselves() != abi::kSuccess) return;
  become(State::kOn);
  if (window::is_open()) enable_all();
  const Lock lock(s.writing);
  write_clock(s.api, s.sharing());
  write_gap(GpuLoss::kBack);
}

// Gives CUPTI the other client's clock. With the lock `switching`.
int give_clock(uint64_t (*clock)(), int (*real)(uint64_t (*)())) {
  Source& s = source();
  const Lock writing(s.writing);
  const int result = real(clock);
  const BothClocks given = result == abi::kSuccess ? s.clocks_now() : BothClocks{};
  if (!given.is_read) return result;
  s.has_foreign_clock = true;
  const Lock wishing(s.wishing);
  s.clock.gets(given.own, given.other);
  return result;
}

}  // namespace

void join_session() noexcept {
  if (source().other.is_there() && wishes_of(kTheirs) != 0) begin_session();
}

int other_registers(RequestBuffer request, BufferCompleted completed, int (*real)(RequestBuffer, BufferCompleted)) {
  if (!request || !completed) return real(request, completed);
  const KeepErrno keep;
  Source& s = source();
  {
    const Lock lock(s.switching);
    if (state() == State::kAside) come_back();
    s.other.registers(request, completed);
    if (!is_shared()) return real(request, completed);
    // A client that gives CUPTI no clock knows its default.
    if (s.has_own_clock && !s.has_foreign_clock) give_clock(realtime_ns, s.api.set_clock);
  }
  join_session();
  return abi::kSuccess;
}

int other_enables(uint32_t kind, int (*real)(uint32_t)) {
  const KeepErrno keep;
  Source& s = source();
  if (is_shared() && s.other.is_there() && wishes_of(kTheirs) == 0) begin_session();
  const Lock lock(s.switching);
  wish(kTheirs, wishes_of(kTheirs) | kind_bit(kind));
  const int result = are_watched_calls(kind) ? watch_all_calls(kind, true) : real(kind);
  if (result != abi::kSuccess) wish(kTheirs, wishes_of(kTheirs) & ~kind_bit(kind));
  return result;
}

int other_disables(uint32_t kind, int (*real)(uint32_t)) {
  const KeepErrno keep;
  Source& s = source();
  const Lock lock(s.switching);
  wish(kTheirs, wishes_of(kTheirs) & ~kind_bit(kind));
  if (is_api(kind)) {  // CUPTI forgets the single ones, too
    const Lock wishing(s.wishing);
    s.wishes.other_asks_none(api_of(kind));
  }
  if (are_watched_calls(kind)) return watch_all_calls(kind, false);
  bool is_ours = false;
  {
    const Lock wishing(s.wishing);
    is_ours = is_shared() && (s.wishes.of(kOurs) & kind_bit(kind)) != 0;
  }
  return is_ours ? abi::kSuccess : real(kind);
}

int other_switches_call(uint32_t kind, uint32_t cbid, bool on, int (*real)(uint32_t, uint8_t)) {
  const KeepErrno keep;
  const Lock lock(source().switching);
  if (are_watched_calls(kind)) return watch_call(kind, cbid, on);
  const int result = real(cbid, on);
  const Lock wishing(source().wishing);
  if (result == abi::kSuccess) source().wishes.other_asks(api_of(kind), cbid, on);
  return result;
}

int other_flushes(uint32_t flag, int (*real)(uint32_t)) {
  const KeepErrno keep;
  Source& s = source();
  if (!is_shared() || !s.other.is_there()) return real(flag);
  int result = abi::kSuccess;
  {
    const Lock lock(s.writing);
    result = real(flag);
    write_completed();
  }
  pour_completed();
  const bool goes_on = flag != kForced || wishes_of(kTheirs) != 0;
  if (!s.other.begin()) return result;
  if (s.other.has_records() || !goes_on) {
    // CUPTI would have a buffer of the client's while it records: libkineto takes none for a sign that nothing came.
    const bool had_buffer = s.other.has_buffer();
    s.other.hand_over();
    if (goes_on && had_buffer) s.other.keep_buffer();
  }
  s.other.end();
  return result;
}

int other_sets_clock(uint64_t (*clock)(), int (*real)(uint64_t (*)())) {
  const KeepErrno keep;
  Source& s = source();
  const Lock lock(s.switching);
  if (is_shared() && s.has_own_clock) return give_clock(clock, real);
  const int result = real(clock);
  if (result == abi::kSuccess) s.has_foreign_clock = true;
  return result;
}

int other_reads_clock(uint64_t* time, int (*real)(uint64_t*)) {
  const KeepErrno keep;
  Source& s = source();
  const Lock lock(s.switching);
  if (!time || !s.has_own_clock || s.has_foreign_clock || !is_shared()) return real(time);
  *time = realtime_ns();
  return abi::kSuccess;
}

int other_finalizes(int (*real)()) {
  const KeepErrno keep;
  Source& s = source();
  const Lock lock(s.switching);
  if (!is_shared()) return real();
  // It is called within a call of CUDA, where CUPTI must not be flushed; libkineto has flushed before.
  // Names in records are CUPTI's memory, and so is what it writes into our buffers: neither is read afterwards.
  const Lock writing(s.writing);
  leave_buffers();
  become(State::kAside);
  {
    const Lock wishing(s.wishing);
    s.wishes.other_asks_none(GpuApiKind::kRuntime);
    s.wishes.other_asks_none(GpuApiKind::kDriver);
  }
  s.is_registered = false;
  s.enabled.store(false, std::memory_order_relaxed);
  session::note_source("gpu", SourceState::kOn,
                       "CUPTI's activity records, but not after another client's cuptiFinalize");
  write_gap(GpuLoss::kAside);
  const int result = real();
  forget_buffers();
  return result;
}

}  // namespace torchprof::cupti
