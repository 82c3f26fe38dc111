// What the time of each step was spent on. The parts add up to the step. Where several went on at the same time, the
// first of these counts:
//
//   compute        a GPU ran kernels (other than NCCL's), copies or sets; in a process without GPU work: an operator
//                  ran, on any thread
//   communication  a collective was under way: a kernel of NCCL, or a range of gloo, MPI or UCC; without kernels of
//                  NCCL also an operator of c10d
//   loading        the program waited in a DataLoader's __next__
//   host gap       anything else of the program ran, on any thread: the GPU had nothing to do; in a process without GPU
//                  work: no operator ran
//   idle           nothing that is recorded ran
//
// An outlier is a step that took a fifth longer than the median of its process, and longer by four deviations (1.48
// times the median absolute deviation).
//
// Memory: 16 bytes for each interval that does not touch the one before it, since they come in no order.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "formats/io/intervals.h"
#include "formats/replay/replay.h"
#include "formats/replay/steps.h"

namespace torchprof::formats {

// torch/utils/data/dataloader.py, 1.13 to 2.14.
inline constexpr std::string_view kLoaderPrefix = "enumerate(DataLoader)#";

struct StepParts {
  StepSpan step;
  int64_t compute_ns = 0;
  int64_t communication_ns = 0;
  int64_t loading_ns = 0;
  int64_t host_ns = 0;
  int64_t idle_ns = 0;
  bool is_outlier = false;
};

class StepPartsCollector {
 public:
  void slice(const Slice& slice, std::string_view name);
  void gpu(const GpuActivity& activity, std::string_view name) { work(activity.begin.value, activity.end.value, name); }
  // The same for what is no replay's. `name_id`: a small dense number of the caller's choice, for each name.
  void outermost(int64_t begin, int64_t end) { host_.add(begin, end); }
  void operation(int64_t begin, int64_t end, uint32_t name_id, std::string_view name, bool is_annotation,
                 bool is_in_operator);
  void work(int64_t begin, int64_t end, std::string_view name);
  std::vector<StepParts> finish(const std::vector<StepSpan>& steps);

 private:
  enum class Part : uint8_t { kUnseen, kCompute, kCommunication, kCollectiveCall, kLoading, kNone };
  Part part_of(uint32_t name_id, std::string_view name, bool is_annotation);

  std::vector<Part> parts_;  // by operator name
  Intervals operators_, gpu_, communication_, collective_calls_, loading_, host_;
  bool has_nccl_ = false;
};

// Whether it is a range or an operator of torch.distributed, of any backend.
bool is_communication(std::string_view name);
// Whether it is a kernel of NCCL or RCCL.
bool is_communication_kernel(std::string_view name);

}  // namespace torchprof::formats
