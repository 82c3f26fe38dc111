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
#include "tracer/spool/completed.h"
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

struct SizeLimits {  // bytes
  uint64_t process;
  uint64_t run;  // 0: none
};

// What becomes of chunks of events that are complete.
enum class Recycling : uint8_t {
  kNone,     // they stay
  kOldest,   // when the spool is full, the oldest ones are written anew (--keep last)
  kWindows,  // those of windows that are given up are written anew (-w auto)
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
  bool open(const char* directory, MissingDirectory missing, SizeLimits limits, Recycling recycling, ClockSource clock,
            const char* forked_from) noexcept;
  bool is_open() const noexcept { return header_ && !is_closed_.load(std::memory_order_relaxed); }
  int open_error() const noexcept { return open_error_; }  // errno of an open() that failed

  // A mapped chunk or piece (see size_of()), ready for records whose times count from `now`. nullptr: the spool is
  // full; the loss is counted and one line says why. `previous`: the owner's chunk before this one, or nullptr; it is
  // released. `run`: the owner's. `window`: the number of the window whose events it is for; 0: any.
  ChunkHeader* claim(ChunkKind kind, TrackId track, uint32_t sequence, Ticks now, ChunkHeader* previous, ChunkRun& run,
                     uint16_t window = 0) noexcept;
  // With Recycling::kWindows: the chunks of this window, those that are complete and those that will be, are free. The
  // reader knows by now that the window is given up.
  void give_up(uint16_t window) noexcept { windows_.give_up(window); }
  // Before the process is sealed: maps up to `chunks` chunks into `run` if it has none left.
  void map_ahead(ChunkRun& run, uint32_t chunks) noexcept;
  // Unmaps a chunk that its owner is done with. The bytes stay in the file, for as long as Recycling says.
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
    windows_.abandon();
    pieces_ = {};
    pieces_lock_ = PTHREAD_MUTEX_INITIALIZER;
  }

  // Nothing is written to the file any more: what other threads are in the midst of writing goes into memory that
  // nobody reads, and their chunks stay good for release(). Then open() may be called again.
  void close() noexcept;

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
  void set_limits(const char* directory, SizeLimits limits, Recycling recycling) noexcept;
  void fill_header(const HostName& host, const ClockSample& start, const char* forked_from) noexcept;

  uint64_t limit() const noexcept;
  bool reserve(uint64_t end) noexcept;
  uint64_t take(uint64_t size, uint64_t limit) noexcept;  // offset of `size` bytes of the file; 0: beyond the limit
  bool map_run(ChunkRun& run, uint32_t wanted) noexcept;
  void say_full(bool is_run_full) noexcept;
  bool map_at(ChunkRun& run, uint64_t offset, uint32_t chunks) noexcept;
  bool recycle(ChunkRun& run, uint32_t wanted) noexcept;
  bool split_chunk(uint16_t window) noexcept;
  bool take_piece(ChunkRun& piece, uint16_t window) noexcept;
  ChunkHeader* head_of_pieces() const noexcept;                               // while pieces_ has some
  bool is_piece_a_page() const noexcept { return page_size_ <= kPieceSize; }  // so that it can be unmapped by itself
  void keep_for_later(uint64_t offset, uint16_t window) noexcept;
  void release_piece(ChunkHeader* piece) noexcept;
  void complete_pieces(ChunkHeader* head, uint32_t count) noexcept;
  void retire_pieces() noexcept;
  void retire_pieces_locked() noexcept;

  SpoolFile file_;
  ClockSource clock_ = ClockSource::kMonotonic;
  FileHeader* header_ = nullptr;
  std::atomic<bool> is_closed_{false};
  int open_error_ = 0;
  uint64_t max_size_ = 0;
  RunBudget budget_;
  Recycling recycling_ = Recycling::kNone;
  Completed completed_;
  WindowChunks windows_;
  pthread_mutex_t pieces_lock_ = PTHREAD_MUTEX_INITIALIZER;
  ChunkRun pieces_;                // unused ones of the chunk that was split last
  uint64_t page_size_ = 0;         // of the machine
  std::atomic<uint64_t> next_{0};  // offset of the next chunk to hand out
  char name_[kNameSize] = "";
};

}  // namespace torchprof
