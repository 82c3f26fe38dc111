#include "formats/timeline/build.h"

#include <algorithm>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "formats/analysis/program_places.h"
#include "formats/io/error.h"
#include "formats/io/nearest.h"
#include "formats/io/sum.h"
#include "formats/io/text.h"
#include "formats/replay/replay.h"
#include "formats/replay/thread_stack.h"
#include "formats/trace/gpu_index.h"
#include "formats/trace/name_role.h"

namespace torchprof::formats {
namespace {

class TimelineSink final : public Sink, public Analysis<Timeline> {
 public:
  TimelineSink(const Process& process, Replay& replay, std::span<const StepSpan> steps, RecurringUnit* unit)
      : process_(process),
        replay_(replay),
        places_(process, replay_.names()),
        is_to_find_(wants_unit(process, steps)),
        unit_(unit) {
    replay.add(*this);
    into_.begin = process.start.value;
    into_.end = process.capture_end.value;
    into_.steps = chosen_steps(is_to_find_ ? std::span<const StepSpan>{} : steps, process.counts.records / 2);
    into_.step_use = step_use_of(process);
    into_.machine_use = machine_use_of(process);
  }

  Timeline finish() override {
    for (size_t row = 0; row < into_.rows.size(); ++row) {
      const Row& known = replay_.rows()[row];
      const std::string_view name = known.python_name.empty() ? known.thread_name : known.python_name;
      into_.rows[row].thread = std::to_string(known.sort_tid).append(" (").append(name).append(")");
      into_.rows[row].is_overflow = known.is_overflow;
    }
    add_samples();
    if (process_.gpu)
      for (const auto& [number, device] : process_.gpu->devices())
        into_.device_names[number] = process_.string(device.name);
    into_.finish();
    if (is_to_find_) find();
    return std::move(into_);
  }

  void slice(const Slice& s) override {
    if (s.kind == SliceKind::kPython && !s.object) note_state(s);
    if (s.kind == SliceKind::kBlind || !is_wanted(s.begin.value, s.end.value)) return;
    SpanKind kind = SpanKind::kPython;
    if (s.kind == SliceKind::kCCall) kind = SpanKind::kCCall;
    if (s.kind == SliceKind::kGc) kind = SpanKind::kGc;
    if (s.kind == SliceKind::kOperator) kind = is_annotation(s.scope) ? SpanKind::kAnnotation : SpanKind::kOperator;
    if (s.kind == SliceKind::kPython && s.object) kind = SpanKind::kModule;
    if (const ObjectDef* object = s.object ? replay_.names().object(s.object) : nullptr;
        object != nullptr && object->stepper && object->stepper != object->id)
      into_.set_replacing(name(s.name));
    NameId place = s.is_program ? NameId{} : s.line;
    // Without lines it is known by the name of the function around it.
    const bool is_op = s.kind == SliceKind::kOperator;
    if (is_op && !place && has_stacks_) place = places_.of({s.around, s.depth}, s.native);
    spans(s.row).push_back({.begin = s.drawn_begin.value,
                            .end = s.drawn_end.value,
                            .name = name(s.name),
                            .place = name(place),
                            .called_from = s.is_program ? name(s.line) : 0,
                            .inputs = kind == SpanKind::kOperator ? inputs(s.inputs) : 0,
                            .sequence = kind == SpanKind::kOperator ? sequence(s.sequence) : 0,
                            .kind = kind,
                            .is_backward = s.is_backward,
                            .is_async = s.is_async});
    ++count_;
  }

  void memory(const MemoryEvent& m) override {
    if (m.is_out_of_memory || m.is_mapped || m.device_type != 0) return;
    if (m.bytes <= -kMappedAnew) into_.large_frees.push_back({m.time.value, -std::max(m.bytes, -INT64_MAX), m.row});
    if (m.bytes < kMappedAnew) return;
    const NameId place = m.function ? replay_.names().place(m.function, m.line) : NameId{};
    into_.large_blocks.push_back({m.time.value, m.bytes, name(place)});
  }

