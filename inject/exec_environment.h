// The environment of a program that is about to start: what the launcher set is put back where the caller leaves it
// out (`env -i`, subprocess with an environment of its own), and our library is taken out for a program that could not
// start with it (musl).
//
// What is put back (LD_PRELOAD, TORCHPROF_*, and NVTX_INJECTION64_PATH where it names our library and the child's
// environment names none) is what this process was started with, saved before the program can change it. Nothing is put
// back if the child's environment says TORCHPROF_DISABLE. Once the process has changed its user all of it is taken out,
// and our folder on PYTHONPATH: nothing of ours is loaded into a program that somebody else runs. The same where the
// library cannot be opened any more (another root, a mount over it): ld.so would complain in every program.
//
// Any thread, also in a child between vfork and exec: no allocation, no lock; the caller gives the memory.
#pragma once

#include <climits>
#include <cstddef>

namespace torchprof::inject {

// Once, from the constructor. Without an absolute path of the library in LD_PRELOAD nothing is ever put back.
void save_environment(const char* library) noexcept;

// Something is saved: the functions below have something to do.
bool keeps_environment() noexcept;

// "RUN/NAME"; false where the run directory's name is not known here (it has placeholders).
bool file_of_run(const char* name, char (&out)[PATH_MAX]) noexcept;

enum class Preload {
  kPutBack,
  kPutBackWithAsan,  // for a program that has to be told to bear us: program_file.h, needs_asan()
  kTakeOut,
  kTakeAllOut,  // nothing of ours is to be in its environment
};

// Its effective user is not the one that it was started with: `preload` below is then what a program of another user
// gets.
bool has_changed_user() noexcept;

// The library can be opened at its path; false: in another root or mount namespace it cannot.
bool has_library_file() noexcept;

// Bytes that with_library() needs for `environment`; 0: it is fine as it is.
size_t room_for(char* const* environment, Preload preload) noexcept;

// Writes the new environment into `room`; its strings are those of `environment`, saved ones, and at most two in
// `room`.
char** with_library(char* const* environment, Preload preload, void* room) noexcept;

// For a program that inherits a seccomp filter which our calls would not survive: the same environment with
// TORCHPROF_DISABLE and without our folder on PYTHONPATH. As it is where nothing of ours would happen in the program,
// or `room` of `size` bytes is too small.
char* const* with_us_disabled(char* const* environment, void* room, size_t size) noexcept;

}  // namespace torchprof::inject
