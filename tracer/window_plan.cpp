#include "tracer/window_plan.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace torchprof {
namespace {

constexpr double kTypicalShare = 0.6;  // of the overhead's budget; the rest is for unusual windows
constexpr size_t kMostTypical = 48;
constexpr uint64_t kFirstDistance = 10;
constexpr double kUnknownSlowdown = 1.0;
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

double WindowPlan::overhead(int64_t now) const noexcept {
  return now > begun_ ? (spent_typical_ + spent_unusual_) / static_cast<double>(now - begun_) : 0;
}

double WindowPlan::room_for_unusual(int64_t now) const noexcept {
  return (1 - kTypicalShare) * budget_.overhead * static_cast<double>(now - begun_) - spent_unusual_;
}

// ---- steps ----------------------------------------------------------------------------------------------------------

void WindowPlan::step_ended(uint64_t step, int64_t duration, bool was_open, bool is_cut, int64_t now) noexcept {
  if (duration <= 0 || step == 0) return;
  const bool is_known = closed_.is_known();
  // A step with a window is compared with what windows cost.
  const double alike = was_open ? static_cast<double>(duration) / (1 + slowdown()) : static_cast<double>(duration);
  const bool is_slow = is_known && alike > static_cast<double>(closed_.slow());
  if (!is_cut) (was_open ? open_ : closed_).add(duration);
  if (shared_->distance.load(std::memory_order_relaxed) == 0) choose_distance();
  if (is_slow) {
    const double times = alike / static_cast<double>(std::max<int64_t>(1, closed_.median()));
    // One border later, so that the other ranks, which are at this one or just before it, can follow.
    if (!was_open) wish(WindowReason::kSlow, step + 1, times, now);
    if (!was_slow_) expect({step - 1, times}, now);
  }
  was_slow_ = is_slow;
}

// `slow` is the first of some slow ones. Where two like it lie as far apart as it is from the last one of them, the
// next one is expected at the same distance; so it is after one alone, if both are slow enough to be no accident.
void WindowPlan::expect(SlowStep slow, int64_t now) noexcept {
  constexpr size_t kMost = sizeof(slow_steps_) / sizeof(slow_steps_[0]);
  constexpr double kAlike = 1.5, kNoAccident = 2;
  constexpr uint64_t kNearest = 8;
  const size_t known = std::min(slow_count_, kMost);
  const auto before = [&](size_t i) -> const SlowStep& { return slow_steps_[(slow_count_ - i) % kMost]; };
  const auto is_alike = [&](const SlowStep& other) {
    return other.times < slow.times * kAlike && slow.times < other.times * kAlike;
  };
  uint64_t distance = 0;
  for (size_t i = 1; i <= known; ++i) {
    if (!is_alike(before(i)) || slow.step - before(i).step < kNearest) continue;
    const uint64_t to_last = slow.step - before(i).step;
    if (distance == 0 && slow.times >= kNoAccident) distance = to_last;
    bool is_confirmed = false;
    for (size_t j = i + 1; j <= known && !is_confirmed; ++j) {
      const uint64_t gap = before(i).step - before(j).step;
      is_confirmed = is_alike(before(j)) && gap + 1 >= to_last && gap <= to_last + 1;
    }
    if (!is_confirmed) continue;
    distance = to_last;
    break;
  }
  slow_steps_[slow_count_++ % kMost] = slow;
  if (distance != 0) wish(WindowReason::kExpected, slow.step + distance - 1, slow.times, now);
}

void WindowPlan::choose_distance() noexcept {
  if (!closed_.is_known()) return;
  const double least = static_cast<double>(kLength) * slowdown() / (kTypicalShare * budget_.overhead);
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
  for (const std::atomic<uint64_t>& slot : shared_->places) {
    const uint64_t place = slot.load(std::memory_order_relaxed);
    if (place == 0 || reason_of(place) == WindowReason::kOverdue) continue;
    const Share* share = share_of(reason_of(place));
    if (!share || step < first_of(place) || step > first_of(place) + 1) continue;
    const bool is_taken = std::any_of(kept_, kept_ + count_, [&](const Kept& k) {
      return k.reason == reason_of(place) && k.first == first_of(place);
    });
    if (!is_taken) return {reason_of(place), first_of(place), share->length};
  }
  const uint64_t distance = shared_->distance.load(std::memory_order_relaxed);
  if (distance != 0 && step % distance == 0) return {WindowReason::kTypical, step, kLength};
  return {};
}

WindowPlan::Opening WindowPlan::due_at(int64_t elapsed) const noexcept {
  const uint64_t unit = static_cast<uint64_t>(elapsed / kTimeUnit) + 1;
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

// Takes a free place of its reason, or that of the least unusual one. One that another rank has asked for at about the
// same step is the same.
bool WindowPlan::wish(WindowReason reason, uint64_t first, double score, int64_t now) noexcept {
  const Share& share = *share_of(reason);
  const double one = slowdown() * static_cast<double>(share.length) * static_cast<double>(closed_.median());
  if (first > kMostStep || room_for_unusual(now) < one) return false;
  const auto points = static_cast<uint64_t>(std::clamp(score * 100, 1.0, 65535.0));
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
    if (place != 0 && points <= score_of(place) * 6 / 5) return false;
    if (!shared_->places[weakest].compare_exchange_strong(place, pack(first, reason, points),
                                                          std::memory_order_relaxed))
      continue;
    shared_->changes.fetch_add(1, std::memory_order_release);  // pairs with has_news()
    return true;
  }
  return false;
}

// ---- what is kept ---------------------------------------------------------------------------------------------------

void WindowPlan::opened(const Kept& window) noexcept {
  distance_at_opening_ = shared_->distance.load(std::memory_order_relaxed);
  if (count_ < kMostKept) kept_[count_++] = window;
}

void WindowPlan::closed(uint64_t steps, int64_t lasted, bool is_typical, int64_t now) noexcept {
  // Of a window in the midst of a step only the time is known. A slow step is not slow because of us: what windows add
  // to the usual ones is taken twice for it.
  const double usual = static_cast<double>(steps) * static_cast<double>(closed_.median());
  const double share = static_cast<double>(lasted) * slowdown() / (1 + slowdown());
  const double beyond = std::max(0.0, static_cast<double>(lasted) - usual);
  const double cost = steps == 0 ? share : std::min(beyond, usual * slowdown() * 2);
  (is_typical ? spent_typical_ : spent_unusual_) += cost;
  if (!is_typical || steps == 0) return;
  // Two windows are granted in advance: the first one may come soon after the beginning.
  const double allowed = kTypicalShare * budget_.overhead * static_cast<double>(now - begun_) + 2 * cost;
  // Twice what it was when the window opened: other ranks may have seen the same, and doubled it already.
  if (spent_typical_ > allowed && distance_at_opening_ != 0 && distance_at_opening_ < kMostStep / 2)
    raise_distance(distance_at_opening_ * 2);
}

// Too many or too big: the distance doubles, or the least unusual window loses its place.
void WindowPlan::fit() noexcept {
  // A beginning that was closed late, since no step had ended, does not leave the rest without anything.
  const uint64_t room = std::max(budget_.events / 2, budget_.events - std::min(budget_.events, start_events_));
  uint64_t typical = 0, unusual = 0, by_time = 0;
  size_t count = 0, timed = 0;
  for (const Kept& kept : kept_of()) {
    // What another rank has given up is about to be given up here, too.
    if (kept.reason == WindowReason::kStart || !is_wanted(kept)) continue;
    (is_unusual(kept.reason) ? unusual : kept.is_by_time ? by_time : typical) += kept.events;
    count += kept.reason == WindowReason::kTypical && !kept.is_by_time;
    timed += kept.is_by_time;
  }
  const uint64_t distance = shared_->distance.load(std::memory_order_relaxed);
  if (distance != 0 && distance < kMostStep / 2 && (typical > room / 2 || count > kMostTypical))
    raise_distance(distance * 2);
  if (timed > 1 && (by_time > room / 2 || timed > kMostTypical)) time_distance_ *= 2;
  if (unusual <= room / 2) return;
  size_t weakest = SharedPlan::kPlaces;
  uint64_t least = UINT64_MAX;
  for (size_t i = 0; i < SharedPlan::kPlaces; ++i) {
    const uint64_t place = shared_->places[i].load(std::memory_order_relaxed);
    if (place == 0 || score_of(place) >= least) continue;
    least = score_of(place);
    weakest = i;
  }
  if (weakest == SharedPlan::kPlaces) return;
  shared_->places[weakest].store(0, std::memory_order_relaxed);
  shared_->changes.fetch_add(1, std::memory_order_release);  // pairs with has_news()
}

bool WindowPlan::is_wanted(const Kept& kept) const noexcept {
  if (kept.is_by_time) return kept.first % time_distance_ == 0;
  if (is_unusual(kept.reason)) return has(kept.reason, kept.first);
  if (kept.reason != WindowReason::kTypical) return true;
  const uint64_t distance = shared_->distance.load(std::memory_order_relaxed);
  return distance == 0 || kept.first % distance == 0;
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
