#include "formats/trace/trace.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <tuple>

#include "formats/io/error.h"
#include "formats/io/parallel.h"
#include "formats/io/sum.h"
#include "formats/trace/endings.h"
#include "formats/trace/python_stacks.h"
#include "formats/trace/roles.h"
#include "formats/trace/spool_loader.h"

namespace torchprof::formats {
namespace {

// The two clock samples that are furthest apart.
struct Baseline {
  ClockSample first;
  ClockSample last;
  uint64_t width() const { return last.ticks.value - first.ticks.value; }
};

Baseline baseline_of(const SpoolReader& spool) {
  const FileHeader& h = spool.header();
  Baseline b{h.start, h.start};
  auto widen = [&b, &spool](const ClockSample& s) {
    if (!spool.plausible(s)) return;
    if (s.ticks < b.first.ticks) b.first = s;
    if (s.ticks > b.last.ticks) b.last = s;
  };
  for (const ChunkView& chunk : spool.chunks()) widen(chunk.base);
  if (const uint64_t ticks = h.last_ticks.load(std::memory_order_relaxed); ticks != 0) {
    widen(
        {{ticks}, h.last_monotonic.load(std::memory_order_relaxed), {h.last_realtime.load(std::memory_order_relaxed)}});
  }
  return b;
}

clock::Converter converter(ClockSource source, Baseline b) {
  b.first.realtime.value = std::clamp<int64_t>(b.first.realtime.value, 0, kLatest);
  // A rate that no machine has comes from damaged samples, or over a short time from chance.
  const auto ns = static_cast<double>(b.last.monotonic) - static_cast<double>(b.first.monotonic);
  const auto ticks = static_cast<double>(b.width());
  if (ns * kMaxTicksPerNs < ticks || ns > ticks * kMaxTicksPerNs) b.last = b.first;
  return {source, b.first, b.last};
}

// Whether the process with the baseline `b` has the same clocks as `common`: the same boot of the same machine.
bool same_clocks(const Baseline& common, const Baseline& b) {
  const auto ticks = static_cast<double>(common.width());
  const auto ns = static_cast<double>(common.last.monotonic) - static_cast<double>(common.first.monotonic);
  const double ns_per_tick = ticks > 0 ? ns / ticks : 1;
  const auto ticks_here = static_cast<double>(static_cast<int64_t>(b.first.ticks.value - common.first.ticks.value));
  const auto ns_here = static_cast<double>(b.first.monotonic) - static_cast<double>(common.first.monotonic);
  return std::abs(ticks_here * ns_per_tick - ns_here) <= 1e6 + 1e-3 * std::abs(ns_here);
}

// Sets Process::machine and clock. The widest baseline of a machine tells its rate best.
std::vector<Machine> choose_clocks(std::vector<Process>& processes, const std::vector<Machine>& known) {
  std::vector<Baseline> own;
  std::vector<size_t> widest_first;
  for (const Process& p : processes) {
    widest_first.push_back(own.size());
    own.push_back(baseline_of(*p.spool));
  }
  std::ranges::stable_sort(widest_first, std::greater<>(), [&own](size_t i) { return own[i].width(); });
  std::map<std::pair<std::string_view, ClockSource>, std::vector<size_t>> found;  // the widest of each machine
  std::vector<size_t> widest(processes.size());                                   // of its machine
  for (const size_t i : widest_first) {
    std::vector<size_t>& of_host = found[{processes[i].host, processes[i].spool->clock()}];
    const auto same = std::ranges::find_if(of_host, [&](size_t other) { return same_clocks(own[other], own[i]); });
    widest[i] = same == of_host.end() ? of_host.emplace_back(i) : *same;
  }
  std::vector<Machine> machines;
  std::map<size_t, uint32_t> numbers;  // by the widest
  for (size_t i = 0; i < processes.size(); ++i) {
    const auto [number, is_new] = numbers.try_emplace(widest[i], static_cast<uint32_t>(machines.size()));
    processes[i].machine = number->second;
    if (is_new) machines.push_back({.host = std::string(processes[i].host), .reference = number->second});
  }
  for (size_t m = 0; m < machines.size() && known.size() == machines.size(); ++m)
    if (known[m].host == machines[m].host) machines[m] = known[m];
  for (size_t i = 0; i < processes.size(); ++i) {
    Machine& machine = machines[processes[i].machine];
    processes[i].clock_reference = machine.reference;
    processes[i].clock_error_ns = machine.error_ns;
    processes[i].clock = {converter(processes[i].spool->clock(), own[widest[i]]), machine.correction};
  }
  return machines;
}

// After the clock, the start and the end of the process are known.
void place_windows(Process& p, const std::vector<WindowDef>& windows) {
  UnixNs last = p.start;
  for (const WindowDef& def : windows) {
    // A forked child has its parent's definitions, too.
    if (def.end != 0 && p.clock.to_unix({def.end}) < p.start && !p.forked_from.empty()) continue;
    if (def.is_given_up) {
      p.windows_given_up += def.reason != WindowReason::kLast;
      continue;
    }
    const UnixNs end = std::max(last, std::min(p.end, def.end == 0 ? p.capture_end : p.clock.to_unix({def.end})));
    p.windows.push_back({.number = def.number,
                         .step = def.step,
                         .begin = std::clamp(p.clock.to_unix({def.begin}), last, end),
                         .end = end,
                         .closed = def.end != 0,
                         .reason = std::min(def.reason, WindowReason::kCount)});
    last = std::max(last, end);
  }
  if (!p.windows.empty()) p.capture_end = std::min(p.capture_end, last);
}

// After the windows.
void place_steps(Process& p, const SpoolRest& rest) {
  const auto kept = [&p](uint32_t number) {
    return p.windows.empty() || std::ranges::binary_search(p.windows, number, {}, &Window::number);
  };
  const auto adds_nothing = [&rest](const SpoolRest::Step& s) {
    const bool is_known = s.window != 0 && s.window <= rest.windows.size();
    return s.was_open == 0 || (s.was_open == 2 && is_known && rest.windows[s.window - 1].reason == WindowReason::kLast);
  };
  const SpoolRest::Step* before = nullptr;
  p.steps.reserve(rest.steps.size());
  for (const SpoolRest::Step& s : rest.steps) {
    if (s.step == 0) {
      before = &s;
      continue;
    }
    StepTime& step = p.steps.emplace_back();
    step.step = s.step - 1;
    step.end = p.clock.to_unix(s.end);
    if (before != nullptr && before->step + 1 == s.step)
      step.ns = std::max<int64_t>(1, step.end - p.clock.to_unix(before->end) - int64_t{s.switching_us} * 1000);
    if (s.was_open != 0 && s.window != 0 && kept(s.window)) step.window = s.window;
    step.is_free = adds_nothing(s);
    step.in_full = s.was_open == 2 && kept(s.window);
    before = &s;
  }
  for (const SpoolRest::Sample& sample : rest.resident)
    p.resident.push_back({p.clock.to_unix(sample.at), sample.bytes});
  for (const auto& [at, use] : rest.processor_times) {
    UsedByStep& used = p.used_by_steps.emplace_back();
    used = {.at = p.clock.to_unix(at), .tid = use.tid, .ran = use.ran, .process_ran = use.process_ran};
    if (use.queued != ProcessorTime::kNotKnown) used.queued = use.queued;
  }
  for (const auto& [at, use] : rest.machine_times)
    p.used_by_machine.push_back({p.clock.to_unix(at), use.idle, use.processors, use.allowed, use.operator_threads});
  constexpr int64_t kUs = 1000;
  for (const auto& [at, sample] : rest.samples) {
    const UnixNs end{p.clock.to_unix(at).value - sample.late_us * kUs};
    const uint32_t ran = std::min(sample.ran_us, sample.period_us);
    p.samples.push_back({.begin = {end.value - sample.period_us * kUs},
                         .end = end,
                         .ran_ns = ran * kUs,
                         .queued_ns = std::min(sample.queued_us, sample.period_us - ran) * kUs,
                         .tid = sample.tid,
                         .node = sample.node < p.sampled_nodes.size() ? sample.node : 0,
                         .what = sample.what,
                         .name = sample.name,
                         .wait = std::min(sample.wait, SampledWait::kCount),
                         .is_inner = sample.is_inner != 0});
  }
  for (const auto& [tid, stack] : rest.stacks)
    if (rest.steps.empty() || stack.at >= rest.steps.back().end)
      p.stacks.push_back({tid, p.clock.to_unix(stack.at), stack.beyond, stack.frames});
  trim_stated(p);
}

// Start, end, windows and all else that needs the process's clock. Takes what it keeps out of `rest`.
void place_in_time(Process& p, SpoolRest& rest) {
  const Baseline b = baseline_of(*p.spool);
  const Ticks last_known = std::max(b.last.ticks, rest.last_event);
  p.start = p.clock.to_unix(b.first.ticks);
  p.end = std::max(p.start, p.clock.to_unix(b.last.ticks));
  if (rest.last_event != Ticks{}) p.end = std::max(p.end, p.clock.to_unix(rest.last_event));
  const Ticks stop{p.spool->header().stop_ticks.load(std::memory_order_relaxed)};
  const bool stopped = stop != Ticks{} && stop > b.first.ticks && stop <= last_known;
  p.capture_end = stopped ? std::clamp(p.clock.to_unix(stop), p.start, p.end) : p.end;
  if (stop > b.first.ticks) p.stopped = p.clock.to_unix(stop);
  place_windows(p, rest.windows);
  place_steps(p, rest);
  p.blind = rest.blind.total(p);
  if (rest.gpu) rest.gpu->finish(p.clock, last_known);
  p.gpu = std::move(rest.gpu);
}

// The definitions of thousands of processes would fill the memory. Reading them again makes the kernel load the pages
// again.
void release_definitions(const std::vector<Process>& processes) {
  for (const Process& p : processes) p.spool->release();
}

}  // namespace

const char* loss_text(LossCause cause) {
  switch (cause) {
    case LossCause::kSizeLimit:
      return "the size limit was reached (--max-size)";
    case LossCause::kDiskFull:
      return "the spool could not grow: the disk is full";
    case LossCause::kNoMemory:
      return "memory could not be mapped";
    case LossCause::kRunSize:
      return "the size limit of the run was reached (--max-run-size)";
    case LossCause::kSeccomp:
      return "the program entered seccomp, which forbids what recording needs";
    case LossCause::kFileSize:
      return "the limit of file sizes was reached (ulimit -f)";
    case LossCause::kReentry:
      return "they came from inside the profiler's own callbacks";
    case LossCause::kCount:
      break;
  }
  return "cause unknown";
}

const char* reason_text(WindowReason reason) {
  switch (reason) {
    case WindowReason::kStart:
      return "the beginning";
    case WindowReason::kTypical:
      return "typical";
    case WindowReason::kSlow:
      return "after a slow step";
    case WindowReason::kExpected:
      return "a slow step was due";
    case WindowReason::kOverdue:
      return "in the midst of a long step";
    case WindowReason::kMemory:
      return "after a jump in memory";
    case WindowReason::kAsked:
      return "asked for";
    case WindowReason::kLast:
      return "the last steps";
    case WindowReason::kNone:
    case WindowReason::kCount:
      break;
  }
  return "";
}

uint32_t FunctionLines::line_at(uint32_t instruction) const {
  const auto after = std::ranges::upper_bound(rows, instruction, {}, &Row::instruction);
  return after == rows.begin() ? 0 : std::prev(after)->line;
}

EventCounts& EventCounts::operator+=(const EventCounts& other) {
  python += other.python;
  c_calls += other.c_calls;
  operators += other.operators;
  inputs += other.inputs;
  memory += other.memory;
  stacks += other.stacks;
  gpu_work += other.gpu_work;
  gpu_calls += other.gpu_calls;
  records += other.records;
  unknown += other.unknown;
  return *this;
}

std::span<const StepTime> Process::timed_steps() const {
  const std::string_view spec = meta("window");
  return windows.empty() || spec.empty() || spec == "auto" ? std::span(steps) : std::span<const StepTime>();
}

bool Process::has_windows_of_steps() const {
  const std::string_view spec = meta("window");
  return spec.empty() || spec.starts_with("steps=") || spec.starts_with("schedule=") ||
         (spec.starts_with("every=") && spec.find("steps") != spec.npos);
}

std::string_view Process::meta(std::string_view key) const {
  const auto it = std::ranges::find(metadata, key, &Meta::key);
  return it == metadata.end() ? std::string_view{} : it->value;
}

uint64_t Process::lost_events() const {
  uint64_t total = lost[static_cast<size_t>(LossCause::kReentry)];
  // Without `stopped` the spool does not say when they were lost: it is of an earlier version, or its process was
  // killed at that moment.
  for (size_t i = 0; i < lost.size() && !stopped; ++i)
    if (static_cast<LossCause>(i) != LossCause::kReentry) total += lost[i];
  return total;
}

namespace {
struct LoadedSpool {
  Process process;
  SpoolRest rest;
  std::string why_not;  // the process has no `spool`
};
}  // namespace

Trace load(const std::vector<std::filesystem::path>& spools, Contents contents, const std::vector<Machine>& machines) {
  Trace trace;
  std::vector<SpoolRest> rests;
  std::filesystem::path directory;
  const auto loaded = [&](size_t i) {
    LoadedSpool one;
    one.process.file = spools[i];
    one.process.spool = SpoolReader::open(spools[i], one.why_not);
    if (!one.process.spool) return one;
    one.rest = load_spool(one.process, contents);
    one.process.spool->release();
    return one;
  };
  in_order(spools.size(), loaded, [&](size_t i, LoadedSpool one) {
    const std::filesystem::path& file = spools[i];
    if (file.parent_path() != directory) read_uncaptured(directory = file.parent_path(), trace.uncaptured);
    if (!one.process.spool) {
      trace.unreadable.push_back({file, std::move(one.why_not)});
      return;
    }
    trace.processes.push_back(std::move(one.process));
    rests.push_back(std::move(one.rest));
  });
  trace.machines = choose_clocks(trace.processes, machines);
  const auto is_first_host = [&trace](const Process& p) { return p.host == trace.processes.front().host; };
  if (!std::ranges::all_of(trace.processes, is_first_host))
    for (Process& p : trace.processes) p.told_host = p.host;
  for (size_t i = 0; i < trace.processes.size(); ++i) {
    place_in_time(trace.processes[i], rests[i]);
    rests[i] = {};  // of a run of days it is large, and there are many of them
  }
  std::ranges::stable_sort(trace.processes, {}, [](const Process& p) { return std::tuple(p.start, p.pid); });
  assign_roles(trace.processes);
  assign_endings(trace.processes);
  release_definitions(trace.processes);
  // A process that could not be captured may have been captured later, after exec.
  std::erase_if(trace.uncaptured.processes, [&trace](const Uncaptured& u) {
    return std::ranges::any_of(trace.processes, [&u](const Process& p) { return p.pid == u.pid && p.start >= u.time; });
  });
  for (const Process& p : trace.processes) {
    trace.start = &p == trace.processes.data() ? p.start : std::min(trace.start, p.start);
    trace.end = std::max(trace.end, p.end);
  }
  return trace;
}

std::vector<std::filesystem::path> find_spools(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> found;
  std::error_code error;
  std::filesystem::directory_iterator it(directory, error);
  for (; !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    if (it->path().extension() == ".spool") found.push_back(it->path());
  }
  if (error) throw Error("cannot list " + directory.string() + ": " + error.message());
  std::ranges::sort(found);
  return found;
}

}  // namespace torchprof::formats
