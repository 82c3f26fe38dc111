// Completed buffers of CUPTI -> records in the calling thread's chunk. One thread at a time; never from CUPTI's
// callbacks, since functions here call CUPTI.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <cstdint>

#include "cupti/activity_buffers.h"
#include "cupti/cupti_api.h"
#include "cupti/cupti_clock.h"
#include "cupti/wishes.h"
#include "tracer/spool/record.h"

namespace torchprof::cupti {

struct Tally {
  uint64_t written = 0;
  uint64_t dropped = 0;    // by CUPTI
  uint64_t unknown = 0;    // of kinds that were not asked for
  uint64_t malformed = 0;  // records or rests of buffers
  uint64_t lost = 0;       // the spool is full, or closed
  uint64_t buffers = 0;
  uint64_t early = 0;                // of those written: before CUPTI gave their buffer back
  uint64_t launched = 0, calls = 0;  // of those written: work of a device, calls of CUDA
};

// Devices that are not written yet, because the driver has not been asked for a number that CUPTI does not have: it
// answers once cuInit has returned, and CUPTI starts within cuInit. Nothing runs on them before that.
struct Devices {
  static constexpr size_t kMost = 32;
  GpuDeviceDef waiting[kMost]{};
  size_t count = 0;
};

// The records of a buffer, in order, as CUPTI finds them.
class RecordWalk {
 public:
  RecordWalk(const Api& api, const Completed& buffer) noexcept : api_(api), buffer_(buffer) {}
  bool next() noexcept;  // false: there are no more that can be read
  const std::byte* record() const noexcept { return record_; }
  size_t bytes() const noexcept { return static_cast<size_t>((has_next_ ? next_ : end()) - record_); }
  bool is_malformed() const noexcept { return is_malformed_; }

 private:
  const std::byte* end() const noexcept { return buffer_.data + buffer_.valid; }
  void find_next() noexcept;

  const Api& api_;
  const Completed& buffer_;
  std::byte* record_ = nullptr;
  std::byte* next_ = nullptr;  // the one after it
  bool has_next_ = false, has_begun_ = false;
  bool is_malformed_ = false;
};

// What is needed to separate our records from another client's.
struct Sharing {
  pthread_mutex_t* lock;  // of what follows; held by write_buffer() and see_calls() while they walk
  Wishes* wishes;
  const Clock* clock;
  bool has_own_clock;  // the records' times are own_clock()'s
};

// Tells the wishes of the calls in a buffer; before write_buffer() of what those calls launched.
void see_calls(const Api& api, const Completed& buffer, const Sharing& sharing) noexcept;
// Writes the records of a buffer, whatever it holds, but not those that `progress` says are written; with `sharing`
// only ours.
void write_buffer(const Api& api, const Completed& buffer, Tally& tally, Devices& devices,
                  const Sharing* sharing = nullptr, const Progress* progress = nullptr) noexcept;
// Writes one record of a buffer that CUPTI still has. With the lock of `sharing`.
void write_early(const Api& api, const std::byte* record, size_t bytes, Tally& tally, Devices& devices,
                 const Sharing* sharing) noexcept;
// Writes the devices about which the driver answers now; `is_last`: all.
void write_devices(const Api& api, Devices& devices, Tally& tally, bool is_last) noexcept;
// Writes how many records CUPTI has dropped since it was asked before.
void write_dropped(const Api& api, void* context, uint32_t stream, Tally& tally) noexcept;
// `edge`: GpuLoss::kAside or kBack.
void write_gap(GpuLoss edge) noexcept;
// Writes a reading of CUPTI's own clock between two readings of ours.
void write_clock(const Api& api, const Sharing& sharing) noexcept;

}  // namespace torchprof::cupti
