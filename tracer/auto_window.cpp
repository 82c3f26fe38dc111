#include "tracer/auto_window.h"

#include <algorithm>
#include <atomic>
#include <cstdio>

#include "tracer/auto_state.h"
#include "tracer/plan/window_plan.h"
#include "tracer/process/seal.h"
#include "tracer/processor_time.h"
#include "tracer/run_windows.h"
#include "tracer/session.h"

namespace torchprof::window::auto_window {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kSecond = 1000 * kMs;
// Of the process's memory there is a sample each 50 ms; later, a thousandth of the time since the beginning apart.
constexpr int64_t kLeastBetweenSamples = 50 * kMs;
constexpr int64_t kWithoutSteps = 10 * kSecond;
constexpr int64_t kLongestAsked = 10 * kSecond;
constexpr int kShortestSleep = 20, kLongestSleep = 1000;  // ms
constexpr int kSleepInBusy = 5;                           // ms: a busy start makes thousands of events in one
// Of a window that opens in the midst of a step, with that one; and after a slow step in a window that is open.
constexpr uint64_t kStepsOverdue = 2, kStepsAfter = 3, kMostAfter = 3;
AutoState g_auto;

int64_t now_ns() noexcept { return clock::read_ns(CLOCK_MONOTONIC); }

void sample_memory(int64_t now) noexcept {
  AutoState& s = g_auto;
  if (now - s.last_sample < std::max(kLeastBetweenSamples, (now - s.process_began) / 1000)) return;
  s.last_sample = now;
  const uint64_t bytes = processor_time::resident();
  if (bytes == 0) return;
  session::record_resident(bytes, session::now());
  if (!s.is_whole.load(std::memory_order_relaxed)) s.plan.resident(s.step, bytes, now);
}

// For reports: what the windows have cost so far, in ns, and since when.
void write_facts(int64_t now) noexcept {
  const AutoState& s = g_auto;
  char text[96];
  snprintf(text, sizeof(text), "%lld of %lld",
           static_cast<long long>(s.plan.overhead(now) * static_cast<double>(now - s.phase_began)),
           static_cast<long long>(now - s.phase_began));
  session::note_fact("window.cost", text);
}

void give_up_unwanted() noexcept {
  AutoState& s = g_auto;
  const uint32_t open = s.shutter.is_open() ? s.shutter.number() : 0;
  s.plan.measure(s.shutter.number(), [](uint32_t number) { return session::recorded_in(number); });
  for (WindowPlan::Kept kept = s.plan.take_unwanted(open); kept.number != 0; kept = s.plan.take_unwanted(open)) {
    session::WindowEdges edges{};
    edges.number = kept.number;
    edges.reason = kept.reason;
    edges.is_given_up = true;
    if (session::define_window(edges)) session::give_up_window(kept.number);
  }
  // It stands for slow steps from here on, not for all steps.
  for (WindowPlan::Kept kept = s.plan.take_left_behind(); kept.number != 0; kept = s.plan.take_left_behind()) {
    session::WindowEdges edges{};
    edges.number = kept.number;
    edges.reason = WindowReason::kSlow;
    session::define_window(edges);
  }
}

// It stands for something else than when it was opened.
void define_reason() noexcept {
  const AutoState& s = g_auto;
  session::WindowEdges edges{};
  edges.number = s.shutter.number();
  edges.reason = s.reason;
  session::define_window(edges);
}

void open(WindowReason reason, uint64_t first, bool is_by_time, uint64_t close_at, int64_t close_by) noexcept {
  AutoState& s = g_auto;
  const int64_t before = now_ns();
  if (!s.shutter.open(s.step, reason)) return;
  s.opened_at = now_ns();
  s.plan.switched(s.opened_at - before);
  s.reason = s.opened_as = reason;
  s.opened_step = s.step;
  s.close_at = close_at;
  s.close_at_most = close_at == kForever ? kForever : close_at + kMostAfter;
  s.close_by = close_by;
  s.goes_on_for = 0;
  s.was_open = true;
  s.plan.opened({s.shutter.number(), reason, first, is_by_time, 0});
}

void close(int64_t now) noexcept {
  AutoState& s = g_auto;
  const int64_t before = now_ns();
  s.shutter.close();
  s.plan.switched(now_ns() - before);
  s.plan.closed(s.is_cut ? 0 : s.step - s.opened_step, now);
  if (s.reason != s.opened_as) define_reason();
  give_up_unwanted();
  write_facts(now);
}

// Whether any other window makes way for what is asked for. Where the next window has to wait for records of the one
// before it, that one must be over early enough.
bool makes_way_for(AskedNow asked, uint64_t step) noexcept {
  constexpr int64_t kSettles = 2 * kSecond;
  const AutoState& s = g_auto;
  if (s.shutter.is_open() && s.reason == WindowReason::kAsked)
    return s.close_at != kForever && asked.until <= step;  // it is not wanted any more
  return asked.until > step || (s.shutter.has_gaps() && asked.is_near(step, s.last_duration, kSettles));
}

// At the begin of a step that is asked for. Where the beginning is recorded it has the step.
void show_asked(AskedNow asked, uint64_t step, int64_t now) noexcept {
  AutoState& s = g_auto;
  const bool is_by_hand = asked.until == AskedNow::kByHand;
  const uint64_t close_at = is_by_hand ? kForever : asked.until;
  if (!s.shutter.is_open() && !s.is_whole.load(std::memory_order_relaxed))
    open(WindowReason::kAsked, step, false, close_at, is_by_hand ? now + kLongestAsked : 0);
  if (!s.shutter.is_open() || s.reason != WindowReason::kAsked || is_by_hand) return;
  s.close_at = close_at;
  s.close_by = 0;
}

// A window of the last steps is open, which makes way for any other.
bool is_last() noexcept { return g_auto.shutter.is_open() && g_auto.reason == WindowReason::kLast; }

bool is_larger_than(uint64_t part) noexcept {
  return session::recorded_in(g_auto.shutter.number()) > g_auto.budget / part;
}

// It counts against the budget of events and of overhead, and has to be kept for a reason.
bool is_weighed() noexcept {
  const AutoState& s = g_auto;
  return s.shutter.is_open() && s.reason != WindowReason::kAsked && s.reason != WindowReason::kLast &&
         s.reason != WindowReason::kStart;
}

// The window of the last steps that is open is kept for what the plan says; it ends after so many steps.
void turn_last(uint64_t steps) noexcept {
  AutoState& s = g_auto;
  s.reason = s.plan.reason();
  s.close_at = s.step + steps;
  s.close_at_most = s.close_at + kMostAfter;
  s.was_last = false;
}

// Once a process: there are two who may ask.
void need_thread() noexcept {
  // Held to the end: a sealed process may make no system calls, and may be about to be sealed on another thread.
  const seal::Calls calls;
  if (calls && !g_auto.needs_thread.exchange(true, std::memory_order_relaxed)) g_auto.shutter.needs_thread();
}

// The beginning of the run is being recorded, or that of its steps.
bool is_start() noexcept {
  const AutoState& s = g_auto;
  return s.is_whole.load(std::memory_order_relaxed) || (s.shutter.is_open() && s.reason == WindowReason::kStart);
}

// The beginning is over.
void close_start(int64_t now) noexcept {
  AutoState& s = g_auto;
  session::note_fact("window", "auto");
  // First: closing may wait for the GIL, and a child that is forked meanwhile has to know that it has no window.
  const bool was_whole = s.is_whole.exchange(false, std::memory_order_relaxed);
  s.shutter.close();
  need_thread();  // another rank may have ended the beginning
  s.phase_began = now;
  s.used_at = 0;
  if (was_whole) s.plan.opened({s.shutter.number(), WindowReason::kStart, 0, false, 0});
  const uint64_t events = session::recorded(), steps = s.has_steps ? s.step - s.first_border : 0;
  s.plan.start_is_over(now,
                       steps != 0 ? static_cast<double>(events - s.before_border) / static_cast<double>(steps) : 0);
  write_facts(now);
}

// By the window's own count: that of all events also gets those from before it, when their chunks are full.
bool is_sign_used() noexcept { return session::recorded_in(g_auto.shutter.number()) >= g_auto.sign_events; }

// What began with a sign has used its events, and no step has ended.
void close_sign(int64_t now) noexcept {
  AutoState& s = g_auto;
  s.signs.was_none(s.sign, session::recorded_in(s.shutter.number()), now);
  s.is_cut = true;
  close(now);
}

// need_thread() is called on the thread that records.
void watch_events() noexcept {
  g_auto.limit = g_auto.budget;
  session::when_recorded(g_auto.budget, need_thread);
}

// The first step has ended. However much ran before it, half of the budget is left for the steps.
void begin_steps(uint64_t step) noexcept {
  AutoState& s = g_auto;
  const bool is_whole = s.is_whole.load(std::memory_order_relaxed);
  // The first step began with a sign, and goes on to be recorded.
  const bool is_open = !is_whole && s.shutter.is_open() && s.reason == WindowReason::kStart;
  s.has_steps = true;
  s.waits_for_first.store(false, std::memory_order_relaxed);
  s.wants_first = !is_whole && !is_open;
  s.first_border = step;
  s.first_step = is_whole ? 0 : is_open ? s.opened_step : step;
  s.before_border = session::recorded();
  s.limit = std::max(is_whole ? s.budget : 0, s.before_border + s.budget / 2);
}

void wait_for_first() noexcept {
  AutoState& s = g_auto;
  s.signs.begin(s.budget / 2, s.is_child);
  s.waits_for_first.store(true, std::memory_order_relaxed);
}

// Whether this step is the one at which the beginning is over. It is so in all ranks: they are at this border or just
// before it, so that all see at the next one what one of them says here. Three steps are in it, whatever they take.
bool start_ends(uint64_t step) noexcept {
  AutoState& s = g_auto;
  std::atomic<uint64_t>& start = shared_plan().start;
  uint64_t none = 0;
  if (session::recorded() >= s.limit && step >= s.first_step + 2)
    start.compare_exchange_strong(none, step + 2, std::memory_order_relaxed);
  const uint64_t ends = start.load(std::memory_order_relaxed);
  return ends != 0 && step + 1 >= ends;
}

// A step has ended at this time, in ns and in ticks: keeps and records that.
void end_step(uint64_t step, Ticks at, int64_t ns) noexcept {
  AutoState& s = g_auto;
  s.last_duration = s.last_border != 0 && step == s.step + 1 ? std::max<int64_t>(0, ns - s.last_border) : 0;
  s.last_border = ns;
  s.step = step;
  const uint8_t was_open = s.was_open ? s.is_cut ? 1 : 2 : 0;
  session::record_step(step, s.shutter.is_open() ? s.shutter.number() : 0, was_open, s.switching, at);
}

// Opens the window of the first steps, which come after the beginning.
void open_first(uint64_t step) noexcept {
  constexpr uint64_t kMostLate = 16;  // steps; a GPU's window may not be in yet
  AutoState& s = g_auto;
  s.wants_first = !start_ends(step) && step <= s.first_border + kMostLate;
  if (!s.wants_first) return;
  s.first_step = step;
  open(WindowReason::kStart, step, false, kForever, 0);
  s.wants_first = !s.shutter.is_open();
}

}  // namespace

