// -w auto: which steps are worth a window once the beginning of the run is over.
//
//   typical    three steps after each multiple of a distance. The distance begins where the overhead's budget allows it
//              and doubles when the windows are too many or too big; those that are no multiple of the new distance are
//              given up, but for those in which a step was slow (below). So the run is covered evenly, however long it
//              gets.
//   unusual    the steps after a slow one; those where a slow one is due, because slow ones came at a regular distance
//              (if none comes the window is given up, and three of a row are enough); what is left of a step that
//              lasts far too long; the steps after a jump in memory; a window in which a step was slow, which goes on
//              for some steps. There are a few places for each of these; the most unusual ones keep them.
//   last       all other steps, where that costs next to nothing (last_steps.h): windows one after another, of which
//              the last two are kept. They count as steps without a window, and make way for any other one.
//
// What the ranks of a job must agree on lies in SharedPlan, which they have in common (run_windows.h): the distance and
// the places. A window is kept as long as the shared plan has it, so all ranks open and give up the same ones by
// themselves. One that a rank has passed when another asks for it opens at the rank's next step, if it is near. Ranks
// that wait for a slow one all see a slow step; they ask for the same place.
//
// The cost of a window is what is recorded in it: its events, by what one adds to a typical step, and what it takes to
// open and to close it. How long it lasts does not matter. Steps count from 0: `step` is the number of steps that have
// ended, and thus the one that begins. Times in ns.
//
// Pure but for the shared plan's atomics, each of which stands for itself (relaxed). One thread at a time, but for
// SharedPlan. No allocation.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "tracer/plan/step_times.h"
#include "tracer/spool/record.h"

namespace torchprof {

struct SharedPlan {
  static constexpr size_t kPlaces = 34, kShares = 4;
  static constexpr uint64_t kNoLastSteps = UINT64_MAX;  // they turned out to be too expensive for a rank
  std::atomic<int64_t> joined;            // when the first process joined, ns of CLOCK_MONOTONIC; 0: none has
  std::atomic<uint64_t> changes;          // of the distance and the places, so far
  std::atomic<uint64_t> start;            // the step at which the beginning is over; 0: not known yet
  std::atomic<uint64_t> distance;         // of typical windows, in steps; 0: not known yet
  std::atomic<uint64_t> last_steps;       // a window of the last steps, in steps; 0: there are none; kNoLastSteps
  std::atomic<uint64_t> places[kPlaces];  // of unusual windows: 40 bits first step | 8 bits reason | 16 bits score
  // The score that was too little for a place when there were too many events, for each share of the places.
  std::atomic<uint64_t> floors[kShares];
  std::atomic<uint64_t> slowest_row;  // the highest score with which a window after a slow step was asked for
};

class WindowPlan {
 public:
  struct Budget {
    uint64_t events = 1'000'000;  // of the process after its beginning
    double overhead = 0.02;       // of the time since the beginning
  };
  struct Kept {
    uint32_t number = 0;  // of the window
    WindowReason reason{};
    uint64_t first = 0;  // step; of a window by time: its place in the grid of time
    bool is_by_time = false;
    uint32_t events = 0;
    bool is_left_behind = false;  // typical, and no multiple of the distance any more: kept because it was slow
    uint32_t steps = 0;           // 0: it was opened or closed in the midst of one, or is still open
  };
  struct Opening {
    WindowReason reason = WindowReason::kNone;  // kNone: no window is due
    uint64_t first = 0;
    uint64_t length = 0;  // steps
  };
  static constexpr size_t kMostKept = 160;
  static constexpr uint64_t kLength = 3;                   // steps of a typical window
  static constexpr int64_t kTimeUnit = 2'000'000'000;      // of the grid of windows by time
  static constexpr int64_t kTimeLength = 20'000'000;       // of such a window, for each unit to the next one,
  static constexpr int64_t kMostTimeLength = 200'000'000;  // and at most
  // A child has none before: one that lives for some seconds would get a spool for it.
  static constexpr int64_t kQuiet = 20'000'000'000;

  void begin(Budget budget, SharedPlan& shared) noexcept;
  // The beginning is recorded; from here on the plan decides. `events_a_step`: of its steps, 0 if that is not known.
  // Once more where the first steps come after it.
  void start_is_over(int64_t now, double events_a_step = 0) noexcept;
  // From here on with others.
  void join(SharedPlan& shared) noexcept { shared_ = &shared; }

