#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "formats/advice/rules.h"
#include "formats/analysis/step_parts.h"
#include "formats/io/cells.h"
#include "formats/io/sum.h"

namespace torchprof::formats {
namespace {

struct WorkSum {
  int64_t ns = 0;
  uint64_t count = 0;
  uint64_t bytes = 0;
  PlaceSums places;
  void add(const TimelineWork& w, uint32_t place) {
    add_to(ns, w.ns());
    ++count;
    bytes += w.bytes;
    add_to(places[place].ns, w.ns());
  }
};

bool has(std::string_view name, std::string_view part) { return name.find(part) != name.npos; }

// By names of CUDA 11.0 to 13: kernels of cuBLAS and cuDNN for float32 on ordinary cores ("ampere_sgemm_128x64_tn",
// "cutlass_80_simt_sgemm", "maxwell_scudnn_128x64"); on tensor cores it is "s1688gemm".
bool is_float32_product(std::string_view name) { return has(name, "sgemm") || has(name, "scudnn"); }
// Names of kernels for tensor cores: of cuBLAS, cuDNN and CUTLASS for Volta ("884"), Turing ("1688"), Ampere ("16816",
// "tensorop") and Hopper ("gmma", "nvjet").
bool is_on_tensor_cores(std::string_view name) {
  constexpr std::array<std::string_view, 8> kParts = {"884",        "1688", "16816", "tensorop",
                                                      "tensor16x8", "gmma", "nvjet", "flash_fwd"};
  return std::ranges::any_of(kParts, [name](std::string_view part) { return has(name, part); });
}
bool is_transpose(std::string_view name) { return has(name, "nchwToNhwc") || has(name, "nhwcToNchw"); }
// ATen's kernels that do the same to each element, 1.8 to 2.14.
bool is_elementwise_kernel(std::string_view name) {
  return has(name, "elementwise_kernel") || has(name, "multi_tensor_apply_kernel") ||
         has(name, "kernelPointwiseApply") || has(name, "CatArrayBatchedCopy");
}

class GpuRules {
 public:
  GpuRules(const Subject& subject, Findings& findings)
      : v_(subject.view), t_(v_.timeline()), findings_(findings), kinds_(t_.names()) {}

  void run() {
    sum_host();
    sum_work();
    waiting();
    allocating();
    launch_bound();
    copying();
    kernels();
  }

 private:
  enum Kind : uint8_t { kNotSeen, kPlain, kFloat32, kTensorCores, kTranspose, kElementwise, kCommunication };

  Kind kind_of(uint32_t name) {
    Kind& kind = kinds_[name];
    if (kind != kNotSeen) return kind;
    const std::string_view text = v_.text(name);
    kind = kPlain;
    if (is_elementwise_kernel(text)) kind = kElementwise;
    if (is_float32_product(text)) kind = kFloat32;
    if (is_on_tensor_cores(text)) kind = kTensorCores;
    if (is_transpose(text)) kind = kTranspose;
    if (is_communication_kernel(text)) kind = kCommunication;
    return kind;
  }

  uint32_t place_of(const TimelineWork& w) const {
    if (w.row == kNoSpan || v_.rows()[w.row].place.empty()) return 0;
    const uint32_t place = v_.rows()[w.row].place[w.call];
    if (place != 0) return place;
    // On autograd's own threads there is no Python function.
    const auto& spans = t_.rows[w.row].spans;
    for (uint32_t i = w.call; i != kNoSpan; i = spans[i].parent)
      if (spans[i].kind == SpanKind::kModule) return spans[i].name;
    return 0;
  }

