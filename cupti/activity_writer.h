// Completed buffers of CUPTI -> records in the calling thread's chunk. One thread at a time; may call CUPTI, so never
// from its callbacks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cupti/activity_buffers.h"
#include "cupti/cupti_api.h"
#include "tracer/record.h"

namespace torchprof::cupti {

struct Tally {
  uint64_t written = 0;
  uint64_t dropped = 0;    // by CUPTI
  uint64_t unknown = 0;    // of kinds that were not asked for
  uint64_t malformed = 0;  // records or rests of buffers
  uint64_t lost = 0;       // the spool is full, or closed
  uint64_t buffers = 0;
};

// Devices that are not written yet, as the driver has not said what CUPTI does not: it answers when cuInit has
// returned, and CUPTI starts within cuInit. Nothing runs on them before.
struct Devices {
  static constexpr size_t kMost = 32;
  GpuDeviceDef waiting[kMost];
  size_t count = 0;
};

// Walks a buffer to its end, whatever it holds.
void write_buffer(const Api& api, const Completed& buffer, Tally& tally, Devices& devices) noexcept;
// Those that the driver can say more of now are written; `is_last`: all.
void write_devices(const Api& api, Devices& devices, Tally& tally, bool is_last) noexcept;
// What CUPTI had to drop since it was asked last.
void write_dropped(const Api& api, void* context, uint32_t stream, Tally& tally) noexcept;
// Of GpuLoss::kAside and kBack.
void write_gap(GpuLoss edge) noexcept;
// CUPTI's clock between two readings of ours.
void write_clock(const Api& api) noexcept;

}  // namespace torchprof::cupti
