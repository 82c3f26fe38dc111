#include "tracer/window.h"

#include <pthread.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string_view>

#include "tracer/diag.h"
#include "tracer/python_window.h"
#include "tracer/session.h"
#include "tracer/step_counter.h"
#include "tracer/torch_memory.h"
#include "tracer/torch_ops.h"
#include "tracer/window_spec.h"
#include "tracer/window_thread.h"

namespace torchprof::window {

namespace detail {
constinit std::atomic<bool> g_is_open{true};
constinit bool g_sees_annotations = false;
constinit bool g_sees_ranges = false;
}  // namespace detail

namespace {

using Kind = WindowSpec::Kind;
constexpr std::string_view kProfilerStep = "ProfilerStep#";
constexpr std::string_view kOptimizerStep = "Optimizer.step#";

struct State {
  WindowSpec spec;
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  // of the rest
  uint32_t number = 0;                               // of the window that is or was open last
  uint64_t step = 0;                                 // at its begin
  Ticks begin;
  StepCounter steps;
  bool has_open_border = false;     // the step `steps` counts to has ended for some optimizers
  bool has_profiler_steps = false;  // the program says the number itself
  uint64_t entered = 0;             // of the range
  uint64_t range_key = 0;           // of the annotation that holds the window open
};
State g_state;
void (*g_listener)(bool opens) noexcept = nullptr;

// A child must not find the lock taken by a thread that it does not have.
void after_fork_in_child() noexcept { g_state.lock = PTHREAD_MUTEX_INITIALIZER; }

// The lock, if nobody else has it.
class Change {
 public:
  Change() noexcept : has_lock_(pthread_mutex_trylock(&g_state.lock) == 0) {}
  ~Change() {
    if (has_lock_) pthread_mutex_unlock(&g_state.lock);
  }
  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;
  explicit operator bool() const noexcept { return has_lock_; }

 private:
  const KeepErrno keep_;
  const bool has_lock_;
};

void open(uint64_t step) noexcept {
  State& s = g_state;
  if (is_open()) return;
  s.begin = session::now();
  s.step = step;
  if (!session::define_window({++s.number, step, s.begin, {}})) return;
  detail::g_is_open.store(true, std::memory_order_relaxed);
  session::resume();
  if (g_listener) g_listener(true);
  torch::window_opened();
  python::window_opened();  // waits for the GIL, last
}

void close() noexcept {
  State& s = g_state;
  if (!is_open()) return;
  detail::g_is_open.store(false, std::memory_order_relaxed);
  const Ticks end = session::now();
  session::pause();
  torch::window_closed();
  if (g_listener) g_listener(false);
  session::define_window({s.number, s.step, s.begin, end});
  python::window_closed();  // waits for the GIL, last
}

void at_step(uint64_t step) noexcept {
  if (g_state.spec.kind != Kind::kSteps) return;
  if (g_state.spec.holds(step))
    open(step);
  else
    close();
}

bool set(bool opens) noexcept {
  const Change change;
  if (!change) return false;
  if (opens)
    open(g_state.steps.current());
  else
    close();
  return true;
}

void describe(char* text, unsigned long size) noexcept {
  const State& s = g_state;
  if (is_open())
    snprintf(text, size, "open, window %u", s.number);
  else
    snprintf(text, size, "closed, %u window%s so far", s.number, s.number == 1 ? "" : "s");
}

constexpr Door kDoor = {set, is_open, describe};

}  // namespace

void start(const Config& config) noexcept {
  State& s = g_state;
  char why[256];
  if (!parse_window(config.window, s.spec, why, sizeof(why)) || s.spec.kind == Kind::kAll) return;
  pthread_atfork(nullptr, nullptr, after_fork_in_child);
  session::note_fact("window", config.window);
  detail::g_sees_annotations = s.spec.kind == Kind::kSteps || s.spec.kind == Kind::kRange;
  detail::g_sees_ranges = s.spec.kind == Kind::kRange;
  detail::g_is_open.store(false, std::memory_order_relaxed);
  session::pause();
  if ((s.spec.kind == Kind::kSteps || s.spec.kind == Kind::kTime) && s.spec.holds(0)) open(0);
}

void set_listener(void (*listener)(bool opens) noexcept) noexcept { g_listener = listener; }

bool is_whole_run() noexcept { return g_state.spec.kind == Kind::kAll; }

uint32_t number() noexcept { return g_state.number; }

void announce() noexcept {
  const Kind kind = g_state.spec.kind;
  if (kind == Kind::kAll) return;
  session::open_spool();
  if (kind == Kind::kSteps || kind == Kind::kRange) return;
  if (!start_thread(g_state.spec, session::config().window, kDoor))
    warn_once(Cause::kThread, "no thread could be started: the window %s never opens", session::config().window);
}

void detail::annotation_begins(const char* name, uint64_t key) noexcept {
  const std::string_view text = name;
  const WindowSpec& spec = g_state.spec;
  if (text.starts_with(kProfilerStep)) {
    uint64_t step = 0;
    const auto [end, error] = std::from_chars(name + kProfilerStep.size(), name + text.size(), step);
    if (error != std::errc{}) return;
    const Change change;
    if (!change) return;
    g_state.has_profiler_steps = true;
    g_state.steps.set(step);
    at_step(step);
  } else if (spec.kind == Kind::kRange && text == spec.range && !is_open()) {
    const Change change;
    if (!change || is_open()) return;
    ++g_state.entered;
    if (spec.nth != 0 && g_state.entered != spec.nth) return;
    g_state.range_key = key;
    open(g_state.steps.current());
  }
}

void detail::annotation_ended(const char* name, uint64_t key) noexcept {
  const std::string_view text = name;
  if (g_state.spec.kind == Kind::kRange && key == g_state.range_key && is_open()) {
    const Change change;
    if (!change) return;
    g_state.range_key = 0;
    close();
  } else if (text.starts_with(kOptimizerStep)) {
    const auto optimizer = reinterpret_cast<uintptr_t>(python::current_optimizer());
    const Change change;
    if (!change || g_state.has_profiler_steps) return;
    // The border lies behind the last optimizer of the iteration, or where an iteration goes on without one.
    State& s = g_state;
    const uint64_t count = s.steps.ended(std::hash<std::string_view>{}(text) ^ optimizer);
    if (count > s.steps.current()) {
      if (s.has_open_border) at_step(s.steps.current());
      s.steps.set(count);
      s.has_open_border = true;
    }
    if (s.has_open_border && s.steps.is_complete()) {
      s.has_open_border = false;
      at_step(count);
    }
  }
}

}  // namespace torchprof::window
