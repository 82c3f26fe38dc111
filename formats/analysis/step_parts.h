// What the time of each step was spent on: one account of it for advice, the tables of steps, the page and `diff`. The
// parts add up to the step. Where several went on at the same time, the first of these counts; of a process with GPU
// work:
//
//   compute        a GPU ran kernels other than NCCL's
//   communication  a collective was under way: a kernel of NCCL, or a range of gloo, MPI or UCC; without kernels of
//                  NCCL also a call of torch.distributed
//   copies         a GPU copied or set memory
//   and while no GPU did anything, what the main thread was in:
//   loading        a DataLoader's __next__ and the start of its workers, with all that they call
//   compiling      torch.compile
//   collecting     Python's garbage collector
//   optimizer      an optimizer's step() or zero_grad(), without modules' calls and backward: a closure that computes
//                  the loss is called in step()
//   waiting        a function that only waits (formats/trace/waiting.h)
//   operators      an operator, on any thread: mostly it starts work for a GPU
//   host           anything else that the program did
//   idle           nothing that is recorded ran
//
// Without GPU work compute is the time in which an operator ran, on any thread, or autograd's engine; what the main
// thread does for loading, compiling, collecting or the optimizer comes before it, and so before communication.
//
// The main thread is the one that runs operators and has something open for nearly all of the steps' time.
//
// An outlier is a step that took a fifth longer than the median of its process, and longer by four deviations (1.48
// times the median absolute deviation).
//
// Times in ns. Memory: 16 bytes for each interval that does not touch the one before it, since they come in no order.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/analysis/activity.h"
#include "formats/io/intervals.h"
#include "formats/replay/replay.h"
#include "formats/replay/steps.h"

namespace torchprof::formats {

enum class StepPart : uint8_t {
  kCompute,
  kCommunication,
  kCopies,
  kLoading,
  kOptimizer,
  kCompiling,
  kCollecting,
  kWaiting,
  kOperators,
  kHost,
  kIdle,
};
inline constexpr size_t kStepParts = 11;

struct StepPartText {
  std::string_view key;    // of columns and JSON
  std::string_view title;  // for people
};
inline constexpr std::array<StepPartText, kStepParts> kStepPartTexts = {{
    {"compute_ns", "compute"},
    {"communication_ns", "communication"},
    {"copies_ns", "copies"},
    {"loading_ns", "loading"},
    {"optimizer_ns", "optimizer"},
    {"compiling_ns", "compiling"},
    {"collecting_ns", "garbage collection"},
    {"waiting_ns", "waiting"},
    {"operators_ns", "operators on the CPU"},
    {"host_ns", "Python"},
    {"idle_ns", "not recorded"},
}};

// ns of each part.
class PartTimes {
 public:
  int64_t& operator[](StepPart part) { return ns_[static_cast<size_t>(part)]; }
  int64_t operator[](StepPart part) const { return ns_[static_cast<size_t>(part)]; }
  const std::array<int64_t, kStepParts>& all() const { return ns_; }
  int64_t sum() const;
  PartTimes& operator+=(const PartTimes& other);
  PartTimes operator/(int64_t n) const;

 private:
  std::array<int64_t, kStepParts> ns_{};
};

struct StepParts {
  StepSpan step;
  PartTimes ns{};
  bool is_outlier = false;
};

// The account of a typical step: means over the half of the steps in the middle by length, as shares of the median. The
// first of several steps has the program's beginning in it and does not count.
PartTimes typical_parts(std::span<const StepParts> steps);
// "optimizer 62.4 %, compute 25.1 %, Python 10.5 %, 2.0 % other": the largest first, each of 1 % or more. Empty: there
// is no time.
std::string parts_text(const PartTimes& parts);

class StepPartsCollector {
 public:
  enum class Kind : uint8_t { kPython, kOperator, kAnnotation, kCollector, kOther };
  struct Piece {
    Kind kind;
    uint32_t thread;  // these are small dense numbers of the caller's choice
    uint32_t name;
    int64_t begin;
    int64_t end;
    bool is_outermost;    // nothing is around it on its thread
    bool is_in_operator;  // an operator is around it
  };
  void add(const Piece& piece, std::string_view name);
  void slice(const Slice& slice, std::string_view name);
  // Of a GPU.
  void work(int64_t begin, int64_t end, bool is_kernel, std::string_view name);
  std::vector<StepParts> finish(const std::vector<StepSpan>& steps);

 private:
  struct Thread {
    Intervals open, loading, compiling, collecting, optimizer, waiting;
    Intervals passes;  // modules' calls, and backward
    uint64_t operations = 0;
  };
  Activity activity_of(const Piece& piece, std::string_view name);
  Thread main_thread(const std::vector<StepSpan>& steps);

  std::vector<Activity> by_name_;  // and kind
  std::vector<Thread> threads_;
  Intervals operators_, kernels_, copies_, communication_, collective_calls_;
  bool has_nccl_ = false;
};

}  // namespace torchprof::formats