void start(const Config& config, const Shutter& shutter, const char* directory) noexcept {
  AutoState& s = g_auto;
  s.shutter = shutter;
  s.directory = directory;
  s.budget = config.budget_events;
  s.plan.begin({config.budget_events, config.budget_overhead / 100}, shared_plan());
  s.process_began = s.phase_began = now_ns();
  watch_events();
}

void after_fork_in_child() noexcept {
  AutoState& s = g_auto;
  s.plan = WindowPlan{};
  s.plan.begin({s.budget, session::config().budget_overhead / 100}, forget_shared_plan());
  s.has_joined = s.has_steps = s.wants_first = s.is_by_sign = false;
  s.waits_for_first.store(false, std::memory_order_relaxed);
  s.is_cut = s.was_last = s.is_asked_for = false;
  s.switching = 0;
  s.used_at = 0;
  s.needs_thread.store(false, std::memory_order_relaxed);
  s.process_began = s.phase_began = now_ns();
  s.last_border = s.last_sample = 0;
  s.step = 0;
  if (!s.is_whole.load(std::memory_order_relaxed)) {
    s.plan.start_is_over(s.phase_began);
    s.was_open = false;
    s.is_child = true;
    wait_for_first();
  }
  watch_events();
}

void at_step(uint64_t step, Ticks at, int64_t ns, uint64_t thread, AskedNow asked) noexcept {
  AutoState& s = g_auto;
  if (session::clock_source() == clock::kNoClock) return;
  const int64_t now = now_ns();
  if (!s.has_joined) {
    s.has_joined = true;
    s.plan.join(join_shared_plan(s.directory, s.process_began, now));
  }
  end_step(step, at, ns);
  processor_time::look(thread, now, s.was_open);
  sample_memory(now);
  s.plan.step_ended(step, s.last_duration, s.was_open && (!s.was_last || s.is_cut), s.is_cut, now);
  if (is_last() && s.plan.reason() != WindowReason::kLast) turn_last(0);
  const bool goes_on = s.plan.wants_more() && is_weighed();
  if (goes_on) {
    // A row of slow steps may be long. But of one that is by far slower than those before it the next ones are wanted.
    if (s.plan.slow_times() >= 2 * s.goes_on_for) {
      s.close_at_most = std::max(s.close_at_most, step + kStepsAfter);
      s.goes_on_for = s.plan.slow_times();
    }
    s.close_at = std::max(s.close_at, std::min(step + kStepsAfter, s.close_at_most));
  }
  if (!s.has_steps) begin_steps(step);
  if (is_start()) {
    if (start_ends(step)) close_start(now);
  } else if (s.shutter.is_open()) {
    // A program may begin to count anew.
    if (step < s.opened_step) s.is_cut = true;
    const bool makes_way = (is_last() && s.plan.due(step, s.shutter.has_gaps()).reason != WindowReason::kLast) ||
                           makes_way_for(asked, step);
    if (step >= s.close_at || step < s.opened_step || makes_way ||
        (is_weighed() && (s.wants_first || (!goes_on && is_larger_than(16)))))
      close(now);
  } else if (s.plan.has_news()) {
    give_up_unwanted();
  }
  if (asked.until > step) show_asked(asked, step, now);
  if (!s.shutter.is_open() && s.wants_first) open_first(step);
  if (!s.shutter.is_open() && !s.is_whole.load(std::memory_order_relaxed) && !makes_way_for(asked, step))
    if (const auto due = s.plan.due(step, s.shutter.has_gaps());
        due.reason != WindowReason::kNone && !(due.reason == WindowReason::kLast && s.is_asked_for))
      open(due.reason, due.first, false, step + due.length, 0);
  // What closing and opening took is none of the next step's time.
  const bool has_switched = s.was_open || s.shutter.is_open();
  if (has_switched) s.last_border = now_ns();
  s.switching = has_switched ? s.last_border - now : 0;
  s.is_cut = false;
  const bool has_opened = s.shutter.is_open() && !s.was_open;
  s.was_open = s.shutter.is_open();
  s.was_last = is_last();
  if (has_opened) processor_time::look(thread, s.last_border, true);
}