  // What ran on the threads that launch while no GPU worked, and calls of CUDA in any case.
  void sum_host() {
    std::vector<bool> launches(v_.rows().size());
    for (size_t r = 0; r < v_.rows().size(); ++r)
      launches[r] = std::ranges::any_of(v_.rows()[r].activity, [](Activity a) { return a >= Activity::kWaitsForGpu; });
    for (size_t r = 0; r < v_.rows().size(); ++r) {
      const RowView& row = v_.rows()[r];
      const auto& spans = t_.rows[r].spans;
      const bool is_main = r == v_.main();
      for (size_t i = 0; i < row.own.size(); ++i) {
        if (row.own[i] == 0) continue;
        const Activity activity = row.activity[i];
        if (activity >= Activity::kWaitsForGpu) {
          const bool begins = v_.begins_in_step(spans[i].begin);
          if (activity == Activity::kWaitsForGpu) {
            add(waits_[row.place[i]], row.own[i], begins);
          }
          if (activity == Activity::kAllocates || activity == Activity::kOtherCall)
            add(calls_[{activity, spans[i].name}][row.place[i]], row.idle[i], begins);
        }
        if (!launches[r] && !is_main) continue;
        const bool is_work = activity == Activity::kOperator || activity == Activity::kLaunches ||
                             (activity == Activity::kProgram && is_in_torch(r, i));
        if (is_main && !is_work) add_to(other_idle_ns_, row.idle[i]);
        if (is_work) {
          // Python's function that waits for the backward is no phase of its own.
          if (spans[i].kind != SpanKind::kPython) add_to(phases_[phase_of(r, i)], row.idle[i]);
          add_to(launching_[row.place[i]].ns, row.idle[i]);
          ++launching_[row.place[i]].count;
        }
      }
    }
  }
  // Whether the innermost Python function is one of torch's: its time is what it costs to call operators.
  bool is_in_torch(size_t r, size_t i) const {
    const auto& spans = t_.rows[r].spans;
    auto at = static_cast<uint32_t>(i);
    while (at != kNoSpan && spans[at].kind != SpanKind::kPython && spans[at].kind != SpanKind::kModule)
      at = spans[at].parent;
    if (at == kNoSpan) return false;
    return spans[at].kind == SpanKind::kModule || v_.text(spans[at].name).starts_with("torch/");
  }
  // The part of a step in which a span ran.
  const char* phase_of(size_t r, size_t i) const {
    if (r != v_.main()) return "the backward";
    const auto& spans = t_.rows[r].spans;
    for (auto at = static_cast<uint32_t>(i); at != kNoSpan; at = spans[at].parent) {
      const std::string_view name = v_.text(spans[at].name);
      if (t_.role(spans[at].name) == NameRole::kOptimizer || name.starts_with("Optimizer.")) return "the optimizer";
      if (spans[at].is_backward || name.starts_with("autograd::engine::")) return "the backward";
    }
    return "the forward and the rest";
  }
  static void add(PlaceSum& sum, int64_t ns, bool begins) {
    add_to(sum.ns, ns);
    sum.count += begins;
  }

  void sum_work() {
    std::map<std::pair<uint32_t, uint32_t>, size_t> row_of_stream;  // length of its present row of elementwise kernels
    for (const TimelineWork& w : t_.work) {
      // Work belongs to the step that launched it, however far the GPU is behind.
      const TimelineSpan* const launch = t_.call_of(w);
      if (!v_.begins_in_step(launch == nullptr ? w.begin : launch->begin)) continue;
      const uint32_t place = place_of(w);
      size_t& length = row_of_stream[{w.device, w.stream}];
      const bool is_local = has(v_.text(w.name), "DtoD");  // as a kernel that copies
      if (w.kind == WorkKind::kCopy && !is_local) {
        const bool is_pageable = has(v_.text(w.name), "Pageable");
        WorkSum& copies = copies_[{is_pageable, w.name}];
        copies.add(w, place);
        Intervals& when = is_pageable ? pageable_ : copied_;
        // The call stages memory that is not pinned, and comes back when that is done. One to such memory waits for all
        // before it, too: see waiting().
        const bool stages = is_pageable && launch != nullptr && !is_copy_to_pageable(v_.text(w.name));
        when.add(stages ? std::min(launch->begin, w.begin) : w.begin, w.end);
      }
      if (w.kind != WorkKind::kKernel) {
        length = 0;
        continue;
      }
      const Kind kind = kind_of(w.name);
      if (kind == kCommunication) continue;
      all_.add(w, place);
      by_name_[w.name].add(w, place);
      if (kind == kFloat32) float32_.add(w, place);
      if (kind == kTensorCores) add_to(tensor_cores_ns_, w.ns());
      if (kind == kTranspose) transposes_.add(w, place);
      if (kind != kElementwise) {
        length = 0;
        continue;
      }
      ++length;
      elementwise_.add(w, place);
      if (length > 1) {
        add_to(fusible_ns_, w.ns());
        ++fusible_;
      }
      longest_ = std::max(longest_, length);
    }
    // Those at whose begins a step of the program was not yet there do not count.
    for (Intervals* each : {&pageable_, &copied_}) each->settle();
  }

  // Time within the steps in which this went on and no kernel ran.
  int64_t exposed(const Intervals& when) const {
    Intervals both = v_.kernels();
    both.add(when);
    both.settle();
    return v_.in_steps(both) - v_.kernels_ns();
  }

