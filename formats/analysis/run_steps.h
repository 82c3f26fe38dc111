// All steps of a long run (-w auto), of which windows have only some: how long they took, which ones were unusual and
// what was different in them, and how the process's memory went.
//
//   step      from the end of the step before to its own end, whether a window was open or not
//   captured  a window that was kept was open for all of it
//   slow      half as long again as the median, and beyond what the steps differ by anyway (six median deviations). A
//             step with a window is taken as shorter by what windows add: the ratio of the medians with and without.
//             Not so the last steps of a run, which count as steps without one (StepTime::is_free)
//   unusual   slow steps in a row; or single ones that did the same, or of which nothing is known and that took about
//             as long; these may come at a regular distance. At most six, those that cost most; three that say nothing
//   what      the Python function in which they spent what they took longer (step_differences.h)
//
// Times in ns. Replays the process once, if there are unusual steps that were captured.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "formats/trace/trace.h"

namespace torchprof::formats {

struct UnusualSteps {
  uint64_t first = 0;  // number of the first and the last one
  uint64_t last = 0;
  uint64_t count = 0;
  uint64_t every = 0;     // they came at this distance; 0: in a row, or at none
  bool is_row = false;    // all from first to last
  double times = 1;       // the median of them, in medians of all steps
  int64_t more_ns = 0;    // what they took longer than the median, all together
  uint64_t captured = 0;  // so many of them were captured, wholly or in part
  std::string what{};     // empty: not known
  int64_t what_ns = 0;    // of what they took longer, on average, in that function
  bool is_even = false;   // all of it took longer, nothing stands out
  std::string shapes{};   // operators with other shapes than in typical steps; empty: not so
};

struct MemoryTrend {  // of what the process has in memory
  uint64_t first_bytes = 0;
  uint64_t last_bytes = 0;
  double step_bytes = 0;   // by which it grows in a step, if it grows steadily
  bool is_steady = false;  // a line fits the samples after the first quarter
};

struct RunSteps {
  uint64_t count = 0;
  uint64_t captured = 0;
  std::string captured_text{};   // "0-41, 80-82, 160-162, ..."
  std::optional<double> cost{};  // what windows added to the run after its beginning, as a part of it
  int64_t median_ns = 0, most_ns = 0;
  uint64_t slowest = 0;               // number of the step that took most_ns
  std::vector<int64_t> line{};        // the longest step of each of up to 60 equal parts of the run
  std::vector<bool> line_captured{};  // whether the part has a captured step
  std::vector<UnusualSteps> unusual{};
  MemoryTrend memory{};
};

// None: the times of steps were not taken (another -w), or the whole run was captured.
std::optional<RunSteps> run_steps_of(const Process& process);

}  // namespace torchprof::formats
