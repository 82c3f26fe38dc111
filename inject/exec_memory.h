// Memory for what the wrappers of exec.cpp do before they start a program. Not their stack: a signal's handler on an
// alternate stack of 8 KiB (SIGSTKSZ) may start one. Not malloc: in such a handler, and between vfork and exec.
//
// A child between vfork and exec shares our memory, and never comes back to free what it took. So a piece is never
// unmapped, and belongs to a thread, whose vfork children stand in for it: once the thread goes on, they are over, and
// the piece that the last of them took is free again. There are as many pieces as threads that started programs at the
// same time; the first is in static storage.
//
// Any thread, also in a signal's handler: no lock, errno is kept. The pieces are for the caller to fill.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <climits>
#include <cstddef>

#include "tracer/config/program_file.h"

namespace torchprof::inject {

struct ExecMemory {
  // nullptr: there is no memory.
  static ExecMemory* take() noexcept;
  // The same without a system call, for a thread that must make none: a piece that is there.
  static ExecMemory* take_quietly() noexcept;
  void give_back() noexcept { owner_.store(0, std::memory_order_release); }  // pairs with take()

  char path[PATH_MAX];  // of the program
  char name[PATH_MAX];  // of our own file
  char line[PATH_MAX];
  char script[kScriptLine];
  ProgramWork program;
  alignas(char*) std::byte environment[size_t{192} << 10];

 private:
  static ExecMemory* first() noexcept;

  std::atomic<ExecMemory*> next_;
  std::atomic<pid_t> owner_;  // process; 0: nobody
  std::atomic<pthread_t> thread_;
};

}  // namespace torchprof::inject
