// -w auto: the last steps before the program ends, in whatever way it does. Windows lie one after another, and the last
// two of them are kept: nearly every step is recorded, and thrown away again when two later windows have begun.
//
// That is worth it only where it costs next to nothing, which is where steps have few events for their time: a program
// that a GPU limits, large matrices, a slow loader. What is known of the cost: an event takes kEventNs at the most
// (docs/cost.md), and to close one window and open the next takes what was measured. Windows last so long that this is
// a small part of the budget, and that a process does not run out of their numbers (60,000) in months.
//
// Pure; any thread. Times in ns.
#pragma once

#include <cstdint>

namespace torchprof::last_steps {

struct Known {
  double overhead = 0;       // the budget, as a part of the time: 0.02
  uint64_t events = 0;       // the budget of events
  int64_t step = 0;          // median of a step
  double events_a_step = 0;  // of one that is recorded
  double slowdown = 0;       // by which the medians of steps in windows and without one differ: 0.01 is 1 %
  int64_t opening = 0;       // what it takes to open or to close a window
  int64_t elapsed = 0;       // since the beginning was over
};

inline constexpr double kEventNs = 300;

// What recording every step costs, as a part of the time, but for opening and closing windows.
double cost(const Known& known) noexcept;
// Steps of a window, a power of two; 0: it would cost too much.
uint64_t length(const Known& known) noexcept;

}  // namespace torchprof::last_steps
