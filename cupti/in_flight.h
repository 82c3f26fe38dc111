// Records in buffers that CUPTI still fills, read where they lie.
//
// CUPTI gives a buffer back when it is full, or on a flush when none of its records is open. So a kernel that does not
// end keeps the records of everything that was launched since, on any stream, and a program that always has work in
// flight gives back only full buffers. What a real one writes (H100, CUPTI 13.0, seen in its memory):
//
//  * A call is written when it has ended.
//  * A kernel is written when it is launched: all of it but its times, with the highest bit set in the number of its
//    kind. When it has ended, a flush (not forced) or CUPTI itself fills in the times, and clears that bit.
//  * Memory behind the last record is left as it was when we gave the buffer.
//
// So after each flush the closed records are written to the spool from there, and marked; when the buffer comes back,
// they are left out. A record counts as closed if that bit is clear, its times and its correlation are there, and
// another record follows it or it was there a look earlier. Reading ends at the first number that is no kind of a
// record: a CUPTI that does otherwise costs us only what is read early.
//
// With the lock `writing`.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cupti/activity_buffers.h"
#include "cupti/cupti_api.h"

namespace torchprof::cupti {

// The size of CUPTI's records by kind: what cuptiActivityGetNextRecord says of a copy.
class RecordSizes {
 public:
  uint32_t of(const Api& api, uint32_t kind) noexcept;  // bytes; 0: not a kind that it knows

 private:
  static constexpr uint32_t kUnknown = 1;
  uint32_t sizes_[64] = {};
};

// The oldest work of a stream that has not ended.
struct OpenWork {
  uint32_t kind;  // abi::kConcurrentKernel and others
  uint32_t device, context, stream;
  uint32_t correlation;
  const char* name;   // of a kernel
  uint32_t launched;  // pieces of work that have not ended, with this one
};

// The oldest open work of each stream, in no order.
class OpenStreams {
 public:
  static constexpr size_t kMost = 64;

  void clear() noexcept { count_ = 0; }
  void saw(const OpenWork& work) noexcept;
  size_t size() const noexcept { return count_; }
  const OpenWork& operator[](size_t i) const noexcept { return work_[i]; }

 private:
  size_t count_ = 0;
  OpenWork work_[kMost]{};
};

// Calls `write(record, bytes)` for each closed record of a buffer that was not written before; true: it is written now.
// Notes the open ones. Returns how far there are records, which is to become the `seen` of its progress.
template <class Write>
uint32_t walk_in_flight(const Api& api, RecordSizes& sizes, BufferInUse buffer, OpenStreams& open,
                        Write&& write) noexcept;

// ---- implementation -------------------------------------------------------------------------------------------------

struct RecordInFlight {
  uint32_t kind;  // 0: there is none
  uint32_t bytes;
  bool is_open;    // has not ended
  bool is_closed;  // all of it is there; not the opposite of is_open
};
RecordInFlight look(const Api& api, RecordSizes& sizes, const std::byte* record, size_t room) noexcept;
OpenWork open_work(const std::byte* record, const RecordInFlight& what) noexcept;

template <class Write>
uint32_t walk_in_flight(const Api& api, RecordSizes& sizes, BufferInUse buffer, OpenStreams& open,
                        Write&& write) noexcept {
  Progress& progress = *buffer.progress;
  size_t at = progress.done;
  bool is_all_done = true;  // up to here
  RecordInFlight what = look(api, sizes, buffer.data + at, ActivityBuffers::kSize - at);
  while (what.kind != 0) {
    const size_t after = at + what.bytes;
    const RecordInFlight next = look(api, sizes, buffer.data + after, ActivityBuffers::kSize - after);
    if (!progress.is_written(at)) {
      if (what.is_open) open.saw(open_work(buffer.data + at, what));
      if (what.is_closed && (next.kind != 0 || after <= progress.seen)) {
        if (write(buffer.data + at, what.bytes)) progress.set_written(at);
      }
    }
    is_all_done = is_all_done && progress.is_written(at);
    if (is_all_done) progress.done = static_cast<uint32_t>(after);
    at = after;
    what = next;
  }
  return static_cast<uint32_t>(at);
}

}  // namespace torchprof::cupti
