#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "formats/advice/rules.h"
#include "formats/io/cells.h"
#include "formats/io/sum.h"

namespace torchprof::formats {
namespace {

class HostRules {
 public:
  HostRules(const Subject& subject, Findings& findings)
      : s_(subject),
        v_(subject.view),
        row_(v_.rows()[v_.main()]),
        spans_(v_.timeline().rows[v_.main()].spans),
        findings_(findings) {}

  void run() {
    for (size_t i = 0; i < spans_.size(); ++i) {
      if (own(i) == 0 || is_claimed(i)) continue;
      Sums& sums = of_[static_cast<size_t>(row_.activity[i])];
      add_to(sums.own, own(i));
      if (row_.activity[i] == Activity::kProgram) add_to(functions_[row_.place[i]][spans_[i].name], own(i));
      PlaceSum& place = sums.places[row_.place[i]];
      add_to(place.ns, own(i));
      const bool is_outermost = spans_[i].parent == kNoSpan || row_.activity[spans_[i].parent] != row_.activity[i];
      if (v_.begins_in_step(spans_[i].begin) && is_outermost) ++place.count;
    }
    loading();
    compiling();
    collecting();
    waiting();
    tiny_operators();
    if (!v_.has_gpu()) {
      python();
      threads();
    }
    zero_grad();
    first_touch();
    leak();
  }

 private:
  struct Sums {
    int64_t own = 0;
    PlaceSums places;
  };
  bool is_claimed(size_t i) const { return i < s_.claimed.spans.size() && s_.claimed.spans[i]; }
  int64_t own(size_t i) const {
    const auto between = s_.claimed.between.find(static_cast<uint32_t>(i));
    return between == s_.claimed.between.end() ? row_.own[i] : std::max<int64_t>(0, row_.own[i] - between->second);
  }
  const Sums& sums(Activity activity) const { return of_[static_cast<size_t>(activity)]; }

  void loading() {
    const Sums& all = sums(Activity::kLoading);
    const int64_t cost = v_.per_step(all.own);
    if (!is_worth(cost, v_)) return;
    findings_.push_back({.rule = "loading",
                         .cost_ns = cost,
                         .what = std::string(step_text(v_)) + " waits {} for a DataLoader.",
                         .where = v_.where(most_of(all.places)),
                         .todo = "Use more workers (num_workers), or do less work for each item."});
  }

  void compiling() {
    const Sums& all = sums(Activity::kCompiling);
    const int64_t cost = v_.per_step(all.own);
    if (!is_worth(cost, v_)) return;
    uint64_t times = 0;
    for (const auto& [place, sum] : all.places) times += sum.count;
    findings_.push_back(
        {.rule = "compiling",
         .cost_ns = cost,
         .what = "torch.compile compiles again, for {}.",
         .evidence = plural(times, "compilation") + " in " + plural(v_.steps().size(), "step") + ".",
         .where = v_.where(most_of(all.places)),
         .todo = "Let shapes not change (pad them, or mark_dynamic); TORCH_LOGS=recompiles says what did."});
  }

  void collecting() {
    const Sums& all = sums(Activity::kCollecting);
    const int64_t cost = v_.per_step(all.own);
    if (!is_worth(cost, v_)) return;
    uint64_t times = 0;
    for (const auto& [place, sum] : all.places) times += sum.count;
    findings_.push_back(
        {.rule = "collecting",
         .cost_ns = cost,
         .what = "Python's garbage collector takes {}.",
         .evidence = "It runs " + number_text(v_.per_step(times), "time") + ".",
         .where = v_.where(most_of(all.places)),
         .todo = "Call gc.freeze() after the setup, or gc.disable() and gc.collect() every some hundred steps."});
  }

  void waiting() {
    const Sums& all = sums(Activity::kWaiting);
    const int64_t cost = v_.per_step(all.own);
    if (!is_worth(cost, v_)) return;
    findings_.push_back({.rule = "waiting",
                         .cost_ns = cost,
                         .what = std::string(step_text(v_)) + " waits {} for another thread or process, or sleeps.",
                         .where = v_.where(most_of(all.places)),
                         .todo = "Prepare what it waits for while the step before runs."});
  }

