// The thread of ours that opens and closes windows by the clock, by a signal or on command, and sleeps otherwise. It is
// named "torchprof", and ends where the program enters seccomp (process/own_thread.h): what is closed then stays
// closed, what is open stays open. A forked child starts its own. Two descriptors of the program are its own, at 1000
// or just below the limit: that of the socket, and one by which the signal's handler wakes it.
//
// The socket for commands (door_socket.h) answers the program's own user and root alone. One line in, one line out,
// each ends with a newline:
//     start | stop     opens or closes the window, where it is `manual` or `auto`; it opens when the next step begins,
//                      or at once where no step ends within two seconds
//     status
//     control          reads RUN/spool/control at once (control_reader.h), as it does once a second where the window is
//                      `manual` or `auto`
//     stacks           records the Python stacks of all threads, for `torchprof where`
//     progress         -> "ok: WINDOW open|closed STEPS": the number of the latest window, and of steps that have ended
//     detach           leaves the process (when_told_to_leave), and ends
//     each may be followed by a space and the file name of a spool: only the process that writes it obeys, since its
//     process id may be another's by now, or on another machine
//     -> "ok: open, window 2" | "ok: closed, 2 windows so far" | "error: ..."
#pragma once

#include "tracer/config/window_spec.h"
#include "tracer/spool/control_file.h"

namespace torchprof::window {

// Nanoseconds after a fork or the start by which Python is ready in the process: the thread then looks once more.
inline constexpr uint64_t kSettled = 1'000'000'000;

// The functions that the thread uses; nobody else calls them.
struct Door {
  bool (*set)(bool open) noexcept;  // false: not now, try again
  bool (*is_open)() noexcept;
  void (*describe)(char* text, unsigned long size) noexcept;
  uint64_t (*elapsed)() noexcept;  // nanoseconds since the process started, or was forked
  int (*tick)() noexcept;          // -w auto: does what is due; ms until it is to be called again
  void (*state_stacks)() noexcept;
  bool (*obey)(const ControlLine& line) noexcept;  // false: not now, try again
  uint64_t (*steps)() noexcept;                    // that have ended, where they are seen
};

// Milliseconds to wait while somebody else opens or closes the window.
inline constexpr int kRetryMs = 5;

// So that a child has the thread if its parent has it. Once, before start_thread() where that is called in the midst of
// an event; otherwise start_thread() does it.
void follow_forks() noexcept;

// For a window of time, signal, manual or auto, and where somebody attached; `spec` and `door` must stay where they
// are. False: no thread could be started.
bool start_thread(const WindowSpec& spec, const char* name, const Door& door) noexcept;

// os.fork() is being called on this thread, with the GIL held: from 3.12 on Python warns where the process then has
// more than one thread. Ours ends before, and starts again when os.fork() has returned; where it has left the process,
// it does not start again. Where it just now waits for the GIL, it is waited for up to 0.02 s, and then runs on; where
// it does not come to run, up to a second. `warns`: whether this Python does; otherwise nothing happens.
class Resting {
 public:
  explicit Resting(bool warns) noexcept;
  ~Resting();
  Resting(const Resting&) = delete;
  Resting& operator=(const Resting&) = delete;

 private:
  const int pid_;
  const bool has_ended_;
};

// What `detach` does, on the thread; false: not now. Without it the command is refused. The thread then ends, its
// descriptors are closed, and start_thread() may be called again.
//
// `is_alone`: whether who would tell it has gone, was killed for instance, or cannot reach it any more, since the run
// directory was moved or removed. The thread asks once a second, and leaves by itself where that was so twice: first
// comes the command of one who is about to leave in order. Null: it does not ask.
void when_told_to_leave(bool (*leave)() noexcept, bool (*is_alone)() noexcept) noexcept;

// The same as the command `detach`, for a thread of the program, which must not hold the GIL: our thread waits for it.
// Seconds at most. True: it has left, and the thread is gone. False: it has not left.
bool leave_and_wait() noexcept;

// The thread calls tick() at once. Any thread, in the midst of an event; nothing where it does not run.
void wake_thread() noexcept;

}  // namespace torchprof::window
