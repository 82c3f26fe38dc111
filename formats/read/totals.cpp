#include <algorithm>
#include <limits>
#include <span>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "formats/io/sum.h"
#include "formats/read/drawing.h"
#include "formats/read/events.h"
#include "formats/read/launches.h"
#include "formats/read/timelines.h"
#include "formats/replay/thread_stack.h"
#include "formats/trace/name_role.h"
#include "formats/trace/names.h"

namespace torchprof::formats {

uint32_t ReadEvents::row(const std::string& pid, const std::string& tid) {
  if (last_row_ < rows.size() && last_pid_ == pid && rows[last_row_].tid == tid) return last_row_;
  const auto [it, is_new] = row_ids_.try_emplace(pid + '\0' + tid, static_cast<uint32_t>(rows.size()));
  if (is_new) rows.push_back({pids(pid), tid});
  last_pid_ = pid;
  return last_row_ = it->second;
}

std::string ReadEvents::thread(uint32_t of) const {
  const auto name = row_names.find(of);
  if (name == row_names.end() || name->second.empty()) return rows[of].tid;
  std::string_view text = name->second;
  if (is_overflow(of)) text.remove_suffix(kOverlapping.size() + 2);
  constexpr std::string_view kThread = "thread ";
  return std::string(text.starts_with(kThread) ? text.substr(kThread.size()) : text);
}

bool ReadEvents::is_overflow(uint32_t of) const {
  const auto name = row_names.find(of);
  return is_ours && name != row_names.end() && name->second.ends_with(kOverlapping) &&
         name->second.size() > kOverlapping.size() + 2;
}

namespace {

// Goes through the slices of one thread, sorted by begin and then longer ones first: nesting, self times, recursion,
// and what was open at memory events.
//
// Slices may cross: ranges outlive functions, and each other (formats/replay/thread_stack.h has the rule for self
// time); other tools' slices also by what clocks are off.
class RowSweep {
 public:
  RowSweep(Collector& collector, const ReadEvents& read)
      : collector_(collector), names_(read.names), places_(read.places), launched_(read.launched) {}

  // `memory` is sorted by time, `calls` by begin and then longer ones first.
  void run(std::span<const ReadSlice> events, std::span<ReadMemory> memory, std::span<const ReadCall> calls) {
    for (const ReadSlice& e : events) {
      add_until(e.begin, memory, calls);
      if (e.is_async) {
        collector_.add(true, e.name, *names_.texts[e.name], e.begin, e.end(), 0, true);
        continue;
      }
      close_until(e.begin);
      const int64_t end = e.end();
      nests_ = nests_ && (open_.empty() || end <= open_.back().end);
      open_.push_back({&e, end});
      stack_.push(span_of(e));
    }
    add_until(std::numeric_limits<int64_t>::max(), memory, calls);
    close_until(std::numeric_limits<int64_t>::max());
  }

 private:
  struct Open {
    const ReadSlice* event;
    int64_t end;
  };

  // In a trace without our mark only the engine's functions tell the backward.
  Span span_of(const ReadSlice& e) const {
    Span span{.kind = e.is_operator ? SliceKind::kOperator : SliceKind::kPython};
    span.scope = e.is_annotation ? OpScope::kUserScope : OpScope::kFunction;
    span.name = {e.name + 1};
    span.begin = e.begin;
    span.is_module_call = is_module_call(e);
    span.is_engine = e.is_operator && role_of_name(*names_.texts[e.name]) == NameRole::kNode;
    span.is_backward = span.has_own_module = e.is_backward;
    return span;
  }

  // Takes the memory events and calls before `t`, in the order of time.
  void add_until(int64_t t, std::span<ReadMemory>& memory, std::span<const ReadCall>& calls) {
    for (;;) {
      const int64_t call = calls.empty() ? t : calls.front().begin;
      if (!memory.empty() && memory.front().change.time.value < std::min(t, sum(call, 1))) {
        name_owner(memory.front());
        memory = memory.subspan(1);
      } else if (call < t) {
        add_call(calls.front());
        calls = calls.subspan(1);
      } else {
        return;
      }
    }
  }

