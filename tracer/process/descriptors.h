// Opens files in the program's process in a way that the program does not notice.
//
// with_file() opens a file, uses it and closes it at once; only in between is the lowest free descriptor taken. In that
// time:
//   * no other thread can fork, so no child inherits the descriptor; exec closes it;
//   * signals are blocked and the thread cannot be cancelled, so nothing interrupts it.
// Where the program already has every descriptor that it may have, the work is done in a short-lived process of ours.
// That one shares our memory (what it maps is mapped here as well) and has a copy of the descriptors, of which it
// closes one. It is made as vfork makes one: the calling thread waits for it, it raises no SIGCHLD, and the program's
// wait() does not see it.
//
// Any thread, also with little stack; no allocation. `errno` says what failed: EPERM in a sealed process (seal.h). Must
// not be called from within with_file().
#pragma once

namespace torchprof::descriptors {

namespace detail {
using Use = bool (*)(void* body, int fd) noexcept;
bool with_file(const char* path, int flags, Use use, void* body) noexcept;
bool with_open(int fd, Use use, void* body) noexcept;
template <class Body>
bool call(void* body, int fd) noexcept {
  return (*static_cast<Body*>(body))(fd);
}
}  // namespace detail

// Returns what body(fd) returns, or false if the file cannot be opened. `flags` as for open(); O_CLOEXEC and O_NOFOLLOW
// are added. Only its user may read or write a file that is created here.
template <class Body>
bool with_file(const char* path, int flags, Body body) noexcept {
  return detail::with_file(path, flags, &detail::call<Body>, &body);
}

// The same with a descriptor that is already open; it stays open.
template <class Body>
bool with_open(int fd, Body body) noexcept {
  return detail::with_open(fd, &detail::call<Body>, &body);
}

// Moves `fd` far above the descriptors that the program gets, so that those have the numbers that they have without us.
// Returns the new one; `fd` itself where that is not possible.
int move_away(int fd) noexcept;

// Around fork(): it waits until no file is open here.
void before_fork() noexcept;
void after_fork_in_parent() noexcept;
void after_fork_in_child() noexcept;

}  // namespace torchprof::descriptors