// Windows stay as they are: it is too late for one that begins or ends with this step.
void step_was_at(uint64_t step, Ticks at, int64_t ns) noexcept {
  AutoState& s = g_auto;
  if (session::clock_source() == clock::kNoClock) return;
  end_step(step, at, ns);
  s.plan.step_ended(step, s.last_duration, s.was_open && (!s.was_last || s.is_cut), s.is_cut, ns);
  s.switching = 0;
}

bool waits_for_first() noexcept { return g_auto.waits_for_first.load(std::memory_order_relaxed); }

void at_sign(uint64_t name, bool is_optimizer) noexcept {
  AutoState& s = g_auto;
  if (!waits_for_first() || session::clock_source() == clock::kNoClock) return;
  // A window by time makes way. One that the user has opened goes on. So does that of another sign, in whose step this
  // one may be, unless that sign turns out to have been none: it came again, or its events are used up.
  const bool is_open = s.shutter.is_open() && s.reason != WindowReason::kTypical;
  if (is_open) {
    if (s.reason != WindowReason::kStart) return;
    s.came_again = s.came_again || s.sign == name;
    if (s.sign == name || (!s.came_again && !is_sign_used())) return;
  }
  const int64_t now = now_ns();
  const uint64_t events = s.signs.events(name, is_optimizer, now);
  if (events == 0) return;
  if (is_open)
    close_sign(now);
  else if (s.shutter.is_open())
    close(now);
  open(WindowReason::kStart, s.step, false, kForever, 0);
  if (!s.shutter.is_open()) return;
  s.is_by_sign = true;
  s.sign = name;
  s.came_again = false;
  s.sign_events = events;
  s.limit = session::recorded() + events;
  session::when_recorded(s.limit, s.shutter.wakes_thread);
  s.is_cut = true;  // the step may have begun before it
}

