// Counts the steps of training and takes their times.
//
// The rule is that of tracer/spool/step_counter.h. Jumps of the number are counted.
//
// The marks `ProfilerStep#N` are the program's own or made by step_tracker.h.
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

struct Steps {
  uint64_t count = 0;
  std::vector<int64_t> ns{};      // duration of the steps whose begin is known
  std::vector<StepSpan> spans{};  // begin and end of those
  std::string ended_by{};         // "ProfilerStep", "Optimizer: AdamW_0"; empty: there are no steps
  uint64_t jumps = 0;             // how often the number went up by more than one
};

class StepTimes {
 public:
  // Marks come in any order. `ended_by` is empty for the rest after the last step of the run or of a window.
  void add(uint64_t number, int64_t begin, int64_t end, std::string_view ended_by);
  // The mark that was added last had not ended when the recording did.
  void cut_last() { marks_.back().is_cut = true; }
  // A call of torch.profiler.profile.step(), or of ours. Where calls are recorded (`has_calls`), a mark that ends in
  // one is a step, and of a program without such calls all marks are: it makes them itself.
  void add_profiler_call(int64_t begin, int64_t end) { profiler_calls_.push_back({begin, end, 0}); }
  bool has_calls = false;
  // For a file without marks, as torch.profiler writes it without a schedule: the ends of optimizers' steps. Python
  // calls are preferred to annotations, which do not tell two optimizers of one class apart.
  void add_end(bool is_annotation, uint32_t requester, int64_t end) {
    ends_[is_annotation].emplace_back(end, requester);
  }
  // How many slices of the process begin in this time.
  using Slices = std::function<uint64_t(int64_t begin, int64_t end)>;
  // `slices`: for a file of another tool. There the last mark is a step like the others where a schedule of
  // torch.profiler ended the recording with a step, and a fragment where the recording ended within one, or after the
  // last step(): it has less than half of the slices that the others have, or none of the optimizer's steps that all of
  // them have. None: the last mark is the rest after the last step, as in all that we record.
  // `text`(is_annotation, requester) gives a requester's name.
  using Text = std::function<std::string(bool, uint32_t)>;
  Steps finish(const Slices& slices, const Text& text);
  // Number of the mark that was open at that time.
  std::optional<uint64_t> number_at(int64_t time) const;

 private:
  struct Mark {
    int64_t begin;
    int64_t end;
    uint64_t number;
    bool is_rest;
    bool is_cut = false;
  };
  Steps from_ends(const Text& text);
  bool has_end(const Mark& mark) const;  // of an optimizer's step
  bool last_is_fragment(const Slices& slices) const;
  bool ends_in_call(const Mark& mark) const;

  std::vector<Mark> marks_;
  std::vector<StepSpan> profiler_calls_;
  std::vector<std::pair<int64_t, uint32_t>> ends_[2];
  std::string ended_by_;
};

// The N of "ProfilerStep#N", as HTA reads it.
std::optional<uint64_t> step_number(std::string_view name);

}  // namespace torchprof::formats
