// The hot path: a thread writes its records straight into its chunk of the mapped spool.
//
//     if (ThreadBuffer* buffer = current_buffer())
//       if (auto* r = buffer->append<OpEnd>(clock::now(...))) { r->key = key; buffer->commit(); }
//
// No lock, no allocation, no formatting. A chunk that is full costs one slow call (session.cpp). A buffer belongs to
// its thread; no other thread reads it, the file's reader sees what `committed` covers.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tracer/spool/clock.h"
#include "tracer/spool/ids.h"
#include "tracer/spool/layout.h"
#include "tracer/spool/open_spans.h"
#include "tracer/spool/record.h"
#include "tracer/spool/writer.h"

namespace torchprof {

namespace native {
struct ThreadStacks;
}
namespace python {
struct Object;
}

struct ThreadBuffer {
  std::byte* next = nullptr;  // where the next record goes; equal to `end` when there is no chunk
  std::byte* end = nullptr;
  uint64_t base = 0;  // ticks that record times count from
  ChunkHeader* chunk = nullptr;
  TrackId track;
  uint32_t sequence = 0;  // of the next chunk
  uint32_t tid = 0;
  uint32_t python_epoch = 0;  // the capture whose Python stack this thread has stated (python/calls)
  uint32_t pending = 0;       // bytes of the record that append() began
  StringId python_name;       // as threading has it (python/threads)
  uint64_t torch_thread = 0;  // torch's number of this thread, once it is defined (torch/operators)
  char name[16] = "";
  LastOp last_op;             // of this chunk (torch/operators)
  bool has_total = false;     // this chunk has a Memory record with totals (torch/memory)
  ChunkRun run;               // mapped ahead
  OpenSpans* open = nullptr;  // at the end of the chunk before this one; with --keep last (session)

  struct Applied {                        // the autograd Function whose operator comes next (python/arguments)
    python::Object* function = nullptr;   // a class of Python
    python::Object* arguments = nullptr;  // a tuple, borrowed from the call; nullptr: there is none
    python::Object* keywords = nullptr;   // a dictionary, or nullptr
  } applied;

  native::ThreadStacks* native = nullptr;  // once the thread has taken a stack (native/stack)

  struct Name {  // session::intern_from, intern_overload
    const char* place = nullptr;
    const char* text = nullptr;
    const char* more = nullptr;  // what follows the NUL of an operator's name; nullptr: it is not an operator's
    StringId id;
  };
  Name names[256];

  struct Line {  // python::current_site
    uint64_t key = 0;
    uint32_t line = 0;
  };
  Line lines[64];

  // NVTX ranges that are open, of all domains, innermost last (cupti/nvtx). Without initialisers: the pages of a thread
  // that has none are never touched.
  struct Range {
    const void* domain;
    uint64_t key;
    uint32_t level;  // how many of its domain are open below it
  };
  static constexpr uint32_t kMostRanges = 256;
  uint32_t range_count = 0;
  uint32_t ranges_deeper = 0;  // open above these, of all domains, not recorded
  uint32_t ranges_window = 0;  // the window in which they began
  uint32_t next_range = 0;
  Range ranges[kMostRanges];
  struct Deeper {
    const void* domain;
    uint32_t count;
  };
  static constexpr uint32_t kMostDeeper = 16;  // of more domains the last place counts for all the others
  uint32_t deeper_count = 0;
  Deeper deeper[kMostDeeper];

  // Begins a record at time `now`; the caller fills it and commits. nullptr: nothing can be recorded any more.
  template <class R>
  R* append(Ticks now) noexcept {
    static_assert(sizeof(R) % 8 == 0 && !is_definition(kKindOf<R>));
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

  // A whole short record, committed; `more` are its words after the first. False where it does not fit: then append()
  // has to do it.
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

  void commit() noexcept {
    next += pending;
    // Pairs with the reader's load.
    chunk->committed.store(static_cast<uint32_t>(next - reinterpret_cast<std::byte*>(chunk) - sizeof(ChunkHeader)),
                           std::memory_order_release);
  }

 private:
  bool renew(Ticks now) noexcept;
};

// Initial-exec: one instruction, no call into the loader, eight bytes of static TLS.
extern thread_local constinit ThreadBuffer* t_buffer __attribute__((tls_model("initial-exec")));

}  // namespace torchprof
