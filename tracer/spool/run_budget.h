// How much all processes of a run may write together (--max-run-size).
//
// The count is the length of the file RUN/spool/used: one byte for each chunk that any process took. Appending is
// atomic on a local file system, so it needs no lock. The count is right whatever kills a process; what dead processes
// took still counts. Nothing stays open or mapped between two calls. Processes that grow at the same moment may pass
// the limit by what each of them takes (a few chunks).
//
// Threads: any. Errors: where the file cannot be opened, the chunks are counted together with the next ones.
#pragma once

#include <atomic>
#include <climits>
#include <cstdint>

#include "tracer/spool/layout.h"

namespace torchprof {

class RunBudget {
 public:
  // `bytes` 0: no limit, and nothing is counted. `directory` holds the spools and is there.
  void open(const char* directory, uint64_t bytes) noexcept;

  // Takes `chunks` off the budget. False: so many are not left, and nothing was taken.
  bool take(uint32_t chunks) noexcept;

  bool is_limited() const noexcept { return limit_ != 0; }
  uint64_t bytes() const noexcept { return limit_ * kChunkSize; }

 private:
  uint64_t limit_ = 0;  // chunks
  std::atomic<uint32_t> uncounted_{0};
  char path_[PATH_MAX] = "";
};

}  // namespace torchprof