  void name_owner(ReadMemory& m) {
    close_until(m.change.time.value);
    MemoryOwner& owner = m.change.owner;
    bool looks_for_place = owner.place == 0, looks_for_module = true;
    for (auto it = open_.rbegin(); it != open_.rend(); ++it) {
      const ReadSlice& e = *it->event;
      if (e.is_operator) {
        if (owner.op == 0) owner.op = e.name + 1;
        if (!e.is_annotation) owner.outer_op = e.name + 1;
        if (looks_for_module && (e.is_backward || e.module != 0)) {
          looks_for_module = false;  // a backward operator has its own, or none, even inside a module's call
          owner.module = e.module;
        }
        continue;
      }
      const std::string& name = *names_.texts[e.name];
      const NameRole role = role_of_name(name);
      if (role == NameRole::kModule && looks_for_module) {
        looks_for_module = false;
        owner.module = e.name + 1;
      }
      if (!looks_for_place || name.starts_with("<built-in ")) continue;
      looks_for_place = false;
      if (role != NameRole::kModule && role != NameRole::kOptimizer) owner.place = e.name + 1;
    }
    if (m.change.is_out_of_memory) return;
    if (collector_.sampler && owner.module != 0)
      collector_.sample_module_memory(module(owner.module - 1), m.change.time.value, m.change.bytes);
    if (owner.op == 0) return;
    collector_.add_memory(owner.op - 1, m.change.time.value, m.change.bytes, m.change.device_type == 0);
    each_outermost_operator(stack_.size(), [&](uint32_t name) {
      collector_.add_memory_total(name, m.change.bytes, m.change.device_type == 0);
    });
  }

  // A call nests with slices, but for what clocks and whole microseconds are off by. What lies in a call before it (of
  // the driver in one of the runtime) is counted already.
  void add_call(const ReadCall& call) {
    close_until(call.begin);
    const int64_t begin = std::max(call.begin, calls_end_);
    const int64_t own_ns = std::max<int64_t>(0, difference(call.end, begin));
    calls_end_ = std::max(calls_end_, call.end);
    if (const int32_t around = stack_.top_op(); around >= 0)
      stack_.add_call(std::clamp<int64_t>(difference(end_of(around), begin), 0, own_ns));
    collector_.add_call(call.name, *names_.texts[call.name], call.begin, call.end, own_ns, 0);
    if (call.work_ns == 0) return;
    int32_t launcher = stack_.top_op();
    while (launcher >= 0 && !stack_[launcher].is_real_op()) launcher = stack_[launcher].below_op;
    if (launcher >= 0) collector_.add_gpu_self(event(launcher).name, call.work_ns);
    add_gpu_totals(stack_.size(), call.work_ns);
  }

  const ReadSlice& event(int32_t i) const { return *open_[static_cast<size_t>(i)].event; }
  int64_t end_of(int32_t i) const { return open_[static_cast<size_t>(i)].end; }

  // Of the first `count` slices that are open.
  template <class Visit>
  void each_outermost_operator(int32_t count, Visit visit) const {
    for (int32_t i = 0; i < count; ++i)
      if (stack_[i].is_op() && stack_[i].outermost) visit(event(i).name);
  }
  void add_gpu_totals(int32_t count, int64_t ns) {
    each_outermost_operator(count, [&](uint32_t name) { collector_.add_gpu_total(name, ns); });
  }

  // Closes what ends up to `t`, in the order of the ends.
  void close_until(int64_t t) {
    while (nests_ && !open_.empty() && open_.back().end <= t) close(open_.size() - 1);
    while (!nests_) {
      size_t first = open_.size();
      nests_ = true;
      for (size_t i = open_.size(); i-- > 0;) {
        if (open_[i].end <= t && (first == open_.size() || open_[i].end < open_[first].end)) first = i;
        nests_ = nests_ && (i == 0 || open_[i].end <= open_[i - 1].end);
      }
      if (first == open_.size()) return;
      close(first);
      if (nests_) return close_until(t);
    }
  }

