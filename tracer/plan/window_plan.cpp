#include "tracer/plan/window_plan.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "tracer/plan/last_steps.h"
#include "tracer/plan/window_places.h"

namespace torchprof {

using namespace places;

namespace {

constexpr size_t kMostTypical = 48;
constexpr uint64_t kFirstDistance = 10, kFarthestFirst = 160;
constexpr double kGrantedNs = 100'000'000;
constexpr double kUnknownSlowdown = 1.0;
constexpr double kUsualEventNs = 150;  // docs/cost.md

}  // namespace

void WindowPlan::begin(Budget budget, SharedPlan& shared) noexcept {
  budget_ = budget;
  shared_ = &shared;
}

void WindowPlan::start_is_over(int64_t now, double events_a_step) noexcept {
  begun_ = now;
  start_events_a_step_ = events_a_step;
  spent_typical_ = spent_unusual_ = spent_due_ = spent_last_ = {};
}

WindowPlan::Middle WindowPlan::middle_of(const Latest& latest) noexcept {
  int64_t sorted[Latest::kMost] = {};
  const size_t n = std::min(latest.added, Latest::kMost);
  if (n == 0) return {};
  std::copy_n(latest.ns, n, sorted);
  const size_t middle = n / 2;
  std::nth_element(sorted, sorted + middle, sorted + n);
  const int64_t median = sorted[middle];
  const int64_t low = n % 2 == 0 ? *std::max_element(sorted, sorted + middle) : median;
  for (size_t i = 0; i < n; ++i) sorted[i] = std::abs(sorted[i] - median);
  std::nth_element(sorted, sorted + middle, sorted + n);
  return {static_cast<double>(median), static_cast<double>(sorted[middle]), n, static_cast<double>(low)};
}

double WindowPlan::slowdown() const noexcept {
  if (!closed_.is_known() || closed_.median() <= 0) return kUnknownSlowdown;
  if (!open_.is_known()) return kUnknownSlowdown;
  return std::clamp(static_cast<double>(open_.median()) / static_cast<double>(closed_.median()) - 1, 0.02, 20.0);
}

double WindowPlan::typical_slowdown() const noexcept {
  const Middle typical = middle_of(typical_steps_);
  if (typical.count == 0 || closed_.median() <= 0) return kUnknownSlowdown;
  return typical.median / static_cast<double>(closed_.median()) - 1;
}

// ---- what windows cost ----------------------------------------------------------------------------------------------
// By what is recorded in them, not by how long they last: a step that sleeps for half a minute costs nothing.

double WindowPlan::events_a_step() const noexcept {
  double events = 0, steps = 0;
  for (const Kept& kept : kept()) {
    // The last events of a window come in with the next one.
    if (kept.reason != WindowReason::kTypical || kept.steps == 0 || kept.number + 1 >= latest_.number) continue;
    events += kept.events;
    steps += kept.steps;
  }
  return steps > 0 ? events / steps : start_events_a_step_;
}

// By how much a step in a typical window lasts longer than others. Where that is less than what steps differ by anyway,
// an event costs what it usually does, as far as that agrees with it. Before there are such windows, the steps of the
// beginning tell.
double WindowPlan::step_ns() const noexcept {
  constexpr double kLeast = 30;
  constexpr size_t kFewest = 4;
  const double events = events_a_step();
  Middle open = middle_of(typical_steps_);
  if (open.count < kFewest && open_.is_known())
    open = {static_cast<double>(open_.median()), static_cast<double>(open_.deviation()), Latest::kMost};
  if (open.count < kFewest || !closed_.is_known()) return events * kUsualEventNs;
  const double more = open.median - static_cast<double>(closed_.median());
  // Two standard errors of a median, by the median deviation of a normal distribution.
  const double root = open.count >= 16 ? 4 : open.count >= 9 ? 3 : 2;
  const double doubt = 2 * 1.2533 * 1.4826 * std::max(open.deviation, static_cast<double>(closed_.deviation())) / root;
  return std::max(events * kLeast, std::clamp(events * kUsualEventNs, more - doubt, more + doubt));
}

double WindowPlan::event_ns() const noexcept {
  const double events = events_a_step();
  return events > 0 ? step_ns() / events : kUsualEventNs;
}

double WindowPlan::switch_ns() const noexcept { return middle_of(switches_).median; }

double WindowPlan::opening_ns() const noexcept {
  const Middle first = middle_of(first_steps_), later = middle_of(typical_steps_);
  constexpr size_t kFewest = 2;  // the first step of a window may be a long one: two are not so by chance
  return first.count >= kFewest && later.count != 0 ? std::max(0.0, first.low - later.median) : 0;
}

double WindowPlan::cost_of(const Spent& spent) const noexcept {
  return spent.switching + spent.windows * opening_ns() + spent.events * event_ns();
}

double WindowPlan::cost_of_one(uint64_t steps) const noexcept {
  return 2 * switch_ns() + opening_ns() + static_cast<double>(steps) * step_ns();
}

WindowPlan::Spent* WindowPlan::spent_on(const Kept& window) noexcept {
  switch (window.reason) {
    case WindowReason::kStart:
    case WindowReason::kAsked:  // what the user asked for is not weighed against the budget
      return nullptr;
    case WindowReason::kTypical:
      return &spent_typical_;
    case WindowReason::kLast:
      return &spent_last_;
    case WindowReason::kExpected:
      return &spent_due_;
    default:
      return &spent_unusual_;
  }
}

void WindowPlan::book(Booked& window, uint32_t events) noexcept {
  // Fewer than before: the window has been given up meanwhile, and its last ones are counted anew.
  window.spent->events += events >= window.events ? events - window.events : events;
  window.events = events;
}

double WindowPlan::overhead(int64_t now) const noexcept {
  const double all = cost_of(spent_typical_) + cost_of(spent_unusual_) + cost_of(spent_due_) + cost_of(spent_last_);
  return now > begun_ ? all / static_cast<double>(now - begun_) : 0;
}

// ---- steps ----------------------------------------------------------------------------------------------------------

void WindowPlan::step_ended(uint64_t step, int64_t duration, bool was_open, bool is_cut, int64_t now) noexcept {
  if (duration <= 0 || step == 0) return;
  drop_missed(step);
  const bool is_known = closed_.is_known();
  const auto took = static_cast<double>(duration);
  const double usual = usual_ns();
  // Without its window a step would have taken: at least this, if it is slow because it does more, at most that, if the
  // same takes longer. The first step of a window also pays for the opening.
  const double least = was_open ? took / (1 + slowdown()) : took;
  const bool is_later = was_open && steps_in_window_++ > 0;
  const double most = is_later ? std::max(least, took - usual * slowdown()) : least;
  if (was_open && !is_cut && latest_.reason == WindowReason::kTypical && !latest_.is_by_time) {
    if (is_later)
      typical_steps_.add(duration);
    else
      first_steps_.add(duration);
  }
  const bool is_slow = is_known && most > static_cast<double>(closed_.slow());
  if (!is_cut) (was_open ? open_ : closed_).add(duration);
  if (shared_->distance.load(std::memory_order_relaxed) == 0) choose_distance();
  // When its window opened, the step had lasted as long as any that gets one. Only now is it known how unusual it was.
  const bool was_overdue = latest_.reason == WindowReason::kOverdue && latest_.first + 1 == step;
  if (was_overdue)
    wants_more_ |= keep_place(took / usual);
  else
    raise_score(WindowReason::kOverdue, step - 1, took / usual);
  // A step that had a window of its own needs none after it, also where that window was too big and is closed by now.
  const bool is_in_row = is_slow && !was_overdue;
  slow_ns_ = is_in_row ? slow_ns_ + duration : 0;
  row_more_ = is_in_row ? row_more_ + most / usual - 1 : 0;
  if (is_slow) {
    // A phase of slow steps is more than a single one that took longer.
    const double score = is_in_row ? std::min(1 + row_more_, kMostOfPhase * most / usual) : most / usual;
    const bool is_regular = !was_slow_ && expect({step - 1, least / usual, most / usual}, now);
    // After one of many that come at a regular distance nothing is unusual: what that would cost is left to the next of
    // them.
    const bool was_due = latest_.reason == WindowReason::kExpected;
    const bool has_place = was_open && !was_overdue && (!is_regular || was_due) && keep_place(score);
    wants_more_ |= has_place && !is_regular;
    // One border later, so that the other ranks, which are at this one or just before it, can follow. Where a window is
    // open it goes on instead.
    const bool goes_on = is_open_ && (was_open || turn_last_slow(step, score));
    if (!is_regular && !goes_on && is_in_row) wish(WindowReason::kSlow, step + 1, score, now);
    has_slow_ = true;
    slow_times_ = most / usual;
  }
  was_slow_ = is_slow;
}

bool WindowPlan::is_open_or_kept(WindowReason reason, uint64_t first) const noexcept {
  return std::ranges::any_of(kept(),
                             [&](const Kept& k) { return k.reason == reason && k.first == first && !k.is_by_time; });
}

void WindowPlan::choose_distance() noexcept {
  if (!closed_.is_known()) return;
  const double least = cost_of_one(kLength) / static_cast<double>(std::max<int64_t>(1, closed_.median())) /
                       (kTypicalShare * overhead_of_windows());
  uint64_t distance = kFirstDistance;
  while (static_cast<double>(distance) < least && distance < kFarthestFirst) distance *= 2;
  raise_distance(distance);
}

void WindowPlan::raise_distance(uint64_t to) noexcept {
  raise(shared_->distance, to);
  shared_->changes.fetch_add(1, std::memory_order_release);  // pairs with has_news()
}

bool WindowPlan::has_news() noexcept {
  // Pairs with the releases above and below: the change itself is there.
  const uint64_t changes = shared_->changes.load(std::memory_order_acquire);
  return std::exchange(seen_changes_, changes) != changes;
}

WindowPlan::Opening WindowPlan::due(uint64_t step, bool has_gaps) const noexcept {
  const Opening due = due_but_last(step);
  const uint64_t length = last_steps();
  if (due.reason != WindowReason::kNone || length == 0) return due;
  // With gaps they make way a step before the next window.
  if (has_gaps && due_but_last(step + 1).reason != WindowReason::kNone) return due;
  return {WindowReason::kLast, step, length - step % length};
}

WindowPlan::Opening WindowPlan::due_but_last(uint64_t step) const noexcept {
  for (const std::atomic<uint64_t>& slot : shared_->places) {
    const uint64_t place = slot.load(std::memory_order_relaxed);
    if (place == 0 || reason_of(place) == WindowReason::kOverdue) continue;
    const Share* share = share_of(reason_of(place));  // none: a typical one, in which another rank saw a slow step
    const uint64_t length = share ? share->length : kLength;
    // One that this rank has passed when another asked for it opens at its next step.
    const uint64_t last = first_of(place) + most_late(reason_of(place));
    if (step < first_of(place) || step > last || count_ == kMostKept) continue;
    if (!is_open_or_kept(reason_of(place), first_of(place))) return {reason_of(place), first_of(place), length};
  }
  const uint64_t distance = shared_->distance.load(std::memory_order_relaxed);
  if (distance != 0 && step % distance == 0) return {WindowReason::kTypical, step, kLength};
  return {};
}

WindowPlan::Opening WindowPlan::due_at(int64_t elapsed, bool is_child) const noexcept {
  const auto unit = static_cast<uint64_t>(elapsed / kTimeUnit);
  if (unit == 0 || (is_child && elapsed < kQuiet)) return {};
  const bool is_taken =
      std::any_of(kept_, kept_ + count_, [&](const Kept& k) { return k.is_by_time && k.first >= unit; });
  if (is_taken || unit % time_distance_ != 0) return {};
  return {WindowReason::kTypical, unit, 0};
}

int64_t WindowPlan::patience() const noexcept {
  const StepTimes& steps = usual_steps();
  return steps.is_known() ? std::max<int64_t>(steps.median() * kLongStep, steps.slow()) : 0;
}

// ---- the last steps -------------------------------------------------------------------------------------------------

uint64_t WindowPlan::last_steps() const noexcept {
  const uint64_t length = shared_->last_steps.load(std::memory_order_relaxed);
  return length == SharedPlan::kNoLastSteps ? 0 : length;
}

// How many events a step has is known from the typical windows. The largest one tells: the last ones are not counted to
// their end yet.
void WindowPlan::choose_last_steps(int64_t now) noexcept {
  constexpr uint64_t kFewestWindows = 3;
  std::atomic<uint64_t>& shared = shared_->last_steps;
  uint64_t before = shared.load(std::memory_order_relaxed);
  double events = 0;
  uint64_t windows = 0;
  for (const Kept& kept : kept_of()) {
    if (kept.reason != WindowReason::kTypical || kept.is_by_time || kept.events == 0 || kept.steps == 0) continue;
    events = std::max(events, static_cast<double>(kept.events) / kept.steps);
    ++windows;
  }
  if (before == SharedPlan::kNoLastSteps || windows < kFewestWindows || !closed_.is_known()) return;
  last_steps::Known known;
  known.overhead = budget_.overhead;
  known.events = budget_.events;
  known.step = closed_.median();
  known.events_a_step = events;
  known.slowdown = typical_slowdown();
  known.opening = static_cast<int64_t>(switch_ns());
  known.elapsed = now - begun_;
  const uint64_t length = last_steps::length(known);
  cost_of_last_ = length != 0 ? last_steps::cost(known) : 0;
  if (before == 0 ? length == 0 : length != 0 && length <= before) return;
  // What is too much for one rank is left by all.
  if (!shared.compare_exchange_strong(before, length != 0 ? length : SharedPlan::kNoLastSteps,
                                      std::memory_order_relaxed))
    return;
  shared_->changes.fetch_add(1, std::memory_order_release);  // pairs with has_news()
}

// ---- what is kept ---------------------------------------------------------------------------------------------------

void WindowPlan::opened(const Kept& window) noexcept {
  distance_at_opening_ = shared_->distance.load(std::memory_order_relaxed);
  // What the user asked for stays, and takes nothing from the others.
  if (window.reason != WindowReason::kAsked && count_ < kMostKept) kept_[count_++] = window;
  latest_ = window;
  if (window.reason == WindowReason::kLast) newest_last_ = window.first;
  is_open_ = window.reason != WindowReason::kStart;
  has_slow_ = wants_more_ = false;
  steps_in_window_ = 0;
  booked_[1] = booked_[0];
  booked_[0] = {window.number, 0, spent_on(window)};
}

void WindowPlan::closed(uint64_t steps, int64_t now) noexcept {
  is_open_ = false;
  for (Kept& kept : kept_of())
    if (kept.number == latest_.number) kept.steps = static_cast<uint32_t>(steps);
  Spent* const spent = spent_on(latest_);
  const double switching = std::exchange(switching_, 0);
  if (spent == nullptr) return;
  spent->switching += switching;
  spent->windows += 1;
  // One that was closed in the midst of a step may hold the slow one, which has not ended yet.
  if (steps != 0 && latest_.reason == WindowReason::kExpected && !has_slow_) give_up_in_vain(latest_.first);
  if (latest_.reason == WindowReason::kExpected && has_slow_) in_vain_ /= 2;
  if (latest_.reason == WindowReason::kLast) return choose_last_steps(now);
  if (latest_.reason != WindowReason::kTypical || steps == 0) return;
  choose_last_steps(now);
  closed_typical_at_ = now;
}

// Two windows are granted in advance, since the first one may come soon after the beginning, and as many as add a tenth
// of a second: a run of some seconds has typical steps, too, also where a busy machine makes each window dear.
void WindowPlan::slow_down() noexcept {
  if (closed_typical_at_ == 0) return;
  const auto elapsed = static_cast<double>(std::exchange(closed_typical_at_, 0) - begun_);
  const double allowed =
      kTypicalShare * overhead_of_windows() * elapsed + std::max(2 * cost_of_one(kLength), kGrantedNs);
  // Twice what it was when the window opened: other ranks may have seen the same, and doubled it already.
  if (cost_of(spent_typical_) > allowed && distance_at_opening_ != 0 && distance_at_opening_ < kMostStep / 2)
    raise_distance(distance_at_opening_ * 2);
}

// Too many or too big: the distance doubles, or the least unusual window loses its place.
void WindowPlan::fit() noexcept {
  slow_down();
  uint64_t room = budget_.events;
  for (const Kept& kept : kept_of())
    if (kept.reason == WindowReason::kLast) room -= std::min<uint64_t>(room / 2, kept.events);
  uint64_t typical = 0, unusual = 0, by_time = 0;
  size_t count = 0, timed = 0;
  for (const Kept& kept : kept_of()) {
    // What another rank has given up is about to be given up here, too.
    if (kept.reason == WindowReason::kStart || kept.reason == WindowReason::kLast || !is_wanted(kept)) continue;
    const bool is_typical = kept.reason == WindowReason::kTypical && !kept.is_by_time && is_in_grid(kept.first);
    const bool is_kept_slow = kept.reason == WindowReason::kTypical && !kept.is_by_time && !is_typical;
    (is_unusual(kept.reason) || is_kept_slow ? unusual : kept.is_by_time ? by_time : typical) += kept.events;
    count += is_typical;
    timed += kept.is_by_time;
  }
  const uint64_t distance = shared_->distance.load(std::memory_order_relaxed);
  if (distance != 0 && distance < kMostStep / 2 && (typical > room / 4 || count > kMostTypical))
    raise_distance(distance * 2);
  if (timed > 1 && (by_time > room / 4 || timed > kMostTypical)) time_distance_ *= 2;
  if (unusual > room / 4 * 3) make_room();
}

bool WindowPlan::is_wanted(const Kept& kept) const noexcept {
  if (kept.is_by_time) return kept.first % time_distance_ == 0;
  if (is_unusual(kept.reason)) return has(kept.reason, kept.first);
  if (kept.reason == WindowReason::kLast)
    return kept.first <= newest_last_ && kept.first + 2 * last_steps() > newest_last_;
  if (kept.reason != WindowReason::kTypical) return true;
  return is_in_grid(kept.first) || has(WindowReason::kTypical, kept.first);
}

bool WindowPlan::is_in_grid(uint64_t step) const noexcept {
  const uint64_t distance = shared_->distance.load(std::memory_order_relaxed);
  return distance == 0 || step % distance == 0;
}

WindowPlan::Kept WindowPlan::take_left_behind() noexcept {
  for (Kept& kept : kept_of()) {
    if (kept.reason != WindowReason::kTypical || kept.is_by_time || kept.is_left_behind) continue;
    if (is_in_grid(kept.first) || !has(WindowReason::kTypical, kept.first)) continue;
    kept.is_left_behind = true;
    return kept;
  }
  return {};
}

WindowPlan::Kept WindowPlan::take_unwanted(uint32_t open) noexcept {
  for (size_t i = 0; i < count_; ++i) {
    if (kept_[i].number == open || is_wanted(kept_[i])) continue;
    const Kept taken = kept_[i];
    std::copy(kept_ + i + 1, kept_ + count_, kept_ + i);
    --count_;
    return taken;
  }
  return {};
}

}  // namespace torchprof