  void gpu_call(const GpuCall& c) override {
    if (!is_wanted(c.begin.value, c.end.value)) return;
    NameId place = c.stack->line();
    if (!place && has_stacks_) place = places_.of(c.stack->spans(), c.native);
    spans(c.row).push_back({.begin = c.begin.value,
                            .end = c.end.value,
                            .name = name(c.name),
                            .place = name(place),
                            .correlation = c.api->correlation,
                            .kind = SpanKind::kCall,
                            .is_backward = c.is_backward});
    ++count_;
  }

  void gpu_activity(const GpuActivity& a) override {
    // What a step launched may run after it.
    const bool is_launched = a.call != nullptr && is_wanted(a.call->begin.value, a.call->end.value);
    if (!is_launched && !is_wanted(a.begin.value, a.end.value)) return;
    if (a.kind == Kind::GpuSync) return add_wait(a);
    if (!runs_on_device(a.kind)) return;
    TimelineWork work{.begin = a.begin.value,
                      .end = a.end.value,
                      .name = name(a.name),
                      .device = a.device,
                      .stream = a.stream,
                      .correlation = a.correlation};
    if (a.kind == Kind::GpuCopy) {
      work.kind = WorkKind::kCopy;
      work.bytes = a.as<GpuCopy>().bytes;
    } else if (a.kind == Kind::GpuSet) {
      work.kind = WorkKind::kSet;
      work.bytes = a.as<GpuSet>().bytes;
    }
    into_.work.push_back(work);
    ++count_;
  }

 private:
  void find() {
    std::vector<StepSpan> windows;
    for (const Window& w : process_.windows) windows.push_back({w.begin.value, w.end.value, w.number});
    RecurringUnit found = find_unit(into_, {process_.selection.step, windows});
    use_unit(into_, found);
    if (unit_ != nullptr) *unit_ = std::move(found);
  }

  void add_samples() {
    if (process_.samples.empty()) return;
    std::unordered_map<uint32_t, uint32_t> rows;  // by tid
    for (uint32_t row = 0; row < into_.rows.size(); ++row)
      if (!replay_.rows()[row].is_overflow) rows.try_emplace(replay_.rows()[row].tid, row);
    into_.frames.resize(std::max<size_t>(1, process_.sampled_nodes.size()));
    for (size_t i = 1; i < process_.sampled_nodes.size(); ++i) {
      const SampledNode& node = process_.sampled_nodes[i];
      into_.frames[i] = {node.caller, node.function ? name(replay_.names().place(node.function, node.line)) : 0};
    }
    for (const ThreadSample& s : process_.samples) {
      if (into_.samples.size() == kMostThreadSamples) {
        into_.is_cut = true;
        break;
      }
      const auto row = rows.find(s.tid);
      into_.samples.push_back({.begin = std::max(s.begin.value, kEarliest),
                               .end = std::max(s.end.value, kEarliest),
                               .ran_ns = s.ran_ns,
                               .queued_ns = s.queued_ns,
                               .tid = s.tid,
                               .row = row == rows.end() ? kNoSpan : row->second,
                               .frame = s.node,
                               .what = s.what,
                               .what_name = into_.name(process_.string(s.name)),
                               .wait = s.wait,
                               .is_inner = s.is_inner});
    }
    std::ranges::stable_sort(into_.samples, {}, &TimelineSample::end);
  }

  bool is_wanted(int64_t begin, int64_t end) {
    if (count_ >= 2 * kMostSpans) {
      into_.is_cut = true;
      return false;
    }
    if (into_.steps.empty()) return true;
    // The first step that ends after `begin`.
    const auto step = std::ranges::upper_bound(into_.steps, begin, {}, &StepSpan::end);
    return step != into_.steps.end() && step->begin < end;
  }

  void add_wait(const GpuActivity& a) {
    const auto& sync = a.as<GpuSync>();
    TimelineWait wait{.begin = a.begin.value,
                      .end = a.end.value,
                      .device = a.device,
                      .stream = sync.stream,
                      .correlation = sync.correlation,
                      .kind = sync.type <= 4 ? static_cast<WaitKind>(sync.type) : WaitKind::kOther};
    if (wait.kind == WaitKind::kEvent || wait.kind == WaitKind::kStreamEvent) {
      if (const auto recorded = process_.gpu->recorded(sync.context, sync.event, sync.correlation)) {
        wait.recorded = recorded->correlation;
        wait.of_stream = recorded->stream;
      }
    }
    into_.waits.push_back(wait);
  }

