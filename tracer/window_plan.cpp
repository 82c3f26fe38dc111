#include "tracer/window_plan.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tracer/last_steps.h"
#include "tracer/window_places.h"

namespace torchprof {

using namespace places;

namespace {

constexpr size_t kMostTypical = 48;
constexpr uint64_t kFirstDistance = 10;
constexpr double kUnknownSlowdown = 1.0;

}  // namespace

void WindowPlan::begin(Budget budget, SharedPlan& shared) noexcept {
  budget_ = budget;
  shared_ = &shared;
}

void WindowPlan::start_is_over(int64_t now, uint64_t events) noexcept {
  begun_ = now;
  start_events_ = events;
}

double WindowPlan::slowdown() const noexcept {
  if (!closed_.is_known() || closed_.median() <= 0) return kUnknownSlowdown;
  if (!open_.is_known()) return kUnknownSlowdown;
  return std::clamp(static_cast<double>(open_.median()) / static_cast<double>(closed_.median()) - 1, 0.02, 20.0);
}

double WindowPlan::typical_slowdown() const noexcept {
  int64_t sorted[kTypicalSteps] = {};
  const size_t n = std::min(typical_steps_, kTypicalSteps);
  if (n == 0 || closed_.median() <= 0) return kUnknownSlowdown;
  std::copy_n(typical_ns_, n, sorted);
  const size_t middle = n / 2;
  std::nth_element(sorted, sorted + middle, sorted + n);
  return static_cast<double>(sorted[middle]) / static_cast<double>(closed_.median()) - 1;
}

double WindowPlan::overhead(int64_t now) const noexcept {
  return now > begun_ ? (spent_typical_ + spent_unusual_ + spent_last_) / static_cast<double>(now - begun_) : 0;
}

// ---- steps ----------------------------------------------------------------------------------------------------------

void WindowPlan::step_ended(uint64_t step, int64_t duration, bool was_open, bool is_cut, int64_t now) noexcept {
  if (duration <= 0 || step == 0) return;
  drop_missed(step);
  const bool is_known = closed_.is_known();
  const auto took = static_cast<double>(duration);
  const auto usual = static_cast<double>(std::max<int64_t>(1, closed_.median()));
  // Without its window a step would have taken: at least this, if it is slow because it does more, at most that, if the
  // same takes longer. The first step of a window also pays for the opening.
  const double least = was_open ? took / (1 + slowdown()) : took;
  const bool is_later = was_open && steps_in_window_++ > 0;
  const double most = is_later ? std::max(least, took - usual * slowdown()) : least;
  if (is_later && !is_cut && latest_.reason == WindowReason::kTypical && !latest_.is_by_time)
    typical_ns_[typical_steps_++ % kTypicalSteps] = duration;
  const bool is_slow = is_known && most > static_cast<double>(closed_.slow());
  if (!is_cut) (was_open ? open_ : closed_).add(duration);
  if (shared_->distance.load(std::memory_order_relaxed) == 0) choose_distance();
  // When its window opened, the step had lasted as long as any that gets one. Only now is it known how unusual it was.
  if (latest_.reason == WindowReason::kOverdue && latest_.first + 1 == step)
    raise_score(WindowReason::kOverdue, latest_.first, took / usual);
  slow_in_a_row_ = is_slow ? slow_in_a_row_ + 1 : 0;
  if (is_slow) {
    // A phase of slow steps is more than a single one that took longer.
    const double score = most / usual * static_cast<double>(std::min(slow_in_a_row_, kMostOfPhase));
    const bool is_regular = !was_slow_ && expect({step - 1, least / usual, most / usual}, now);
    // One border later, so that the other ranks, which are at this one or just before it, can follow. After one of many
    // that come at a regular distance nothing is unusual: what that would cost is left to the next of them.
    if (!was_open && !is_regular) wish(WindowReason::kSlow, step + 1, score, now);
    if (was_open && !is_regular && latest_.reason == WindowReason::kTypical && !latest_.is_by_time) keep_typical(score);
    has_slow_ = true;
  }
  was_slow_ = is_slow;
}

bool WindowPlan::is_open_or_kept(WindowReason reason, uint64_t first) const noexcept {
  return std::ranges::any_of(kept(),
                             [&](const Kept& k) { return k.reason == reason && k.first == first && !k.is_by_time; });
}

void WindowPlan::choose_distance() noexcept {
  if (!closed_.is_known()) return;
  const double switching =
      2 * static_cast<double>(switch_ns_) / static_cast<double>(std::max<int64_t>(1, closed_.median()));
  const double least =
      (static_cast<double>(kLength) * slowdown() + switching) / (kTypicalShare * overhead_of_windows());
  uint64_t distance = kFirstDistance;
  while (static_cast<double>(distance) < least && distance < kMostStep / 2) distance *= 2;
  raise_distance(distance);
}

void WindowPlan::raise_distance(uint64_t to) noexcept {
  uint64_t now = shared_->distance.load(std::memory_order_relaxed);
  while (now < to && !shared_->distance.compare_exchange_weak(now, to, std::memory_order_relaxed)) {
  }
  shared_->changes.fetch_add(1, std::memory_order_release);  // pairs with has_news()
}

bool WindowPlan::has_news() noexcept {
  // Pairs with the releases above and below: the change itself is there.
  const uint64_t changes = shared_->changes.load(std::memory_order_acquire);
  return std::exchange(seen_changes_, changes) != changes;
}

WindowPlan::Opening WindowPlan::due(uint64_t step) const noexcept {
  const Opening due = due_but_last(step);
  const uint64_t length = last_steps();
  // They make way a step before the next window: what closes one may take a while to come in (window.h).
  if (due.reason != WindowReason::kNone || length == 0 || due_but_last(step + 1).reason != WindowReason::kNone)
    return due;
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

WindowPlan::Opening WindowPlan::due_at(int64_t elapsed) const noexcept {
  const auto unit = static_cast<uint64_t>(elapsed / kTimeUnit);
  // Not at once: a child that lives for a second would get a spool of its own.
  if (unit == 0) return {};
  const bool is_taken =
      std::any_of(kept_, kept_ + count_, [&](const Kept& k) { return k.is_by_time && k.first >= unit; });
  if (is_taken || unit % time_distance_ != 0 || elapsed % kTimeUnit > kTimeLength * 10) return {};
  return {WindowReason::kTypical, unit, 0};
}

int64_t WindowPlan::patience() const noexcept {
  return closed_.is_known() ? std::max<int64_t>(closed_.median() * kLongStep, closed_.slow()) : 0;
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
  uint64_t events = 0, windows = 0;
  for (const Kept& kept : kept_of()) {
    if (kept.reason != WindowReason::kTypical || kept.is_by_time || kept.events == 0) continue;
    events = std::max<uint64_t>(events, kept.events);
    ++windows;
  }
  if (before == SharedPlan::kNoLastSteps || windows < kFewestWindows || !closed_.is_known()) return;
  last_steps::Known known;
  known.overhead = budget_.overhead;
  known.events = budget_.events;
  known.step = closed_.median();
  known.events_a_step = static_cast<double>(events) / static_cast<double>(kLength);
  known.slowdown = typical_slowdown();
  known.opening = switch_ns_;
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
  has_slow_ = false;
  steps_in_window_ = 0;
}

void WindowPlan::closed(uint64_t steps, int64_t lasted, bool is_typical, int64_t now) noexcept {
  // One that was closed in the midst of a step may hold the slow one, which has not ended yet.
  if (steps != 0 && latest_.reason == WindowReason::kExpected && !has_slow_) give_up_in_vain(latest_.first);
  if (latest_.reason == WindowReason::kExpected && has_slow_) in_vain_ /= 2;
  // Of a window in the midst of a step only the time is known. A slow step is not slow because of us: what windows add
  // to the usual ones is taken twice for it.
  const double usual = static_cast<double>(steps) * static_cast<double>(closed_.median());
  const double share = static_cast<double>(lasted) * slowdown() / (1 + slowdown());
  const double beyond = std::max(0.0, static_cast<double>(lasted) - usual);
  const double switching = std::exchange(spent_switching_, 0);
  const double cost = (steps == 0 ? share : std::min(beyond, usual * slowdown() * 2)) + switching;
  if (latest_.reason == WindowReason::kLast) {
    spent_last_ += static_cast<double>(lasted) * cost_of_last_ + switching;
    return choose_last_steps(now);
  }
  (is_typical ? spent_typical_ : spent_unusual_) += cost;
  if (latest_.reason == WindowReason::kExpected) spent_due_ += cost;
  if (!is_typical || steps == 0) return;
  choose_last_steps(now);
  // Two windows are granted in advance: the first one may come soon after the beginning.
  const double allowed = kTypicalShare * overhead_of_windows() * static_cast<double>(now - begun_) + 2 * cost;
  // Twice what it was when the window opened: other ranks may have seen the same, and doubled it already.
  if (spent_typical_ > allowed && distance_at_opening_ != 0 && distance_at_opening_ < kMostStep / 2)
    raise_distance(distance_at_opening_ * 2);
}

// Too many or too big: the distance doubles, or the least unusual window loses its place.
void WindowPlan::fit() noexcept {
  // A beginning that was closed late, since no step had ended, does not leave the rest without anything.
  uint64_t room = std::max(budget_.events / 2, budget_.events - std::min(budget_.events, start_events_));
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
  if (distance != 0 && distance < kMostStep / 2 && (typical > room / 2 || count > kMostTypical))
    raise_distance(distance * 2);
  if (timed > 1 && (by_time > room / 2 || timed > kMostTypical)) time_distance_ *= 2;
  if (unusual > room / 2) make_room();
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
