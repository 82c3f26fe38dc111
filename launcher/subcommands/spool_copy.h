// A spool as it is at one moment, while its process writes on.
//
// The moment is that of the constructor: it reads the heads of all chunks. Of events the copy has what was whole then.
// Definitions and times of steps are as they are when they are copied, which is later: so everything that an event
// names is there. A chunk of events whose room was given to later ones in between (--keep last, -w auto) is left out,
// as one that nobody has used: its head says so, before anything in it changes (tracer/spool/layout.h).
// A spool of a process that has ended is copied as it is, and so is a file that is no spool.
//
// Throws Error. One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace torchprof::launcher {

class SpoolCopy {
 public:
  // `fd`: of the file, which the caller keeps open; `name`: for errors.
  SpoolCopy(int fd, std::string name);
  uint64_t size() const { return size_; }
  // Gives the `size()` bytes to the sink, in pieces.
  void write(const std::function<void(std::string_view)>& sink);
  // Of the chunks of events that were left out, after write().
  uint64_t dropped_bytes() const { return dropped_; }

 private:
  struct Chunk {
    bool is_there = false;
    uint32_t generation = 0;
    uint32_t committed = 0;
  };
  void read(uint64_t at, char* to, size_t size) const;  // what the file has lost at its end is zeros
  Chunk look(uint64_t at, bool& has_pieces) const;
  void copy_chunk(size_t index, uint64_t at, char* chunk);

  const int fd_;
  const std::string name_;
  uint64_t size_ = 0;
  std::string head_;           // of the file; empty: it is no spool that this version knows
  std::vector<Chunk> chunks_;  // as they were
  std::map<size_t, std::vector<Chunk>> pieces_;
  uint64_t dropped_ = 0;
};

}  // namespace torchprof::launcher