  std::vector<TimelineSpan>& spans(uint32_t row) {
    if (row >= into_.rows.size()) into_.rows.resize(row + 1);
    return into_.rows[row].spans;
  }

  enum class Sign : uint8_t { kUnseen, kNone, kProfilerOn, kProfilerOff, kAnomalies, kOptimizer, kChild };

  // torch 1.13 to 2.15.
  static Sign sign_of(std::string_view function) {
    const auto is = [function](std::string_view file, std::string_view name) {
      const size_t at = function.rfind(file);
      const bool is_whole = at == 0 || (at != function.npos && function[at - 1] == '/');
      return is_whole && function.substr(at + file.size()).starts_with('(') && function.ends_with(name);
    };
    // Python 3.10 to 3.15.
    if (is("subprocess.py", "): __init__") || is("multiprocessing/process.py", "): start")) return Sign::kChild;
    if (function.find("torch/") == function.npos) return Sign::kNone;
    constexpr std::string_view kAutograd = "torch/autograd/profiler.py";
    if (is(kAutograd, "): _start_trace")) return Sign::kProfilerOn;
    if (is(kAutograd, "): _parse_kineto_results") || is(kAutograd, "): _run_on_profiler_stop") ||
        is("torch/profiler/profiler.py", "): stop_trace"))
      return Sign::kProfilerOff;
    if (is("torch/autograd/anomaly_mode.py", "): __init__")) return Sign::kAnomalies;
    return is("torch/optim/optimizer.py", "): __init__") ? Sign::kOptimizer : Sign::kNone;
  }

  void note_state(const Slice& s) {
    if (s.name.value >= signs_.size()) signs_.resize(std::max<size_t>(s.name.value + 1, signs_.size() * 2));
    Sign& sign = signs_[s.name.value];
    if (sign == Sign::kUnseen) sign = sign_of(replay_.names().text(s.name));
    if (sign == Sign::kNone || into_.states.size() >= kMostStates) return;
    if (sign == Sign::kProfilerOff) {
      if (profiler_ < into_.states.size()) into_.states[profiler_].end = s.begin.value;
      profiler_ = SIZE_MAX;
      return;
    }
    TimelineState state{.kind = StateKind::kProfiler, .begin = s.end.value, .end = process_.capture_end.value};
    if (sign == Sign::kProfilerOn) {
      if (profiler_ != SIZE_MAX) return;
      profiler_ = into_.states.size();
    } else {
      state.kind = sign == Sign::kAnomalies   ? StateKind::kAnomalies
                   : sign == Sign::kOptimizer ? StateKind::kOptimizer
                                              : StateKind::kChild;
    }
    if (sign == Sign::kChild && is_of_torch(s)) return;
    state.place = name(place_around(s));
    if (sign == Sign::kOptimizer)
      for (uint32_t i = s.depth; i-- > 0;) {
        const std::string_view around = replay_.names().text(s.around[i].name);
        const size_t at = around.find("torch/optim/");
        if (at == around.npos) break;
        state.what.append(around.substr(at + 12, around.find('(', at) - at - 12)).append(" ");
      }
    into_.states.push_back(std::move(state));
  }

  // Whether torch calls it: the workers of a DataLoader, those of a compiler.
  bool is_of_torch(const Slice& s) {
    for (uint32_t i = s.depth; i-- > 0 && !places_.is_program(s.around[i]);)
      if (s.around[i].name && replay_.names().text(s.around[i].name).find("torch/") != std::string_view::npos)
        return true;
    return false;
  }

  // Of the program around it; none: not known.
  NameId place_around(const Slice& s) {
    if (s.line && !s.is_program) return s.line;
    for (uint32_t i = s.depth; i-- > 0;)
      if (places_.is_program(s.around[i])) return places_.of({s.around, i + 1});
    return {};
  }

  uint32_t inputs(StringId id) {
    if (!id) return 0;
    const auto [known, is_new] = inputs_.try_emplace(id.value, 0);
    if (is_new) known->second = into_.add_inputs(decode_inputs(process_.string(id)));
    return known->second;
  }

