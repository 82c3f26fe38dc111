#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "formats/advice/operator_subject.h"
#include "formats/advice/rules.h"
#include "formats/advice/sharing_places.h"
#include "formats/advice/spread.h"
#include "formats/analysis/step_parts.h"
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
      PlaceSum& place = sums.places[row_.place[i]];
      add_to(place.ns, own(i));
      const bool is_outermost = spans_[i].parent == kNoSpan || row_.activity[spans_[i].parent] != row_.activity[i];
      if (v_.begins_in_step(spans_[i].begin) && is_outermost) ++place.count;
    }
    loading();
    compiling();
    collecting();
    if (!v_.has_gpu()) threads();
    zero_grad();
    first_touch();
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

  // The index of the step that a time is in, or of the next one.
  size_t step_at(int64_t time) const {
    const auto step = std::ranges::upper_bound(v_.steps(), time, {}, &StepSpan::end);
    return std::min(static_cast<size_t>(step - v_.steps().begin()), v_.steps().size() - 1);
  }

  // By step: what lies in spans of this activity.
  std::vector<int64_t> by_step_of(Activity activity) const {
    std::vector<int64_t> by_step(v_.steps().size());
    for (size_t i = 0; i < spans_.size(); ++i) {
      const bool is_inside = row_.activity[i] == activity;
      const bool is_around = spans_[i].parent != kNoSpan && row_.activity[spans_[i].parent] == activity;
      if (is_inside != is_around) v_.add_to_steps(spans_[i].begin, spans_[i].end, is_inside ? 1 : -1, by_step);
    }
    return by_step;
  }
  Spread spread_of_activity(Activity activity) const { return spread_of(by_step_of(activity)); }

  void add_spread(const Spread& spread, Finding& f) const {
    std::vector<uint64_t> numbers;
    for (const StepSpan& s : v_.steps()) numbers.push_back(s.number);
    f.is_rare = spread.is_rare();
    if (const std::string text = spread.text(numbers); !text.empty()) add_sentence(f.evidence, text);
  }

  // Whether most of what loading takes lies in steps, several of them, in which a DataLoader starts workers.
  bool starts_workers_anew(const std::vector<int64_t>& loading) const {
    std::vector<bool> has_start(v_.steps().size());
    for (size_t i = 0; i < spans_.size(); ++i)
      if (row_.activity[i] == Activity::kLoading && v_.begins_in_step(spans_[i].begin) &&
          is_in_file(v_.text(spans_[i].name), "multiprocessing/process.py") &&
          function_name(v_.text(spans_[i].name)) == "start")
        has_start[step_at(spans_[i].begin)] = true;
    int64_t in_them = 0, all = 0;
    for (size_t i = 0; i < loading.size(); ++i) {
      add_to(all, loading[i]);
      if (has_start[i]) add_to(in_them, loading[i]);
    }
    return std::ranges::count(has_start, true) > 1 && in_them > all / 2;
  }

  void loading() {
    const Sums& all = sums(Activity::kLoading);
    if (!is_worth(v_.per_step(all.own), v_.step_ns())) return;
    const std::vector<int64_t> by_step = by_step_of(Activity::kLoading);
    const Spread spread = spread_of(by_step);
    Finding f{.rule = "loading",
              .cost_ns = spread.cost(),
              .what = std::string(step_text(v_)) + " waits {} for a DataLoader.",
              .where = v_.where(most_of(all.places)),
              .todo = "Use more workers (num_workers), or do less work for each item."};
    add_spread(spread, f);
    if (starts_workers_anew(by_step)) {
      f.what = std::string(step_text(v_)) + " waits {} for a DataLoader, which starts its workers anew.";
      f.todo = "Make the DataLoader once, before the epochs, with persistent_workers=True.";
      return findings_.push_back(std::move(f));
    }
    std::vector<bool> is_wanted(spans_.size());
    for (size_t i = 0; i < spans_.size(); ++i) {
      const uint32_t parent = spans_[i].parent;
      const bool is_program = spans_[i].kind == SpanKind::kPython && v_.timeline().is_program(spans_[i].name);
      is_wanted[i] = row_.activity[i] == Activity::kLoading && (is_program || (parent != kNoSpan && is_wanted[parent]));
    }
    // torch/utils/data/dataloader.py, 1.13 to 2.15.
    const bool is_alone = std::ranges::none_of(spans_, [this](const TimelineSpan& s) {
      return v_.timeline().role(s.name) == NameRole::kLoading &&
             v_.text(s.name).find("_SingleProcessDataLoaderIter") == std::string_view::npos;
    });
    const Busiest busiest = busiest_of(v_, v_.main(), is_wanted);
    // The program's own functions do most of it: there are no workers.
    if (busiest.ns * 2 >= all.own) {
      add_sentence(f.evidence, "The program loads by itself, without workers: " +
                                   percent_text(busiest.ns, busiest.all_ns) + " of that is in " + busiest.text() + ".");
      f.where = busiest.where;
      f.todo = "Do less work for each item there, do it once ahead of the training, or load in workers (num_workers).";
    } else if (is_alone) {
      add_sentence(f.evidence, "The program loads by itself, without workers.");
      f.todo = "Load in workers (num_workers, persistent_workers=True), or do less work for each item.";
    }
    findings_.push_back(std::move(f));
  }

  void compiling() {
    const Sums& all = sums(Activity::kCompiling);
    if (!is_worth(v_.per_step(all.own), v_.step_ns())) return;
    const Spread spread = spread_of_activity(Activity::kCompiling);
    uint64_t times = 0;
    for (const auto& [place, sum] : all.places) times += sum.count;
    Finding f{.rule = "compiling",
              .cost_ns = spread.cost(),
              .what = "torch.compile compiles again, for {}.",
              .evidence = plural(times, "compilation") + " in " + plural(v_.steps().size(), "step") + ".",
              .where = v_.where(most_of(all.places)),
              .todo =
                  "Compile once, before the steps (torch.compile() in a loop compiles each time); where shapes "
                  "change, pad them or mark_dynamic; TORCH_LOGS=recompiles says why."};
    add_spread(spread, f);
    findings_.push_back(std::move(f));
  }

  void collecting() {
    const Sums& all = sums(Activity::kCollecting);
    if (!is_worth(v_.per_step(all.own), v_.step_ns())) return;
    const Spread spread = spread_of_activity(Activity::kCollecting);
    // A single long collection may well be of what the setup left.
    constexpr double kLeastOfOne = 10;
    if (spread.having == 1 && !is_worth(spread.cost(), v_.step_ns(), kLeastOfOne)) return;
    uint64_t times = 0, at_place = 0;
    int64_t ns = 0;
    const uint32_t most = most_of(all.places);
    for (const auto& [place, sum] : all.places) {
      times += sum.count;
      if (place == most) at_place = sum.count, ns = sum.ns;
    }
    Finding f{.rule = "collecting",
              .cost_ns = spread.cost(),
              .what = "Python's garbage collector takes {}.",
              .evidence = "It runs " + number_text(v_.per_step(times), "time") + ".",
              .where = v_.where(most),
              .todo = "Call gc.freeze() after the setup, or gc.disable() and gc.collect() every some hundred steps."};
    // A collection that comes by itself comes wherever an object is made.
    const bool is_line = std::ranges::any_of(
        spans_, [most](const TimelineSpan& s) { return s.kind == SpanKind::kGc && s.place == most && most != 0; });
    if (is_line && spread.having == spread.steps && at_place >= v_.steps().size() && ns * 10 >= all.own * 9 &&
        at_place * 4 < v_.steps().size() * 5) {
      f.evidence += " It does so in each step, at one line: the program seems to call gc.collect() there.";
      f.todo = "Do not call gc.collect() in each step; if memory has to be freed, each some hundred steps.";
    }
    add_spread(spread, f);
    findings_.push_back(std::move(f));
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
    GroupCost all{.by_step = std::vector<int64_t>(v_.steps().size())};
    for (size_t r = 0; r < v_.rows().size(); ++r) {  // also on autograd's threads
      const RowView& row = v_.rows()[r];
      for (size_t i = 0; i < row.own.size(); ++i) {
        const TimelineSpan& span = v_.timeline().rows[r].spans[i];
        if (span.kind != SpanKind::kOperator || row.own[i] == 0 || !is_divided(v_.text(span.name))) continue;
        all.add(step_at(span.begin), row.place[i], row.own[i]);
      }
    }
    const int64_t ns = all.typical(), cost = ns - ns / cores * *s_.threads;
    if (!is_worth(cost, v_.typical_ns(), 10)) return;
    findings_.push_back({.rule = "threads",
                         .cost_ns = cost,
                         .what = "Matrix products and convolutions run on " + plural(*s_.threads, "thread") + " of " +
                                 plural(*s_.processors, "processor") + ".",
                         .evidence = "They take " + ns_text(ns) + ".",
                         .where = v_.where(most_of(all.places)),
                         .todo = "Set OMP_NUM_THREADS (torchrun sets it to 1), or call torch.set_num_threads()."});
  }

  void zero_grad() {
    GroupCost all{.by_step = std::vector<int64_t>(v_.steps().size())};
    uint64_t calls = 0;
    std::vector<bool> is_in_zero_grad(spans_.size());
    for (size_t i = 0; i < spans_.size(); ++i) {
      const std::string_view name = v_.text(spans_[i].name);
      const uint32_t parent = spans_[i].parent;
      is_in_zero_grad[i] =
          (parent != kNoSpan && is_in_zero_grad[parent]) || v_.timeline().role(spans_[i].name) == NameRole::kZeroGrad;
      const bool zeroes = name == "aten::zero_" || name == "aten::_foreach_zero_";
      if (!zeroes || !is_in_zero_grad[i] || !v_.begins_in_step(spans_[i].begin)) continue;
      const bool is_inside = parent != kNoSpan &&
                             v_.text(spans_[parent].name).find("zero_") != std::string_view::npos &&
                             spans_[parent].kind == SpanKind::kOperator;
      if (is_inside) continue;  // the outer one counts
      ++calls;
      all.add(step_at(spans_[i].begin), row_.place[i], v_.in_steps(spans_[i].begin, spans_[i].end));
    }
    const int64_t cost = all.typical();
    if (calls < v_.steps().size() || !is_worth(cost, v_.typical_ns())) return;
    findings_.push_back({.rule = "zero_grad",
                         .cost_ns = cost,
                         .what = "Gradients are set to zero, one after another: {}.",
                         .evidence = number_text(v_.per_step(calls), "call") + ".",
                         .where = v_.where(most_of(all.places)),
                         .todo = "Call zero_grad(set_to_none=True).",
                         .is_on_thread = true});
  }

  // Of the program around it, as far as that is known: in a backward it is not what allocates.
  uint32_t place_of(const TimelineAllocation& a) const {
    if (v_.timeline().is_program(a.place)) return a.place;
    const auto after = std::ranges::upper_bound(spans_, a.time, {}, &TimelineSpan::begin);
    if (after == spans_.begin()) return a.place;
    auto i = static_cast<uint32_t>(after - spans_.begin() - 1);
    while (i != kNoSpan && spans_[i].end <= a.time) i = spans_[i].parent;
    return i == kNoSpan || row_.place[i] == 0 ? a.place : row_.place[i];
  }

  void first_touch() {
    constexpr int64_t kPage = 4096, kPageNs = 1000;
    PlaceSums places;
    int64_t bytes = 0;
    uint64_t blocks = 0;
    for (const TimelineAllocation& a : v_.timeline().large_blocks) {
      if (!v_.begins_in_step(a.time)) continue;
      add_to(bytes, a.bytes);
      add_to(places[place_of(a)].ns, a.bytes);
      ++blocks;
    }
    const int64_t cost = v_.per_step(bytes / kPage * kPageNs);
    if (blocks < v_.steps().size() || !is_worth(cost, v_.step_ns())) return;
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

  const Subject& s_;
  const StepView& v_;
  const RowView& row_;
  const std::vector<TimelineSpan>& spans_;
  Findings& findings_;
  std::array<Sums, kActivities> of_;
};

