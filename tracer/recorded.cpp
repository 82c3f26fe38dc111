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

// Makes room for one more record of so many bytes beside the events, at this time. False: nothing can be recorded any
// more.
bool make_room_for_steps(Ticks now, size_t bytes = sizeof(StepEnd)) noexcept {
  Recorder& r = recorder();
  StepChunks& s = r.steps;
  if (!r.spool.is_open() || r.state.load(std::memory_order_relaxed) != State::kCapturing || !is_our_process())
    return false;
  const bool has_room =
      s.chunk && s.used + bytes <= kChunkCapacity && now.value - s.chunk->base.ticks.value <= RecordHeader::kMaxTime;
  if (has_room) return true;
  ChunkHeader* fresh = r.spool.claim(ChunkKind::kSteps, TrackId{}, s.sequence, now, s.chunk, s.run);
  if (!fresh) {
    // As where there is no room for an event. Otherwise each step would try again.
    stop(State::kStopped);
    return false;
  }
  s = {fresh, s.sequence + 1, 0, s.run, 0};
  return true;
}

uint64_t time_in_steps(Ticks now) noexcept { return now.value - recorder().steps.chunk->base.ticks.value; }

// `more`: bytes that follow the struct.
template <class R>
void put_step_record(const R& record, const void* more = nullptr, size_t bytes = 0) noexcept {
  StepChunks& s = recorder().steps;
  std::byte* const at = reinterpret_cast<std::byte*>(s.chunk) + sizeof(ChunkHeader) + s.used;
  memcpy(at, &record, sizeof(R));
  if (bytes != 0) memcpy(at + sizeof(R), more, bytes);
  s.used += static_cast<uint32_t>(sizeof(R) + bytes);
  // Pairs with the load in SpoolReader::collect_chunk(): the record is written.
  s.chunk->committed.store(s.used, std::memory_order_release);
}

// One without a tail; its header is not used.
template <class R>
bool record_beside_steps(R record, Ticks now) noexcept {
  const KeepErrno keep;
  const Lock lock(recorder().lock);
  if (!make_room_for_steps(now, sizeof(R))) return false;
  record.header = RecordHeader::make(kKindOf<R>, sizeof(R) / 8, time_in_steps(now));
  put_step_record(record);
  return true;
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
  if (!make_room_for_steps(now)) return false;
  uint64_t& before = recorder().steps.last_step;
  StepEnd end{};
  end.header = RecordHeader::make(Kind::StepEnd, sizeof(StepEnd) / 8, time_in_steps(now));
  end.step = step;
  end.window = window;
  end.was_open = was_open;
  end.switching_us = static_cast<uint32_t>(std::clamp<int64_t>(switching_ns / 1000, 0, StepEnd::kMostSwitching));
  if (ShortStep::can_say(end, before))
    put_step_record(ShortStep::make(step, time_in_steps(now)));
  else
    put_step_record(end);
  before = step;
  return true;
}

bool record_resident(uint64_t bytes, Ticks now) noexcept { return record_beside_steps(Resident{{}, bytes}, now); }
bool record_processor_time(ProcessorTime use, Ticks now) noexcept { return record_beside_steps(use, now); }
bool record_machine_time(MachineTime use, Ticks now) noexcept { return record_beside_steps(use, now); }
bool record_stack_node(StackNode node, Ticks now) noexcept { return record_beside_steps(node, now); }
bool record_sample(Sample sample, Ticks now, int64_t late_ns) noexcept {
  sample.late_us = static_cast<uint32_t>(std::clamp<int64_t>(late_ns / 1000, 0, UINT32_MAX));
  return record_beside_steps(sample, now);
}

bool record_stack(ThreadStack stack, const StackFrame* frames, Ticks now) noexcept {
  static_assert(sizeof(ThreadStack) + kMostFrames * sizeof(StackFrame) <= RecordHeader::kMaxWords * 8);
  static_assert(sizeof(StackFrame) == 8);
  const KeepErrno keep;
  const Lock lock(recorder().lock);
  const size_t more = stack.count * sizeof(StackFrame);
  if (!make_room_for_steps(now, sizeof(stack) + more)) return false;
  stack.header = RecordHeader::make(Kind::ThreadStack, (sizeof(stack) + more) / 8, time_in_steps(now));
  put_step_record(stack, frames, more);
  return true;
}

}  // namespace torchprof::session
