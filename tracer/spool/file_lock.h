// Whether the process that writes a spool still lives, asked of the file.
//
// The writer holds an exclusive flock(2) on its spool. Such a lock belongs to an open file description and goes with
// the last reference to it (man 2 flock); a mapping is a reference, so the description stays without a descriptor, and
// with the lock, until the process dies in any way or execs. MADV_DONTFORK keeps forked children out of it: one that
// outlives its parent does not hold the parent's lock. Other PID and mount namespaces see it, as do other hosts on NFS.
//
// A mapping of a file on overlayfs refers to the file below instead (backing_file_mmap(), Linux 4.19 to 6.18 at least),
// and some file systems have no locks: hold() looks whether its lock is there, and FileHeader::is_locked says so.
//
// Threads: any. Errors: results; nothing is thrown, errno is kept by the callers. No descriptor stays open.
#pragma once

namespace torchprof::spool_lock {

// Locks a file that this process has just made, until the process ends. True: the lock is held, as seen through another
// descriptor.
bool hold(const char* path) noexcept;

enum class Writer {
  kGone,  // nobody writes to it any more
  kLives,
  kUnknown,  // its file system keeps no such lock, or it is no spool
};
// Tries a shared lock for a moment, so those that ask do not take each other for writers. Never waits, whatever lies at
// `path`.
Writer look_for_writer(const char* path) noexcept;

}  // namespace torchprof::spool_lock