  // An operator that is in no other one, with all inside it.
  bool is_outermost_operator(size_t i) const {
    if (spans_[i].kind != SpanKind::kOperator || row_.activity[i] != Activity::kOperator) return false;
    const uint32_t parent = spans_[i].parent;
    return parent == kNoSpan || row_.activity[parent] != Activity::kOperator;
  }

  void tiny_operators() {
    if (v_.has_gpu()) return;  // what they cost there is the time in which the GPU has nothing to do
    constexpr int64_t kTiny = 15'000;
    constexpr double kMany = 100;  // a step
    PlaceSums operators;
    std::map<uint32_t, uint64_t> items, tiny;
    int64_t backward_ns = 0;
    uint64_t all = 0;
    std::map<uint32_t, std::map<uint32_t, uint64_t>> names;
    for (size_t i = 0; i < spans_.size(); ++i) {
      if (!is_outermost_operator(i) || is_claimed(i) || !v_.begins_in_step(spans_[i].begin)) continue;
      // The backward has as many as the forward, which is where they are to be cured.
      if (v_.text(spans_[i].name).starts_with("autograd::engine::")) {
        add_to(backward_ns, spans_[i].ns());
        continue;
      }
      ++all;
      PlaceSum& sum = operators[row_.place[i]];
      add_to(sum.ns, spans_[i].ns());
      ++sum.count;
      tiny[row_.place[i]] += spans_[i].ns() < kTiny;
      const std::string_view name = v_.text(spans_[i].name);
      items[row_.place[i]] += name == "aten::item" || name == "aten::_local_scalar_dense" || name == "aten::is_nonzero";
      ++names[row_.place[i]][spans_[i].name];
    }
    const PlaceSums& python = sums(Activity::kProgram).places;
    for (const auto& [place, sum] : operators) {
      const double times = v_.per_step(sum.count);
      if (times < kMany || place == 0 || tiny[place] * 10 < sum.count * 8) continue;
      const auto between = python.find(place);
      const auto of_backward = static_cast<int64_t>(static_cast<double>(backward_ns) * static_cast<double>(sum.count) /
                                                    static_cast<double>(all));
      const int64_t python_ns = between == python.end() ? 0 : between->second.ns;
      const int64_t cost = v_.per_step(formats::sum(formats::sum(sum.ns, of_backward), python_ns));
      if (!is_worth(cost, v_, 10)) continue;
      told_.push_back(place);
      const auto most = std::ranges::max_element(names[place], {}, [](const auto& each) { return each.second; });
      std::string evidence = number_text(times, "operator") + " of " +
                             ns_text(sum.ns / static_cast<int64_t>(sum.count)) + " on average, most of them " +
                             std::string(v_.text(most->first)) + ".";
      if (const uint64_t n = items[place]; n * 10 > sum.count)
        evidence += " item() is called " + number_text(v_.per_step(n), "time") + ".";
      findings_.push_back({.rule = "tiny operators",
                           .cost_ns = cost,
                           .what = "Operators on a few elements each, and the Python between them, take {}.",
                           .evidence = std::move(evidence),
                           .where = v_.where(place),
                           .todo = "Work on whole tensors instead of elements, and read results once (tolist())."});
    }
  }

  void python() {
    for (const auto& [place, sum] : sums(Activity::kProgram).places) {
      const int64_t cost = v_.per_step(sum.ns);
      if (place == 0 || !is_worth(cost, v_, 20) || std::ranges::find(told_, place) != told_.end()) continue;
      findings_.push_back(
          {.rule = "python",
           .cost_ns = cost,
           .what = "A function takes {} in Python, in no operator of torch.",
           .evidence = most_in(place),
           .where = v_.where(place),
           .todo = "Do it for all elements at once, in a DataLoader's worker, or once before the steps."});
    }
  }

