// An activity record of CUPTI -> a record of ours: a pure function, which trusts only the number of the kind.
//
// Reads at most `room` bytes, those from the record to the end of what CUPTI has filled. Fields that this version of
// CUPTI does not have become 0 or kNoGpuNumber (tracer/spool/gpu_records.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tracer/spool/record.h"

namespace torchprof::cupti {

struct Decoded {
  Kind kind{};
  uint32_t bytes = 0;          // of the record, header included; the header itself is not made
  const char* name = nullptr;  // of a kernel or device, CUPTI's memory; the caller interns it and sets the record's
  alignas(8) std::byte record[sizeof(GpuKernel)];

  template <class R>
  R& as() noexcept {
    return *reinterpret_cast<R*>(record);
  }
};

enum class Decoding : uint8_t { kDone, kUnknown, kTruncated };

// `version`: what cuptiGetVersion() says.
Decoding decode(const std::byte* record, size_t room, uint32_t version, Decoded& out) noexcept;

}  // namespace torchprof::cupti
