// The findings of formats/analysis/advice.h as a table.
#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "formats/io/cells.h"
#include "formats/io/sum.h"
#include "formats/report/columns.h"
#include "formats/report/tables.h"

namespace torchprof::formats {
namespace {

class Findings {
 public:
  explicit Findings(const std::vector<ReportPart>& parts) : parts_(parts) {
    for (const ReportPart& part : parts) {
      const auto steps = without_first(std::span<const StepParts>(part.statistics.step_parts));
      steps_ += steps.size();
      for (const StepParts& s : steps) {
        add_to(ns_, s.step.end - s.step.begin);
        add_to(loading_ns_, s.loading_ns);
        if (part.statistics.gpu.work.empty()) continue;
        add_to(gpu_steps_ns_, s.step.end - s.step.begin);
        add_to(host_ns_, s.host_ns);
      }
      for (const auto& [what, tally] : part.statistics.waste.by_place) waste_[what] += tally;
      for (const auto& [key, tally] : part.statistics.waste.kernels) {
        KernelSum& kernel = kernels_[key.first];
        kernel.all += tally;
        kernel.places[key.second] += tally.ns;
      }
      for (const auto& [place, ns] : part.statistics.waste.host_ns) host_[place] += ns;
    }
  }

  ReportTable run() {
    if (ns_ > 0) {
      loading();
      host_bound();
      kernels();
      for (const auto& [what, tally] : waste_) add_waste(what.first, what.second, tally);
    }
    slow_rank();
    sort_rows(table_, 0);
    table_.last_column = LastColumn::kBroken;
    return std::move(table_);
  }

 private:
  void add(int64_t ns, int64_t whole, const char* rule, std::string finding, const std::string& where = {}) {
    // Several threads, streams and devices may waste time at once, so a share may pass the whole.
    table_.rows.push_back(
        {percent(std::min(ns, whole), whole), std::string(rule), std::move(finding), text_or_missing(where)});
  }
  using Places = std::map<std::string, int64_t>;
  struct KernelSum {
    WasteTally all;
    Places places;
    void operator+=(const KernelSum& other) {
      all += other.all;
      for (const auto& [place, ns] : other.places) places[place] += ns;
    }
  };
  // The known place with the most time.
  static std::string most_of(const Places& places) {
    const std::pair<const std::string, int64_t>* most = nullptr;
    for (const auto& place : places)
      if (!place.first.empty() && (most == nullptr || place.second > most->second)) most = &place;
    return most == nullptr ? std::string() : most->first;
  }
  static std::string text(int64_t ns) { return duration_text(static_cast<double>(ns)); }

  void loading() {
    if (loading_ns_ < ns_ / 10) return;
    Places places;
    for (const auto& [what, tally] : waste_)
      if (what.first == Waste::kLoading) places[what.second] += tally.ns;
    add(loading_ns_, ns_, "loading",
        "steps wait " + text(loading_ns_) + " for a DataLoader: more workers, or less work for each item",
        most_of(places));
  }

  void host_bound() {
    if (gpu_steps_ns_ == 0 || host_ns_ < gpu_steps_ns_ / 10 * 4) return;
    WasteTally all;
    for (const auto& [name, kernel] : kernels_) all += kernel.all;
    std::string finding = "the GPU waits " + text(host_ns_) + " for the program";
    if (all.calls != 0)
      finding +=
          "; " + plural(all.calls, "kernel") + " of " + text(all.ns / static_cast<int64_t>(all.calls)) + " on average";
    add(host_ns_, gpu_steps_ns_, "host bound", finding + ": larger batches, fused kernels or CUDA graphs",
        most_of(host_));
  }

