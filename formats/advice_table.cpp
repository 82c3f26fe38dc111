// Findings of formats/advice.h as a table.
#include <algorithm>
#include <span>
#include <utility>

#include "formats/cells.h"
#include "formats/report_columns.h"
#include "formats/report_tables.h"

namespace torchprof::formats {
namespace {

class Findings {
 public:
  explicit Findings(const std::vector<ReportPart>& parts) : parts_(parts) {
    for (const ReportPart& part : parts) {
      // The first step loads, compiles and chooses for all that follow.
      std::span<const StepParts> steps = part.statistics.step_parts;
      if (steps.size() > 1) steps = steps.subspan(1);
      steps_ += steps.size();
      for (const StepParts& s : steps) {
        ns_ += s.step.end - s.step.begin;
        loading_ns_ += s.loading_ns;
        if (part.statistics.gpu.work.empty()) continue;
        gpu_steps_ns_ += s.step.end - s.step.begin;
        host_ns_ += s.host_ns;
      }
      for (const auto& [what, tally] : part.statistics.waste) {
        WasteTally& sum = waste_[what];
        sum.calls += tally.calls;
        sum.ns += tally.ns;
        sum.bytes += tally.bytes;
      }
    }
  }

  ReportTable run() {
    if (ns_ > 0) {
      loading();
      host_bound();
      for (const auto& [what, tally] : waste_) add_waste(what.first, what.second, tally);
    }
    slow_rank();
    sort_rows(table_, 0);
    return std::move(table_);
  }

 private:
  void add(int64_t ns, int64_t whole, const char* rule, std::string finding, const std::string& where = {}) {
    table_.rows.push_back({percent(ns, whole), std::string(rule), std::move(finding), text_or_missing(where)});
  }
  static std::string text(int64_t ns) { return duration_text(static_cast<double>(ns)); }

  void loading() {
    if (loading_ns_ < ns_ / 10) return;
    add(loading_ns_, ns_, "loading",
        "steps wait " + text(loading_ns_) + " for a DataLoader: more workers, or less work for each item");
  }

  void host_bound() {
    if (gpu_steps_ns_ == 0 || host_ns_ < gpu_steps_ns_ / 10 * 4) return;
    uint64_t kernels = 0;
    int64_t kernel_ns = 0;
    for (const ReportPart& part : parts_)
      for (const auto& [name, t] : part.statistics.gpu.work)
        if (t.is_kernel) kernels += t.calls, kernel_ns += t.total_ns;
    add(host_ns_, gpu_steps_ns_, "host bound",
        "the GPU waits " + text(host_ns_) + " for the program; " + plural(kernels, "kernel") + " of " +
            text(kernel_ns / std::max<int64_t>(1, static_cast<int64_t>(kernels))) +
            " on average: larger batches, fused kernels or CUDA graphs");
  }

  void add_waste(Waste waste, const std::string& where, const WasteTally& t) {
    constexpr int64_t kLeastCopied = 100, kLeastZeroed = 200;  // a hundredth of the time, half of that
    switch (waste) {
      case Waste::kSync:
        if (t.calls < steps_) return;
        return add(
            t.ns, ns_, "sync",
            plural(t.calls, "call") + " wait " + text(t.ns) + " for the GPU: item(), nonzero(), cpu() less often",
            where);
      case Waste::kPageable:
        if (t.ns < ns_ / kLeastCopied) return;
        return add(t.ns, ns_, "pageable",
                   plural(t.calls, "copy") + " of " + memory_text(static_cast<int64_t>(t.bytes)) +
                       " from or to memory that is not pinned: pin_memory, non_blocking",
                   where);
      case Waste::kZeroGrad:
        if (t.calls < steps_ || t.ns < ns_ / kLeastZeroed) return;
        return add(t.ns, ns_, "zero_grad", plural(t.calls, "gradient") + " set to zero: zero_grad(set_to_none=True)",
                   where);
    }
  }

  void slow_rank() {
    std::vector<const CommsCalls*> processes;
    for (const ReportPart& part : parts_) processes.push_back(&part.statistics.comms);
    constexpr uint64_t kFewest = 10;
    for (const auto& [kind, t] : compare(processes)) {
      if (t.compared < kFewest || t.slowest_calls * 10 < t.compared * 6 || t.waiting_ns < ns_ / 20) continue;
      const ReportPart& part = parts_[t.slowest];
      add(t.waiting_ns, ns_, "slow rank",
          "the others wait " + text(t.waiting_ns) + " in " + kind.first + " for " +
              (part.role.empty() ? "process " + part.pid : part.role) + ", the last in " +
              percent_text(static_cast<int64_t>(t.slowest_calls), static_cast<int64_t>(t.compared)));
    }
  }

  const std::vector<ReportPart>& parts_;
  ReportTable table_ = make_table("advice", "Advice");
  uint64_t steps_ = 0;
  int64_t ns_ = 0, loading_ns_ = 0, gpu_steps_ns_ = 0, host_ns_ = 0;
  WasteTallies waste_;
};

}  // namespace

ReportTable advice_table(const std::vector<ReportPart>& parts) { return Findings(parts).run(); }

}  // namespace torchprof::formats