  void say(const char* rule, int64_t cost, std::string what, std::string evidence, uint32_t place, const char* todo) {
    findings_.push_back({.rule = rule,
                         .cost_ns = std::min(cost, v_.step_ns()),
                         .what = std::move(what),
                         .evidence = std::move(evidence),
                         .where = v_.where(place),
                         .todo = todo});
  }

  void waiting() {
    for (const auto& [place, sum] : waits_) {
      // Without these waits the host goes on while the GPU works.
      const int64_t host = v_.all_ns() - sum.ns;
      const int64_t cost = v_.per_step(v_.all_ns() - std::max(host, v_.busy_ns()));
      if (sum.count < v_.steps().size() || !is_worth(cost, v_.step_ns())) continue;
      say("sync", cost, std::string(step_text(v_)) + " waits " + ns_text(v_.per_step(sum.ns)) + " for the GPU.",
          number_text(v_.per_step(sum.count), "call") + " that wait; the GPU works " +
              ns_text(v_.per_step(v_.busy_ns())) + " and could be told more meanwhile.",
          place, "Call item(), cpu(), nonzero() and print less often, or copy with non_blocking and look at it later.");
    }
  }

  void allocating() {
    for (const auto& [key, places] : calls_) {
      int64_t ns = 0;
      uint64_t count = 0;
      for (const auto& [place, sum] : places) {
        add_to(ns, sum.ns);
        count += sum.count;
      }
      const int64_t cost = v_.per_step(ns);
      if (!is_worth(cost, v_.step_ns())) continue;
      const bool allocates = key.first == Activity::kAllocates;
      say(allocates ? "allocating" : "calls", cost,
          std::string(v_.text(key.second)) + " takes {} while the GPU has nothing to do.",
          number_text(v_.per_step(count), "call") + ".", most_of(places),
          allocates
              ? "Let torch keep its memory: no empty_cache() in steps, sizes that do not change, "
                "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."
              : "A first call makes CUDA ready: begin the timing after some steps. Others: call it before the steps.");
    }
  }

  void launch_bound() {
    int64_t ns = 0;
    for (const auto& [place, sum] : launching_) add_to(ns, sum.ns);
    // While another thread launches the backward, the main one waits in it: they are idle together.
    const int64_t cost = v_.per_step(std::min(ns, v_.all_ns() - v_.busy_ns() - other_idle_ns_));
    if (!is_worth(cost, v_.step_ns(), 10)) return;
    if (phases_.empty()) return;
    const auto phase = std::ranges::max_element(phases_, {}, [](const auto& each) { return each.second; });
    say("launch bound", cost, "The GPU has nothing to do for {}: it works faster than it is told what to do.",
        gpu_text() + " " + percent_text(phase->second, phases_ns()) + " of that time is in " +
            std::string(phase->first) + ".",
        most_of(launching_),
        "Use larger batches, torch.compile(mode=\"reduce-overhead\") or CUDA graphs, and optimizers with fused=True.");
  }

  int64_t phases_ns() const {
    int64_t ns = 0;
    for (const auto& [name, of] : phases_) add_to(ns, of);
    return ns;
  }

  // "The GPU works 12.3 of 40.0 ms, on 450 kernels of 27 us on average."
  std::string gpu_text() const {
    std::string text = "The GPU works " + ns_text(v_.per_step(v_.busy_ns())) + " of " + ns_text(v_.step_ns());
    if (all_.count != 0)
      text += ", on " + number_text(v_.per_step(all_.count), "kernel") + " of " +
              ns_text(all_.ns / static_cast<int64_t>(all_.count)) + " on average";
    return text + ".";
  }

  void copying() {
    for (const bool is_pageable : {true, false}) {
      const int64_t cost = v_.per_step(exposed(is_pageable ? pageable_ : copied_));
      if (!is_worth(cost, v_.step_ns(), is_pageable ? kLeastPercent : 5)) continue;
      const WorkSum* most = nullptr;
      uint32_t name = 0;
      uint64_t count = 0;
      for (const auto& [key, sum] : copies_) {
        if (key.first != is_pageable) continue;
        count += sum.count;
        if (most != nullptr && most->ns >= sum.ns) continue;
        most = &sum;
        name = key.second;
      }
      std::string evidence = number_text(v_.per_step(count), "copy");
      if (most != nullptr && most->ns > 0 && most->bytes > 0)
        evidence += ", " + memory_text(static_cast<int64_t>(most->bytes / v_.steps().size())) + " by " +
                    std::string(v_.text(name)) + " at " +
                    print("%.1f", static_cast<double>(most->bytes) / static_cast<double>(most->ns)) + " GB/s";
      say(is_pageable ? "pageable" : "copies", cost,
          std::string("Copies ") + (is_pageable ? "from or to memory that is not pinned " : "") +
              "take {} while no kernel runs.",
          evidence + ".", most == nullptr ? 0 : most_of(most->places),
          is_pageable ? "Use pin_memory=True in the DataLoader and non_blocking=True in to() and cuda()."
                      : "Copy on a stream of its own while the step before computes, or keep the data on the GPU.");
    }
  }

