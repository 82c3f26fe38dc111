// The rules: each looks at the steps of one process and adds a finding if there is enough evidence. Costs are of a step
// of that process.
//
//   loading        steps wait in a DataLoader's __next__, or while it starts its workers. Without: a step less that
//                  time
//   compiling      torch.compile compiles, not only in the first step. Without: less that time
//   collecting     Python's garbage collector runs. Without: less that time
//   waiting        the program's thread waits for another thread or process, or sleeps: in a function that only does
//                  so, in one that is known for it (causes.h), where looks at the thread find it so (wait_text.h), or
//                  where its own times say so. Without: less that time
//   python         a function of the program takes time, in its own Python and in libraries, with all that it calls
//                  (program_tree.h). Without: less that time. In a process with GPU work it is "host bound", and counts
//                  only while no GPU works
//   GIL            the program's thread waits for Python's lock, by looks at it. Without: less that time
//   idle           between the requests, or other units, of a program nothing of it runs, and it waits for more. It
//                  costs no time
//   tiny operators operators on the CPU that take a few microseconds each, called in a loop. Without: less what they
//                  and the Python between them take
//   some steps     a call that few steps have, as an evaluation; from 5 % of all time. Without: less that time
//   processor      the program's thread is ready to run and has no processor, as threads or processes of the program
//                  have them. Without: less that time. Where others have them it is no finding, but said. Its place:
//                  the line that starts the processes or sets the number of threads (sharing_places.h)
//   threads        matrix products and convolutions run on the CPU with fewer threads than there are cores (half of the
//                  processors). Without: their time divided by what there is more
//   zero_grad      gradients are set to zero and not to None. Without: less that time
//   first touch    blocks of 32 MiB and more are allocated anew in each step, and the kernel clears each page of them.
//                  Without: less 1 us for each page of 4 KiB (0.6 to 1.4 us on machines where this was measured)
//   optimizer      an optimizer, or another loop over parameters, calls operators for one tensor after the other.
//                  Without: what they work on at the speed of memory, and some microseconds for each tensor
//   new optimizer  an optimizer is made anew in each step. Without: less what it takes to make it and its state
//   checking       values are checked to be finite, and read; gradients are checked. Without: less all that
//   reading values elements are read one by one with item(). Without: less that loop
//   printing       tensors become text. Without: less that. Likewise: copying (deepcopy), jacobian, one vector
//   anomaly        autograd looks for NaN after each node. Without: less these checks
//   profiler       torch.profiler records. Without: less half of what Python and short operators take (an estimate)
//   no cache       generation computes all positions again for each new one. Without: the part of one position
//   second pass    a model runs forward or backward once more than a step needs. Without: less that; from 1/8 of a step
//   evaluation     a model runs in each step after its eval(), and no backward goes through it. Without: less that;
//                  from 1/8 of a step
//   cell by cell   an LSTMCell is called for one position after the other. Without: what nn.LSTM takes, as measured
//   part by part   parts of a tensor are taken in a loop, and the backward of each makes a whole one. Without: what
//                  one backward for all of them writes
//   attention      products and softmax over all scores. Without: their arithmetic at 20 GFLOP/s
//   unused gradient a backward goes on behind the last gradient that an optimizer, or anything else, takes. Without:
//                  less what it does there
//   dense gradient what works on all rows of an embedding of which a batch uses few. Without: as much less
//   unused positions a linear layer over all positions of which one is used. Without: as much less
//   sparse as dense products with a matrix that was made dense for them. Without: a tenth of it
//   one-hot product rows of a table are looked up by a product with one_hot(). Without: what an embedding reads and
//                  writes
//   float64        operators work in float64. Without: half their time
//   operator       what is no part of a network's arithmetic: copies, decompositions, sorts. Without: less their time
//
//   batch of one   a model is called many times in a step, each time for one row. Whether a call needs the result of
//                  the call before is not known, so it costs no time
//
//   leak           memory stays, of each step some more: of tensors, or of the process alone, with the line that
//                  probably keeps it (sharing_places.h). It costs no time, and leads where the process grows fast
//
//   sync           calls that wait for the GPU. Without: what the host still does, or what the GPU does, whichever is
//                  longer
//   allocating     calls of CUDA that give and take memory, while no GPU works
//   calls          other calls of CUDA that take long, while no GPU works
//   host bound     a function of the program runs, and no GPU works
//   launch bound   operators and calls run, and no GPU works: the GPU is quicker than it can be told what to do.
//                  Without: less that time, as a CUDA graph has it
//   pageable       copies between a GPU and memory that is not pinned, while no kernel runs
//   copies         other copies, while no kernel runs
//   tiny kernels   a hundred kernels a step and half of all take less than 10 us. Without: half their time
//   autocast       matrix products and convolutions in float32 on ordinary cores. Without: a third of their time
//   layout         kernels of cuDNN that transpose between NCHW and NHWC. Without: less their time
//   fusing         kernels that work on each element alone run one after another. Without: one for each such row
//   communication  collectives while no kernel runs (what is waited for a slow rank is not counted). Without: less that
//                  time, as where it overlaps with computing
//   slow rank      in most collectives the others wait for the same process. Without: less what they wait
//
// A finding has to cost 3 % of a step, some of them 5 or 10 %; so it has in the mean over all ranks. What few steps
// have costs its mean over all steps, all else the median (spread.h). What comes and goes by itself is not told.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/advice/claims.h"
#include "formats/advice/finding.h"
#include "formats/advice/step_view.h"
#include "formats/advice/thread_use.h"
#include "formats/memory/growth.h"

