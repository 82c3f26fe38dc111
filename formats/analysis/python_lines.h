// Time by line of Python, of a recording that has no line tracing: of the calls whose line is known.
//
//   call     of a line: an operator whose native stack was taken (run --native on), by the innermost function of Python
//            in it; a C call (run --python calls), by the place that makes it. Annotations are none
//   self     time in calls of the line, less that in functions of Python which those called and in calls of other lines
//            within: no moment of a thread is in the self time of two lines
//   total    time in which a call of the line ran, or one of a function that the line had called, as far as native
//            stacks say so; a moment counts once, also in a recursion
//   calls    those that no other call of the same function is around: an operator counts, those inside of it do not
//   CUDA     time of the work that calls of the line launched, of the innermost line
//
// What the interpreter itself does between calls belongs to no line: `python` has it by function. Operators without a
// known line (the backward's threads, C++) are no line's.
//
// Memory: bounded by lines and by the depth of threads, never by events.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "formats/replay/replay.h"
#include "formats/replay/thread_stack.h"

namespace torchprof::formats {

// The lines that recorded calls came from.
class PythonLines {
 public:
  PythonLines(const Process& process, Names& names) : process_(process), names_(names) {}

  // Whether the process has any.
  static bool are_in(const Process& process);

  // Lines that run in the functions of Python of a native stack, innermost first, each once. Until the next call.
  std::span<const NameId> of(NativeFrameId innermost);
  // None: not known.
  NameId of(CallSiteId site);
  // The line whose call this is: its own, otherwise that of the nearest call of the same function of Python around it.
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
  int64_t unknown_ns = 0;                            // in operators of no known line
  LineTallies& operator+=(const LineTallies& other);
};

class LineCollector {
 public:
  LineCollector(const Process& process, Replay& replay) : replay_(replay), lines_(process, replay.names()) {}

  void slice(const Slice& slice);
  void gpu(const GpuActivity& activity);
  LineTallies finish() const;

 private:
  std::span<const NameId> lines_of(const Slice& slice);
  void mark_around(const Slice& slice);
  int64_t take_inside(const Slice& slice);
  LineTally& tally(NameId line);

  Replay& replay_;
  PythonLines lines_;
  std::vector<LineTally> tallies_;  // by name
  std::vector<uint64_t> marked_;    // by name: in which round it was a line of what is around
  uint64_t round_ = 0;
  // By row and depth: of what has ended there, the time that is not of what is around.
  std::vector<std::vector<int64_t>> inside_;
  std::vector<NameId> site_;  // of the C call that is looked at
  int64_t unknown_ns_ = 0;
};

}  // namespace torchprof::formats
