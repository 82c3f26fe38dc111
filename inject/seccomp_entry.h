// Sees the program enter seccomp: strict mode, or a filter of its own. Filters that it was started with (a container's)
// are not looked at: the library was loaded under them.
//
// A filter under which all our system calls work, or fail in a way that we can handle (seccomp_filter.h), changes
// nothing. Otherwise the process is sealed (tracer/process/seal.h) before the filter is installed. Programs that it
// starts inherit the filter and are told not to use us. ctypes and cffi look a function up in the very library that the
// program names, which goes past interposed names, so their lookups are redirected to ours. Not seen: a program that
// makes the system call with an instruction of its own, or looks libc's function up itself.
#pragma once

namespace torchprof::inject {

// From the constructor, in every process: looks two symbols up.
void find_seccomp() noexcept;

// An extension module has been loaded: if it is that of ctypes or cffi, its lookups are redirected. With the GIL held.
void reach_lookups() noexcept;

// Whether no system call may be made here: the process is sealed, or this thread has entered seccomp in a child between
// vfork and exec. Such a child shares the flag with the thread that made it, which then makes none any more either.
bool must_be_quiet() noexcept;

}  // namespace torchprof::inject