  // Numbers that are equal in 32 bits lie billions of operators apart.
  static uint32_t sequence(int64_t number) { return number < 0 ? 0 : static_cast<uint32_t>(number) + 1; }

  uint32_t name(NameId id) {
    if (!id) return 0;
    if (id.value >= names_.size()) names_.resize(std::max<size_t>(id.value + 1, names_.size() * 2));
    uint32_t& known = names_[id.value];
    if (known == 0) {
      known = into_.name(replay_.names().text(id));
      into_.set_program(known, replay_.names().is_program(id));
      if (replay_.names().is_installed(id)) into_.set_installed(known);
      if (const std::string_view file = replay_.names().file(id); !file.empty()) into_.set_file(known, file);
      if (const std::string_view qualname = replay_.names().qualname(id); !qualname.empty())
        into_.set_qualname(known, qualname);
    }
    return known;
  }

  const Process& process_;
  Timeline into_;
  Replay& replay_;
  ProgramPlaces places_;
  const bool is_to_find_;  // a unit
  RecurringUnit* const unit_;
  const bool has_stacks_ = process_.native != nullptr || process_.call_sites.size() > 1;
  std::vector<uint32_t> names_;                    // by NameId
  std::unordered_map<uint32_t, uint32_t> inputs_;  // by StringId
  std::vector<Sign> signs_;                        // by NameId
  size_t profiler_ = SIZE_MAX;                     // the state that is on; SIZE_MAX: none
  size_t count_ = 0;
};

}  // namespace

void check_step(const Trace& trace, const std::string& step) {
  constexpr size_t kMostNames = 100'000;
  std::set<std::string> known;
  const auto add = [&known](std::string_view name, std::string_view before = {}) {
    if (known.size() < kMostNames && !name.empty()) known.insert(std::string(before).append(name));
  };
  for (const Process& p : trace.processes) {
    for (const FunctionDef& f : p.functions) {
      if (!f.id || f.kind == FunctionKind::kImport) continue;
      const std::string_view name = p.string(f.name), path = p.string(f.file), qualname = p.string(f.qualname);
      const std::string_view file = path.substr(path.rfind('/') + 1);
      for (const std::string_view each : {name, qualname, without_locals(qualname)})
        if (!each.empty() && (step == each || step == std::string(file).append(":").append(each))) return;
      if (is_program_file(path)) add(qualname.empty() ? name : without_locals(qualname));
    }
    Names names(p);
    for (const ObjectDef& object : p.objects) {
      if (!object.id || object.kind != ObjectKind::kModule) continue;
      const std::string_view name = p.string(object.class_name);
      if (step == name || without_role(names.text(names.function({}, object.id)), NameRole::kModule) == step) return;
      add(name);
    }
    constexpr std::string_view kRange = "range=";
    if (!step.starts_with(kRange)) continue;
    const std::string_view range = std::string_view(step).substr(kRange.size());
    for (const std::string_view text : p.strings) {
      if (text == range || without_last_number(text) == range) return;
      add(text, kRange);
    }
  }
  throw Error("--step: no function, module or range '" + printable(step) + "' was called" +
              did_you_mean(step, std::vector<std::string>(known.begin(), known.end())));
}

bool wants_unit(const Process& process, std::span<const StepSpan> steps) {
  if (!process.selection.step.empty()) return true;
  // Of multiprocessing's workers some are the program, as those of a server.
  const bool is_program = !process.is_helper || process.role.find("multiprocessing worker") != std::string::npos;
  return steps.empty() && is_program;
}

std::unique_ptr<Analysis<Timeline>> build_timeline(const Process& process, Replay& replay,
                                                   std::span<const StepSpan> steps, RecurringUnit* unit) {
  return std::make_unique<TimelineSink>(process, replay, steps, unit);
}

Timeline timeline_of(const Process& process, std::span<const StepSpan> steps) {
  Replay replay(process);
  TimelineSink sink(process, replay, steps, nullptr);
  replay.run();
  return sink.finish();
}

}  // namespace torchprof::formats
