// The hot path: a thread writes its records straight into its chunk of the mapped spool.
//
//     if (ThreadBuffer* buffer = current_buffer())
//       if (auto* r = buffer->append<OpEnd>(clock::now(...))) { r->key = key; buffer->commit(); }
//
// No lock, no allocation, no formatting. A full chunk costs one slow call (session.cpp). A buffer belongs to its thread
// and no other thread reads it; the file's reader sees what `committed` covers. What a source keeps of the
// thread is in `sources`, and no business of the buffer's.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tracer/known_names.h"
#include "tracer/source_memory.h"
#include "tracer/spool/clock.h"
#include "tracer/spool/ids.h"
#include "tracer/spool/layout.h"
#include "tracer/spool/open_spans.h"
#include "tracer/spool/record.h"
#include "tracer/spool/writer.h"

namespace torchprof {

// Of a buffer that was made between windows: no window has this number.
inline constexpr uint16_t kBetweenWindows = UINT16_MAX;

// What a buffer is of: the turn of the session (one for each time that it was armed; modulo 65536) and the window.
inline constexpr uint32_t live_of(uint16_t turn, uint16_t window) noexcept { return uint32_t{turn} << 16 | window; }
inline constexpr uint16_t turn_of(uint32_t live) noexcept { return static_cast<uint16_t>(live >> 16); }
inline constexpr uint16_t window_of(uint32_t live) noexcept { return static_cast<uint16_t>(live); }

struct ThreadBuffer {
  std::byte* next = nullptr;  // where the next record goes; equal to `end` when there is no chunk
  std::byte* end = nullptr;
  uint64_t base = 0;  // ticks that record times count from
  ChunkHeader* chunk = nullptr;
  uint16_t pending = 0;  // bytes of the record that append() began
  // What short records of this chunk build on (spool/record.h); nothing at its beginning.
  bool has_total = false;           // it has a Memory record with totals
  uint32_t live = kBetweenWindows;  // the chunk's turn and window (session::resume)
  LastOp last_op;
  uint64_t last_line = 0;  // the last ShortLine of this chunk; 0: there is none
  SourceMemory sources;
  TrackId track;
  uint32_t sequence = 0;  // of the next chunk
  uint32_t tid = 0;
  char name[16] = "";
  ChunkRun run;               // mapped ahead
  OpenSpans* open = nullptr;  // at the end of the chunk before this one; with --keep last (session)
  KnownNames names;           // session::intern_from, intern_overload

  // Begins a record at time `now`; the caller fills it and commits. nullptr: nothing can be recorded any more.
  template <class R>
  R* append(Ticks now) noexcept {
    static_assert(sizeof(R) % 8 == 0 && sizeof(R) <= UINT16_MAX && !is_definition(kKindOf<R>));
    uint64_t time = now.value - base;
    if (static_cast<size_t>(end - next) < sizeof(R) || time > RecordHeader::kMaxTime) [[unlikely]] {
      if (!renew(now)) return nullptr;
      time = now.value - base;
    }
    auto* record = reinterpret_cast<R*>(next);
    record->header = RecordHeader::make(kKindOf<R>, sizeof(R) / 8, time);
    pending = sizeof(R);
    return record;
  }

  // Writes and commits a whole short record; `more` are its words after the first. False: it does not fit; use
  // append().
  template <class... Words>
  bool put_short(uint8_t kind, uint64_t value, Ticks now, Words... more) noexcept {
    constexpr size_t kBytes = (1 + sizeof...(Words)) * sizeof(uint64_t);
    const uint64_t time = now.value - base;
    if (static_cast<size_t>(end - next) < kBytes || value > ShortRecord::kMaxValue || time > ShortRecord::kMaxTime)
        [[unlikely]]
      return false;
    auto* at = reinterpret_cast<uint64_t*>(next);
    *at = ShortRecord::make(kind, value, time).bits;
    ((*++at = more), ...);
    pending = kBytes;
    commit();
    return true;
  }

  // The same for a record of one word that is made already.
  bool put_word(uint64_t word) noexcept {
    if (static_cast<size_t>(end - next) < sizeof(word)) [[unlikely]]
      return false;
    *reinterpret_cast<uint64_t*>(next) = word;
    pending = sizeof(word);
    commit();
    return true;
  }

  // The next event begins a new chunk, of this window. A record that append() has begun must be committed before.
  void begin_window(uint32_t live) noexcept;

  void commit() noexcept {
    next += pending;
    // Pairs with the load in SpoolReader::collect_chunk(): the record is written.
    chunk->committed.store(static_cast<uint32_t>(next - reinterpret_cast<std::byte*>(chunk) - sizeof(ChunkHeader)),
                           std::memory_order_release);
  }

 private:
  bool renew(Ticks now) noexcept;
};
// All that an operator or a call of Python needs lies in two cache lines.
static_assert(offsetof(ThreadBuffer, sources) == 64 && offsetof(ThreadBuffer, track) <= 144);

// Initial-exec: one instruction, no call into the loader, eight bytes of static TLS.
extern thread_local constinit ThreadBuffer* t_buffer __attribute__((tls_model("initial-exec")));

}  // namespace torchprof