  void kernels() {
    constexpr int64_t kTiny = 10'000;
    constexpr double kMany = 100;  // a step
    WorkSum tiny;
    for (const auto& [name, sum] : by_name_)
      if (sum.ns < static_cast<int64_t>(sum.count) * kTiny) {
        add_to(tiny.ns, sum.ns);
        tiny.count += sum.count;
        for (const auto& [place, of] : sum.places) add_to(tiny.places[place].ns, of.ns);
      }
    const auto text = [this](const WorkSum& sum) {
      return number_text(v_.per_step(sum.count), "kernel") + " of " +
             ns_text(sum.ns / static_cast<int64_t>(std::max<uint64_t>(1, sum.count))) + " on average.";
    };
    if (v_.per_step(tiny.count) >= kMany && tiny.count * 2 >= all_.count &&
        is_worth(v_.per_step(tiny.ns), v_.step_ns(), 5))
      say("tiny kernels", v_.per_step(tiny.ns / 2),
          "Kernels of less than 10 us take " + ns_text(v_.per_step(tiny.ns)) + ".", text(tiny), most_of(tiny.places),
          "Fuse them (torch.compile, foreach or fused optimizers), or use CUDA graphs.");
    if (is_worth(v_.per_step(float32_.ns), v_.step_ns(), 10))
      say("autocast", v_.per_step(float32_.ns / 3 * 2),
          "Products of float32 without tensor cores take " + ns_text(v_.per_step(float32_.ns)) + ".",
          text(float32_) + " Kernels on tensor cores take " + ns_text(v_.per_step(tensor_cores_ns_)) + ".",
          most_of(float32_.places), "Use torch.autocast, or TF32: torch.set_float32_matmul_precision(\"high\").");
    if (is_worth(v_.per_step(transposes_.ns), v_.step_ns()))
      say("layout", v_.per_step(transposes_.ns),
          "Kernels that only transpose for convolutions take " + ns_text(v_.per_step(transposes_.ns)) + ".",
          text(transposes_), most_of(transposes_.places),
          "Use memory_format=torch.channels_last for the model and its inputs.");
    // They read and write the same memory again, so a row of them costs as little as one. Only where the GPU is what a
    // step waits for.
    if (v_.busy_ns() >= v_.all_ns() / 2 && is_worth(v_.per_step(fusible_ns_), v_.step_ns(), 5))
      say("fusing", v_.per_step(fusible_ns_),
          "Kernels that follow one of their kind, each for all elements, take " + ns_text(v_.per_step(fusible_ns_)) +
              ".",
          number_text(v_.per_step(fusible_), "kernel") + ", up to " + count_text(longest_) +
              " in a row; all of this kind take " + ns_text(v_.per_step(elementwise_.ns)) + ".",
          most_of(elementwise_.places), "torch.compile makes one kernel of each row.");
  }

  const StepView& v_;
  const Timeline& t_;
  Findings& findings_;
  std::vector<Kind> kinds_;  // by name
  PlaceSums waits_, launching_;
  std::map<std::string_view, int64_t> phases_;                // ns of launching_
  std::map<std::pair<Activity, uint32_t>, PlaceSums> calls_;  // by name; ns while no GPU works
  std::map<std::pair<bool, uint32_t>, WorkSum> copies_;       // by whether they are pageable, and by name
  std::map<uint32_t, WorkSum> by_name_;
  WorkSum all_, float32_, transposes_, elementwise_;
  Intervals pageable_, copied_;
  int64_t other_idle_ns_ = 0;  // of the main thread, in anything else
  int64_t fusible_ns_ = 0, tensor_cores_ns_ = 0;
  uint64_t fusible_ = 0;
  size_t longest_ = 0;
};

}  // namespace

void find_on_gpus(const Subject& subject, Findings& findings) {
  if (subject.view.has_gpu()) GpuRules(subject, findings).run();
}

}  // namespace torchprof::formats
