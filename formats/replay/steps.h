// Steps of training: the rule by which they are counted, and their times.
//
// The rule: tracer/spool/step_counter.h. A jump of the count is reported.
//
// The marks `ProfilerStep#N` that are counted are the program's own or made here: formats/replay/step_tracker.h.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/replay/step_samples.h"
#include "tracer/spool/step_counter.h"

namespace torchprof::formats {

inline constexpr std::string_view kProfilerStep = "ProfilerStep#";
inline constexpr std::string_view kOptimizerStep = "Optimizer.step#";

struct Steps {
  uint64_t count = 0;
  std::vector<int64_t> ns{};      // of those whose begin is known
  std::vector<StepSpan> spans{};  // when those were
  std::string ended_by{};         // "ProfilerStep", "Optimizer: AdamW_0"; empty if there are none
  uint64_t jumps = 0;             // times that the number went up by more than one
};

class StepTimes {
 public:
  // Marks, in any order. `ended_by` is empty for what came after a last step: of the run, or of a window.
  void add(uint64_t number, int64_t begin, int64_t end, std::string_view ended_by);
  // Where there are no marks, as in a file of torch.profiler's without a schedule: ends of optimizers' steps. Those
  // that Python shows go before those of annotations, which do not tell two optimizers of one class apart.
  void add_end(bool is_annotation, uint32_t requester, int64_t end) {
    ends_[is_annotation].emplace_back(end, requester);
  }
  // `last_is_rest`: the last mark is what came after the last step, as in all that is recorded here. In a file of
  // torch.profiler's own it is a step like the others: its schedule ends the recording with a step.
  // `text` gives the name of a requester, `is_annotation` first.
  using Text = std::function<std::string(bool, uint32_t)>;
  Steps finish(bool last_is_rest, const Text& text);
  // Of the mark that was open then.
  std::optional<uint64_t> number_at(int64_t time) const;

 private:
  struct Mark {
    int64_t begin;
    int64_t end;
    uint64_t number;
    bool is_rest;
  };
  Steps from_ends(const Text& text);

  std::vector<Mark> marks_;
  std::vector<std::pair<int64_t, uint32_t>> ends_[2];
  std::string ended_by_;
};

// N of "ProfilerStep#N", as HTA reads it.
std::optional<uint64_t> step_number(std::string_view name);

}  // namespace torchprof::formats
