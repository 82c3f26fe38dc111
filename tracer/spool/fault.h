// Keeps the program alive where a store into the mapped spool fails, which the kernel tells it by SIGBUS.
//
// Reserved blocks are enough where a block stays where it is (ext4, XFS, tmpfs). A file system that writes changes
// somewhere else wants room anew for each page that it has written out meanwhile, fallocate and the NOCOW attribute or
// not: on a full btrfs, or one at the limit of a quota group, the store raises SIGBUS (seen on Linux 6.18). Others find
// out about a lost server or device in the same way.
//
// So on such a file system SIGBUS gets a handler. Where the address lies in our spool, the chunk that it is in becomes
// memory of the process alone: the file keeps what was committed until then, and capture stops. Any other SIGBUS is
// handed on to the action that was there before, which meets it as it would without us.
//
// Any thread; no allocation, no lock. The handler calls what POSIX allows in one, and besides it mmap, mremap and
// vsnprintf without floating-point or locale.
#pragma once

namespace torchprof::spool_fault {

// May stores into this file fail although its blocks are reserved?
bool is_possible(int fd) noexcept;

// Keeps the signal from killing the program from now on. `name`: the spool's file name; it stays. Again now and then: a
// program may have put its own action in front.
void guard(const char* name) noexcept;

// What the handler calls when something is lost.
void at_loss(void (*stop)()) noexcept;

}  // namespace torchprof::spool_fault