  void close(size_t place) {
    const auto i = static_cast<int32_t>(place);
    const Open o = open_[place];
    const ReadSlice& e = *o.event;
    if (const auto work = e.is_operator ? launched_.find(e.external) : launched_.end(); work != launched_.end()) {
      collector_.add_gpu_self(e.name, work->second);
      add_gpu_totals(i + 1, work->second);
    }
    stack_.pass(i, o.end);
    if (is_module_call(e)) stack_.recomputed(i, e.duration);
    const int32_t caller = is_module_call(e) ? stack_.module_call_below(i) : -1;
    const Span span = stack_.take(i);
    stack_.ended(span, o.end, o.end);
    open_.erase(open_.begin() + i);
    const int64_t self_ns = std::max<int64_t>(0, difference(e.duration, span.child_ns));
    add_module(e, span, self_ns - std::min(self_ns, span.recompute_ns), caller);
    collector_.add(e.is_operator, e.name, *names_.texts[e.name], e.begin, o.end,
                   self_ns - std::min(self_ns, span.calls_ns), span.outermost);
    collector_.add_calls_in_operators(std::min(self_ns, span.calls_ns));
  }

  bool is_module_call(const ReadSlice& e) const { return !e.is_operator && places_.contains(e.name); }

  // A module's number is that of its name plus 1.
  uint32_t module(uint32_t name) {
    if (!collector_.modules.is_defined(name + 1)) {
      const auto place = places_.find(name);
      const ModulePlace& known = place == places_.end() ? ModulePlace{} : place->second;
      collector_.modules.define(name + 1, *names_.texts[name], known.path, known.root);
    }
    return name + 1;
  }

  // `caller`: index of the module's call around it; -1: none.
  void add_module(const ReadSlice& e, const Span& span, int64_t self_ns, int32_t caller) {
    if (e.is_operator) {
      if (!e.is_backward || e.module == 0) return;
      collector_.modules.backward(module(e.module - 1), self_ns);
      collector_.sample_module(e.module, e.begin, self_ns, false);
    } else if (is_module_call(e)) {
      if (caller >= 0) add_to(stack_[caller].module_child_ns, e.duration);
      const int64_t own_ns = std::max<int64_t>(0, difference(e.duration, span.module_child_ns));
      const uint32_t called_by = caller >= 0 ? module(event(caller).name) : 0;
      if (span.is_recompute)
        collector_.modules.recompute(module(e.name), called_by, own_ns);
      else
        collector_.modules.call(module(e.name), called_by, e.duration, own_ns, span.outermost);
      collector_.sample_module(module(e.name), e.begin, own_ns, !span.is_recompute);
    }
  }

