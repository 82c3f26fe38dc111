// Memory for what the wrappers of exec.cpp do before they start a program. The stack is too small: a signal handler on
// an alternate stack of 8 KiB (SIGSTKSZ) may start one. malloc may not be called in such a handler, nor between vfork
// and exec.
//
// A child between vfork and exec shares our memory and never comes back to free what it took. So a piece is never
// unmapped. It belongs to a thread; a vfork child takes it in the name of the thread that made it. When that thread
// goes on, its vfork children are over, and the piece is free again. There are as many pieces as threads that started
// programs at the same time; the first is in static storage.
//
// Any thread, also in a signal handler: no lock, errno is kept. What is in a piece is up to the caller.
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
  // The same without a system call, for a thread that must make none: only a piece that exists already.
  static ExecMemory* take_quietly() noexcept;
  // Pairs with the compare_exchange of owner_ in take() and take_quietly(): we are done with the piece.
  void give_back() noexcept { owner_.store(0, std::memory_order_release); }

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
