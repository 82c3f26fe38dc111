// Keeps the program alive when a store into the mapped spool fails, for which the kernel raises SIGBUS.
//
// Reserved blocks are enough on file systems that write a block in place (ext4, XFS, tmpfs). One that writes changes
// somewhere else needs room again for each page that it has written out meanwhile, even with fallocate and the NOCOW
// attribute: on a full btrfs, or one at the limit of a quota group, the store raises SIGBUS (seen on Linux 6.18). On
// other file systems a lost server or device shows in the same way.
//
// So on such a file system SIGBUS gets a handler. If the address lies in our spool, the chunk around it is replaced by
// memory of the process alone: the file keeps what was committed until then, and capture stops. Any other SIGBUS is
// handed on to the action that was there before, as if we were not there.
//
// Any thread; no allocation, no lock. The handler calls only what POSIX allows in a handler, and mmap, mremap and
// vsnprintf without floating-point or locale.
#pragma once

namespace torchprof::spool_fault {

// Whether stores into this file may fail although its blocks are reserved.
bool is_possible(int fd) noexcept;

// From now on the signal does not kill the program. `name`: the spool's file name; the text must stay. To be called
// again now and then: the program may have set an action of its own.
void guard(const char* name) noexcept;

// `stop` is what the handler calls when it has replaced a chunk.
void at_loss(void (*stop)()) noexcept;

}  // namespace torchprof::spool_fault
