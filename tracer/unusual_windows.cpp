// Which unusual steps get a window: the places of SharedPlan (plan/window_places.h), who asks, and who has to leave.
#include <algorithm>

#include "tracer/plan/window_places.h"
#include "tracer/plan/window_plan.h"

namespace torchprof {

using namespace places;

namespace {

constexpr double kDueShare = 0.4;  // of the budget of unusual windows: where a slow step is due
constexpr std::ptrdiff_t kMostOfRow = 3;
constexpr uint64_t kStepsOverdue = 2;
constexpr uint64_t kJump = uint64_t{64} << 20;  // bytes

}  // namespace

double WindowPlan::room_for_unusual(int64_t now, bool is_due) const noexcept {
  const double all = (1 - kTypicalShare) * overhead_of_windows() * static_cast<double>(now - begun_);
  const double due = cost_of(spent_due_);
  return all - cost_of(spent_unusual_) - due - (is_due ? 0 : std::max(0.0, kDueShare * all - due));
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

bool WindowPlan::wish_overdue(uint64_t step, int64_t lasted, int64_t now) noexcept {
  constexpr int64_t kMayHang = 10'000'000'000;
  const double times = static_cast<double>(lasted) / usual_ns();
  if (has(WindowReason::kOverdue, step)) return true;
  // Its window is within the budget by what this step alone has added to the time, whatever has been spent before.
  const bool pays_for_itself = static_cast<double>(lasted) * overhead_of_windows() >= cost_of_one(kStepsOverdue);
  if (lasted >= kMayHang || pays_for_itself)
    return claim(WindowReason::kOverdue, WindowReason::kOverdue, step, score_from(times)) || lasted >= kMayHang;
  // In a row of slow steps the windows after a slow one tell more, and the budget is theirs.
  if (was_slow_ && times < 2 * slow_times_ && !is_by_far_the_first(WindowReason::kOverdue, times)) return false;
  return wish(WindowReason::kOverdue, step, times, now);
}

void WindowPlan::resident(uint64_t step, uint64_t bytes, int64_t now) noexcept {
  const uint64_t jump = std::max(kJump, resident_ / 10);
  if (resident_ != 0 && bytes > resident_ + jump)
    wish(WindowReason::kMemory, step + 1, static_cast<double>(bytes - resident_) / static_cast<double>(kJump), now);
  resident_ = bytes;
}

bool WindowPlan::wish(WindowReason reason, uint64_t first, double score, int64_t now, bool is_due) noexcept {
  const Share& share = *share_of(reason);
  const double one = cost_of_one(share.length);
  const bool pays_for_itself =
      reason == WindowReason::kSlow && static_cast<double>(slow_ns_) * overhead_of_windows() >= one;
  if (room_for_unusual(now, is_due) < one && !pays_for_itself && !is_by_far_the_first(reason, score)) return false;
  if (!claim(reason, reason, first, score_from(score))) return false;
  if (reason == WindowReason::kSlow) {
    raise(shared_->slowest_row, score_from(score));
    slow_ns_ = 0;  // that has paid for this window, and pays for no other one
  }
  if (reason != WindowReason::kOverdue)  // that one opens at once
    *std::ranges::min_element(
        asked_, {}, [](const Asked& a) { return a.reason == WindowReason::kNone ? 0 : a.first; }) = {reason, first};
  return true;
}

// A slow step, or a row of them, that is at least twice as unusual as all that have a window for the same reason. It
// may have one before there is room for it: this happens a few times only, since each has to be twice as unusual as the
// one before. What came later in the window of a row, as a long step that was none of it, makes no other row usual.
bool WindowPlan::is_by_far_the_first(WindowReason reason, double score) const noexcept {
  if (reason != WindowReason::kOverdue && reason != WindowReason::kSlow) return false;
  const Share& share = *share_of(reason);
  uint64_t most = shared_->floors[&share - kShares].load(std::memory_order_relaxed);
  if (reason == WindowReason::kSlow)
    most = std::max(most, shared_->slowest_row.load(std::memory_order_relaxed));
  else
    for (size_t i = share.begin; i < share.end; ++i)
      if (const uint64_t place = shared_->places[i].load(std::memory_order_relaxed); place != 0)
        most = std::max(most, score_of(place));
  return score >= 2 * std::max(times_from(most), static_cast<double>(kLongStep));
}

// A step of the window that is open was slow: the window is as unusual as that, if it was not before. One that is
// typical, or for a slow step that was due, takes a place of those for slow steps: it stays where the distance has left
// it behind, and where longer rows want the places for what is due. What it costs has been spent. False: it has none.
bool WindowPlan::keep_place(double times) noexcept {
  if (std::ranges::none_of(kept(), [this](const Kept& kept) { return kept.number == latest_.number; })) return false;
  if (latest_.is_by_time || (!is_unusual(latest_.reason) && latest_.reason != WindowReason::kTypical)) return false;
  const bool is_due = latest_.reason == WindowReason::kExpected;
  const auto in = is_due || latest_.reason == WindowReason::kTypical ? WindowReason::kSlow : latest_.reason;
  if (!has(latest_.reason, latest_.first, in)) {
    const bool may_claim = in == WindowReason::kOverdue || in != latest_.reason;
    if (!may_claim || !claim(in, latest_.reason, latest_.first, score_from(times), true))
      return has(latest_.reason, latest_.first);
    if (is_due) clear_place(latest_.reason, latest_.first);
  }
  raise_score(latest_.reason, latest_.first, times);
  return true;
}

// The window of the last steps that is open stands for this from now on, and is kept as long as it has the place.
bool WindowPlan::turn_last(WindowReason reason, uint64_t first, double times) noexcept {
  if (latest_.reason != WindowReason::kLast) return false;
  for (Kept& kept : kept_of()) {
    if (kept.number != latest_.number) continue;
    if (!has(reason, first) && !claim(reason, reason, first, score_from(times))) return false;
    kept.reason = latest_.reason = reason;
    kept.first = latest_.first = first;
    return true;
  }
  return false;
}

// As for one that would open now. A large one is not worth its events.
bool WindowPlan::turn_last_slow(uint64_t step, double times) noexcept {
  constexpr double kSmall = 1.0 / 32;  // of the budget
  const double events = static_cast<double>(last_steps()) * events_a_step();
  if (events > kSmall * static_cast<double>(budget_.events)) return false;
  if (!turn_last(WindowReason::kSlow, step + 1, times)) return false;
  wants_more_ = true;
  return true;
}

void WindowPlan::lasts(uint64_t step, int64_t lasted) noexcept {
  raise_score(WindowReason::kOverdue, step, static_cast<double>(lasted) / usual_ns());
}

bool WindowPlan::turn_last_overdue(uint64_t step, int64_t lasted) noexcept {
  return turn_last(WindowReason::kOverdue, step, static_cast<double>(lasted) / usual_ns());
}

// Takes a free place of the share, or that of the least unusual one. One that another rank has asked for at about the
// same step is the same, unless this one is open already (`is_open`) and its step is known.
bool WindowPlan::claim(WindowReason share_with, WindowReason reason, uint64_t first, uint64_t points,
                       bool is_open) noexcept {
  const Share& share = *share_of(share_with);
  if (first > kMostStep) return false;
  const uint64_t floor = shared_->floors[&share - kShares].load(std::memory_order_relaxed);
  for (int tries = 0; tries < 8; ++tries) {
    size_t weakest = share.begin;
    uint64_t least = UINT64_MAX;
    for (size_t i = share.begin; i < share.end; ++i) {
      const uint64_t place = shared_->places[i].load(std::memory_order_relaxed);
      if (!is_open && place != 0 && first_of(place) <= first + 1 && first < first_of(place) + share.length)
        return false;
      const uint64_t strength = place == 0 ? 0 : score_of(place);
      if (strength < least) {
        least = strength;
        weakest = i;
      }
    }
    uint64_t place = shared_->places[weakest].load(std::memory_order_relaxed);
    // Of those that are about as unusual, the first ones stay: otherwise each would push out the one before it.
    if (times_from(points) <= times_from(place != 0 ? score_of(place) : floor) * 1.2) return false;
    if (!shared_->places[weakest].compare_exchange_strong(place, pack(first, reason, points),
                                                          std::memory_order_relaxed))
      continue;
    shared_->changes.fetch_add(1, std::memory_order_release);  // pairs with has_news()
    return true;
  }
  return false;
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

// The one of the share for this reason. False: it has none.
bool WindowPlan::clear_place(WindowReason reason, uint64_t first) noexcept {
  const Share& share = *share_of(reason);
  for (size_t i = share.begin; i < share.end; ++i) {
    std::atomic<uint64_t>& slot = shared_->places[i];
    uint64_t place = slot.load(std::memory_order_relaxed);
    if (place == 0 || reason_of(place) != reason || first_of(place) != first) continue;
    if (!slot.compare_exchange_strong(place, 0, std::memory_order_relaxed)) continue;
    shared_->changes.fetch_add(1, std::memory_order_release);  // pairs with has_news()
    return true;
  }
  return false;
}

bool WindowPlan::has(WindowReason reason, uint64_t first, WindowReason share_with) const noexcept {
  const Share* const share = share_of(share_with);
  const std::span<const std::atomic<uint64_t>> all(shared_->places);
  return std::ranges::any_of(share ? all.subspan(share->begin, share->end - share->begin) : all,
                             [&](const std::atomic<uint64_t>& slot) {
                               const uint64_t place = slot.load(std::memory_order_relaxed);
                               return place != 0 && reason_of(place) == reason && first_of(place) == first;
                             });
}

// Of the reasons whose windows have the most events, the least unusual window loses its place. What is as unusual gets
// none from then on: it would have to be given up again. The most unusual one stays, however large it is.
void WindowPlan::make_room() noexcept {
  // Windows after a slow step and in the midst of one are worth the same: how slow the step was tells.
  static constexpr size_t kPoolOf[] = {0, 1, 0, 2};
  static_assert(std::size(kPoolOf) == SharedPlan::kShares && kShares[0].reason == WindowReason::kSlow &&
                kShares[2].reason == WindowReason::kOverdue);
  constexpr size_t kPools = 3;
  struct Pool {
    uint64_t events = 0, windows = 0;
  } pools[kPools];
  struct Weakest {
    size_t place = SharedPlan::kPlaces;
    uint64_t score = UINT64_MAX;
  } weakest[kPools];
  for (const Share& share : kShares) {
    const size_t at = kPoolOf[&share - kShares];
    for (size_t i = share.begin; i < share.end; ++i) {
      const uint64_t place = shared_->places[i].load(std::memory_order_relaxed);
      if (place == 0) continue;
      for (const Kept& kept : kept_of()) {
        if (reason_of(place) != kept.reason || first_of(place) != kept.first || kept.is_by_time) continue;
        pools[at].events += kept.events;
        ++pools[at].windows;
      }
      if (score_of(place) < weakest[at].score) weakest[at] = {i, score_of(place)};
    }
  }
  size_t most = kPools;
  for (size_t i = 0; i < kPools; ++i)
    if (pools[i].windows > 1 && (most == kPools || pools[i].events > pools[most].events)) most = i;
  if (most == kPools) return;
  for (size_t i = 0; i < SharedPlan::kShares; ++i)
    if (kPoolOf[i] == most && weakest[most].score > shared_->floors[i].load(std::memory_order_relaxed))
      shared_->floors[i].store(weakest[most].score, std::memory_order_relaxed);
  shared_->places[weakest[most].place].store(0, std::memory_order_relaxed);
  shared_->changes.fetch_add(1, std::memory_order_release);  // pairs with has_news()
}

}  // namespace torchprof
