#include "tracer/window_plan.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tracer/last_steps.h"

namespace torchprof {
namespace {

constexpr double kTypicalShare = 0.6;  // of the overhead's budget; the rest is for unusual windows
constexpr double kDueShare = 0.4;      // of that for unusual ones: where a slow step is due
constexpr size_t kMostTypical = 48;
constexpr uint64_t kFirstDistance = 10;
constexpr double kUnknownSlowdown = 1.0;
constexpr uint64_t kMostLate = 16;     // steps
constexpr uint64_t kMostOfPhase = 10;  // steps
constexpr std::ptrdiff_t kMostOfRow = 3;
constexpr uint64_t kJump = uint64_t{64} << 20;  // bytes

// The places of a reason in SharedPlan, and how many steps its windows have.
struct Share {
  WindowReason reason;
  size_t begin, end;
  uint64_t length;
};
constexpr Share kShares[] = {
    {WindowReason::kSlow, 0, 12, 4},
    {WindowReason::kExpected, 12, 18, 3},
    {WindowReason::kOverdue, 18, 24, 2},
    {WindowReason::kMemory, 24, SharedPlan::kPlaces, 3},
};
static_assert(std::size(kShares) == SharedPlan::kShares);
const Share* share_of(WindowReason reason) noexcept {
  for (const Share& share : kShares)
    if (share.reason == reason) return &share;
  return nullptr;
}

constexpr uint64_t kMostStep = (uint64_t{1} << 40) - 2;
constexpr uint64_t pack(uint64_t first, WindowReason reason, uint64_t score) noexcept {
  return (first + 1) << 24 | static_cast<uint64_t>(reason) << 16 | score;
}
constexpr uint64_t first_of(uint64_t place) noexcept { return (place >> 24) - 1; }
constexpr WindowReason reason_of(uint64_t place) noexcept { return static_cast<WindowReason>(place >> 16 & 0xff); }
constexpr uint64_t score_of(uint64_t place) noexcept { return place & 0xffff; }
// By how many steps a window may open too late.
constexpr uint64_t most_late(WindowReason reason) noexcept { return reason == WindowReason::kExpected ? 1 : kMostLate; }
constexpr uint64_t score_from(double times) noexcept {
  return static_cast<uint64_t>(std::clamp(times * 100, 1.0, 65535.0));
}

bool is_unusual(WindowReason reason) noexcept { return share_of(reason) != nullptr; }

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
  std::nth_element(sorted, sorted + n / 2, sorted + n);
  return static_cast<double>(sorted[n / 2]) / static_cast<double>(closed_.median()) - 1;
}

double WindowPlan::overhead(int64_t now) const noexcept {
  return now > begun_ ? (spent_typical_ + spent_unusual_ + spent_last_) / static_cast<double>(now - begun_) : 0;
}

double WindowPlan::room_for_unusual(int64_t now, bool is_due) const noexcept {
  const double all = (1 - kTypicalShare) * overhead_of_windows() * static_cast<double>(now - begun_);
  return all - spent_unusual_ - (is_due ? 0 : std::max(0.0, kDueShare * all - spent_due_));
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

// `slow` is the first of some slow ones. Where two like it lie as far apart as it is from the last one of them, the
// next one is expected at the same distance; so it is after one alone, if both are slow enough to be no accident. Three
// windows of a row of them are enough. True: there is such a row.
bool WindowPlan::expect(SlowStep slow, int64_t now) noexcept {
  constexpr size_t kMost = sizeof(slow_steps_) / sizeof(slow_steps_[0]);
  constexpr double kAlike = 1.5, kNoAccident = 2;
  constexpr uint64_t kMostDoubt = 3;
  constexpr uint64_t kNearest = 50;  // rows of nearer ones are in the beginning and in typical windows
  // Steps count anew, as in a second training of the program.
  if (slow_count_ > 0 && slow_steps_[(slow_count_ - 1) % kMost].step >= slow.step) slow_count_ = 0;
  const size_t known = std::min(slow_count_, kMost);
  const auto before = [&](size_t i) -> const SlowStep& { return slow_steps_[(slow_count_ - i) % kMost]; };
  const auto is_alike = [&](const SlowStep& other) {
    return other.least < slow.most * kAlike && slow.least < other.most * kAlike;
  };
  const auto has_alike_at = [&](uint64_t step) {
    for (size_t i = 1; i <= known; ++i)
      if (is_alike(before(i)) && before(i).step + 1 >= step && before(i).step <= step + 1) return true;
    return false;
  };
  // How many like it have to lie at equal distances before it, so that it is no chance: the more slow ones there are
  // besides (a busy machine makes bursts of them), and the more windows were opened in vain, the longer the row has to
  // be.
  const auto needed = [&](uint64_t apart) {
    constexpr double kLikely = 0.05;
    double others = 0;
    for (size_t i = 1; i <= known; ++i) {
      const uint64_t back = slow.step - before(i).step;
      others += is_alike(before(i)) && back <= 2 * apart && (back + 1) % apart > 2;
    }
    const double at_a_place = std::min(0.9, 3 * others / static_cast<double>(2 * apart));
    uint64_t count = 2;
    double by_chance = others * at_a_place;
    while (by_chance > kLikely) {
      by_chance *= at_a_place;
      ++count;
    }
    return count + std::min(in_vain_ / 8, kMostDoubt);
  };
  const auto row_of = [&](uint64_t apart) {
    uint64_t count = 1;
    while (slow.step > (count + 1) * apart && has_alike_at(slow.step - (count + 1) * apart)) ++count;
    return count;
  };
  uint64_t distance = 0, row = 1;
  bool is_confirmed = false;
  for (size_t i = 1; i <= known && !is_confirmed; ++i) {
    if (!is_alike(before(i)) || slow.step - before(i).step < kNearest) continue;
    const uint64_t apart = slow.step - before(i).step;
    if (distance == 0 && slow.least >= kNoAccident && needed(apart) == 2) distance = apart;
    const uint64_t count = row_of(apart);
    is_confirmed = count >= needed(apart);
    if (!is_confirmed) continue;
    distance = apart;
    row = count;
  }
  slow_steps_[slow_count_++ % kMost] = slow;
  if (distance == 0) return false;
  const uint64_t first = slow.step + distance - 1;
  // One that was due while another window was open.
  for (const uint64_t due : expected_)
    if (due + 1 < slow.step && !is_open_or_kept(WindowReason::kExpected, due)) give_up_in_vain(due);
  // The longer the row, the less it is an accident: how slow the step is does not tell.
  const auto is_in_row = [&](const std::atomic<uint64_t>& slot) {
    const uint64_t place = slot.load(std::memory_order_relaxed);
    if (place == 0 || reason_of(place) != WindowReason::kExpected) return false;
    const uint64_t apart = first > first_of(place) ? first - first_of(place) : first_of(place) - first;
    return (apart + 1) % distance <= 2;
  };
  if (std::ranges::count_if(shared_->places, is_in_row) < kMostOfRow &&
      wish(WindowReason::kExpected, first, static_cast<double>(row), now, is_confirmed))
    expected_[expected_count_++ % kExpected] = first;
  return is_confirmed;
}

// A window in which a slow step was due, and none came. It was ours if we asked for it: another rank may have seen it.
void WindowPlan::give_up_in_vain(uint64_t first) noexcept {
  if (std::ranges::find(expected_, first) == std::end(expected_)) return;
  in_vain_ += clear_place(WindowReason::kExpected, first);
}

// A window that this process has asked for, and that could not open in time, since another one was open or was still
// being written: its place is free again.
void WindowPlan::drop_missed(uint64_t step) noexcept {
  for (Asked& asked : asked_) {
    if (asked.reason == WindowReason::kNone || step <= asked.first + most_late(asked.reason)) continue;
    if (!is_open_or_kept(asked.reason, asked.first)) clear_place(asked.reason, asked.first);
    asked.reason = WindowReason::kNone;
  }
}

// False: it has none.
bool WindowPlan::clear_place(WindowReason reason, uint64_t first) noexcept {
  for (std::atomic<uint64_t>& slot : shared_->places) {
    uint64_t place = slot.load(std::memory_order_relaxed);
    if (place == 0 || reason_of(place) != reason || first_of(place) != first) continue;
    if (!slot.compare_exchange_strong(place, 0, std::memory_order_relaxed)) continue;
    shared_->changes.fetch_add(1, std::memory_order_release);  // pairs with has_news()
    return true;
  }
  return false;
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
  return closed_.is_known() ? std::max<int64_t>(closed_.median() * 2, closed_.slow()) : 0;
}

bool WindowPlan::wish_overdue(uint64_t step, int64_t lasted, int64_t now) noexcept {
  const double times = static_cast<double>(lasted) / static_cast<double>(std::max<int64_t>(1, closed_.median()));
  return has(WindowReason::kOverdue, step) || wish(WindowReason::kOverdue, step, times, now);
}

void WindowPlan::raise_score(WindowReason reason, uint64_t first, double times) noexcept {
  const uint64_t score = score_from(times);
  for (std::atomic<uint64_t>& slot : shared_->places) {
    uint64_t place = slot.load(std::memory_order_relaxed);
    if (place == 0 || reason_of(place) != reason || first_of(place) != first) continue;
    if (score > score_of(place))
      slot.compare_exchange_strong(place, pack(first, reason, score), std::memory_order_relaxed);
  }
}

void WindowPlan::resident(uint64_t step, uint64_t bytes, int64_t now) noexcept {
  const uint64_t jump = std::max(kJump, resident_ / 10);
  if (resident_ != 0 && bytes > resident_ + jump)
    wish(WindowReason::kMemory, step + 1, static_cast<double>(bytes - resident_) / static_cast<double>(kJump), now);
  resident_ = bytes;
}

// ---- unusual windows ------------------------------------------------------------------------------------------------

bool WindowPlan::has(WindowReason reason, uint64_t first) const noexcept {
  return std::ranges::any_of(shared_->places, [&](const std::atomic<uint64_t>& slot) {
    const uint64_t place = slot.load(std::memory_order_relaxed);
    return place != 0 && reason_of(place) == reason && first_of(place) == first;
  });
}

// A step of the typical window that is open was slow: the window takes a place of those for slow steps, and stays where
// the distance has left it behind. What it costs has been spent.
void WindowPlan::keep_typical(double times) noexcept {
  if (!has(WindowReason::kTypical, latest_.first))
    claim(WindowReason::kSlow, WindowReason::kTypical, latest_.first, score_from(times));
  raise_score(WindowReason::kTypical, latest_.first, times);
}

bool WindowPlan::wish(WindowReason reason, uint64_t first, double score, int64_t now, bool is_due) noexcept {
  const Share& share = *share_of(reason);
  const double one = slowdown() * static_cast<double>(share.length) * static_cast<double>(closed_.median()) +
                     2 * static_cast<double>(switch_ns_);
  if (room_for_unusual(now, is_due) < one || !claim(reason, reason, first, score_from(score))) return false;
  if (reason != WindowReason::kOverdue)  // that one opens at once
    *std::ranges::min_element(
        asked_, {}, [](const Asked& a) { return a.reason == WindowReason::kNone ? 0 : a.first; }) = {reason, first};
  return true;
}

// Takes a free place of the share, or that of the least unusual one. One that another rank has asked for at about the
// same step is the same.
bool WindowPlan::claim(WindowReason share_with, WindowReason reason, uint64_t first, uint64_t points) noexcept {
  const Share& share = *share_of(share_with);
  if (first > kMostStep) return false;
  const uint64_t floor = shared_->floors[&share - kShares].load(std::memory_order_relaxed);
  for (int tries = 0; tries < 8; ++tries) {
    size_t weakest = share.begin;
    uint64_t least = UINT64_MAX;
    for (size_t i = share.begin; i < share.end; ++i) {
      const uint64_t place = shared_->places[i].load(std::memory_order_relaxed);
      if (place != 0 && first_of(place) <= first + 1 && first < first_of(place) + share.length) return false;
      const uint64_t strength = place == 0 ? 0 : score_of(place);
      if (strength < least) {
        least = strength;
        weakest = i;
      }
    }
    uint64_t place = shared_->places[weakest].load(std::memory_order_relaxed);
    // Of those that are about as unusual, the first ones stay: otherwise each would push out the one before it.
    if (points <= (place != 0 ? score_of(place) : floor) * 6 / 5) return false;
    if (!shared_->places[weakest].compare_exchange_strong(place, pack(first, reason, points),
                                                          std::memory_order_relaxed))
      continue;
    shared_->changes.fetch_add(1, std::memory_order_release);  // pairs with has_news()
    return true;
  }
  return false;
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

// The least unusual window of the share that has the most events loses its place. What is as unusual gets none from
// then on: it would have to be given up again.
void WindowPlan::make_room() noexcept {
  uint64_t events[SharedPlan::kShares] = {};
  for (const Kept& kept : kept_of())
    for (const Share& share : kShares)
      for (size_t i = share.begin; i < share.end; ++i)
        if (const uint64_t place = shared_->places[i].load(std::memory_order_relaxed);
            place != 0 && reason_of(place) == kept.reason && first_of(place) == kept.first && !kept.is_by_time)
          events[&share - kShares] += kept.events;
  const auto most = static_cast<size_t>(std::ranges::max_element(events) - events);
  size_t weakest = SharedPlan::kPlaces;
  uint64_t least = UINT64_MAX;
  for (size_t i = kShares[most].begin; i < kShares[most].end; ++i) {
    const uint64_t place = shared_->places[i].load(std::memory_order_relaxed);
    if (place == 0 || score_of(place) >= least) continue;
    least = score_of(place);
    weakest = i;
  }
  if (weakest == SharedPlan::kPlaces) return;
  if (least > shared_->floors[most].load(std::memory_order_relaxed))
    shared_->floors[most].store(least, std::memory_order_relaxed);
  shared_->places[weakest].store(0, std::memory_order_relaxed);
  shared_->changes.fetch_add(1, std::memory_order_release);  // pairs with has_news()
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
