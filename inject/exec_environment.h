// The environment of a program that is about to start. The variables that the launcher had set are put back where the
// caller leaves them out (`env -i`, subprocess with an environment of its own). Our library is taken out for a program
// that could not start with it (musl).
//
// The values are those with which this process was started, saved before the program can change them: LD_PRELOAD,
// TORCHPROF_*, and NVTX_INJECTION64_PATH where it names our library and the child's environment has none. Nothing is
// put back if the child's environment has TORCHPROF_DISABLE. Once the process has changed its user, all of them are
// taken out, and our folder on PYTHONPATH: nothing of ours is loaded into a program that somebody else runs, unless it
// is the environment alone that arms all programs (torchprof env), whoever runs them. The same where the library cannot
// be opened any more (another root, a mount over it): ld.so would complain in every program.
//
// Any thread, also in a child between vfork and exec: no allocation, no lock; the caller gives the memory.
#pragma once

#include <climits>
#include <cstddef>

namespace torchprof::inject {

// Once, from the constructor. Without an absolute path of the library in LD_PRELOAD nothing is ever put back.
void save_environment(const char* library) noexcept;

// The same for a process that has none of them, since somebody attached to it: `variables` are lines "NAME=VALUE\n".
// False: the library has no file that a program could be started with, or there is no room. With the GIL held, as what
// ends it: programs are then started as if we were not there. A thread may be in the midst of starting one.
bool save_variables(const char* library, const char* variables) noexcept;
void forget_variables() noexcept;

// Whether something is saved, so that the functions below have something to do.
bool keeps_environment() noexcept;

// "RUN/NAME"; false where the run directory's name is not known here (it has placeholders).
bool file_of_run(const char* name, char (&out)[PATH_MAX]) noexcept;

enum class Preload {
  kPutBack,
  kPutBackWithAsan,  // for a program with AddressSanitizer, which has to be told to accept us (program_file.h)
  kTakeOut,
  kTakeAllOut,  // nothing of ours stays in its environment
};

// Whether the effective user is not the one with which the process was started. Then a program gets what a program of
// another user gets, whatever `preload` below is.
bool has_changed_user() noexcept;

// Whether the library can be opened at its path; in another root or mount namespace it cannot.
bool has_library_file() noexcept;

// Bytes that with_library() needs for `environment`; 0: it is fine as it is.
size_t room_for(char* const* environment, Preload preload) noexcept;

// Writes the new environment to `room`. Its strings are those of `environment`, the saved ones, and at most two more,
// which are in `room` as well.
char** with_library(char* const* environment, Preload preload, void* room) noexcept;

// For a program that inherits a seccomp filter under which our calls would kill it: the same environment with
// TORCHPROF_DISABLE and without our folder on PYTHONPATH. `environment` itself if nothing of ours would happen in the
// program, or if `room` of `size` bytes is too small.
char* const* with_us_disabled(char* const* environment, void* room, size_t size) noexcept;

}  // namespace torchprof::inject