// What stays in memory, of each step some more. After the rules about Python: a line that takes time to make what it
// keeps is one of theirs, too.
class GrowthRules {
 public:
  GrowthRules(const Subject& subject, Findings& findings) : s_(subject), v_(subject.view), findings_(findings) {
    for (const StepUse& u : v_.timeline().step_use) {
      steps_ += u.steps;
      if (u.resident_bytes != 0) seen_.emplace_back(steps_, u.resident_bytes);
    }
  }

  void run() {
    if (!leak()) python_leak();
  }

 private:
  static constexpr size_t kFewestSeen = 12;
  static constexpr double kLeastWeight = 0.1;

  static constexpr std::string_view kWhatGetsLonger =
      "Look for what gets longer with each step: a list, a dictionary, a history of numbers; keep an array of them, "
      "write them out, or drop them";

  // Whether it names what Python keeps.
  bool leak() {
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
      if (g.device_type == kPythonMemory) {
        findings_.push_back({.rule = "leak",
                             .what = "Python objects that are kept grow by about " + memory_text(rate) + " a step.",
                             .evidence = "Samples of what Python allocates (an estimate): " +
                                         plural(blocks, "sampled block") + " from " + plural(g.steps, "step") + " of " +
                                         count_text(g.looked) + " stay; this line made the most of them.",
                             .where = g.owner.place,
                             .todo = std::string(kWhatGetsLonger) + ".",
                             .weight = weight(rate)});
        return true;
      }
      const std::string_view device = g.device_type == 0 ? "CPU" : "GPU";
      findings_.push_back(
          {.rule = "leak",
           .what = "Memory of the " + std::string(device) + " grows by " + memory_text(rate) + " a step.",
           .evidence = plural(blocks, "block") + " from " + plural(g.steps, "step") + " of " + count_text(g.looked) +
                       " stay; the largest are " + (g.owner.op.empty() ? "the program" : g.owner.op) + "'s.",
           .where = g.owner.place,
           .todo = "Keep numbers instead of tensors that hold a graph (loss.item(), detach()), and empty the lists "
                   "that keep them.",
           .weight = g.device_type == 0 ? weight(rate) : kLeastWeight});
      return false;
    }
    return false;
  }

  // The process grows, and torch's tensors do not: from a quarter of the run on, in both halves of the rest, so that
  // what grows once, as caches do, does not count. Tensors that stay cost the process a multiple of what they have, as
  // they lie between blocks that are freed, and the allocator cannot give these back. Measured: 4 times, with 156 KiB a
  // step that stay of 3 MiB. So where a good part of the growth may be theirs, nothing is said.
  void python_leak() {
    constexpr uint64_t kLeast = 64 << 10, kLeastInAll = 16 << 20;  // bytes of a step, and of all
    constexpr int64_t kAround = 16;                                // what a tensor that stays may keep, of its own size
    if (seen_.size() < kFewestSeen) return;
    const auto rate = [](auto a, auto b) {
      return b.first > a.first && b.second > a.second ? (b.second - a.second) / (b.first - a.first) : 0;
    };
    const uint64_t early = rate(at(2), at(5)), late = rate(at(5), at(8));
    const uint64_t growth = std::min(early, late);
    int64_t tensors = 0;
    for (const MemoryGrowth& g : s_.growth)
      if (g.looked != 0 && g.device_type == 0) add_to(tensors, g.bytes / static_cast<int64_t>(g.looked));
    if (growth < kLeast || std::max(early, late) > 3 * growth) return;
    if (tensors > static_cast<int64_t>(growth) / kAround) return;
    if (at(8).second - at(2).second < kLeastInAll) return;
    const bool is_known = s_.knows_growth && v_.steps().size() * 2 >= steps_;
    const std::string by =
        "Memory of the process grows by about " + memory_text(static_cast<int64_t>(growth)) + " a step";
    const std::string from = "From " + memory_text(static_cast<int64_t>(at(2).second)) + " to " +
                             memory_text(static_cast<int64_t>(at(8).second)) + " in " +
                             plural(at(8).first - at(2).first, "step") + ". ";
    if (is_known) {
      Finding f{.rule = "leak",
                .what = by + ", that of torch's tensors does not.",
                .evidence = from + "So it is Python objects that are kept, or memory of a library.",
                .todo = std::string(kWhatGetsLonger) + " (--memory python names the lines).",
                .weight = weight(static_cast<int64_t>(growth))};
      f.where = line_that_keeps(v_, findings_);
      if (!f.where.empty())
        add_sentence(f.evidence,
                     "Probably by this line: it adds to a container that outlives the step, and takes time "
                     "to make what it adds (an estimate).");
      findings_.push_back(std::move(f));
    } else {
      findings_.push_back({.rule = "leak",
                           .what = by + ".",
                           .evidence = from + "Whether torch's tensors do is not known: in most steps their memory was "
                                              "not recorded.",
                           .todo =
                               "Record one window of many steps with allocations (-w steps=100..150): what stays of "
                               "tensors is then named, and if nothing does, it is Python objects.",
                           .weight = weight(static_cast<int64_t>(growth))});
    }
  }

  // The steps that had ended, and what the process had in memory, so many eighths into what was seen.
  std::pair<uint64_t, uint64_t> at(size_t eighths) const { return seen_[(seen_.size() - 1) * eighths / 8]; }
  // A process that grows by half of what it had while it was looked at will soon be ended for want of memory: that
  // counts as much as all of a step. `rate`: bytes a step.
  double weight(int64_t rate) const {
    if (seen_.size() < kFewestSeen) return kLeastWeight;
    const double grown = static_cast<double>(rate) * static_cast<double>(at(8).first - at(2).first);
    return std::clamp(2 * grown / static_cast<double>(at(2).second), kLeastWeight, 1.0);
  }

  const Subject& s_;
  const StepView& v_;
  Findings& findings_;
  std::vector<std::pair<uint64_t, uint64_t>> seen_{};  // steps that had ended, bytes
  uint64_t steps_ = 0;
};

}  // namespace

void find_on_the_host(const Subject& subject, Findings& findings) {
  if (subject.view.has_main()) HostRules(subject, findings).run();
}

void find_growth(const Subject& subject, Findings& findings) {
  if (subject.view.has_main()) GrowthRules(subject, findings).run();
}

void add_sentence(std::string& text, std::string_view sentence) {
  if (!text.empty()) text += " ";
  text += sentence;
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
  constexpr double kRare = 0.1;
  if (n > 0 && n < kRare) return plural(1, what) + " in " + plural(static_cast<uint64_t>(std::llround(1 / n)), "step");
  if (n >= 10) return plural(static_cast<uint64_t>(std::llround(n)), what);
  const auto whole = static_cast<uint64_t>(n);
  return static_cast<double>(whole) == n ? plural(whole, what) : print("%.1f ", n) + plural(2, what).substr(2);
}

const char* step_text(const StepView& view) { return view.has_steps() ? "A step" : "The run"; }

}  // namespace torchprof::formats
