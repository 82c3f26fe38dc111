// Strong types instead of bare integers.
//
// Every id is dense, counts from 1 within one spool (0 means "none") and is never reused there. Ids of two spools have
// nothing to do with each other. All are trivially copyable and go to disk as they are.
#pragma once

#include <cstdint>
#include <functional>

namespace torchprof {

template <class Tag>
struct Id {
  uint32_t value = 0;
  explicit operator bool() const { return value != 0; }
  friend bool operator==(Id, Id) = default;
  friend auto operator<=>(Id, Id) = default;
};

using StringId = Id<struct StringTag>;              // a name, by content
using FunctionId = Id<struct FunctionTag>;          // a Python code object, for as long as it lives
using ObjectId = Id<struct ObjectTag>;              // an nn.Module or an optimizer, for as long as it lives
using CallSiteId = Id<struct CallSiteTag>;          // a function and a line in it that calls a C function
using NativeObjectId = Id<struct NativeObjectTag>;  // an object file while it is mapped
using NativeFrameId = Id<struct NativeFrameTag>;    // a return address, with those of all its callers
using TrackId = Id<struct TrackTag>;                // a thread of one process, for as long as it lives

// Time is never a bare integer: a tick cannot be written where nanoseconds are expected.
struct Ticks {  // of the recording clock, tracer/spool/clock.h
  uint64_t value = 0;
  friend auto operator<=>(Ticks, Ticks) = default;
};
struct UnixNs {  // nanoseconds of CLOCK_REALTIME
  int64_t value = 0;
  friend auto operator<=>(UnixNs, UnixNs) = default;
  friend int64_t operator-(UnixNs a, UnixNs b) { return a.value - b.value; }
};

}  // namespace torchprof

template <class Tag>
struct std::hash<torchprof::Id<Tag>> {
  size_t operator()(torchprof::Id<Tag> id) const noexcept { return id.value; }
};
