// Asks the kernel whether memory can be read that the program hands us. What a program passes to a system call may be
// no valid pointer: the kernel then answers EFAULT, and we must not crash on it before.
//
// Any thread, also in a child between vfork and exec or in a signal handler: no allocation, no lock, little stack,
// errno is kept. It cannot see that another thread is about to unmap the memory. Costs one system call for each page of
// 4 KiB that was not asked for lately.
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
  uintptr_t known_[kKnown] = {};  // pages that can be read; nothing is unmapped while we look
};

}  // namespace torchprof
