// The window: which part of the run is captured (config/window_spec.h). Opens and closes all sources of this process at
// once. It knows none of them: each one registers what is to be called.
//
// Outside of a window nothing is active but what the window needs to see its border: a callback for annotations alone
// (steps, ranges, manual), a thread of ours that sleeps (time, signal, manual). No operator, no Python call and no
// allocation runs anything of ours.
//
// A step ends with the annotation "ProfilerStep#N" where the program or torch.profiler makes such marks, otherwise
// with an optimizer's step, counted by spool/step_counter.h; without Python two optimizers of one class are told apart
// by nothing. Where it ends is recorded (StepEnd). The n-th window is WindowDef n. What is open on a thread when a
// window opens is stated at the thread's first event in it. In a hang there is none: so our thread states the stacks
// of all threads (ThreadStack) before it opens or closes a window, and with -w auto when a step has lasted long for a
// step (eight times the step before it; 2 s at least, 10 s at most), twice as long as that, and so on.
//
// With `manual` and `auto` steps are also recorded because they are asked for (spool/control_file.h), in all ranks of a
// job the same ones: our thread reads what is asked for, and each end of a step compares its number.
//
// A window of time counts from the start of the process; in a forked child, from the fork.
//
// Threads: any. A change takes a lock that is never waited for, then the GIL where there is an interpreter. A step or a
// range that comes to its border meanwhile is left to whoever has the lock (plan/window_borders.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tracer/config/config.h"
#include "tracer/spool/ids.h"

namespace torchprof::window {

namespace detail {
extern constinit std::atomic<bool> g_is_open;
extern constinit std::atomic<uint32_t> g_number;
extern constinit bool g_sees_annotations;
extern constinit bool g_sees_ranges;
void annotation_begins(const char* name, uint64_t key) noexcept;
void annotation_ended(const char* name, uint64_t key) noexcept;
}  // namespace detail

// What a source does at the edges of the window: one call at a time, on any thread, with the lock of the change. It may
// come before the source has anything to switch.
struct Source {
  void (*opened)() noexcept;  // before anything is recorded in the window by this source or by one that is added later
  void (*closed)() noexcept;
  // For how many ns after closed() records of the window may still come. With -w auto the next window waits for them,
  // since its chunks may be given up. nullptr: none come.
  int64_t (*settles_after)() noexcept = nullptr;
};
// Sources are opened in the order in which they were added, and closed in the reverse order. At most kMostSources.
// add_source() and set_interpreter(): on one thread, before the window first changes; start() may open it.
inline constexpr size_t kMostSources = 4;
void add_source(const Source& source) noexcept;

// Who has ended a step: an optimizer, or the first of a row of optimizers of which each has replaced the one before.
struct Stepper {
  ObjectId id{};          // none: not known
  bool is_first = false;  // it is the first step of its last optimizer
};

// The interpreter, one at most. Its source comes last in both directions, because it waits for the interpreter's lock.
struct Interpreter {
  Source source;
  // Calls are recorded, but the interpreter has not started so far that they can be switched: a change waits for it.
  // False from then on, also when the interpreter has ended.
  bool (*is_starting)() noexcept;
  // Of the optimizer whose step() ends on the calling thread, once for each end. An address would be used again by
  // another optimizer.
  Stepper (*current_stepper)() noexcept;
  // A mark of the program's own, "ProfilerStep#N", has ended on the calling thread: whether step N is over. Not so
  // where torch.profiler stops, whose last mark is the rest after its last step. False if nothing is known of the
  // caller.
  bool (*ends_whole_step)() noexcept;
  // Records the stack of every thread but the calling one, which is ours (session::record_stack). It must not wait for
  // the interpreter's lock: a hang may hold it.
  void (*state_stacks)() noexcept;
};
void set_interpreter(const Interpreter& interpreter) noexcept;

// Right after session::arm(), once in each turn. Without a window of its own ("all") it is open for good.
void start(const Config& config) noexcept;
// Before session::disarm(), on the thread of ours: closes the window, and no border opens one until start(). False: a
// thread changes the window just now.
bool leave_process() noexcept;
// What `start` and `stop` of `torchprof ctl` do, at once and on a thread of the program, which may hold the GIL. kSame:
// it was so before. kBusy: not now, try again. kRefused: the window is one that is not opened by hand, or nothing can
// be recorded any more.
enum class Set : uint8_t { kDone, kSame, kBusy, kRefused };
Set set_at_once(bool opens) noexcept;
// The thread of ours runs in any case: somebody who attached commands it. False: it cannot be started.
bool open_door() noexcept;
// There may be something to record in this process: opens its spool, so that the run knows of it, and the door of
// `torchprof ctl`. Where no launcher has started the process, only one that has torch is waited for: any other, of
// which there may be thousands, leaves nothing behind unless a window opens by the clock or a signal.
enum class Found : uint8_t { kInterpreter, kTorch };
void announce(Found found) noexcept;

inline bool is_open() noexcept { return detail::g_is_open.load(std::memory_order_relaxed); }
// Whether nothing has been left out so far: the window is the whole run, or with -w auto still the beginning.
bool is_whole_run() noexcept;
// The number of the window that is open, or was open last; from 1.
inline uint32_t number() noexcept { return detail::g_number.load(std::memory_order_relaxed); }

// The callback for annotations calls annotation_begins() before it records a begin, and annotation_ended() after it has
// recorded an end, if sees_annotations(). `key` is unique while the annotation is open. With or without the GIL.
inline bool sees_annotations() noexcept { return detail::g_sees_annotations; }
// A range opens the window: NVTX ranges are looked at, too, also outside of it.
inline bool sees_ranges() noexcept { return detail::g_sees_ranges; }
inline void annotation_begins(const char* name, uint64_t key) noexcept {
  if (detail::g_sees_annotations) detail::annotation_begins(name, key);
}
inline void annotation_ended(const char* name, uint64_t key) noexcept {
  if (detail::g_sees_annotations) detail::annotation_ended(name, key);
}

}  // namespace torchprof::window