int tick() noexcept {
  AutoState& s = g_auto;
  const int64_t now = now_ns();
  const auto in = [now](int64_t time) {
    return static_cast<int>(std::clamp<int64_t>((time - now) / kMs + 1, kShortestSleep, kLongestSleep));
  };
  if (is_start()) {
    if (s.is_by_sign && !s.has_steps) {
      if (!is_sign_used()) return kSleepInBusy;
      close_sign(now);
      return kShortestSleep;
    }
    const uint64_t events = session::recorded();
    if (events < s.limit) return kLongestSleep;
    // Without steps, or in the midst of a long one, which is whole where that is possible.
    if (s.used_at == 0) s.used_at = now;
    if (s.has_steps && now - s.used_at < kWithoutSteps && events < s.limit + s.budget) return kShortestSleep;
    s.is_cut = true;
    if (!s.has_steps) wait_for_first();
    close_start(now);
    return kLongestSleep;
  }
  if (s.overdue_step == s.step) s.plan.lasts(s.step, now - s.last_border);
  if (s.shutter.is_open()) {
    // One that is weighed is closed at the end of a step where that comes in time: what is there of a step is whole.
    const bool is_by_time = s.reason == WindowReason::kTypical && s.close_by != 0;
    // Of steps that are asked for the user said how many.
    const bool has_steps_asked = s.reason == WindowReason::kAsked && s.close_at != kForever;
    const uint64_t most = is_by_time ? 32 : s.reason == WindowReason::kOverdue ? 8 : 4;  // a part of the budget
    const bool is_too_big = !has_steps_asked && is_larger_than(most);
    const bool is_too_long = s.close_by != 0 && now >= s.close_by;
    if (is_too_big || is_too_long) {
      s.is_cut = true;
      close(now);
      return kShortestSleep;
    }
    if (is_by_time) return kSleepInBusy;
    // It may be closed in a moment by the end of a step, and the next step may be a long one.
    if (!is_last()) return kShortestSleep;
  }
  // Python is not ready in a child that has just been forked.
  if (now - s.process_began < kSecond) return in(s.process_began + kSecond);
  const int64_t patience = s.last_border != 0 ? s.plan.patience() : 0;
  if (patience != 0) {
    const int64_t lasted = now - s.last_border;
    if (lasted < patience) return in(s.last_border + patience);
    const bool is_seen = s.overdue_step == s.step;
    // One that lasts very long may be a hang. That costs nothing to look at: nothing happens in it. The window is
    // closed where it gets too big, or with the step after it.
    if (!is_seen && (s.plan.wish_overdue(s.step, lasted, now) || lasted >= kWithoutSteps)) {
      s.overdue_step = s.step;
      if (is_last() && !is_larger_than(32) && s.plan.turn_last_overdue(s.step, lasted)) {
        turn_last(kStepsOverdue);
        return kShortestSleep;
      }
      s.is_cut = true;
      if (is_last()) close(now);
      open(WindowReason::kOverdue, s.step, false, s.step + kStepsOverdue, 0);
      if (!s.shutter.is_open()) s.overdue_step = kForever;
      return kShortestSleep;
    }
    // It may turn out to be more unusual than those that have the places and the budget, and so may the next step.
    if (!is_last() && lasted < kWithoutSteps) return in(now + std::max(patience, lasted / 16));
  }
  if (is_last()) return kShortestSleep * 5;
  // Without steps, or where they have ended. What lasts as long as the step before it is a step.
  const int64_t without_steps = std::max(kWithoutSteps, 2 * s.last_duration);
  if (now - std::max(s.last_border, s.phase_began) < without_steps && s.last_border != 0) return kLongestSleep;
  sample_memory(now);
  const auto due = s.plan.due_at(now - s.phase_began, s.is_child);
  if (due.reason == WindowReason::kNone) return kLongestSleep;
  s.is_cut = true;
  open(due.reason, due.first, true, kForever, now + s.plan.time_length());
  return kSleepInBusy;
}

bool ask(bool opens) noexcept {
  AutoState& s = g_auto;
  const int64_t now = now_ns();
  if (is_start()) return opens;  // it is open
  if (opens == shows()) return true;
  s.is_cut = true;
  if (s.shutter.is_open()) close(now);
  if (opens) open(WindowReason::kAsked, s.step, false, kForever, now + kLongestAsked);
  s.is_asked_for = opens && !s.shutter.is_open();
  return s.shutter.is_open() == opens;
}

bool shows() noexcept { return is_start() || (g_auto.shutter.is_open() && !is_last()); }

bool is_whole() noexcept { return g_auto.is_whole.load(std::memory_order_relaxed); }

}  // namespace torchprof::window::auto_window