  // Told by names of CUDA 11.0 to 13: kernels of cuBLAS and cuDNN for float32 on ordinary cores
  // ("ampere_sgemm_128x64_tn", "cutlass_80_simt_sgemm", "maxwell_scudnn_128x64"; on tensor cores it is "s1688gemm"),
  // and cuDNN's transposes of layouts.
  void kernels() {
    constexpr int64_t kTiny = 10'000;
    WasteTally all;
    KernelSum tiny, plain, transposes;
    for (const auto& [name, kernel] : kernels_) {
      all += kernel.all;
      if (kernel.all.ns < static_cast<int64_t>(kernel.all.calls) * kTiny) tiny += kernel;
      if (name.find("sgemm") != name.npos || name.find("scudnn") != name.npos) plain += kernel;
      if (name.find("nchwToNhwc") != name.npos || name.find("nhwcToNchw") != name.npos) transposes += kernel;
    }
    const auto say = [this](const KernelSum& sum, const char* rule, const std::string& finding) {
      add(sum.all.ns, ns_, rule, plural(sum.all.calls, "kernel") + " of " + text(sum.all.ns) + finding,
          most_of(sum.places));
    };
    constexpr uint64_t kManyKernels = 100;  // a step
    if (tiny.all.calls >= kManyKernels * steps_ && tiny.all.calls >= all.calls / 2 && tiny.all.ns >= ns_ / 20)
      say(tiny, "tiny kernels",
          " take less than 10 us each: fused kernels (torch.compile), foreach optimizers, CUDA graphs");
    if (plain.all.ns >= ns_ / 10)
      say(plain, "autocast",
          " multiply float32 without tensor cores: torch.autocast, or TF32 (set_float32_matmul_precision)");
    if (transposes.all.ns >= ns_ / 50)
      say(transposes, "layout", " only transpose for convolutions: memory_format=torch.channels_last");
  }

  void add_waste(Waste waste, const std::string& where, const WasteTally& t) {
    constexpr int64_t kLeastCopied = 100, kLeastZeroed = 200;  // a hundredth of the time, and half of that
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
      case Waste::kLoading:
        return;  // see loading()
    }
  }

  // torch has three names for one collective: "gloo:all_reduce", "c10d::allreduce_" and "all_reduce".
  static std::string plain_name(std::string_view name) {
    name.remove_prefix(name.rfind(':') + 1);
    std::string out(name);
    std::erase(out, '_');
    return out;
  }
  static std::string place_of_collective(const StepWaste& waste, const std::string& name) {
    Places places;
    for (const auto& [key, calls] : waste.collectives)
      if (plain_name(key.first) == plain_name(name)) places[key.second] += static_cast<int64_t>(calls);
    return most_of(places);
  }

  void slow_rank() {
    std::vector<const CommsCalls*> processes;
    for (const ReportPart& part : parts_) processes.push_back(&part.statistics.comms);
    constexpr uint64_t kFewest = 10;
    const auto is_in_step = [this](size_t process, int64_t begin) {
      const auto& steps = parts_[process].statistics.steps.spans;
      return step_at(without_first(std::span<const StepSpan>(steps)), begin) != nullptr;
    };
    for (const auto& [kind, t] : compare(processes, ns_ > 0 ? CommsCounts(is_in_step) : CommsCounts{})) {
      if (t.compared < kFewest || t.slowest_calls * 10 < t.compared * 6 || t.waiting_ns < ns_ / 20) continue;
      const ReportPart& part = parts_[t.slowest];
      add(t.waiting_ns, ns_, "slow rank",
          "the others wait " + text(t.waiting_ns) + " in " + kind.name + " for " +
              (part.role.empty() ? "process " + part.pid : part.role) + ", the last in " +
              percent_text(static_cast<int64_t>(t.slowest_calls), static_cast<int64_t>(t.compared)),
          place_of_collective(part.statistics.waste, kind.name));
    }
  }

  const std::vector<ReportPart>& parts_;
  ReportTable table_ = make_table("advice", "Advice");
  uint64_t steps_ = 0;
  int64_t ns_ = 0, loading_ns_ = 0, gpu_steps_ns_ = 0, host_ns_ = 0;
  WasteTallies waste_;
  std::map<std::string, KernelSum> kernels_;  // by name
  Places host_;
};

}  // namespace

ReportTable advice_table(const std::vector<ReportPart>& parts) { return Findings(parts).run(); }

}  // namespace torchprof::formats