  // A step has ended after `duration`. `was_open`: a window was open for some of it, `is_cut`: it was opened or closed
  // in its midst.
  void step_ended(uint64_t step, int64_t duration, bool was_open, bool is_cut, int64_t now) noexcept;
  // The window that begins with this step, if any. `has_gaps`: one that closes takes a while to come in (window.h).
  Opening due(uint64_t step, bool has_gaps = false) const noexcept;
  // The same for a moment without steps. `elapsed`: ns since the beginning was over; `is_child`: at a fork.
  Opening due_at(int64_t elapsed, bool is_child) const noexcept;
  // ns that a window by time is open.
  int64_t time_length() const noexcept {
    return std::min<int64_t>(kMostTimeLength,
                             kTimeLength * static_cast<int64_t>(std::min<uint64_t>(time_distance_, 10)));
  }
  // How long the current step may last until a window opens in its midst; 0: that is not known.
  int64_t patience() const noexcept;
  // Wishes for one: false if others are more unusual, or the budget does not allow it. A step of more than ten seconds
  // may be a hang: that always has one, and whether it is kept is seen when it has ended.
  bool wish_overdue(uint64_t step, int64_t lasted, int64_t now) noexcept;
  // The same where a window of the last steps is open, which has the step from its begin: it becomes that window.
  bool turn_last_overdue(uint64_t step, int64_t lasted) noexcept;
  // It still lasts: its window is as unusual as that by now.
  void lasts(uint64_t step, int64_t lasted) noexcept;
  // Of the window that is open, or was last: it changes where one of the last steps becomes another one.
  WindowReason reason() const noexcept { return latest_.reason; }
  void resident(uint64_t step, uint64_t bytes, int64_t now) noexcept;

  // Once after a step: it was slow, and the window that is open should have those after it, too.
  bool wants_more() noexcept { return std::exchange(wants_more_, false); }
  double slow_times() const noexcept { return slow_times_; }  // of the last slow step: times the median

  // A window has opened, or has closed after so many steps (0: in the midst of one); measure() comes after that.
  void opened(const Kept& window) noexcept;
  void closed(uint64_t steps, int64_t now) noexcept;
  // To open a window, or to close one, has taken so long.
  void switched(int64_t took) noexcept {
    switches_.add(took);
    switching_ += static_cast<double>(took);
  }
  // What windows take by now; after that some may be too much. `latest`: the number of the last one that was opened.
  // Those of long ago do not change any more.
  template <class EventsOf>
  void measure(uint32_t latest, EventsOf events_of) noexcept {
    constexpr uint32_t kLately = 500;
    for (Kept& kept : kept_of())
      if (kept.number + kLately > latest) kept.events = events_of(kept.number);
    for (Booked& window : booked_)
      if (window.spent != nullptr) book(window, events_of(window.number));
    fit();
  }
  // Whether the shared plan may have changed since this was asked last: then there may be windows to be given up.
  bool has_news() noexcept;
  // A window that is not to be kept any more, and is forgotten here; number 0: none. Never `open`.
  Kept take_unwanted(uint32_t open) noexcept;
  // A typical window that the distance has left behind, and that stays since a step in it was slow: each is handed out
  // once, after the unwanted ones. Number 0: none.
  Kept take_left_behind() noexcept;

  std::span<const Kept> kept() const noexcept { return {kept_, count_}; }
  double overhead(int64_t now) const noexcept;  // of the time since the beginning, so far

