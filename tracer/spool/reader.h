// Reads a spool that may be cut, torn or hostile: no byte of it is trusted.
//
//  * Every whole record before damage is kept, chunk by chunk; what had to be dropped is counted.
//  * No chunk is dropped because of its time. A chunk whose time is impossible (plausible()) is counted, and takes the
//    base of the chunk before it on its track, or the spool's start: its events keep their order, and no arithmetic on
//    times that a reader hands out overflows.
//  * Records of unknown kinds are skipped; one may be longer or shorter than the struct of this build (cursor.h).
//  * A reader is immutable after open: any number of threads may iterate. Views point into the mapping and are valid as
//    long as the reader lives.
//  * The process may still be writing: what it had committed when the reader was opened is seen. If somebody truncates
//    the file meanwhile, the reader crashes (nothing of ours does that).
//  * Nothing here throws.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tracer/spool/cursor.h"
#include "tracer/spool/layout.h"
#include "tracer/spool/record.h"

namespace torchprof {

inline constexpr double kMaxTicksPerNs = 20;  // of a counter, also ns per tick: real machines are far from both

// What the reader could not use. All zero for a spool that is whole, also for one whose process was killed.
struct Damage {
  uint64_t chunks = 0;   // chunks dropped as a whole: no valid header, or cut off
  uint64_t bytes = 0;    // bytes at the end of chunks that could not be read to their end
  uint64_t records = 0;  // records that are whole but name something undefined or impossible
  explicit operator bool() const { return chunks != 0 || bytes != 0 || records != 0; }
  Damage& operator+=(const Damage& other);
};

struct ChunkView {
  ChunkKind kind;
  TrackId track;
  uint32_t sequence;
  ClockSample base;
  std::span<const std::byte> records;  // 8-byte aligned; cut down to what the file really holds
  uint16_t window = 0;                 // whose events it has (layout.h)
};

class SpoolReader {
 public:
  // Null if the file cannot be read or is not a spool of a version that this build knows; `error` then says why,
  // without the file's name.
  static std::unique_ptr<const SpoolReader> open(const std::filesystem::path& file, std::string& error);
  // The same for bytes in memory (8-byte aligned), which must outlive the reader.
  static std::unique_ptr<const SpoolReader> from_bytes(std::span<const std::byte> bytes, std::string& error);
  ~SpoolReader();
  SpoolReader(const SpoolReader&) = delete;
  SpoolReader& operator=(const SpoolReader&) = delete;

  // As it was when the spool was opened, before its chunks were looked at. A copy, as are the texts below: a look at
  // one byte of the file may map megabytes of it, and those who compare processes look at thousands.
  const FileHeader& header() const { return *reinterpret_cast<const FileHeader*>(header_.data()); }
  std::string_view host() const;
  std::vector<std::string_view> command() const;
  std::string_view forked_from() const;

  ClockSource clock() const;
  // Whether this moment can belong to the process that `header().start` belongs to. It may be a little earlier: the
  // event that opened the spool read the clock before.
  bool plausible(const ClockSample& sample) const;

  // Usable chunks: definitions first, then events by track; each in the order of its sequence.
  std::span<const ChunkView> chunks() const { return chunks_; }
  const Damage& damage() const { return damage_; }                 // found in chunk headers alone
  uint64_t doubtful_chunks() const { return doubtful_chunks_; }    // event chunks whose time is impossible; all kept
  uint64_t definition_bytes() const { return definition_bytes_; }  // an upper bound for the ids that were defined

  // Tells the kernel that the pages of this chunk are not needed soon. They stay readable.
  void release(const ChunkView& chunk) const;
  void release() const;  // the same of the whole file: the kernel maps pages around those of a chunk, too

 private:
  SpoolReader() = default;
  bool parse(std::string& error);
  void collect_chunks(ChunkKind wanted);
  void collect_chunk(ChunkKind wanted, std::span<const std::byte> all, uint64_t size);
  void collect_pieces(ChunkKind wanted, std::span<const std::byte> all, uint8_t size_log2);
  void mend_times();

  alignas(FileHeader) std::array<std::byte, sizeof(FileHeader)> header_{};
  std::span<const std::byte> bytes_;
  bool mapped_ = false;
  std::vector<ChunkView> chunks_;
  Damage damage_;
  uint64_t doubtful_chunks_ = 0;
  uint64_t definition_bytes_ = 0;
};

}  // namespace torchprof
