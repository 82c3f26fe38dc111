// What CUPTI fills and gives back: into the spool, and to another client.

#include <cstdio>
#include <iterator>

#include "cupti/source.h"
#include "tracer/process/diag.h"
#include "tracer/process/lock.h"
#include "tracer/session.h"

namespace torchprof::cupti {
namespace {

// From this version on CUPTI survives a refused buffer (Kineto's experience); before it, more buffers are given.
constexpr uint32_t kMayRefuse = 27;

// A buffer comes after the end. Nobody can ask CUPTI any more what is in it, but the spool may still be open for a
// note.
void say_late(size_t bytes) noexcept {
  Source& s = source();
  if (!s.has_ended.load(std::memory_order_relaxed)) return;
  const uint64_t buffers = s.late_buffers.fetch_add(1, std::memory_order_relaxed) + 1;
  const uint64_t all = s.late_bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  char text[64];
  snprintf(text, sizeof(text), "%llu buffers, %llu bytes", static_cast<unsigned long long>(buffers),
           static_cast<unsigned long long>(all));
  session::define_fact("gpu.late", text);
}

}  // namespace

// ---- what CUPTI calls, under locks of its own -----------------------------------------------------------------------

void on_request(uint8_t** buffer, size_t* size, size_t* most_records) {
  std::byte* data = source().buffers.request(source().api.version < kMayRefuse);
  *buffer = reinterpret_cast<uint8_t*>(data);
  *size = data ? ActivityBuffers::kSize : 0;
  *most_records = 0;  // as many as fit
}

void on_completed(void* context, uint32_t stream, uint8_t* buffer, size_t size, size_t valid) {
  if (!buffer) return;
  const KeepErrno keep;
  if (state() == State::kOff) {
    if (valid != 0) say_late(valid);
    valid = 0;
  }
  if (valid > size) valid = size;
  Source& s = source();
  const Completed completed{reinterpret_cast<std::byte*>(buffer), valid, context, stream};
  // A buffer that is not ours: CUPTI got it from the other client before we began. Records of ours may be in it.
  if (s.buffers.completed(completed) || (s.other.is_there() && s.buffers.put_foreign(completed))) s.work.wake();
}

// ---- what comes back ------------------------------------------------------------------------------------------------

void write_completed() noexcept {
  Source& s = source();
  Completed buffer;
  if (!s.other.is_there()) {
    // Those that are there now: a thread that launches without a pause may fill them faster than they are written, and
    // who waited for the last would keep the program from its end. And whoever ends the process waits for one buffer at
    // most, not for as many as a slow machine has left: it writes the others itself. Likewise below.
    for (size_t left = s.buffers.queued();
         left > 0 && !s.end_waits.load(std::memory_order_relaxed) && s.buffers.take(buffer); --left) {
      see_calls(s.api, buffer, s.sharing());  // what they launched may run after another client has come
      write_buffer(s.api, buffer, s.tally, s.devices, nullptr, &ActivityBuffers::progress_of(buffer.data));
      s.buffers.give_back(buffer.data, buffer.valid);
    }
    return;
  }
  const Sharing sharing = s.sharing();
  const size_t from = s.count_to_pour;
  const auto slot = [&s](size_t i) -> Completed& {
    return s.to_pour[(s.first_to_pour + i) % ActivityBuffers::kMostForced];
  };
  while (s.count_to_pour < ActivityBuffers::kMostForced && s.buffers.take(buffer)) slot(s.count_to_pour++) = buffer;
  if (const BothClocks now = s.clocks_now(); now.is_read) {
    const Lock lock(s.wishing);
    s.clock.reads(now.own, now.other);
  }
  const size_t taken = s.count_to_pour - from;
  size_t unseen = s.unseen.load(std::memory_order_relaxed) + taken;
  size_t unwritten = s.unwritten.load(std::memory_order_relaxed) + taken;
  s.unwritten.store(unwritten, std::memory_order_relaxed);
  s.unseen.store(unseen, std::memory_order_relaxed);
  const auto goes_on = [&s] { return !s.end_waits.load(std::memory_order_relaxed); };
  while (unseen > 0 && goes_on()) {
    see_calls(s.api, slot(s.count_to_pour - unseen), sharing);
    s.unseen.store(--unseen, std::memory_order_relaxed);
  }
  while (unseen == 0 && unwritten > 0 && goes_on()) {
    const Completed& next = slot(s.count_to_pour - unwritten);
    write_buffer(s.api, next, s.tally, s.devices, &sharing,
                 next.is_foreign ? nullptr : &ActivityBuffers::progress_of(next.data));
    s.unwritten.store(--unwritten, std::memory_order_relaxed);
  }
}

namespace {

void write_in_flight() noexcept {
  Source& s = source();
  const Sharing sharing = s.sharing();
  const bool is_shared = s.other.is_there();
  const size_t count = s.buffers.in_use(s.in_use, std::size(s.in_use));
  const Lock lock(s.wishing);
  // As in write_completed(): the calls tell who wants what they launched.
  for (size_t i = 0; i < count; ++i) {
    s.open_streams.clear();
    walk_in_flight(s.api, s.sizes, s.in_use[i], s.open_streams, [&](const std::byte* record, size_t bytes) {
      Brief what = brief(record, bytes);
      if (!what.is_call) return false;
      what.start = s.clock.own(what.start);
      s.wishes.saw(what);
      return false;
    });
  }
  s.open_streams.clear();
  for (size_t i = 0; i < count; ++i)
    s.in_use[i].progress->seen =
        walk_in_flight(s.api, s.sizes, s.in_use[i], s.open_streams, [&](const std::byte* record, size_t bytes) {
          write_early(s.api, record, bytes, s.tally, s.devices, is_shared ? &sharing : nullptr);
          return true;
        });
  s.stuck.look(s.open_streams);
  s.has_open_work.store(s.open_streams.size() != 0, std::memory_order_relaxed);
}

}  // namespace

void leave_buffers() noexcept {
  write_completed();
  write_in_flight();  // of CUPTI it asks no more than the size of a record
}

void forget_buffers() noexcept {
  Source& s = source();
  s.buffers.abandon();
  s.open_streams.clear();
  s.stuck.look(s.open_streams);
  s.has_open_work.store(false, std::memory_order_relaxed);
}

void write_all(bool forced, bool has_clock) noexcept {
  Source& s = source();
  s.api.flush_all(0);
  if (forced) s.api.flush_all(1);
  write_completed();
  if (!forced) write_in_flight();
  write_devices(s.api, s.devices, s.tally, forced);
  write_dropped(s.api, nullptr, 0, s.tally);
  if (has_clock) write_clock(s.api, s.sharing());
}

void pour_completed() noexcept {
  Source& s = source();
  if (!s.other.is_there() || !s.other.begin()) return;
  size_t left = 0;  // those that are there now: see write_completed()
  {
    const Lock lock(s.writing);
    left = s.count_to_pour - s.unwritten.load(std::memory_order_relaxed);
  }
  // Not at the end, where the other client may be gone, and not while an exit waits for what is not written.
  for (; left > 0 && state() == State::kOn && !s.must_flush.load(std::memory_order_relaxed); --left) {
    Completed buffer;
    {
      const Lock lock(s.writing);
      if (s.count_to_pour == s.unwritten.load(std::memory_order_relaxed)) break;
      buffer = s.to_pour[s.first_to_pour];
      s.first_to_pour = (s.first_to_pour + 1) % ActivityBuffers::kMostForced;
      --s.count_to_pour;
    }
    if (buffer.is_foreign) {
      s.other.completed()(buffer.context, buffer.stream, reinterpret_cast<uint8_t*>(buffer.data), buffer.valid,
                          buffer.valid);
      continue;
    }
    s.other.pour(s.api, s.sharing(), buffer);
    s.buffers.give_back(buffer.data, buffer.valid);
  }
  s.other.end();
}

}  // namespace torchprof::cupti