  // Of the functions that the program's own one calls, that with the most time of its own.
  std::string most_in(uint32_t place) const {
    const auto functions = functions_.find(place);
    if (functions == functions_.end()) return {};
    const auto most = std::ranges::max_element(functions->second, {}, [](const auto& each) { return each.second; });
    return most->first == place ? std::string() : "Most of it is in " + std::string(v_.text(most->first)) + ".";
  }

  // Operators that torch divides among threads and that take nearly all their time in one piece of work.
  static bool is_divided(std::string_view name) {
    constexpr std::array<std::string_view, 12> kNames = {"aten::mm",
                                                         "aten::addmm",
                                                         "aten::bmm",
                                                         "aten::baddbmm",
                                                         "aten::mkldnn_convolution",
                                                         "aten::_slow_conv2d_forward",
                                                         "aten::linear",
                                                         "aten::mkldnn_linear",
                                                         "aten::_slow_conv2d_backward",
                                                         "aten::convolution_backward",
                                                         "aten::_scaled_dot_product_flash_attention_for_cpu",
                                                         "mkldnn::_linear_pointwise"};
    return std::ranges::find(kNames, name) != kNames.end();
  }

  void threads() {
    if (!s_.threads || !s_.processors || *s_.threads == 0) return;
    // Two processors of one core share what multiplies.
    const uint32_t cores = *s_.processors / 2;
    if (*s_.threads >= cores) return;
    PlaceSums places;
    int64_t ns = 0;
    for (size_t r = 0; r < v_.rows().size(); ++r) {  // also on autograd's threads
      const RowView& row = v_.rows()[r];
      for (size_t i = 0; i < row.own.size(); ++i) {
        const TimelineSpan& span = v_.timeline().rows[r].spans[i];
        if (span.kind != SpanKind::kOperator || row.own[i] == 0 || !is_divided(v_.text(span.name))) continue;
        add_to(ns, row.own[i]);
        add_to(places[row.place[i]].ns, row.own[i]);
      }
    }
    const int64_t cost = v_.per_step(ns - ns / cores * *s_.threads);
    if (!is_worth(cost, v_, 10)) return;
    findings_.push_back({.rule = "threads",
                         .cost_ns = cost,
                         .what = "Matrix products and convolutions run on " + plural(*s_.threads, "thread") + " of " +
                                 plural(*s_.processors, "processor") + ".",
                         .evidence = "They take " + ns_text(v_.per_step(ns)) + ".",
                         .where = v_.where(most_of(places)),
                         .todo = "Set OMP_NUM_THREADS (torchrun sets it to 1), or call torch.set_num_threads()."});
  }

  void zero_grad() {
    PlaceSums places;
    uint64_t calls = 0;
    int64_t ns = 0;
    std::vector<bool> is_in_zero_grad(spans_.size());
    for (size_t i = 0; i < spans_.size(); ++i) {
      const std::string_view name = v_.text(spans_[i].name);
      const uint32_t parent = spans_[i].parent;
      is_in_zero_grad[i] = (parent != kNoSpan && is_in_zero_grad[parent]) || name.starts_with("Optimizer.zero_grad#");
      const bool zeroes = name == "aten::zero_" || name == "aten::_foreach_zero_";
      if (!zeroes || !is_in_zero_grad[i] || !v_.begins_in_step(spans_[i].begin)) continue;
      const bool is_inside = parent != kNoSpan &&
                             v_.text(spans_[parent].name).find("zero_") != std::string_view::npos &&
                             spans_[parent].kind == SpanKind::kOperator;
      if (is_inside) continue;  // the outer one counts
      ++calls;
      add_to(ns, v_.in_steps(spans_[i].begin, spans_[i].end));
      add_to(places[row_.place[i]].ns, spans_[i].ns());
    }
    const int64_t cost = v_.per_step(ns);
    if (calls < v_.steps().size() || !is_worth(cost, v_, 200)) return;
    findings_.push_back({.rule = "zero_grad",
                         .cost_ns = cost,
                         .what = "Gradients are set to zero, one after another: {}.",
                         .evidence = number_text(v_.per_step(calls), "call") + ".",
                         .where = v_.where(most_of(places)),
                         .todo = "Call zero_grad(set_to_none=True)."});
  }

