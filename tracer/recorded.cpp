// What is counted and kept beside the events, for -w auto: how many there are, and the times of steps.
#include <algorithm>
#include <array>

#include "tracer/process/diag.h"
#include "tracer/process/lock.h"
#include "tracer/recorder.h"

namespace torchprof::session {
namespace {

// Whether a record, by the lowest byte of its first word, becomes an event of the trace of its own.
constexpr std::array<bool, 256> kIsEvent = [] {
  std::array<bool, 256> is_event{};
  for (const Kind kind : {Kind::PythonBegin, Kind::PythonFrame, Kind::CCallBegin, Kind::CCallBeginAt, Kind::GcBegin,
                          Kind::OpBegin, Kind::Memory, Kind::GpuKernel, Kind::GpuCopy, Kind::GpuSet, Kind::GpuApi,
                          Kind::GpuSync, Kind::GpuMemory, Kind::NvtxMark})
    is_event[static_cast<size_t>(kind)] = true;
  for (size_t kind = 128; kind < 256; ++kind)
    is_event[kind] = is_event[static_cast<size_t>(ShortRecord{kind}.long_kind())];
  return is_event;
}();

uint32_t events_in(const std::byte* at, const std::byte* end) noexcept {
  uint32_t events = 0;
  while (at < end) {
    uint64_t word = 0;
    memcpy(&word, at, sizeof(word));
    events += kIsEvent[word & 0xff];
    const uint64_t words = ShortRecord::is_short(word) ? ShortRecord{word}.words() : RecordHeader{word}.words();
    if (words == 0) break;
    at += words * sizeof(uint64_t);
  }
  return events;
}

std::atomic<uint64_t>& place_of(uint32_t window) noexcept {
  return recorder().recorded.windows[window % RecordedCounts::kWindows];
}

void add_to_window(uint32_t window, uint32_t events) noexcept {
  uint64_t old = place_of(window).load(std::memory_order_relaxed), fresh = 0;
  do {
    const auto counted = static_cast<uint32_t>(old >> 32);
    if (counted > window) return;
    fresh = counted == window ? old + events : uint64_t{window} << 32 | events;
  } while (!place_of(window).compare_exchange_weak(old, fresh, std::memory_order_relaxed));
}

// Room for so many bytes of one record of steps at this time, which is then ticks after the chunk's base. nullptr:
// nothing can be recorded any more.
std::byte* room_for_steps(uint64_t bytes, Ticks now, uint64_t& time) noexcept {
  Recorder& r = recorder();
  StepChunks& s = r.steps;
  if (!r.spool.is_open() || r.state.load(std::memory_order_relaxed) != State::kCapturing || !is_our_process())
    return nullptr;
  const auto since_base = [&] { return now.value - s.chunk->base.ticks.value; };
  if (!s.chunk || s.used + bytes > kChunkCapacity || since_base() > RecordHeader::kMaxTime) {
    ChunkHeader* fresh = r.spool.claim(ChunkKind::kSteps, TrackId{}, s.sequence, now, s.chunk, s.run);
    if (!fresh) {
      // As where there is no room for an event. Otherwise each step would try again.
      stop(State::kStopped);
      return nullptr;
    }
    s = {fresh, s.sequence + 1, 0, s.run, 0};
  }
  time = since_base();
  std::byte* const at = reinterpret_cast<std::byte*>(s.chunk) + sizeof(ChunkHeader) + s.used;
  s.used += static_cast<uint32_t>(bytes);
  return at;
}

// A long record, with its header.
template <class R>
R* begin_step_record(Ticks now) noexcept {
  uint64_t time = 0;
  auto* record = reinterpret_cast<R*>(room_for_steps(sizeof(R), now, time));
  if (record) record->header = RecordHeader::make(kKindOf<R>, sizeof(R) / 8, time);
  return record;
}

void commit_step_record() noexcept {
  const StepChunks& s = recorder().steps;
  // Pairs with the load in SpoolReader::collect_chunk(): the record is written.
  s.chunk->committed.store(s.used, std::memory_order_release);
}

}  // namespace

void count_events(const ThreadBuffer& buffer) noexcept {
  RecordedCounts& counts = recorder().recorded;
  const std::byte* begin = reinterpret_cast<const std::byte*>(buffer.chunk) + sizeof(ChunkHeader);
  const uint32_t events = events_in(begin, buffer.next);
  add_to_window(buffer.chunk->window, events);
  const uint64_t all = counts.all.fetch_add(events, std::memory_order_relaxed) + events;
  if (all < counts.limit.load(std::memory_order_relaxed)) return;
  counts.limit.store(UINT64_MAX, std::memory_order_relaxed);
  if (const auto reached = counts.reached.exchange(nullptr, std::memory_order_relaxed)) reached();
}

void count_events() noexcept { recorder().counts_events = true; }
const char* spool_directory() noexcept { return recorder().directory; }

uint64_t recorded() noexcept { return recorder().recorded.all.load(std::memory_order_relaxed); }
uint32_t recorded_in(uint32_t window) noexcept {
  const uint64_t place = place_of(window).load(std::memory_order_relaxed);
  return place >> 32 == window ? static_cast<uint32_t>(place) : 0;
}

void when_recorded(uint64_t limit, void (*reached)() noexcept) noexcept {
  RecordedCounts& counts = recorder().recorded;
  counts.reached.store(reached, std::memory_order_relaxed);
  counts.limit.store(limit, std::memory_order_relaxed);
}

void give_up_window(uint32_t number) noexcept {
  Recorder& r = recorder();
  if (r.spool.is_open()) r.spool.give_up(static_cast<uint16_t>(number));
  uint64_t place = place_of(number).load(std::memory_order_relaxed);
  if (place >> 32 == number)
    place_of(number).compare_exchange_strong(place, uint64_t{number} << 32, std::memory_order_relaxed);
}

bool record_step(uint64_t step, uint32_t window, uint8_t was_open, int64_t switching_ns, Ticks now) noexcept {
  const KeepErrno keep;
  const Lock lock(recorder().lock);
  StepChunks& s = recorder().steps;
  const uint64_t before = s.last_step;
  const bool is_next = before != 0 && step > before && step - before <= ShortStep::kMostAhead;
  if (is_next && window == 0 && was_open == 0 && switching_ns < 1000) {
    // In a new chunk it has to be a long one.
    const ChunkHeader* const chunk = s.chunk;
    uint64_t time = 0;
    std::byte* const at = room_for_steps(sizeof(ShortStep), now, time);
    if (!at) return false;
    if (s.chunk == chunk) {
      *reinterpret_cast<ShortStep*>(at) = ShortStep::make(step, time);
      s.last_step = step;
      commit_step_record();
      return true;
    }
    s.used -= sizeof(ShortStep);
  }
  auto* record = begin_step_record<StepEnd>(now);
  if (!record) return false;
  s.last_step = step;
  record->step = step;
  record->window = window;
  record->was_open = was_open;
  record->switching_us = static_cast<uint32_t>(std::clamp<int64_t>(switching_ns / 1000, 0, StepEnd::kMostSwitching));
  commit_step_record();
  return true;
}

bool record_resident(uint64_t bytes, Ticks now) noexcept {
  const KeepErrno keep;
  const Lock lock(recorder().lock);
  auto* record = begin_step_record<Resident>(now);
  if (!record) return false;
  record->bytes = bytes;
  commit_step_record();
  return true;
}

}  // namespace torchprof::session
