// The spool of this process while it is written: hands out chunks of its file (file.h).
//
// Threads: claim(), release() and lost() from any thread at any time, without a lock: a chunk costs one atomic add and,
// now and then, one fallocate. open() and finish() from one. Errors: a result says so and the loss is counted in the
// file; nothing is thrown, errno is kept by the callers.
#pragma once

#include <pthread.h>

#include <atomic>
#include <climits>

#include "tracer/config/config.h"
#include "tracer/spool/clock.h"
#include "tracer/spool/file.h"
#include "tracer/spool/layout.h"
#include "tracer/spool/run_budget.h"

namespace torchprof {

// Chunks that were mapped together and wait for their owner: a busy thread pays for the system calls once for several
// chunks.
struct ChunkRun {
  std::byte* at = nullptr;
  uint64_t offset = 0;  // in the file
  uint32_t left = 0;    // chunks
};

// Offsets of the event chunks that are complete, in the order in which they were completed. Any thread; a lock is held
// for a few instructions.
class Completed {
 public:
  bool prepare(uint64_t capacity) noexcept;
  void push(uint64_t offset) noexcept;
  // Takes the first one, and after it those that follow it in the file without a gap, up to `most` in all. Returns how
  // many; 0: there is none.
  uint32_t pop(uint64_t& offset, uint32_t most) noexcept;
  // In a forked child: another thread of the parent may have held the lock.
  void abandon() noexcept { *this = Completed{}; }

 private:
  pthread_mutex_t lock_ = PTHREAD_MUTEX_INITIALIZER;
  uint64_t* offsets_ = nullptr;  // a ring
  uint64_t capacity_ = 0;
  uint64_t first_ = 0;
  uint64_t count_ = 0;
};

struct SizeLimits {  // bytes
  uint64_t process;
  uint64_t run;  // 0: none
};

// What to do if the directory is missing. One that the launcher or a parent has made is only missing if this process is
// in another root or mount namespace. There it is not made: nobody would look for it, and the root belongs to somebody
// else.
enum class MissingDirectory : uint8_t { kIsMade, kIsOutOfSight };

class SpoolWriter {
 public:
  static constexpr size_t kNameSize = 256;

  // Creates `directory` and its parents where they are missing and `missing` allows it, then a new file in it, never
  // one that exists. Only their user may read or write both. `forked_from`: the parent's spool file name, or "".
  bool open(const char* directory, MissingDirectory missing, SizeLimits limits, Keep keep, ClockSource clock,
            const char* forked_from) noexcept;
  bool is_open() const noexcept { return header_ != nullptr; }
  int open_error() const noexcept { return open_error_; }  // errno of an open() that failed

  // A mapped chunk or piece (see size_of()), ready for records whose times count from `now`. nullptr: the spool is
  // full; the loss is counted and one line says why. `previous`: the owner's chunk before this one, or nullptr; it is
  // released. `run`: the owner's.
  ChunkHeader* claim(ChunkKind kind, TrackId track, uint32_t sequence, Ticks now, ChunkHeader* previous,
                     ChunkRun& run) noexcept;
  // Before the process is sealed: maps up to `chunks` chunks into `run` if it has none left.
  void map_ahead(ChunkRun& run, uint32_t chunks) noexcept;
  // Unmaps a chunk that its owner is done with. The bytes stay in the file; with Keep::kLast until they are the oldest.
  void release(ChunkHeader* chunk) noexcept;
  // The same for what a run has left. The reader skips chunks that nobody used.
  void release(ChunkRun& run) noexcept;

  void lost(LossCause cause) noexcept {
    header_->lost[static_cast<size_t>(cause)].fetch_add(1, std::memory_order_relaxed);
  }
  // Capture stops for good now: the reader lets everything end here that is open. Only the first call counts.
  void stop(Ticks now) noexcept;
  // Why capture ended: the first cause that was counted.
  LossCause stop_cause() const noexcept;
  // The process ends in an orderly way.
  void finish() noexcept;

  // In a forked child: forgets the parent's mappings without touching them. Until the next open(), file() is still the
  // parent's.
  void abandon() noexcept {
    header_ = nullptr;
    completed_.abandon();
    pieces_ = {};
    pieces_lock_ = PTHREAD_MUTEX_INITIALIZER;
  }

  SpoolFile& file() noexcept { return file_; }
  const char* name() const noexcept { return name_; }
  ClockSource clock() const noexcept { return clock_; }

 private:
  // The steps of open(). False: a line has said why.
  using HostName = char[64];
  bool choose_name(const char* directory, const HostName& host, const ClockSample& start,
                   char (&path)[PATH_MAX]) noexcept;
  bool look_for_directory(const char* directory, MissingDirectory missing, const char* path) noexcept;
  bool cannot_write(const char* path) noexcept;  // because of errno
  void set_limits(const char* directory, SizeLimits limits, Keep keep) noexcept;
  void fill_header(const HostName& host, const ClockSample& start, const char* forked_from) noexcept;

  uint64_t limit() const noexcept;
  bool reserve(uint64_t end) noexcept;
  uint64_t take(uint64_t size, uint64_t limit) noexcept;  // offset of `size` bytes of the file; 0: beyond the limit
  bool map_run(ChunkRun& run, uint32_t wanted) noexcept;
  void say_full(bool is_run_full) noexcept;
  bool map_at(ChunkRun& run, uint64_t offset, uint32_t chunks) noexcept;
  bool recycle(ChunkRun& run, uint32_t wanted) noexcept;
  bool split_chunk() noexcept;
  bool take_piece(ChunkRun& piece) noexcept;
  void release_piece(ChunkHeader* piece) noexcept;
  void complete_pieces(ChunkHeader* head, uint32_t count) noexcept;
  void retire_pieces() noexcept;

  SpoolFile file_;
  ClockSource clock_ = ClockSource::kMonotonic;
  FileHeader* header_ = nullptr;
  int open_error_ = 0;
  uint64_t max_size_ = 0;
  RunBudget budget_;
  Keep keep_ = Keep::kFirst;
  Completed completed_;
  pthread_mutex_t pieces_lock_ = PTHREAD_MUTEX_INITIALIZER;
  ChunkRun pieces_;                              // unused ones of the chunk that was split last
  std::atomic<uint64_t> next_{kFileHeaderSize};  // offset of the next chunk to hand out
  char name_[kNameSize] = "";
};

}  // namespace torchprof
