// The spool's file: made, grown and mapped. The only place with mmap and fallocate of the spool.
//
// No descriptor is kept: each call opens the file by its path, checks that it is still the same file, and closes it
// (process/descriptors.h). A mapping needs no descriptor. Where the path is about to become useless (the program
// becomes another user, or changes its root or its mounts), hold() keeps a descriptor from then on.
//
// Blocks are reserved before they are mapped, so that a full disk is an error here and not a SIGBUS in the program. On
// some file systems that is not enough: see fault.h.
//
// Threads: any; create() and take() only while no other thread uses the object. Errors: a result says so, with errno;
// nothing is thrown.
#pragma once

#include <atomic>
#include <climits>
#include <cstddef>
#include <cstdint>

namespace torchprof {

// Chunks that a thread takes at a time once it is busy.
inline constexpr uint32_t kRunChunks = 4;

// What mmap() can map: a power of two. No system call.
uint64_t page_size() noexcept;

class SpoolFile {
 public:
  // A new file, never one that is there.
  bool create(const char* path) noexcept;
  // In a forked child: this object takes over the file of `other`, and the descriptor if it holds one.
  void take(SpoolFile& other) noexcept;

  const char* path() const noexcept { return path_; }
  bool may_fault() const noexcept { return may_fault_; }  // stores may fail although blocks are reserved

  // Reserves blocks up to `end`; where `is_ahead_free`, also some after it, up to `limit`.
  bool reserve(uint64_t end, uint64_t limit, bool is_ahead_free) noexcept;
  // map_new(): bytes in which nothing has been recorded yet, at most kRunChunks chunks. Of both the caller alone owns
  // what is mapped.
  void* map_new(uint64_t offset, size_t size) noexcept;
  void* map(uint64_t offset, size_t size) noexcept;
  bool read(uint64_t offset, void* to, size_t size) noexcept;

  // Keeps a descriptor, far above the program's own. Also in a signal handler; no lock.
  void hold() noexcept;
  void let_go() noexcept;
  // It can be used by whoever has the program's descriptors, and maybe by nobody else.
  bool is_held() const noexcept;

 private:
  template <class Body>
  bool use(Body body) noexcept;
  bool is_this(int fd) const noexcept;

  char path_[PATH_MAX] = "";
  uint64_t device_ = 0;
  uint64_t inode_ = 0;
  bool may_fault_ = false;
  std::atomic<int> held_{-1};
  std::atomic<uint64_t> reserved_{0};  // bytes of the file that have blocks
};

}  // namespace torchprof
