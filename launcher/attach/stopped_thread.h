// One thread of another process, stopped for less than a millisecond, and made to call a function. The other threads
// run on, so a lock that one of them holds becomes free; a lock that the stopped thread itself holds does not. So
// nothing may be called that takes one which the thread may hold where it was stopped: Py_AddPendingCall() and system
// calls may be, malloc() and dlopen() may not, unless rests_safely() says so.
//
// Registers, vector registers and the mask of signals are restored, whatever happens. A system call that the stop has
// interrupted, and that Linux does not restart by itself (signal(7): epoll_wait, recv with a timeout, and others, which
// fail with EINTR at any stop), is restarted: its timeout begins anew.
//
// x86-64 alone (stopped_thread_aarch64.cpp refuses). Errors: Error, in words for people, with the thread as it was.
// Source: ptrace(2), the System V ABI; measured on Linux 5.10 to 6.18.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "launcher/attach/image.h"

namespace torchprof::launcher {

// What is looked up in a process before a thread of it is stopped.
struct StopPlaces {
  using Ranges = std::vector<std::pair<uint64_t, uint64_t>>;  // begin, end
  uint64_t system_call = 0;  // the instruction, somewhere in its code; 0: none was found
  Ranges loader{};           // and other allocators than libc's: a constructor, or a lock that spins, may rest anyhow
  Ranges allocator{};        // libc's, in which a thread waits for a lock and rests in no other way
};
StopPlaces find_stop_places(const Image& image);

class StoppedThread {
 public:
  // Seizes and stops it. `tid`: in our namespace.
  StoppedThread(const Image& image, const StopPlaces& places, uint32_t tid);
  ~StoppedThread();
  StoppedThread(const StoppedThread&) = delete;
  StoppedThread& operator=(const StoppedThread&) = delete;

  // Whether it waits in a system call in which a thread does nothing else, and nothing on its stack is of the loader or
  // of an allocator: then it holds none of their locks. Looks at 16 KiB of the stack, at any word that could be an
  // address, so it says no rather too often.
  bool rests_safely() const;

  // The result of the system call; below 0: minus errno.
  int64_t system_call(long number, std::span<const uint64_t> arguments);
  // The function's result; none: it has not returned in time, and was given up where it was.
  std::optional<uint64_t> call(uint64_t function, uint64_t argument, uint64_t more, std::chrono::milliseconds patience);

  // Where it was stopped.
  uint64_t instruction() const;
  // How long it has been stopped.
  std::chrono::microseconds stopped_for() const;

  // Machine code of `int stub(Stub*)`, for Py_AddPendingCall(), and the memory that it works on.
  struct Stub {
    enum State : uint64_t { kWaiting = 0, kBegun = 1, kFailed = 2, kDone = 3, kCancelled = 4 };
    uint64_t state;
    uint64_t error;     // kFailed: the address of dlerror()'s text
    uint64_t function;  // 0: `name` of the library at `path`, which is loaded
    uint64_t open;      // dlopen(), dlsym(), dlerror() and close() of the process
    uint64_t look_up;
    uint64_t why;
    uint64_t close;
    int64_t descriptor;  // is closed when the library has been loaded; below 0: none
    char path[512];
    char name[64];
    char settings[16384];  // the function's argument
  };
  static std::span<const std::byte> stub();
  static bool is_supported();

 private:
  struct Registers;
  void restore() noexcept;
  void wait_for_interrupt();
  // Until it stops; the status as from waitpid().
  int wait(std::chrono::milliseconds patience, const char* what);
  void hold(int status);

  const Image& image_;
  const StopPlaces& places_;
  uint32_t tid_;
  std::unique_ptr<Registers> before_;
  std::chrono::steady_clock::time_point begin_;
  int held_signal_ = 0;  // came while it was stopped, and is delivered when it is left
};

// The threads of a process; one that is in such a system call as rests_safely() wants comes first.
std::vector<uint32_t> threads_that_rest(uint32_t pid);

}  // namespace torchprof::launcher
