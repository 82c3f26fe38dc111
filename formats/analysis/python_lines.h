// Time by line of Python, from a recording without line tracing: the time of those calls whose line is known.
//
//   call     of a line: an operator, a Python function or a C call (run --python calls), by the line of the program
//            from which it came (Slice::line). Annotations are none
//   self     time in calls of the line, without functions of the program and without calls of other lines inside. So no
//            moment of a thread is in the self time of two lines
//   total    time in which a call of the line ran, or a call of a function that the line had called. A moment counts
//            once, even in a recursion
//   calls    those that are not inside another call of the same function: what the program calls counts, what that
//            calls does not, unless it is a function of the program
//   CUDA     time of the work launched by calls of the line; the innermost line gets it
//
// Where native stacks were taken (run --native on) lines of libraries count as well: an operator is a call of the
// innermost Python function in its stack, and no Python function is a call of a line. So it is in recordings without
// lines.
//
// What the interpreter itself does between calls belongs to no line; `python` has it by function. Operators without a
// known line (on backward threads, in C++) belong to none.
//
// Memory: bounded by lines and by the depth of threads, never by the number of events.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "formats/replay/replay.h"
#include "formats/replay/thread_stack.h"

namespace torchprof::formats {

// Finds the lines from which recorded calls came.
class PythonLines {
 public:
  PythonLines(const Process& process, Names& names) : process_(process), names_(names) {}

  // Whether the process has recorded any lines.
  static bool are_in(const Process& process);

  // The lines that the Python functions of a native stack are at, innermost first, each once. Valid until the next
  // call.
  std::span<const NameId> of(NativeFrameId innermost);
  // The line of a C call; none: not known.
  NameId of(CallSiteId site);
  // The line that made this call: from its own stack, or else from the nearest call of the same Python function around
  // it.
  NameId line_of(NativeFrameId native, std::span<const Span> around);

 private:
  const Process& process_;
  Names& names_;
  std::unordered_map<uint32_t, std::vector<NameId>> by_frame_;
};

struct LineTally {
  int64_t self_ns = 0;
  int64_t total_ns = 0;
  int64_t gpu_ns = 0;
  uint64_t calls = 0;
  LineTally& operator+=(const LineTally& other);
};

struct LineTallies {
  std::unordered_map<std::string, LineTally> lines;  // "train.py(12): step"
  int64_t unknown_ns = 0;                            // self time of operators without a known line
  LineTallies& operator+=(const LineTallies& other);
};

class LineCollector {
 public:
  LineCollector(const Process& process, Replay& replay)
      : replay_(replay), lines_(process, replay.names()), has_lines_(!process.native && !process.lines.empty()) {}

  void slice(const Slice& slice);
  void gpu(const GpuActivity& activity);
  LineTallies finish() const;

 private:
  std::span<const NameId> lines_of(const Slice& slice);
  bool is_inside_of_call(std::span<const Span> around) const;
  void mark_around(const Slice& slice);
  int64_t take_inside(const Slice& slice);
  LineTally& tally(NameId line);

  Replay& replay_;
  PythonLines lines_;
  const bool has_lines_;
  std::vector<LineTally> tallies_;  // by name
  std::vector<uint64_t> marked_;    // by name: the last round in which it was a line around the slice
  uint64_t round_ = 0;
  // By row and depth: time of what has ended there, which is not self time of the slice around it.
  std::vector<std::vector<int64_t>> inside_;
  NameId line_;  // of the current call
  int64_t unknown_ns_ = 0;
};

}  // namespace torchprof::formats
