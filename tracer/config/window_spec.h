// TORCHPROF_WINDOW, --window: which part of a run is captured.
//
//     all                                                       the whole run
//     auto                                                      the beginning, and then what the plan finds worth a
//                                                               window (tracer/plan/window_plan.h)
//     steps=10..14 | steps=10                                   from the start of step 10 to the end of step 14; the
//                                                               first step is 0
//     schedule=wait:5,warmup:1,active:3,repeat:2,skip_first:10  as torch.profiler.schedule; `active` is captured
//     every=1000steps,for=3steps[,repeat=5]                     steps 1000 to 1002, 2000 to 2002, ...
//     after=30s[,for=5s]                                        counted from the start of the process or from the fork;
//                                                               without `for` until the process ends
//     every=10m,for=5s[,repeat=5]                               10 minutes after the start, 20 minutes after it, ...
//     range=NAME[#3]                                            the third time that the annotation or NVTX range NAME
//                                                               is entered; without # each time
//     signal=USR2                                               the signal opens the window, and closes it again
//     manual                                                    `torchprof ctl` opens and closes it, or asks for steps
//
// Pure: no allocation, no exceptions, nothing is read from anywhere.
#pragma once

#include <cstddef>
#include <cstdint>

namespace torchprof {

struct WindowSpec {
  enum class Kind : uint8_t { kAll, kAuto, kSteps, kTime, kRange, kSignal, kManual };

  Kind kind = Kind::kAll;
  // In steps, or in nanoseconds since the process started: windows [first + i * period, first + i * period + length)
  // for i < repeat; 0: without end. A period of 0 is one window, a length of 0 lasts to the end.
  uint64_t first = 0;
  uint64_t length = 0;
  uint64_t period = 0;
  uint64_t repeat = 0;
  char range[192] = "";
  uint64_t nth = 0;  // from 1; 0: every time
  int signal = 0;

  // Whether a step, or a moment, lies in a window.
  bool holds(uint64_t at) const noexcept;
  // The next step or moment after `at` at which holds() changes; UINT64_MAX: it does not any more.
  uint64_t next_change(uint64_t at) const noexcept;
};

// False: `text` is not a window; `why` (of `size` bytes) then says what is allowed.
bool parse_window(const char* text, WindowSpec& spec, char* why, size_t size) noexcept;

}  // namespace torchprof
