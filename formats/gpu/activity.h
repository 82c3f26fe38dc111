// GPU calls and work as a replay hands them out: made by formats/replay/gpu.h, taken by a Sink.
#pragma once

#include <cstdint>

#include "formats/trace/names.h"
#include "tracer/spool/record.h"

namespace torchprof::formats {

class ThreadStack;

struct GpuCall {  // a call of the CUDA runtime or driver; nests with the slices of its thread
  const GpuApi* api;
  NameId name;
  uint32_t row;  // index into Replay::rows()
  UnixNs begin;
  UnixNs end;
  bool has_work;  // kernels, copies, sets or waits have its correlation; they come next
  // What was open on the thread at that time.
  const ThreadStack* stack;
  int32_t op;                   // index of the innermost operator (no annotation) in it; -1: none
  uint64_t external_id;         // of that operator, 0: none
  ObjectId module;              // as an operator that began here would have it
  bool is_backward;             // likewise
  bool is_recompute;            // likewise
  StringId collective;          // of that operator, if it is a collective
  int64_t collective_sequence;  // -1: none
  NativeFrameId native;         // of that operator, if the call started work on a device
};

struct GpuActivity {
  Kind kind;           // GpuKernel, GpuCopy, GpuSet, GpuSync or GpuEvent
  const void* record;  // of that kind
  NameId name;         // a kernel's demangled name; "Memcpy HtoD (Pageable -> Device)"
  UnixNs begin;
  UnixNs end;
  uint32_t correlation;
  uint32_t device;
  uint32_t stream;      // kNoGpuNumber: none
  const GpuCall* call;  // the call that started it; null: not known
  // Kernels, copies and sets: time from the end of the call to the begin. 0 if it began before that, or there is no
  // call.
  int64_t queue_ns;

  template <class R>
  const R& as() const {  // `kind` must be that of R
    return *static_cast<const R*>(record);
  }
};

}  // namespace torchprof::formats
