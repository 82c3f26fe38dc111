#include "tracer/window.h"

#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string_view>
#include <utility>

#include "tracer/auto_window.h"
#include "tracer/config/window_spec.h"
#include "tracer/control_reader.h"
#include "tracer/plan/asked_windows.h"
#include "tracer/plan/step_borders.h"
#include "tracer/plan/step_mark.h"
#include "tracer/process/diag.h"
#include "tracer/process/seal.h"
#include "tracer/processor_time.h"
#include "tracer/session.h"
#include "tracer/spool/clock.h"
#include "tracer/window_state.h"
#include "tracer/window_thread.h"

namespace torchprof::window {

namespace detail {
constinit std::atomic<bool> g_is_open{true};
constinit std::atomic<uint32_t> g_number{0};
constinit bool g_sees_annotations = false;
constinit bool g_sees_ranges = false;
}  // namespace detail

namespace {

using SpecKind = WindowSpec::Kind;
constexpr std::string_view kOptimizerStep = "Optimizer.step#";
constexpr std::string_view kOptimizer = "Optimizer.";  // step() and zero_grad(), torch/optim/optimizer.py
constexpr uint32_t kMostWindows = 60'000;              // their numbers fit into a chunk's header

constinit State g_state{};
void at_step(uint64_t step, const WindowBorders::Border& border) noexcept;
void step_was_at(uint64_t step, const WindowBorders::Border& border) noexcept;
constinit StepBorders g_steps{at_step, step_was_at};  // likewise under the lock

constinit Sources g_sources{};
constinit Interpreter g_interpreter = {{[]() noexcept {}, []() noexcept {}},
                                       []() noexcept { return false; },
                                       []() noexcept { return Stepper{}; },
                                       []() noexcept { return false; },
                                       []() noexcept {}};

void pass(WindowBorders::Border border) noexcept;

// Takes the lock if nobody else has it.
class Change {
 public:
  Change() noexcept : has_lock_(pthread_mutex_trylock(&g_state.lock) == 0) {}
  ~Change() {
    if (!has_lock_) return;
    pass_waiting();
    pthread_mutex_unlock(&g_state.lock);
  }
  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;
  explicit operator bool() const noexcept { return has_lock_; }

  // Handles the borders of threads that found the lock taken.
  static void pass_waiting() noexcept {
    for (WindowBorders::Border border; g_state.borders.take(border);) pass(border);
  }

