// What a replay hands out of GPUs: formats/replay/gpu.h makes it, Sink takes it.
#pragma once

#include <cstdint>

#include "formats/trace/names.h"
#include "tracer/spool/record.h"

namespace torchprof::formats {

class ThreadStack;

struct GpuCall {  // of the CUDA runtime or driver; lies between the slices of its thread, nests with them
  const GpuApi* api;
  NameId name;
  uint32_t row;  // index into Replay::rows()
  UnixNs begin;
  UnixNs end;
  bool has_work;  // kernels, copies, sets or waits have its correlation: they come next
  // What was open on the thread then.
  const ThreadStack* stack;
  int32_t op;                   // the innermost operator in it, -1: none. Annotations are none
  uint64_t external_id;         // of that operator, 0: none
  ObjectId module;              // as of an operator that began here
  bool is_backward;             // likewise
  StringId collective;          // of that operator; none: it is no collective
  int64_t collective_sequence;  // -1: none
  NativeFrameId native;         // of that operator, if the call started work
};

struct GpuActivity {
  Kind kind;           // GpuKernel, GpuCopy, GpuSet, GpuSync or GpuEvent
  const void* record;  // of that kind
  NameId name;         // a kernel's demangled; "Memcpy HtoD (Pageable -> Device)"
  UnixNs begin;
  UnixNs end;
  uint32_t correlation;
  uint32_t device;
  uint32_t stream;      // kNoGpuNumber: none
  const GpuCall* call;  // that started it; null: not known
  // Of kernels, copies and sets: from the end of the call to the begin; 0 if it began before, also where there is no
  // call.
  int64_t queue_ns;

  template <class R>
  const R& as() const {  // only if `kind` is that of R
    return *static_cast<const R*>(record);
  }
};

}  // namespace torchprof::formats
