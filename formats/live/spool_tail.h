// What is new in a spool since the last look: for a file that may be gigabytes long and is still written.
//
// It reads with pread() alone: no page of the spool is mapped, and a file that somebody cuts short is no crash. The
// first look reads the header of every chunk (64 bytes in 64 KiB), all definitions, and of the events the chunks that
// reach beyond a time that the definitions may tell (the begin of the last window); later looks read what changes in
// the file's header (160 bytes), the headers of what was not used before, and what was added. Of a chunk that is split
// the next piece that nobody uses is looked at, and all of them each 16 looks: one that was claimed may stay unused.
//
// A look reads at most a given number of bytes of events. Of more, the newest are read and the older are passed over,
// so that it keeps up with any program; `skipped_bytes` says how many. Where bytes of a thread were passed over, or
// recycled before they were read (--keep last), its next portion has `is_next` false.
//
// Bounded memory: 4 bytes a chunk of the file, and some for each thread that has not ended. No byte is trusted, as in
// tracer/spool/reader.h; nothing is thrown but for memory. One thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "tracer/spool/cursor.h"
#include "tracer/spool/layout.h"

namespace torchprof::formats {

// New records of one chunk, 8-byte aligned; they are valid until the function that gets them returns.
struct Portion {
  TrackId track;  // none: definitions
  ClockSample base;
  std::span<const std::byte> records;
  uint64_t at;     // of the first record in the file
  LastOp last_op;  // the operator before the first record
  bool is_next;    // nothing is missing between the track's portion before this one and this one
};

class SpoolTail {
 public:
  // Null if it cannot be read or is no spool of a version that this build knows; `error` then says why. errno is EMFILE
  // or ENFILE only if too many files are open.
  static std::unique_ptr<SpoolTail> open(const std::filesystem::path& file, std::string& error);
  ~SpoolTail();
  SpoolTail(const SpoolTail&) = delete;
  SpoolTail& operator=(const SpoolTail&) = delete;

  struct Look {
    uint64_t event_bytes;  // at most so many are read
    std::function<void(const Portion&)> definitions;
    // Ticks; asked by the first look, after the definitions: what ended before them is passed over. 0: nothing is.
    std::function<uint64_t()> steps_since, events_since;
    std::function<void(const Portion&)> steps;  // chunks of kSteps
    // In order of time by chunk. Returns the operator before the end of the portion.
    std::function<LastOp(const Portion&)> events;
  };
  void look(const Look& look);
  // The thread has ended: there will be no more of it.
  void forget(TrackId track) { forgotten_.push_back(track.value); }

  const FileHeader& header() const { return *reinterpret_cast<const FileHeader*>(header_); }
  const ClockSample& latest() const { return latest_; }            // the newest sample of its clocks
  uint64_t bytes() const { return size_; }                         // of the file
  uint64_t definition_bytes() const { return definition_bytes_; }  // so far: an upper bound for ids
  uint64_t read_bytes() const { return read_bytes_; }              // of events, by the last look
  uint64_t skipped_bytes() const { return skipped_bytes_; }        // likewise, without those before events_since()
  // Up to `size` bytes of the file; how many there were.
  size_t read(uint64_t at, void* out, size_t size) const;

 private:
  explicit SpoolTail(int fd) : fd_(fd) {}
  struct Chunk {
    uint64_t at = 0;  // 0: none
    ClockSample base{};
    uint32_t capacity = 0, generation = 0, sequence = 0;
    uint32_t read = 0;  // bytes of its records
    LastOp last_op{};
    bool is_lost = false;  // its begin was passed over: what follows cannot be understood
  };
  struct Found {
    ChunkKind kind;
    uint32_t track;
    uint32_t committed;
    Chunk chunk;
  };
  struct Piece {  // of a split chunk
    uint64_t at;
    uint32_t size;
    uint32_t slot;
  };
  struct Wanted;

  bool read_header(std::string& error);
  bool read_header_again();
  bool head_at(uint64_t at, uint64_t size, Found& found) const;
  void find_chunks();
  void find_in_slot(uint32_t slot, uint64_t at);
  void take(Found found);
  std::span<const std::byte> records(const Chunk& chunk, uint32_t from, uint32_t to);
  std::vector<Wanted> wanted();
  void read_definitions(const Look& look);
  void read_steps(const Look& look);
  void read_stream(ChunkKind kind, Chunk& latest, const std::function<void(const Portion&)>& take, uint64_t since);
  void read_events(const Look& look, std::vector<Wanted> all);

  int fd_;
  alignas(8) std::byte header_[kFileHeaderSize] = {};
  uint64_t size_ = 0;
  uint64_t recycled_ = 0;
  uint32_t looks_ = 0;
  bool is_first_ = true;
  std::vector<uint32_t> slots_;                  // by chunk of the file: 0 unused so far, else its generation + 1
  std::vector<Piece> pieces_;                    // of split chunks, unused so far
  std::vector<Found> found_;                     // by this look
  std::unordered_map<uint32_t, Chunk> threads_;  // the chunk that each wrote last, by track
  std::vector<uint32_t> forgotten_;              // by this look
  Chunk definitions_, steps_;
  std::vector<std::byte> buffer_;
  ClockSample latest_{};
  uint64_t definition_bytes_ = 0, read_bytes_ = 0, skipped_bytes_ = 0;
};

}  // namespace torchprof::formats
