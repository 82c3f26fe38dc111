// Says in the spool which work has not ended for a second or longer, so that a program that hangs on a device, or was
// killed there, tells what it waited for (torchprof where).
//
// Only the oldest work of each stream, and only once for each: what waits behind it in a queue is no news.
// With the lock `writing`.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cupti/in_flight.h"

namespace torchprof::cupti {

class StuckWork {
 public:
  // At each look at what is in flight, with the lock `wishing` as well.
  void look(const OpenStreams& open) noexcept;

 private:
  struct Head {
    OpenWork work;
    uint64_t since;     // Ticks
    uint64_t since_ns;  // CLOCK_MONOTONIC
    uint32_t said;      // the `launched` that was written; 0: nothing is written
    bool is_there;      // at this look
  };
  Head* find(const OpenWork& work) noexcept;

  size_t count_ = 0;
  Head heads_[OpenStreams::kMost]{};
};

}  // namespace torchprof::cupti