 private:
  struct SlowStep {
    uint64_t step = 0;
    double least = 0, most = 0;  // times the median; they differ where it is not known what a window added
  };
  struct Spent {  // on windows of a kind
    double events = 0;
    double windows = 0;
    double switching = 0;  // ns
  };
  struct Latest {  // durations, in ns
    static constexpr size_t kMost = 16;
    int64_t ns[kMost] = {};
    size_t added = 0;
    void add(int64_t duration) noexcept { ns[added++ % kMost] = duration; }
  };
  struct Middle {  // of the latest durations
    double median = 0, deviation = 0;
    size_t count = 0;
    double low = 0;  // the lower of two medians
  };
  static Middle middle_of(const Latest& latest) noexcept;
  struct Booked {  // a window whose events are still coming in
    uint32_t number = 0;
    uint32_t events = 0;     // that are in `spent` already
    Spent* spent = nullptr;  // nullptr: they are not weighed
  };
  std::span<Kept> kept_of() noexcept { return {kept_, count_}; }
  void fit() noexcept;
  void slow_down() noexcept;
  void choose_distance() noexcept;
  void raise_distance(uint64_t to) noexcept;
  // `is_due`: one for a slow step that is due, to which a part of the budget belongs.
  bool wish(WindowReason reason, uint64_t first, double score, int64_t now, bool is_due = false) noexcept;
  bool expect(SlowStep slow, int64_t now) noexcept;
  void give_up_in_vain(uint64_t first) noexcept;
  bool is_by_far_the_first(WindowReason reason, double score) const noexcept;
  void drop_missed(uint64_t step) noexcept;
  bool clear_place(WindowReason reason, uint64_t first) noexcept;
  bool is_open_or_kept(WindowReason reason, uint64_t first) const noexcept;
  void make_room() noexcept;
  bool claim(WindowReason share_with, WindowReason reason, uint64_t first, uint64_t points,
             bool is_open = false) noexcept;
  bool keep_place(double times) noexcept;
  bool turn_last(WindowReason reason, uint64_t first, double times) noexcept;
  bool turn_last_slow(uint64_t step, double times) noexcept;
  void book(Booked& window, uint32_t events) noexcept;
  Spent* spent_on(const Kept& window) noexcept;
  double cost_of(const Spent& spent) const noexcept;  // ns
  double cost_of_one(uint64_t steps) const noexcept;  // ns, of a window of so many steps
  double step_ns() const noexcept;                    // what it takes to record a step
  double event_ns() const noexcept;                   // what it takes to record one
  double switch_ns() const noexcept;                  // what it takes to open a window, or to close one
  double opening_ns() const noexcept;                 // what the first step of a window takes more than the next
  double events_a_step() const noexcept;              // 0: not known
  void raise_score(WindowReason reason, uint64_t first, double times) noexcept;
  bool is_in_grid(uint64_t step) const noexcept;
  bool is_wanted(const Kept& kept) const noexcept;
  // Of any share, or of that of `share_with` alone.
  bool has(WindowReason reason, uint64_t first, WindowReason share_with = WindowReason::kNone) const noexcept;
  Opening due_but_last(uint64_t step) const noexcept;
  uint64_t last_steps() const noexcept;  // steps of a window; 0: there are none
  void choose_last_steps(int64_t now) noexcept;
  double overhead_of_windows() const noexcept { return budget_.overhead - cost_of_last_; }
  // What steps take outside of windows; until that is known, what they take where everything is recorded.
  const StepTimes& usual_steps() const noexcept { return closed_.is_known() ? closed_ : open_; }
  double usual_ns() const noexcept { return static_cast<double>(std::max<int64_t>(1, usual_steps().median())); }
  double slowdown() const noexcept;          // added by a window, as a part of a step
  double typical_slowdown() const noexcept;  // the same of typical windows alone, negative if so it was
  double room_for_unusual(int64_t now, bool is_due) const noexcept;

  Budget budget_;
  SharedPlan* shared_ = nullptr;
  StepTimes closed_, open_;
  int64_t begun_ = 0;
  double start_events_a_step_ = 0;
  Spent spent_typical_, spent_unusual_, spent_due_, spent_last_;
  double switching_ = 0;           // ns, not in any of them yet
  Booked booked_[2];               // the window that was opened last, and the one before it
  Latest typical_steps_;           // of typical windows, but for the first of each window
  Latest first_steps_;             // of these
  int64_t closed_typical_at_ = 0;  // since measure() was called last; 0: none was
  bool is_open_ = false;           // a window is
  bool wants_more_ = false;
  double cost_of_last_ = 0;   // of the last steps, as a part of the time
  uint64_t newest_last_ = 0;  // where the newest window of them begins
  Latest switches_;           // on a busy machine they differ by tens
  SlowStep slow_steps_[64];   // the latest ones that followed one that was not slow
  size_t slow_count_ = 0;
  bool was_slow_ = false;
  double slow_times_ = 0;  // of the last slow step: times the median
  int64_t slow_ns_ = 0;    // of all slow ones in a row, since they had a window
  double row_more_ = 0;    // what all of them took more than usual, in usual steps
  static constexpr size_t kExpected = 8;
  uint64_t expected_[kExpected] = {};  // where this process asked for a window because a slow step was due
  size_t expected_count_ = 0;
  uint64_t in_vain_ = 0;  // windows in which a slow step was due, and none came; halved by one in which it did
  struct Asked {
    WindowReason reason = WindowReason::kNone;  // kNone: it was opened, or has been given up
    uint64_t first = 0;
  };
  Asked asked_[16];        // windows that this process has asked for
  Kept latest_;            // the window that was opened last
  bool has_slow_ = false;  // a step in it was slow
  uint32_t steps_in_window_ = 0;
  uint64_t resident_ = 0;
  uint64_t distance_at_opening_ = 0;  // of the window that was opened last
  uint64_t time_distance_ = 1;        // in kTimeUnit
  uint64_t seen_changes_ = 0;
  Kept kept_[kMostKept];
  size_t count_ = 0;
};

}  // namespace torchprof