namespace torchprof::formats {

struct Subject {  // a process
  const StepView& view;
  std::optional<uint32_t> threads{};     // that an operator of torch may use
  std::optional<uint32_t> processors{};  // that the process may use
  const std::vector<MemoryGrowth>& growth;
  bool knows_growth = false;  // where none grows, none does
  ThreadUse use{};            // of the thread that runs the program
  uint32_t torch_major = 0;   // 0: not known
  Claimed claimed{};          // what other findings tell already
};

using Findings = std::vector<Finding>;

// Where most of some work is done: the function of the program that has nearly all of it, as deep as that goes.
struct Busiest {
  int64_t all_ns = 0;      // of the work, in all steps
  int64_t ns = 0;          // of the function, with all that it calls
  std::string function{};  // "blur"; empty: not known
  std::string where{};     // its line that costs most
  std::string callee{};    // what it calls that has at least half of it: "percentile of numpy"; empty: nothing has

  // "blur, most of it in percentile of numpy"
  std::string text() const { return callee.empty() ? function : function + ", most of it in " + callee; }
};
// `wanted`: by span of the row, whether it belongs to the work.
Busiest busiest_of(const StepView& view, uint32_t row, const std::vector<bool>& wanted);

// Returns what its findings tell.
Claimed find_in_operators(const Subject& subject, Findings& findings);
void find_on_the_host(const Subject& subject, Findings& findings);
void find_on_gpus(const Subject& subject, Findings& findings);
void find_in_python(const Subject& subject, Findings& findings);
void find_by_looks(const Subject& subject, Findings& findings);
void find_growth(const Subject& subject, Findings& findings);  // the last: it asks what the others found

inline constexpr double kLeastPercent = 3;  // of a step: what costs less is no finding
// Whether a cost is worth a finding. `step_ns`: the mean step for a mean over the steps, the typical one for what a
// typical step has (GroupCost::typical()). On a busy machine the mean step may be ten times as long.
inline bool is_worth(int64_t ns, int64_t step_ns, double percent = kLeastPercent) {
  return ns > 0 && static_cast<double>(ns) * 100 >= static_cast<double>(step_ns) * percent;
}
void add_sentence(std::string& text, std::string_view sentence);  // with a blank between, if the text has any
// In three digits: "12.1 ms"
std::string ns_text(int64_t ns);
// Of a step: "748 calls", "2.5 calls", "1 call", "1 call in 40 steps"
std::string number_text(double n, const char* what);
// "A step", "The run"
const char* step_text(const StepView& view);

}  // namespace torchprof::formats
