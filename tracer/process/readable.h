// Whether memory that the program hands us can be read, asked of the kernel: what the program passes on to it may be no
// pointer at all, which is the kernel's to answer (EFAULT) and not ours to die of.
//
// Any thread, also in a child between vfork and exec or in a signal's handler: no allocation, no lock, some ten bytes
// of stack, errno is kept. What another thread unmaps meanwhile nobody can ask for. A system call for each page of 4
// KiB that comes up anew.
#pragma once

#include <cstddef>
#include <cstdint>

namespace torchprof {

class Readable {
 public:
  bool bytes(const void* at, size_t size) noexcept;
  bool text(const char* at) noexcept;  // up to its NUL
  // The array and each text, up to the null pointer. nullptr is an empty array, as for the kernel.
  bool texts(char* const* array) noexcept;

 private:
  bool page(uintptr_t address) noexcept;  // the one that it lies in

  static constexpr size_t kKnown = 8;
  uintptr_t known_[kKnown] = {};  // pages that can be read; they are never given back while we look
};

}  // namespace torchprof
