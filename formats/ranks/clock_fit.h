// By how much the clock of one machine is ahead of another's, from what their ranks did together.
//
//   bounds    nobody leaves a collective before the last has entered it, and nobody receives before the send: each of
//             them says how far the clock is ahead at least or at most. This holds however long a message takes
//   estimate  all leave nearly together. A line by least squares through the differences of the ends, in which a
//             collective counts the less the further apart its ends are, so that one in which somebody was held up is
//             next to nothing; moved so that it keeps to the bounds. Where the meetings tell little of the drift, it is
//             taken to be small (kDrift)
//   error     the furthest that the bounds let the truth be from the estimate, and what a clock wanders from a line
//             (kWander). Bounds that no line can keep beside the others are left out, from the least likely on
//
// Long runs have several lines (kPiece), joined in the middle of their pieces.
//
// Source of the constants: oscillators of servers are specified for 50 ppm and, kept by NTP, run within a few of these;
// in a room at one temperature they change by less than 0.05 ppm in minutes (experiments with two hosts).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "formats/trace/machine_clock.h"

namespace torchprof::formats {

struct MachinePart {  // of one machine's ranks in a collective; ns, its own clock
  int64_t last_begin;
  int64_t first_end, end, last_end;  // `end`: the one in the middle
};
struct Meeting {  // a collective of ranks of both machines
  MachinePart here, there;
};
struct Message {
  bool is_from_here;
  int64_t sent, received;  // each on the clock of its own machine
};

struct ClockFit {
  std::vector<ClockCorrection::Point> points;  // of the clock there, on that clock
  double drift_ppm = 0;                        // on average
  int64_t error_ns = 0;
};

inline constexpr double kDrift = 20e-6;       // ns a ns
inline constexpr double kMostDrift = 200e-6;  // no clock is further off
inline constexpr double kWander = 0.05e-6;
inline constexpr int64_t kPiece = 120'000'000'000;  // ns

// None: fewer than three meetings or messages, or they leave it open.
std::optional<ClockFit> fit_clock(std::vector<Meeting> meetings, std::vector<Message> messages);

}  // namespace torchprof::formats