  Collector& collector_;
  const Interned& names_;
  const std::unordered_map<uint32_t, ModulePlace>& places_;
  const std::unordered_map<uint32_t, int64_t>& launched_;
  ThreadStack stack_;
  std::vector<Open> open_;  // the slices of `stack_`
  bool nests_ = true;       // none ends after one that began before it
  int64_t calls_end_ = std::numeric_limits<int64_t>::min();
};

// In our traces of several processes their names are "rank 0 (python3)", in those for Perfetto "python3, rank 0". A
// file of one process may say its rank.
std::string role_of(const ReadEvents& read, std::string_view name, size_t processes) {
  constexpr std::string_view kRank = ", rank ";
  if (const size_t rank = name.find(kRank); read.is_ours && rank != name.npos) {
    const size_t digits = rank + kRank.size(),
                 end = std::min(name.find_first_not_of("0123456789", digits), name.size());
    return std::string(name.substr(rank + 2, end - rank - 2));
  }
  const size_t program = name.rfind(" (");
  if (read.is_ours && program != name.npos && name.ends_with(')')) return std::string(name.substr(0, program));
  return read.rank && processes == 1 ? "rank " + std::to_string(*read.rank) : std::string();
}

// A call of a function ends with the call around it at the latest: where its own end comes later, the profiler has
// missed that it returned (torch.profiler does so for C functions that raise). `slices` are sorted by thread, begin and
// then longer ones first.
void end_with_callers(ReadEvents& read) {
  std::vector<const ReadSlice*> open;
  uint32_t thread = UINT32_MAX;
  for (ReadSlice& s : read.slices) {
    if (s.is_operator) continue;
    if (std::exchange(thread, read.thread_rows[s.row]) != read.thread_rows[s.row]) open.clear();
    while (!open.empty() && open.back()->end() <= s.begin) open.pop_back();
    if (!open.empty() && s.end() > open.back()->end()) s.duration = difference(open.back()->end(), s.begin);
    open.push_back(&s);
  }
}

// Memory of each process, over all of its rows.
std::vector<MemoryCollector> collect_memory(ReadEvents& read) {
  std::vector<MemoryCollector> collectors(read.pids.texts.size());
  std::vector<std::unordered_set<uint64_t>> mapped(collectors.size());
  std::ranges::stable_sort(read.memory, {}, [](const ReadMemory& m) { return m.change.time; });
  for (ReadMemory& m : read.memory) {
    const uint32_t pid = read.rows[m.row].pid;
    // A mapping is marked when it is made, not when it is removed.
    if (m.change.is_mapped)
      mapped[pid].insert(m.change.address);
    else if (m.change.bytes < 0 && m.change.device_type == 0)
      m.change.is_mapped = mapped[pid].erase(m.change.address) != 0;
    collectors[pid].add(m.change);
  }
  return collectors;
}

// From the first begin to the last end of what a process and its devices did.
struct Extent {
  int64_t first = std::numeric_limits<int64_t>::max();
  int64_t last = std::numeric_limits<int64_t>::min();
  void cover(int64_t begin, int64_t end) {
    first = std::min(first, begin);
    last = std::max(last, end);
  }
  int64_t ns() const { return first <= last ? difference(last, first) : 0; }
};

std::vector<Extent> extents_of(const ReadEvents& read) {
  std::vector<Extent> extents(read.pids.texts.size());
  for (const ReadSlice& s : read.slices) extents[read.rows[s.row].pid].cover(s.begin, s.end());
  for (const ReadCall& c : read.calls) extents[read.rows[c.row].pid].cover(c.begin, c.end);
  for (const ReadWork& w : read.work) extents[w.process].cover(w.begin, w.end());
  return extents;
}

std::map<uint32_t, GpuStatistics> collect_gpu(const ReadEvents& read, const std::vector<Extent>& extents,
                                              std::vector<Collector>& collectors) {
  std::map<uint32_t, GpuCollector> gpus;
  for (const ReadWork& w : read.work) {
    collectors[w.process].sample_kernel(w.name, w.begin, w.duration);
    gpus[w.process].add({.name = w.name,
                         .device = w.device,
                         .is_kernel = w.is_kernel,
                         .begin = w.begin,
                         .end = w.end(),
                         .blocks_per_sm = w.blocks_per_sm,
                         .occupancy = w.occupancy});
  }
  std::map<uint32_t, GpuStatistics> result;
  for (auto& [process, gpu] : gpus) {
    const int64_t captured = std::max(read.has_window ? 0 : read.span_ns, extents[process].ns());
    GpuStatistics& statistics = result[process] =
        gpu.finish(captured, [&read](uint32_t name) { return std::string_view(*read.names.texts[name]); });
    for (GpuDeviceUse& use : statistics.devices)
      if (const auto name = read.device_names.find(use.device); name != read.device_names.end())
        use.name = name->second;
  }
  return result;
}

// Those of a row; all are sorted by row.
template <class Event>
std::span<Event> of_row(std::vector<Event>& events, uint32_t row) {
  // Not std::ranges::equal_range: clang 14 cannot compile libstdc++ 12's subrange.
  return {std::ranges::lower_bound(events, row, {}, &Event::row),
          std::ranges::upper_bound(events, row, {}, &Event::row)};
}

// The calls of rows on which nothing else ran.
void add_calls_elsewhere(ReadEvents& read, const std::vector<bool>& is_done, std::vector<Collector>& collectors) {
  for (size_t i = 0; i < read.calls.size();) {
    const uint32_t row = read.calls[i].row;
    const std::span<ReadCall> calls = of_row(read.calls, row);
    if (!is_done[row]) RowSweep(collectors[read.rows[row].pid], read).run({}, {}, calls);
    i += calls.size();
  }
}

// The row of the thread to which each row belongs: itself, but for those of what does not nest in a trace of ours.
std::vector<uint32_t> rows_of_threads(const ReadEvents& read) {
  std::map<std::pair<uint32_t, std::string>, uint32_t> threads;
  std::vector<uint32_t> result(read.rows.size());
  for (uint32_t row = 0; row < result.size(); ++row) {
    result[row] = row;
    if (read.is_ours && !read.is_overflow(row)) threads.try_emplace({read.rows[row].pid, read.thread(row)}, row);
  }
  for (uint32_t row = 0; row < result.size(); ++row) {
    if (!read.is_overflow(row)) continue;
    const auto thread = threads.find({read.rows[row].pid, read.thread(row)});
    if (thread != threads.end()) result[row] = thread->second;
  }
  return result;
}

std::vector<std::vector<uint32_t>> rows_by_pid(const ReadEvents& read) {
  std::vector<std::vector<uint32_t>> rows(read.pids.texts.size());
  for (uint32_t row = 0; row < read.rows.size(); ++row)
    if (read.thread_rows[row] == row) rows[read.rows[row].pid].push_back(row);
  return rows;
}

// For StepTimes::finish(). The slices must be sorted, and stay, and so must `rows` of the process.
StepTimes::Slices slices_of(const ReadEvents& read, const std::vector<uint32_t>& rows) {
  if (read.is_ours) return {};
  return [&read, &rows](int64_t begin, int64_t end) {
    uint64_t count = 0;
    for (const uint32_t row : rows) {
      const auto at = [&read, row](int64_t time) {
        return std::ranges::lower_bound(read.slices, std::pair(row, time), {}, [&read](const ReadSlice& s) {
          return std::pair(read.thread_rows[s.row], s.begin);
        });
      };
      count += static_cast<uint64_t>(at(end) - at(begin));
    }
    return count;
  };
}

// Goes through the slices, calls and steps of sorted events. Returns the interned pids in the order in which they come.
std::vector<uint32_t> sweep(ReadEvents& read, std::vector<Collector>& collectors) {
  auto& events = read.slices;
  std::vector<uint32_t> order;
  std::vector<bool> is_done(read.rows.size()), is_known(read.pids.texts.size());
  const auto came = [&](uint32_t pid) {
    if (!is_known[pid]) order.push_back(pid);
    is_known[pid] = true;
  };
  for (size_t i = 0; i < events.size();) {
    size_t end = i;
    const uint32_t row = read.thread_rows[events[i].row];
    while (end < events.size() && read.thread_rows[events[end].row] == row) ++end;
    const uint32_t pid = read.rows[row].pid;
    came(pid);
    RowSweep(collectors[pid], read)
        .run({events.data() + i, end - i}, of_row(read.memory, row), of_row(read.calls, row));
    is_done[row] = true;
    i = end;
  }
  add_calls_elsewhere(read, is_done, collectors);
  for (const ReadCall& c : read.calls) came(read.rows[c.row].pid);
  for (const ReadWork& w : read.work) came(w.process);
  for (const MadeStep& s : read.steps) collectors[s.pid].step(s.number, s.begin, s.end, s.ended_by);
  return order;
}

// Steps are known only after all slices have been seen, so samples take a second sweep.
void add_samplers(ReadEvents& read, size_t warmup, std::vector<Collector>& collectors) {
  std::vector<Collector> first(collectors.size());
  const auto rows = rows_by_pid(read);
  for (const uint32_t pid : sweep(read, first)) {
    const auto no_text = [](uint32_t) { return std::string(); };
    collectors[pid].sampler.emplace(first[pid].finish(slices_of(read, rows[pid]), {}, no_text).steps.spans, warmup);
  }
}

}  // namespace

TraceFile totals_of(ReadEvents& read, const ReadRequest& request) {
  TraceFile result;
  result.impossible = read.impossible;
  result.has_others = read.pids.has_others;
  result.unread = read.unread;
  result.unread_category = read.unread_category;
  result.is_unfinished = read.is_unfinished;
  auto& events = read.slices;
  for (ReadSlice& e : events) {
    const ReadCut cut = read.cut_of(e);
    e.begin -= cut.at_begin;
    e.duration += cut.at_begin + cut.at_end;
  }
  join_launches(read);
  read.thread_rows = rows_of_threads(read);
  std::ranges::sort(events, {},
                    [&read](const ReadSlice& e) { return std::tuple(read.thread_rows[e.row], e.begin, -e.duration); });
  end_with_callers(read);
  draw(read);
  auto& memory = read.memory;
  std::ranges::stable_sort(memory, {}, [](const ReadMemory& m) { return std::pair(m.row, m.change.time); });
  std::ranges::sort(read.calls, {}, [](const ReadCall& c) { return std::tuple(c.row, c.begin, -c.end); });
  std::vector<Collector> collectors(read.pids.texts.size());
  if (request.warmup) add_samplers(read, *request.warmup, collectors);
  const std::vector<uint32_t> order = sweep(read, collectors);
  std::vector<MemoryCollector> devices = collect_memory(read);
  const auto rows = rows_by_pid(read);
  const std::vector<Extent> extents = extents_of(read);
  std::map<uint32_t, GpuStatistics> gpu = collect_gpu(read, extents, collectors);
  for (const auto& [of, flops] : read.flops) collectors[of.first].add_flops(of.second, flops);
  for (const uint32_t pid : order) {
    const auto name = read.process_names.find(pid);
    std::vector<DeviceMemory> memory_of = devices[pid].finish([&read, pid](uint32_t id) {
      const std::string& text = *read.names.texts[id - 1];
      const auto path = role_of_name(text) == NameRole::kModule
                            ? read.module_paths.find(*read.pids.texts[pid] + '\0' + text)
                            : read.module_paths.end();
      return path == read.module_paths.end() ? text : module_text(text, path->second);
    });
    std::string command = name == read.process_names.end() ? "" : name->second;
    std::string role = role_of(read, command, order.size());
    result.processes.push_back({*read.pids.texts[pid], std::move(command), std::move(role),
                                collectors[pid].finish(slices_of(read, rows[pid]), std::move(memory_of),
                                                       [&read](uint32_t id) { return *read.names.texts[id]; })});
    Statistics& statistics = result.processes.back().statistics;
    statistics.gpu = std::move(gpu[pid]);
    for (const auto& [function, tally] : statistics.python)
      if (is_program_text(function)) statistics.own_functions.insert(function);
  }
  result.step = request.step;
  if (request.has_timelines) add_timelines(read, order, request.step, result);
  Extent whole;
  for (const uint32_t pid : order) whole.cover(extents[pid].first, extents[pid].last);
  if (!order.empty()) {
    result.start = {whole.first};
    result.wall_ns = whole.ns();
  }
  return result;
}

}  // namespace torchprof::formats