 private:
  const KeepErrno keep_;
  const bool has_lock_;
};

// The thread that has the lock handles the borders that come meanwhile, in their order: before it unlocks, and once
// more after, for those that came in between.
void pass_borders() noexcept {
  do {
    const Change change;
    if (!change) return;  // the thread that has the lock handles it
    Change::pass_waiting();
  } while (g_state.borders.has_any());
}

void meet(WindowBorders::Kind kind, uint64_t value, bool is_first = false) noexcept {
  g_state.borders.put({kind, value, session::now(), clock::read_ns(CLOCK_MONOTONIC), pthread_self(), is_first});
  pass_borders();
}

// Whether a child does not go on with the window of its parent.
bool leaves_at_fork() noexcept {
  const State& s = g_state;
  return s.spec.kind == SpecKind::kAuto ? !auto_window::is_whole() : s.spec.kind == SpecKind::kTime && !s.spec.holds(0);
}

// Only the forking thread is left: a lock that another thread held, or a border that it was writing, would stay like
// that for ever.
void window_after_fork() noexcept {
  State& s = g_state;
  s.lock = PTHREAD_MUTEX_INITIALIZER;
  s.borders.clear();
  s.process_start = clock::read_ns(CLOCK_MONOTONIC);
  s.is_our_thread = false;
  s.next_stacks = kFirstStacks;
  processor_time::after_fork_in_child();
  if (s.spec.kind == SpecKind::kAuto) {
    g_steps.forget();
    s.asked = AskedWindows{};
    auto_window::after_fork_in_child();
  }
  if (!leaves_at_fork()) return;
  if (!is_open() && s.spec.kind != SpecKind::kAuto) return;
  // With -w auto also where the parent was closing its window when it forked: its sources may still be on.
  // The child does not have the parent's window. The sources are switched off later, by our thread: Python, with its
  // GIL, is not ready in the child yet.
  detail::g_is_open.store(false, std::memory_order_relaxed);
  session::pause();
  s.left_at = session::now();
  s.must_leave = true;
}

void leave() noexcept {
  g_sources.close();
  g_interpreter.source.closed();
}
void leave_parents_window() noexcept {
  if (std::exchange(g_state.must_leave, false)) leave();
}

// False: it is open, or nothing can be recorded any more.
bool open(uint64_t step, WindowReason reason = WindowReason::kNone) noexcept {
  State& s = g_state;
  if (is_open() || seal::is_sealed()) return false;
  if (const auto state = session::state(); state != session::State::kArmed && state != session::State::kCapturing)
    return false;
  leave_parents_window();
  const uint32_t number = window::number();
  if (number >= kMostWindows && s.spec.kind == SpecKind::kAuto) {
    if (!std::exchange(s.is_used_up, true))
      session::note_source("windows", SourceState::kFailed, "all 60,000 of the process are used: no more are opened");
    return false;
  }
  if (s.left_at.value != 0) session::define_window({number, s.step, s.begin, s.left_at, s.reason});
  s.left_at = {};
  s.begin = session::now();
  s.step = step;
  s.reason = reason;
  if (!session::define_window({number + 1, step, s.begin, {}, reason})) return false;
  detail::g_number.store(number + 1, std::memory_order_relaxed);
  detail::g_is_open.store(true, std::memory_order_relaxed);
  // Before anything that waits for the interpreter's lock.
  if (s.is_our_thread) g_interpreter.state_stacks();
  session::resume(s.spec.kind == SpecKind::kAuto ? static_cast<uint16_t>(number + 1) : 1);
  g_sources.open();
  g_interpreter.source.opened();
  return true;
}

void close_window() noexcept {
  State& s = g_state;
  if (!is_open()) return;
  if (s.is_our_thread) g_interpreter.state_stacks();
  detail::g_is_open.store(false, std::memory_order_relaxed);
  const Ticks end = session::now();
  if (session::clock_source() != clock::kNoClock) s.closed_at = clock::read_ns(CLOCK_MONOTONIC);
  session::pause();
  g_sources.close();
  session::define_window({number(), s.step, s.begin, end, s.reason});
  g_interpreter.source.closed();
}

void at_step(uint64_t step, const WindowBorders::Border& border) noexcept {
  State& s = g_state;
  const Ticks at = border.at;
  const bool is_first = s.last_border == 0;
  const int64_t lasted = border.ns - s.last_border;
  s.next_stacks = is_first ? kFirstStacks : std::clamp(kLongForAStep * lasted, kEarliestStacks, kFirstStacks);
  s.last_lasted = is_first ? 0 : lasted;
  s.last_border = border.ns;
  const AskedNow asked = s.asked.at(step);
  if (s.spec.kind == SpecKind::kAuto) {
    if (asked.until == AskedNow::kByHand) s.asked.forget_start();  // the plan ends it
    return auto_window::at_step(step, at, border.ns, border.thread, asked);
  }
  // For those that ended in a window.
  const uint8_t was_open = std::exchange(s.is_cut, false) ? 1 : is_open() ? 2 : 0;
  session::record_step(step, is_open() ? number() : 0, was_open, 0, at);
  processor_time::look(border.thread, border.ns, is_open());
  if (s.spec.kind != SpecKind::kSteps && s.spec.kind != SpecKind::kManual) return;
  if (asked.until == 0 && !(s.spec.kind == SpecKind::kSteps && s.spec.holds(step))) return close_window();
  open(step);
  processor_time::look(border.thread, border.ns, true);
}

// A step before the one that ends now turns out to have ended then.
void step_was_at(uint64_t step, const WindowBorders::Border& border) noexcept {
  if (g_state.spec.kind == SpecKind::kAuto) return auto_window::step_was_at(step, border.at, border.ns);
  at_step(step, border);
}

// With the lock.
void pass(WindowBorders::Border border) noexcept {
  State& s = g_state;
  // Threads that come at the same time may pass in another order than that of their looks at the clock.
  s.latest.value = border.at.value = std::max(s.latest.value, border.at.value);
  switch (border.kind) {
    case WindowBorders::Kind::kProfilerStep:
      return g_steps.mark_began(border);
    case WindowBorders::Kind::kProfilerStepEnd:
      return g_steps.mark_ended(border);
    case WindowBorders::Kind::kRangeBegin:
      // It may be over by now.
      if (is_open() || s.range_key.load(std::memory_order_relaxed) != border.value) return;
      s.holder = border.value;
      open(g_steps.current());
      return;
    case WindowBorders::Kind::kRangeEnd:
      if (s.holder == border.value) close_window();
      return;
    case WindowBorders::Kind::kSign:
    case WindowBorders::Kind::kOptimizerSign:
      return auto_window::at_sign(border.value, border.kind == WindowBorders::Kind::kOptimizerSign);
    case WindowBorders::Kind::kOptimizerStep:
      break;
  }
  g_steps.optimizer_ended(border, s.spec.kind == SpecKind::kAuto);
}

// What opens and closes while it lives does so on the thread of ours. With the lock.
class OurThread {
 public:
  OurThread() noexcept { g_state.is_our_thread = true; }
  ~OurThread() { g_state.is_our_thread = false; }
  OurThread(const OurThread&) = delete;
  OurThread& operator=(const OurThread&) = delete;
};

// A step that lasts long for a step may be a hang, and the process may be killed in it. Where it is none this costs the
// program nothing: our thread takes some 10 us a frame, once in a step eight times as long as the one before it.
void state_stacks_of_long_step() noexcept {
  State& s = g_state;
  const int64_t lasted = clock::read_ns(CLOCK_MONOTONIC) - std::max(s.last_border, s.process_start);
  if (lasted < s.next_stacks) return;
  s.next_stacks = 2 * lasted;
  g_interpreter.state_stacks();
}

// With the lock. False: not now.
bool set_now(bool opens, bool at_once) noexcept {
  State& s = g_state;
  const bool is_auto = s.spec.kind == SpecKind::kAuto;
  const int64_t now = clock::read_ns(CLOCK_MONOTONIC);
  if (opens && (is_auto || s.spec.kind == SpecKind::kManual)) s.asked.start(now);
  const bool is_shown = is_auto ? auto_window::shows() : is_open();
  if (opens && !is_shown && !at_once && s.asked.start_waits(now, s.last_border, kLongForAStep * s.last_lasted))
    return false;
  if (!opens) s.asked.stop(g_steps.current());
  if (is_auto) {
    s.asked.forget_start();  // the plan ends it
    return auto_window::ask(opens) || !opens;
  }
  s.is_cut = s.is_cut || opens != is_open();
  if (opens)
    open(g_steps.current());
  else
    close_window();
  return true;
}

bool set(bool opens) noexcept {
  if (g_interpreter.is_starting()) return false;
  bool is_done = true;
  {
    const Change change;
    if (!change) return false;
    const OurThread ours;
    leave_parents_window();
    is_done = set_now(opens, false);
  }
  if (g_state.borders.has_any()) pass_borders();
  return is_done;
}

uint64_t elapsed() noexcept { return static_cast<uint64_t>(clock::read_ns(CLOCK_MONOTONIC) - g_state.process_start); }

// A window that the thread still has to leave counts as open.
bool is_open_or_left() noexcept {
  const uint64_t now = g_state.must_leave ? elapsed() : 0;
  return is_open() || (now >= kSettled && !g_state.spec.holds(now));
}

void describe(char* text, unsigned long size) noexcept {
  const uint32_t n = number();
  if (is_open())
    snprintf(text, size, "open, window %u", n);
  else
    snprintf(text, size, "closed, %u window%s so far", n, n == 1 ? "" : "s");
}

// With -w auto. Milliseconds until it wants to be called again.
int tick() noexcept {
  if (g_interpreter.is_starting()) return 1000;
  int sleep = kRetryMs;
  {
    const Change change;
    if (!change) return sleep;
    if (g_state.must_leave && elapsed() < kSettled) return static_cast<int>(kSettled / 1'000'000);
    const OurThread ours;
    state_stacks_of_long_step();
    leave_parents_window();
    sleep = auto_window::tick();
  }
  if (g_state.borders.has_any()) pass_borders();
  return sleep;
}

void state_stacks() noexcept {
  if (!g_interpreter.is_starting()) g_interpreter.state_stacks();
}

bool obey(const ControlLine& line) noexcept {
  auto taken = AskedWindows::Taken::kTaken;
  uint64_t step = 0;
  {
    const Change change;
    if (!change) return false;
    State& s = g_state;
    step = g_steps.current();
    if (line.kind == ControlLine::Kind::kDrop)
      s.asked.drop(line.id);
    else
      taken = s.asked.take(line.id, line.first, line.last, step);
    // All that it has missed is recorded.
    if (taken == AskedWindows::Taken::kLate && s.spec.kind == SpecKind::kAuto && auto_window::is_whole())
      taken = AskedWindows::Taken::kTaken;
  }
  if (g_state.borders.has_any()) pass_borders();
  if (line.kind == ControlLine::Kind::kWindow) control_reader::answer(line, taken, step);
  return true;
}

uint64_t steps() noexcept { return g_steps.current(); }

constexpr Door kDoor = {set, is_open_or_left, describe, elapsed, tick, state_stacks, obey, steps};

void needs_thread() noexcept {
  if (!start_thread(g_state.spec, session::config().window, kDoor))
    warn_once(Cause::kThread, "no thread could be started: -w auto opens windows at steps alone");
}

// Whether all records of the window before are in.
bool is_settled() noexcept { return clock::read_ns(CLOCK_MONOTONIC) - g_state.closed_at >= g_sources.settles_after(); }

constexpr Shutter kShutter = {
    [](uint64_t step, WindowReason reason) noexcept { return is_settled() && open(step, reason); },
    close_window,
    []() noexcept { return is_open(); },
    []() noexcept { return window::number(); },
    []() noexcept { return g_sources.settles_after() > 0; },
    needs_thread,
    wake_thread};

}  // namespace

void start(const Config& config) noexcept {
  State& s = g_state;
  if (s.is_left) {
    s.begin_anew();
    g_steps.forget();
    detail::g_number.store(0, std::memory_order_relaxed);
    detail::g_is_open.store(true, std::memory_order_relaxed);
  }
  s.process_start = clock::read_ns(CLOCK_MONOTONIC);
  char why[256];
  if (!parse_window(config.window, s.spec, why, sizeof(why))) return;
  // The last part of a run is no matter of windows.
  if (s.spec.kind == SpecKind::kAuto && config.keep == Keep::kLast) s.spec = {};
  if (s.spec.kind == SpecKind::kAll) return;
  static bool follows_forks = false;
  if (!std::exchange(follows_forks, true)) pthread_atfork(nullptr, nullptr, window_after_fork);
  if (s.spec.kind == SpecKind::kAuto) {
    s.begin = session::now();
    s.reason = WindowReason::kStart;
    detail::g_sees_annotations = true;
    detail::g_number.store(1, std::memory_order_relaxed);
    session::count_events();
    follow_forks();
    return auto_window::start(config, kShutter, session::spool_directory());
  }
  session::note_fact("window", config.window);
  detail::g_sees_annotations =
      s.spec.kind == SpecKind::kSteps || s.spec.kind == SpecKind::kRange || s.spec.kind == SpecKind::kManual;
  detail::g_sees_ranges = s.spec.kind == SpecKind::kRange;
  detail::g_is_open.store(false, std::memory_order_relaxed);
  session::pause();
  if ((s.spec.kind == SpecKind::kSteps || s.spec.kind == SpecKind::kTime) && s.spec.holds(0)) open(0);
}

bool leave_process() noexcept {
  State& s = g_state;
  const Change change;
  if (!change) return false;
  const OurThread ours;
  detail::g_sees_annotations = detail::g_sees_ranges = false;
  if (s.spec.kind != SpecKind::kAll) close_window();
  if (s.must_leave || is_open()) {
    detail::g_is_open.store(false, std::memory_order_relaxed);
    session::pause();
    leave();
  }
  s.must_leave = false;
  s.spec = {};
  s.is_left = true;
  return true;
}

Set set_at_once(bool opens) noexcept {
  const SpecKind kind = g_state.spec.kind;
  if (kind == SpecKind::kAll) return Set::kSame;
  if (kind != SpecKind::kManual && kind != SpecKind::kAuto) return Set::kRefused;
  Set done = Set::kBusy;
  {
    const Change change;
    if (!change || g_interpreter.is_starting()) return Set::kBusy;
    leave_parents_window();
    if ((kind == SpecKind::kAuto ? auto_window::shows() : is_open()) == opens)
      done = Set::kSame;
    else if (set_now(opens, true))
      done = is_open() == opens ? Set::kDone : Set::kRefused;
  }
  if (g_state.borders.has_any()) pass_borders();
  return done;
}

bool open_door() noexcept { return start_thread(g_state.spec, session::config().window, kDoor); }

void add_source(const Source& source) noexcept { g_sources.add(source); }

void set_interpreter(const Interpreter& interpreter) noexcept { g_interpreter = interpreter; }

bool is_whole_run() noexcept {
  const SpecKind kind = g_state.spec.kind;
  return kind == SpecKind::kAll || (kind == SpecKind::kAuto && auto_window::is_whole());
}

void announce(Found found) noexcept {
  const SpecKind kind = g_state.spec.kind;
  if (kind == SpecKind::kAll || kind == SpecKind::kAuto) return;  // both begin with the first event
  const bool is_expected = found == Found::kTorch || !session::is_armed_alone();
  if (!is_expected && kind == SpecKind::kManual) return;
  if (is_expected) session::open_spool();
  if (kind == SpecKind::kSteps || kind == SpecKind::kRange) return;
  if (!start_thread(g_state.spec, session::config().window, kDoor))
    warn_once(Cause::kThread, "no thread could be started: the window %s never opens", session::config().window);
}

void detail::annotation_begins(const char* name, uint64_t key) noexcept {
  const std::string_view text = name;
  const WindowSpec& spec = g_state.spec;
  if (uint64_t step = 0; is_mark(text, step)) {
    meet(WindowBorders::Kind::kProfilerStep, step);
  } else if (spec.kind == SpecKind::kRange && text == spec.range && !is_open()) {
    const uint64_t entered = g_state.entered.fetch_add(1, std::memory_order_relaxed) + 1;
    if (spec.nth != 0 && entered != spec.nth) return;
    uint64_t none = 0;
    if (!g_state.range_key.compare_exchange_strong(none, key, std::memory_order_relaxed)) return;
    meet(WindowBorders::Kind::kRangeBegin, key);
  } else if (auto_window::waits_for_first()) [[unlikely]] {
    meet(text.starts_with(kOptimizer) ? WindowBorders::Kind::kOptimizerSign : WindowBorders::Kind::kSign,
         std::hash<std::string_view>{}(text));
  }
}

void detail::annotation_ended(const char* name, uint64_t key) noexcept {
  const std::string_view text = name;
  if (g_state.spec.kind == SpecKind::kRange && key == g_state.range_key.load(std::memory_order_relaxed)) {
    g_state.range_key.store(0, std::memory_order_relaxed);
    meet(WindowBorders::Kind::kRangeEnd, key);
  } else if (uint64_t step = 0; is_mark(text, step)) {
    if (g_interpreter.ends_whole_step()) meet(WindowBorders::Kind::kProfilerStepEnd, step);
  } else if (text.starts_with(kOptimizerStep)) {
    const Stepper stepper = g_interpreter.current_stepper();
    meet(WindowBorders::Kind::kOptimizerStep, std::hash<std::string_view>{}(text) ^ stepper.id.value, stepper.is_first);
  }
}

}  // namespace torchprof::window
