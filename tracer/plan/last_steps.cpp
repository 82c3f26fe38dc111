#include "tracer/plan/last_steps.h"

#include <algorithm>
#include <bit>

namespace torchprof::last_steps {
namespace {

constexpr double kShare = 0.4;           // of the overhead's budget, for the events
constexpr double kOpeningShare = 0.125;  // and for opening and closing windows
constexpr double kEventsShare = 8;       // a window has at most this part of the budget of events
constexpr int64_t kShortest = 2'000'000'000;
constexpr double kPartOfRun = 4000;   // a window lasts at least this part of the time so far
constexpr uint64_t kFewestSteps = 4;  // steps

}  // namespace

double cost(const Known& known) noexcept {
  return known.step > 0 ? known.events_a_step * kEventNs / static_cast<double>(known.step) : 1;
}

uint64_t length(const Known& known) noexcept {
  // Medians of two kinds of steps differ by some per cent without a reason: this only refuses what the number of events
  // does not tell, as the calls of a GPU.
  if (known.step <= 0 || cost(known) > kShare * known.overhead || known.slowdown > 2 * known.overhead) return 0;
  const double switching = 2 * static_cast<double>(known.opening) / (kOpeningShare * known.overhead);
  const double lasts =
      std::max({static_cast<double>(kShortest), switching, static_cast<double>(known.elapsed) / kPartOfRun});
  const double steps = std::max(static_cast<double>(kFewestSteps), lasts / static_cast<double>(known.step));
  const uint64_t length = std::bit_ceil(static_cast<uint64_t>(steps));
  return static_cast<double>(length) * known.events_a_step <= static_cast<double>(known.events) / kEventsShare ? length
                                                                                                               : 0;
}

}  // namespace torchprof::last_steps
