// What a step's time was spent on, and how long it would have taken without some of it.
//
// A step is taken as a graph: points of time on threads and streams, and what had to be done from one to the next.
//
//   a thread   does one thing after the other; pauses between them count
//   a kernel   (copy, set) begins when the call that launches it was made, the work before it on its stream has ended,
//              and the work that its stream waits for by an event; whichever was last
//   a call     that waits for the device ends after the work for which it waits: by cuda_sync where that was recorded,
//              else by its name; one that launches work waits while the queue of its stream is full
//   main       the thread of the step; where another thread (autograd's) runs only inside of what it does, as a call of
//              backward(), it waits for that one
//   ranks      a kernel of NCCL ends when all ranks have come to it
//
// The critical path goes back from the end of the step to its begin, at each point along what was ready last. So each
// instant of the step is in exactly one segment.
//
// without(): the time of the step if some of this took no time. The whole graph is played again, so that what had been
// hidden behind it comes out. Without any of them it is the step's own time. The step then ends when its thread and its
// GPU work are done; work that ran on after the step's end may do so as long as before.
//
// Memory: about 100 bytes for each begin and end in the step; the time is O(n log n).
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "formats/timeline/timeline_index.h"

namespace torchprof::formats {

enum class PathClass : uint8_t {
  kHost,         // Python and operators
  kCall,         // calls of CUDA
  kLaunchDelay,  // from a call to its kernel, and from a kernel to the next one
  kKernel,
  kCopy,           // and sets
  kCommunication,  // kernels of NCCL, ranges of gloo and others
  kLoader,         // the program waits in a DataLoader's __next__
  kIdle,           // nothing that is recorded
  kWait,           // that a call waits for the device: takes no time itself, but may be taken out
};
inline constexpr size_t kPathClasses = 8;  // those that take time
std::string_view text_of(PathClass kind);  // "launch delay"

struct PathPart {
  PathClass kind = PathClass::kIdle;
  uint32_t process = 0;     // index into the graph's processes
  uint32_t row = kNoSpan;   // of a thread
  uint32_t span = kNoSpan;  // the innermost one
  uint32_t work = kNoSpan;  // of a device; of a wait: for which it waits

  friend bool operator==(const PathPart&, const PathPart&) = default;
};

struct PathSegment {
  int64_t begin;
  int64_t end;
  PathPart part;
};

class StepGraph {
 public:
  // `processes`: the step's own, and if wanted those of other ranks on the same clock that take part in the same
  // collectives. Their timelines have to outlive it.
  StepGraph(std::vector<const TimelineIndex*> processes, const StepSpan& step);
  StepGraph(const TimelineIndex& process, const StepSpan& step) : StepGraph(std::vector{&process}, step) {}

  const StepSpan& step() const { return step_; }
  std::vector<PathSegment> path() const;  // sorted; they add up to the step
  // ns of the step if all parts that `takes` took no time; of a kWait, if nothing waited there.
  using Takes = std::function<bool(const PathPart&)>;
  int64_t without(const Takes& takes) const;
  int64_t without(PathClass kind) const {
    return without([kind](const PathPart& part) { return part.kind == kind; });
  }

  const Timeline& timeline(const PathPart& part) const { return processes_[part.process]->timeline(); }
  std::string_view name_of(const PathPart& part) const;   // of the span, else of the work; empty: none
  std::string_view place_of(const PathPart& part) const;  // Timeline::place_of() the span or the launching call

 private:
  friend class StepGraphBuilder;
  struct Edge {
    uint32_t from;
    uint32_t to;
    int64_t lag;  // ns from the one to the other, at least
    PathPart part;
    bool may_be_late = false;  // of a wait, on both sides: what comes after it takes the same time as before
    int64_t usual = 0;         // ns that what waits takes by itself, if known
  };

  void settle();

  std::vector<const TimelineIndex*> processes_;
  StepSpan step_;
  std::vector<int64_t> times_;   // of points; the first is the step's begin, the last its end
  std::vector<Edge> edges_;      // sorted by `to`
  std::vector<uint32_t> first_;  // of a point's edges in edges_; one more than points
  std::vector<uint32_t> order_;  // points, each after those that it depends on
  std::vector<uint32_t> binds_;  // by point: the edge that was ready last; kNoSpan: the step's begin
};

// Sums over the paths of a process's steps.
struct PathSums {
  struct Key {
    PathClass kind;
    size_t process;  // whose it is, as an index into all
    std::string name;
    std::string place;
    auto operator<=>(const Key&) const = default;
  };
  struct Tally {
    int64_t ns = 0;
    uint64_t count = 0;  // of segments
  };
  uint64_t steps = 0;
  int64_t ns = 0;  // of steps
  std::array<int64_t, kPathClasses> by_class{};
  std::array<int64_t, kPathClasses> without{};  // ns of the steps without each class
  std::map<Key, Tally> names;
  // `processes`: the graph's, as indices into all.
  void add(const StepGraph& graph, const std::vector<size_t>& processes);
};

// Processes that run collectives on their devices are taken as ranks of each other, if they are not more than these:
// each step of a rank is played with all of them.
inline constexpr size_t kMostRanks = 8;

// Of each process, over its steps; if none of them has steps, over the whole capture.
std::vector<PathSums> path_sums_of(const std::vector<const TimelineIndex*>& processes);

}  // namespace torchprof::formats
