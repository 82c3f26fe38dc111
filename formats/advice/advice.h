// Advice for a whole run: what each process found (rules.h), put together over ranks, with what one process cannot
// know: for which rank the others wait and why, what communication takes that is no waiting, and what the workers of a
// DataLoader do.
//
// Of ranks that do the same the cost of a finding is the mean over all of them. Processes without steps are looked at
// only where no process has any; then the one with most operators and GPU work counts. Of several jobs in a run, as of
// a script that trains twice, the one whose steps take longest is looked at.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "formats/advice/loader_work.h"
#include "formats/advice/rules.h"
#include "formats/advice/sharing_places.h"
#include "formats/analysis/step_parts.h"
#include "formats/ranks/waits.h"
#include "formats/timeline/step_input.h"
#include "formats/timeline/timeline.h"

namespace torchprof::formats {

struct ProcessAdvice {
  bool has_steps = false;
  std::string unit{};  // what a step is; empty: one of training
  uint64_t steps = 0;
  int64_t step_ns = 0;  // median
  int64_t mean_step_ns = 0;
  StepInput input{};
  int64_t imports_ns = 0;        // of a process without steps of training: before them
  std::string imports_most{};    // "import torch": that which takes most of it
  int64_t worked_ns = 0;         // own time of operators and calls of CUDA, and of GPU work, in all steps
  int64_t communication_ns = 0;  // of a step: collectives while nothing was computed (step_parts.h)
  int64_t nccl_ns = 0;           // of a step: kernels of NCCL
  int64_t gpu_ns = 0;            // of a step: a GPU worked
  std::string collective_place{};
  std::optional<int64_t> looked_ran_ns{};  // by looks at its threads (--sample) they were on a processor
  Findings findings{};
  // Own time of a step on the main thread, by function of the program and what ran there ("" for the function itself):
  // the largest.
  std::map<std::pair<std::string, std::string>, int64_t> costs{};
  std::vector<StepSpan> spans{};  // the steps
  ThreadUse use{};                // of the thread that runs the program
  SharingPlaces sharing{};
  uint32_t threads = 0;     // that an operator of torch may use; 0: not known
  uint32_t processors = 0;  // that the process may use; 0: not known
  // What its main thread did, without waits, as a share of the time in which it was recorded.
  double busy = 0;
  bool has_torch = false;      // it has loaded torch, whether operators were recorded or not
  bool is_first_step = false;  // it has made but one step, which also prepares the others: nothing is found in it
  LoaderWork loader{};
};

struct ProcessFacts {
  std::optional<uint32_t> threads{};     // that an operator of torch may use
  std::optional<uint32_t> processors{};  // that the process may use
  bool is_loader = false;                // a worker of a DataLoader
  bool has_torch = false;                // torch is loaded
  uint32_t torch_major = 0;              // its version: 2 of 2.15; 0: not known
  bool is_run = false;                   // a recorded one: step 0 is the first that it made
  bool knows_growth = false;             // what of tensors stays in the steps that were recorded (memory/growth.h)
};

ProcessAdvice advice_of(const Timeline& timeline, const std::vector<MemoryGrowth>& growth, const ProcessFacts& facts);

struct AdvisedProcess {
  std::string who;  // "rank 3", "process 4711"
  bool is_loader;   // a worker of a DataLoader
  uint32_t job;     // equal for those that belong together (trace/roles.h)
  const ProcessAdvice* advice;
  const CommsCalls* comms;
  PartTimes parts{};  // of a typical step
};

struct Advice {
  int64_t step_ns = 0;  // median; 0: nothing to look at
  int64_t mean_step_ns = 0;
  int64_t imports_ns = 0;      // of a process without steps of training: before them
  std::string imports_most{};  // "import torch": that which takes most of it
  bool has_steps = false;
  std::string unit{};     // what a step is; empty: one of training
  StepInput input{};      // of a step; of several ranks the mean of one
  size_t ranks = 1;       // of which it is the mean
  Findings findings{};    // the largest cost first
  std::string machine{};  // which of several jobs it is, what it lacks, and whether the machine was busy; empty: no
  PartTimes parts{};      // what a typical step is spent on; nothing: not known
  std::string most{};     // "most of the time is in aten::mm, 63.1 %"; empty: not known
};

Advice advice_of(const std::vector<AdvisedProcess>& processes);

}  // namespace torchprof::formats