  void first_touch() {
    constexpr int64_t kPage = 4096, kPageNs = 1000;
    PlaceSums places;
    int64_t bytes = 0;
    uint64_t blocks = 0;
    for (const TimelineAllocation& a : v_.timeline().large_blocks) {
      if (!v_.begins_in_step(a.time)) continue;
      add_to(bytes, a.bytes);
      add_to(places[a.place].ns, a.bytes);
      ++blocks;
    }
    const int64_t cost = v_.per_step(bytes / kPage * kPageNs);
    if (blocks < v_.steps().size() || !is_worth(cost, v_)) return;
    findings_.push_back({.rule = "first touch",
                         .cost_ns = std::min(cost, v_.step_ns()),
                         .what = "Large blocks of memory are allocated anew; to clear their pages takes about {}.",
                         .evidence = number_text(v_.per_step(blocks), "block") + " of the CPU's memory, " +
                                     memory_text(v_.per_step(bytes)) + " together.",
                         .where = v_.where(most_of(places)),
                         .todo =
                             "Allocate them once and write into them (out=, copy_(), in place), or use an allocator "
                             "that keeps memory (jemalloc, tcmalloc)."});
  }

  void leak() {
    constexpr int64_t kLeast = 64 << 10;       // bytes a step
    for (const MemoryGrowth& g : s_.growth) {  // the largest first
      if (g.looked == 0) continue;
      // What stays is mostly one thing and all that hangs on it.
      int64_t rate = 0;
      uint64_t blocks = 0;
      for (const MemoryGrowth& each : s_.growth) {
        if (each.device_type != g.device_type || each.device_index != g.device_index) continue;
        add_to(rate, each.bytes / static_cast<int64_t>(g.looked));
        blocks += each.blocks;
      }
      if (rate < kLeast) continue;
      const std::string_view device = g.device_type == 0 ? "CPU" : "GPU";
      findings_.push_back(
          {.rule = "leak",
           .what = "Memory of the " + std::string(device) + " grows by " + memory_text(rate) + " a step.",
           .evidence = plural(blocks, "block") + " from " + plural(g.steps, "step") + " of " + count_text(g.looked) +
                       " stay; the largest are " + (g.owner.op.empty() ? "the program" : g.owner.op) + "'s.",
           .where = g.owner.place,
           .todo = "Keep numbers instead of tensors that hold a graph (loss.item(), detach()), and empty the lists "
                   "that keep them.",
           .weight = 0.1});
      return;
    }
  }

  const Subject& s_;
  const StepView& v_;
  const RowView& row_;
  const std::vector<TimelineSpan>& spans_;
  Findings& findings_;
  std::array<Sums, kActivities> of_;
  std::map<uint32_t, std::map<uint32_t, int64_t>> functions_;  // own time of Python's, by place and name
  std::vector<uint32_t> told_;                                 // places that a finding names already
};

}  // namespace

void find_on_the_host(const Subject& subject, Findings& findings) {
  if (subject.view.has_main()) HostRules(subject, findings).run();
}

std::string ns_text(int64_t ns) {
  const auto value = static_cast<double>(ns);
  const auto [unit, per] = ns >= 1'000'000'000 ? std::pair("s", 1e9)
                           : ns >= 1'000'000   ? std::pair("ms", 1e6)
                                               : std::pair("us", 1e3);
  const double n = value / per;
  return print(n >= 100 ? "%.0f" : n >= 10 ? "%.1f" : "%.2f", n) + " " + unit;
}

std::string number_text(double n, const char* what) {
  if (n >= 10) return plural(static_cast<uint64_t>(std::llround(n)), what);
  const auto whole = static_cast<uint64_t>(n);
  return static_cast<double>(whole) == n ? plural(whole, what) : print("%.1f ", n) + plural(2, what).substr(2);
}

const char* step_text(const StepView& view) { return view.has_steps() ? "A step" : "The run"; }

}  // namespace torchprof::formats
