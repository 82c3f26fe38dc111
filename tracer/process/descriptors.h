// Files that the recorder opens in somebody else's process, and how it is not noticed.
//
// with_file() opens a file, uses it and closes it: for that instant it has the lowest free descriptor. Meanwhile no
// other thread can fork, so that no child is left with it; it is closed on exec; signals are blocked and the thread
// cannot be cancelled, so that nothing comes between. Where the program holds every descriptor that it may have, all of
// this happens in a process of ours that lives for that instant: it shares the memory (what is mapped there is mapped
// here) and has a copy of the descriptors, of which it closes one. It is made as vfork makes one: the calling thread
// waits for it, it raises no SIGCHLD, and the program's wait() does not see it.
//
// Any thread, also with little stack; no allocation. `errno` says what failed: EPERM in a sealed process (seal.h). Not
// from within with_file().
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

// What body(fd) returns; false: it cannot be opened. `flags` as of open(), O_CLOEXEC and O_NOFOLLOW included; a file
// that it makes is its user's alone.
template <class Body>
bool with_file(const char* path, int flags, Body body) noexcept {
  return detail::with_file(path, flags, &detail::call<Body>, &body);
}

// The same with a descriptor that is open.
template <class Body>
bool with_open(int fd, Body body) noexcept {
  return detail::with_open(fd, &detail::call<Body>, &body);
}

// A descriptor far above those that the program gets, so that its own numbers are what they are without us.
int move_away(int fd) noexcept;

// Around fork(): it waits for files that are open.
void before_fork() noexcept;
void after_fork_in_parent() noexcept;
void after_fork_in_child() noexcept;

}  // namespace torchprof::descriptors
