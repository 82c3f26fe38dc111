// The program enters seccomp: strict mode, or a filter of its own. What came with it from whoever started it (a
// container's filter) is not looked at: the library has been loaded under it.
//
// A filter under which each of our system calls is made, or fails in a way that we bear (seccomp_filter.h), changes
// nothing. Otherwise the process is sealed (tracer/process/seal.h) before the filter is there, and the programs that it starts,
// which inherit the filter, are told to leave us out. ctypes and cffi look a function up in the very library that the
// program names, past every interposed name, so they are led back here. Not seen: a program that makes the system call
// with an instruction of its own, or looks libc's function up itself.
#pragma once

namespace torchprof::inject {

// From the constructor, in every process: looks two symbols up.
void find_seccomp() noexcept;

// An extension module has been loaded, perhaps one that calls functions by their names. With the GIL held.
void reach_lookups() noexcept;

// No system call is to be made here: the process is sealed, or this thread has entered seccomp in a child between vfork
// and exec. Of such a child the thread that made it cannot be told apart: it stays quiet.
bool must_be_quiet() noexcept;

}  // namespace torchprof::inject
