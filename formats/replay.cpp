#include "formats/replay.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <queue>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "formats/forward_backward.h"
#include "formats/forward_modules.h"
#include "formats/gpu_replay.h"
#include "formats/nvtx.h"
#include "formats/slice_filter.h"
#include "formats/step_tracker.h"
#include "formats/thread_stack.h"
#include "formats/track_cursor.h"

namespace torchprof::formats {
namespace {

constexpr uint32_t kFirstSyntheticTid = 1u << 30;  // above every thread id of Linux (at most 2^22)

struct Thread {
  Thread(const SpoolReader& spool, const Track& t, uint32_t r) : track(&t), row(r), cursor(spool, t) {}
  const Track* track;
  uint32_t row;
  TrackCursor cursor;
  ThreadStack stack;
  std::vector<Span> detached;                          // operators that are shown in a row of their own, still open
  std::vector<std::pair<uint32_t, int64_t>> overflow;  // rows of its own, and until when each is taken
  uint64_t last_op_key = 0;                            // of the last OpBegin
  int64_t last = 0;                                    // time of the last record
  AllocationSite site{};                               // of the memory event at `site_time`
  int64_t site_time = -1;
  bool begun = false;
  bool restating = false;  // between a PythonSync and the first record that is no PythonFrame
  size_t restated = 0;     // frames of `open_frames` that were found again
  int64_t restated_at = 0;
  struct OpenFrame {
    uint64_t id;  // of the span
    FunctionId function;
    ObjectId object;
  };
  std::vector<OpenFrame> open_frames;  // when the PythonSync came; outermost first
  // Spans that the next records state again (Restate), and the moments at which they began.
  uint32_t stated_left = 0;
  const uint64_t* stated_begins = nullptr;
  GpuCallQueue* calls = nullptr;  // null: it made none
};

// Whether the record changes what is open on its thread.
bool changes_stack(Kind kind) {
  return kind != Kind::OpInputs && kind != Kind::Collective && kind != Kind::Memory && kind != Kind::OutOfMemory &&
         kind != Kind::AllocationSite && !is_gpu(kind);
}

// Of byte counts, which may be any.
int64_t add(int64_t total, int64_t bytes) {
  int64_t sum = 0;
  return __builtin_add_overflow(total, bytes, &sum) ? 0 : std::max<int64_t>(0, sum);
}

}  // namespace

class Replay::Impl {
 public:
  explicit Impl(const Process& process) : process_(process), names_(process), steps_(process, names_) {
    for (const Track& track : process.tracks) {
      const uint32_t tid = track.tid != 0 ? track.tid : next_tid_++;
      rows_.push_back({tid, tid, track.name, track.python_name, false});
    }
    if (!process.gpu) return;
    gpu_.emplace(process, names_);
    for (const uint32_t number : gpu_->strangers()) {
      strangers_.push_back({.id = {}, .tid = number});
      rows_.push_back({number, number, {}, {}, false});
    }
  }

  ReplayStats run(Sink& sink);

  Names& names() { return names_; }
  const std::vector<Row>& rows() const { return rows_; }
  const Selection& selection() const { return process_.selection; }

 private:
  void handle(Thread& thread, const RecordView& record, int64_t t);
  void begin_thread(Thread& thread, int64_t t);
  void begin_python(Thread& thread, FunctionId function, ObjectId object, bool preexisting, int64_t t);
  void end_python(Thread& thread, FunctionId function, int64_t t);
  void begin_c_call(Thread& thread, StringId name, CallSiteId site, int64_t t);
  void end_c_call(Thread& thread, int64_t t);
  void sync_python(Thread& thread, int64_t t);
  bool is_still_open(Thread& thread, const PythonFrame& frame);
  void end_restating(Thread& thread);
  void begin_gc(Thread& thread, uint32_t generation, int64_t t);
  void end_gc(Thread& thread, const GcEnd& end, int64_t t);
  void begin_blind(const BlindBegin& begin, int64_t t);
  void end_blind(const BlindEnd& end, int64_t t);
  bool close_innermost(Thread& thread, SliceKind kind, int64_t t);
  Thread* thread_of(TrackId track, int64_t t);
  void begin_op(Thread& thread, const OpBegin& begin, int64_t t);
  void end_op(Thread& thread, uint64_t key, int64_t t);
  void end_op_here(Thread& thread, uint32_t low_key, int64_t t);
  void memory(Thread& thread, const Memory& memory, bool is_out_of_memory, int64_t t);
  bool is_mapping(const Memory& memory);
  uint64_t cpu_total(const Memory& memory, bool after_gap);
  bool end_op_elsewhere(Thread& ended_on, uint64_t key, int64_t t);
  void restate(Thread& thread, const Restate& restate, RecordHeader header);
  void end_thread(Thread& thread, int64_t t);
  void calls_until(Thread& thread, int64_t t, bool is_last);
  bool is_in_window(int64_t t);
  void finish_all(int64_t t, bool by_window);
  void finish(Thread& thread, int64_t t, bool by_window);

  void push(Thread& thread, const Span& span);
  void close_frame(Thread& thread, int32_t i, int64_t t, bool finished);
  static void end_module_call(ThreadStack& stack, int32_t i, int64_t t);
  void find_module(Span& span) const;
  void close_op(Thread& thread, int32_t i, int64_t t);
  void detach(Thread& thread, int32_t i);
  void end_detached(Thread& thread, size_t i, int64_t t, bool finished);
  uint32_t overflow_row(Thread& thread, int64_t begin, int64_t end);
  void emit(const Thread& thread, uint32_t row, const Span& span, int64_t end, bool finished);
  void took(const Thread& thread, int32_t i, const Span& span, int64_t end, bool finished);
  void emit_step(const StepTracker::Mark& mark);
  void link(const Thread& thread, uint32_t row, const Span& span);
  bool is_evaluate_function(NameId name);
  int64_t to_ns(Ticks t) const {
    return std::clamp(process_.clock.to_unix(t).value, process_.start.value, process_.end.value);
  }

  // What is open at an edge of the selection is cut there: formats/slice_filter.h leaves out what is beyond.
  int64_t shown(int64_t t) const { return std::clamp(t, process_.selection.begin, process_.selection.end); }

  const Process& process_;
  Names names_;
  std::vector<Row> rows_;
  std::vector<Thread> threads_;
  StepTracker steps_;
  ForwardBackward forward_backward_;
  ForwardModules forward_modules_;
  NvtxRanges nvtx_;
  size_t window_ = 0;  // the one that `is_begun_`, or comes next
  bool is_begun_ = false;
  std::unordered_map<uint32_t, uint32_t> last_of_tid_;  // the thread that has the row
  std::vector<int8_t> is_evaluate_;                     // by name: 1 yes, -1 no, 0 not looked at
  std::unordered_map<TrackId, size_t> index_of_track_;
  uint32_t next_tid_ = kFirstSyntheticTid;
  std::optional<int64_t> cpu_allocated_;  // none until an event says it
  std::unordered_set<uint64_t> mapped_;   // addresses of what is_mapped
  std::optional<GpuReplay> gpu_;          // none: there is no GPU
  std::vector<Track> strangers_;          // threads that only CUPTI knows
  ReplayStats stats_;
  Sink* sink_ = nullptr;
};

ReplayStats Replay::Impl::run(Sink& sink) {
  sink_ = &sink;
  threads_.reserve(process_.tracks.size() + strangers_.size());
  using Next = std::pair<Ticks, size_t>;  // time of the next record, thread
  std::priority_queue<Next, std::vector<Next>, std::greater<>> queue;
  for (const Track& track : process_.tracks) {
    const size_t i = threads_.size();
    Thread& thread = threads_.emplace_back(*process_.spool, track, static_cast<uint32_t>(i));
    if (gpu_) thread.calls = gpu_->queue_of(track.id, track.tid);
    thread.stack.min_ns = process_.selection.min_ns;
    if (!thread.cursor.done()) queue.emplace(thread.cursor.time(), i);
  }
  for (const Track& track : strangers_) {
    Thread& thread = threads_.emplace_back(*process_.spool, track, static_cast<uint32_t>(threads_.size()));
    thread.calls = gpu_->queue_of({}, track.tid);
  }
  while (!queue.empty()) {
    Thread& thread = threads_[queue.top().second];
    queue.pop();
    // Most threads run for long stretches alone: the queue is asked again only when another one is due.
    const Ticks until = queue.empty() ? Ticks{~uint64_t{0}} : queue.top().first;
    do {
      const int64_t t = to_ns(thread.cursor.time());
      if (process_.windows.empty() || is_in_window(t)) handle(thread, thread.cursor.record(), shown(t));
      thread.cursor.advance();
    } while (!thread.cursor.done() && thread.cursor.time() <= until);
    if (!thread.cursor.done()) queue.emplace(thread.cursor.time(), static_cast<size_t>(&thread - threads_.data()));
  }
  if (process_.windows.empty()) finish_all(process_.capture_end.value, false);
  if (window_ < process_.windows.size())
    finish_all(process_.windows[window_].end.value, process_.windows[window_].closed);
  if (gpu_) {
    gpu_->finish(sink);
    stats_.cut_calls = gpu_->stats().cut_calls;
    stats_.most_cut_ns = gpu_->stats().most_cut_ns;
  }
  return stats_;
}

// Closes the windows that end before `t`, with all that is open in them. False: `t` lies in none, the event was on its
// way when a window closed.
bool Replay::Impl::is_in_window(int64_t t) {
  const auto& windows = process_.windows;
  while (window_ < windows.size() && t > windows[window_].end.value) {
    finish_all(windows[window_].end.value, true);
    ++window_;
    is_begun_ = false;
  }
  if (window_ == windows.size() || t < windows[window_].begin.value) return false;
  if (!is_begun_) {
    steps_.restart(windows[window_].step);
    cpu_allocated_.reset();
    is_begun_ = true;
    if (gpu_) gpu_->window_begins(windows[window_].begin.value);
  }
  return true;
}

void Replay::Impl::handle(Thread& thread, const RecordView& record, int64_t t) {
  if (!thread.begun) [[unlikely]]
    begin_thread(thread, t);
  if (record.kind() == Kind::Restate) return restate(thread, record.as<Restate>(), record.header());
  const bool is_stated = thread.stated_left > 0;
  if (is_stated) {
    --thread.stated_left;
    // What the chunk before this one says is known from there.
    const Ticks begin{*thread.stated_begins++};
    if (thread.cursor.is_next()) return;
    t = std::max(thread.last, shown(to_ns(begin)));
  } else {
    thread.last = t;
    if (thread.calls != nullptr && thread.calls->next <= t && changes_stack(record.kind())) [[unlikely]]
      calls_until(thread, t, false);
  }
  if (thread.restating && record.kind() != Kind::PythonFrame) [[unlikely]]
    end_restating(thread);
  switch (record.kind()) {
    case Kind::PythonBegin: {
      const auto& r = record.as<PythonBegin>();
      return begin_python(thread, r.function, r.object, false, t);
    }
    case Kind::PythonFrame: {
      const auto& r = record.as<PythonFrame>();
      if (thread.restating && is_still_open(thread, r)) return;
      return begin_python(thread, r.function, r.object, !is_stated, t);
    }
    case Kind::PythonEnd:
      return end_python(thread, record.as<PythonEnd>().function, t);
    case Kind::PythonSync:
      return sync_python(thread, t);
    case Kind::CCallBegin:
      return begin_c_call(thread, record.as<CCallBegin>().name, {}, t);
    case Kind::CCallBeginAt: {
      const CallSiteId site = record.as<CCallBeginAt>().site;
      const auto& sites = process_.call_sites;
      return begin_c_call(thread, site.value < sites.size() ? sites[site.value].name : StringId{}, site, t);
    }
    case Kind::GcBegin:
      return begin_gc(thread, record.as<GcBegin>().generation, t);
    case Kind::GcEnd:
      return end_gc(thread, record.as<GcEnd>(), t);
    case Kind::BlindBegin:
      return begin_blind(record.as<BlindBegin>(), t);
    case Kind::BlindEnd:
      return end_blind(record.as<BlindEnd>(), t);
    case Kind::CCallEnd:
      return end_c_call(thread, t);
    case Kind::OpBegin:
      return begin_op(thread, record.as<OpBegin>(), t);
    case Kind::OpInputs:
      if (const int32_t top = thread.stack.top_op(); top >= 0 && thread.stack[top].key == thread.last_op_key)
        thread.stack[top].inputs = record.as<OpInputs>().inputs;
      return;
    case Kind::Collective:
      if (const int32_t top = thread.stack.top_op(); top >= 0 && thread.stack[top].key == thread.last_op_key) {
        thread.stack[top].collective = record.as<Collective>().info;
        thread.stack[top].collective_sequence = record.as<Collective>().sequence;
      }
      return;
    case Kind::NvtxInfo:
      if (const int32_t top = thread.stack.top_op();
          top >= 0 && thread.stack[top].key == thread.last_op_key && thread.stack[top].scope == OpScope::kNvtx)
        nvtx_.began(thread.last_op_key, record.as<NvtxInfo>().attributes);
      return;
    case Kind::NvtxMark: {
      const auto& r = record.as<NvtxMark>();
      return sink_->mark({.row = thread.row, .time = {t}, .name = names_.string(r.name), .attributes = r.attributes});
    }
    case Kind::Memory:
      return memory(thread, record.as<Memory>(), false, t);
    case Kind::OutOfMemory:
      static_assert(sizeof(OutOfMemory) == sizeof(Memory));
      return memory(thread, record.as<Memory>(), true, t);
    case Kind::AllocationSite:
      thread.site = record.as<AllocationSite>();
      thread.site_time = t;
      return;
    case Kind::OpEnd:
      return end_op(thread, record.as<OpEnd>().key, t);
    case Kind::OpEndHere:
      return end_op_here(thread, record.as<OpEndHere>().key, t);
    case Kind::ThreadEnd:
      return end_thread(thread, t);
    default:
      return;  // definitions: load() has them
  }
}

// The kernel gives the id of a dead thread to a new one: on one row the first must have ended before the second begins.
void Replay::Impl::begin_thread(Thread& thread, int64_t t) {
  thread.begun = true;
  Row& row = rows_[thread.row];
  const auto [it, is_first] = last_of_tid_.try_emplace(row.tid, thread.row);
  if (is_first) return;
  Thread& before = threads_[it->second];
  if (before.cursor.done()) {
    end_thread(before, t);
    it->second = thread.row;
  } else {
    row.tid = next_tid_++;
  }
}

void Replay::Impl::push(Thread& thread, const Span& span) {
  thread.stack.push(span);
  steps_.begun(thread.row, thread.stack);
}

// `span` was the one at `i` and has ended on the thread's own row.
void Replay::Impl::took(const Thread& thread, int32_t i, const Span& span, int64_t end, bool finished) {
  if (const auto mark = steps_.ended(thread.row, thread.stack, i, span, end, finished)) emit_step(*mark);
}

void Replay::Impl::emit_step(const StepTracker::Mark& mark) {
  sink_->step({.number = mark.number,
               .row = steps_.thread(),
               .begin = {mark.begin},
               .end = {mark.end},
               .external_id = ++stats_.external_ids,
               .ended_by = mark.ended_by});
}

// CUPTI's number of a thread may go to another one: what is left then belongs to the one that had it.
void Replay::Impl::calls_until(Thread& thread, int64_t t, bool is_last) {
  const auto self = static_cast<size_t>(&thread - threads_.data());
  GpuCallQueue& queue = *thread.calls;
  if (queue.owner != self && queue.owner < threads_.size()) {
    const Thread& before = threads_[queue.owner];
    if (!before.cursor.done()) return;
    gpu_->until(queue, thread.begun ? before.last : t, true, before.row, before.stack, *sink_);
  }
  queue.owner = self;
  gpu_->until(queue, t, is_last, thread.row, thread.stack, *sink_);
}

// ---- Python ----------------------------------------------------------------------------------------------

void Replay::Impl::begin_python(Thread& thread, FunctionId function, ObjectId object, bool preexisting, int64_t t) {
  Span span{.kind = SliceKind::kPython};
  span.preexisting = preexisting;
  span.name = names_.function(function, object);
  span.function = function;
  span.object = object;
  if (const ObjectDef* def = object ? names_.object(object) : nullptr;
      def != nullptr && def->kind == ObjectKind::kModule) {
    span.module = object;
    span.has_own_module = span.is_module_call = true;
  }
  span.begin = t;
  span.id = ++stats_.python_ids;
  push(thread, span);
}

void Replay::Impl::begin_c_call(Thread& thread, StringId name, CallSiteId site, int64_t t) {
  Span span{.kind = SliceKind::kCCall};
  span.name = names_.string(name);
  span.site = site;
  span.begin = t;
  span.id = ++stats_.python_ids;
  push(thread, span);
}

void Replay::Impl::end_python(Thread& thread, FunctionId function, int64_t t) {
  ThreadStack& stack = thread.stack;
  int32_t i = stack.top_python();
  while (i >= 0 && (stack[i].kind != SliceKind::kPython || stack[i].function != function)) i = stack[i].below_python;
  if (i < 0) {
    ++stats_.unmatched_ends;
    return;
  }
  while (stack.top_python() > i) {
    ++stats_.lost_ends;
    close_frame(thread, stack.top_python(), t, true);
  }
  close_frame(thread, i, t, true);
}

void Replay::Impl::end_c_call(Thread& thread, int64_t t) {
  const int32_t i = thread.stack.top_python();
  if (i >= 0 && thread.stack[i].kind == SliceKind::kCCall) {
    close_frame(thread, i, t, true);
  } else {
    ++stats_.unmatched_ends;
  }
}

void Replay::Impl::sync_python(Thread& thread, int64_t t) {
  thread.restating = true;
  thread.restated = 0;
  thread.restated_at = t;
  thread.open_frames.clear();
  for (int32_t i = thread.stack.top_python(); i >= 0; i = thread.stack[i].below_python) {
    if (thread.stack[i].kind == SliceKind::kPython)
      thread.open_frames.push_back({thread.stack[i].id, thread.stack[i].function, thread.stack[i].object});
  }
  std::ranges::reverse(thread.open_frames);
}

bool Replay::Impl::is_still_open(Thread& thread, const PythonFrame& frame) {
  if (thread.restated < thread.open_frames.size()) {
    const auto& open = thread.open_frames[thread.restated];
    if (open.function == frame.function && open.object == frame.object) {
      ++thread.restated;
      return true;
    }
  }
  end_restating(thread);
  return false;
}

// What was open above the frames that were found again has ended at an unknown time; here at the latest.
void Replay::Impl::end_restating(Thread& thread) {
  thread.restating = false;
  const uint64_t kept = thread.restated == 0 ? 0 : thread.open_frames[thread.restated - 1].id;
  for (int32_t i = thread.stack.top_python(); i >= 0 && thread.stack[i].id != kept; i = thread.stack.top_python())
    close_frame(thread, i, thread.restated_at, true);
}

// ---- the garbage collector, and other profilers ------------------------------------------------------------

bool Replay::Impl::close_innermost(Thread& thread, SliceKind kind, int64_t t) {
  ThreadStack& stack = thread.stack;
  int32_t i = stack.top_python();
  while (i >= 0 && stack[i].kind != kind) i = stack[i].below_python;
  if (i < 0) {
    ++stats_.unmatched_ends;
    return false;
  }
  while (stack.top_python() >= i) close_frame(thread, stack.top_python(), t, true);
  return true;
}

void Replay::Impl::begin_gc(Thread& thread, uint32_t generation, int64_t t) {
  Span span{.kind = SliceKind::kGc};
  span.name = names_.intern("Python GC");  // as torch.profiler calls it
  span.generation = generation;
  span.begin = t;
  span.id = ++stats_.python_ids;
  thread.stack.push(span);
}

void Replay::Impl::end_gc(Thread& thread, const GcEnd& end, int64_t t) {
  ThreadStack& stack = thread.stack;
  for (int32_t i = stack.top_python(); i >= 0; i = stack[i].below_python) {
    if (stack[i].kind != SliceKind::kGc) continue;
    stack[i].collected = end.collected;
    stack[i].uncollectable = end.uncollectable;
    break;
  }
  close_innermost(thread, SliceKind::kGc, t);
}

Thread* Replay::Impl::thread_of(TrackId track, int64_t t) {
  if (index_of_track_.empty()) {
    for (size_t i = 0; i < process_.tracks.size(); ++i) index_of_track_.emplace(process_.tracks[i].id, i);
  }
  const auto it = index_of_track_.find(track);
  if (it == index_of_track_.end()) return nullptr;
  Thread& thread = threads_[it->second];
  if (!thread.begun) begin_thread(thread, t);
  if (thread.restating) end_restating(thread);
  thread.last = std::max(thread.last, t);
  return &thread;
}

void Replay::Impl::begin_blind(const BlindBegin& begin, int64_t t) {
  Thread* thread = thread_of(begin.track, t);
  if (!thread) return;
  Span span{.kind = SliceKind::kBlind};
  span.name = names_.intern(std::string("Python calls not recorded: ").append(process_.string(begin.by)));
  span.begin = t;
  span.id = ++stats_.python_ids;
  thread->stack.push(span);
}

void Replay::Impl::end_blind(const BlindEnd& end, int64_t t) {
  if (Thread* thread = thread_of(end.track, t)) close_innermost(*thread, SliceKind::kBlind, t);
}

void Replay::Impl::end_module_call(ThreadStack& stack, int32_t i, int64_t t) {
  if (!stack[i].is_module_call) return;
  if (const int32_t caller = stack.module_call_below(i); caller >= 0)
    stack[caller].module_child_ns += t - stack[i].begin;
}

// Closes the innermost frame or C call. What is above it are operators: they begin where it ends.
void Replay::Impl::close_frame(Thread& thread, int32_t i, int64_t t, bool finished) {
  ThreadStack& stack = thread.stack;
  for (int32_t k = stack.size() - 1; k > i; --k) {
    stack.leave_inside(k);
    Span& op = stack[k];
    if (op.is_async) {
      detach(thread, k);
      continue;
    }
    // What ran inside it so far lies before its new begin.
    stack.add_child(op, op.child_ns);
    op.child_ns = 0;
    op.begin = t;
  }
  end_module_call(stack, i, t);
  const Span span = stack.take(i);
  stack.ended(span, t - span.begin);
  // They are no longer in the call of a module that ends.
  for (int32_t k = i; span.is_module_call && k < stack.size(); ++k) stack.inherit_module(k);
  emit(thread, thread.row, span, t, finished);
  took(thread, i, span, t, finished);
}

// ---- operators -------------------------------------------------------------------------------------------

bool Replay::Impl::is_evaluate_function(NameId name) {
  if (name.value >= is_evaluate_.size()) is_evaluate_.resize(names_.size() + 1);
  int8_t& known = is_evaluate_[name.value];
  if (known == 0) known = names_.text(name).starts_with(kEvaluateFunction) ? 1 : -1;
  return known > 0;
}

void Replay::Impl::begin_op(Thread& thread, const OpBegin& begin, int64_t t) {
  ThreadStack& stack = thread.stack;
  Span span{.kind = SliceKind::kOperator};
  span.is_async = begin.is_async != 0;
  span.scope = begin.scope;
  span.name = names_.operator_name(begin.name);
  span.recorded = begin.name;
  span.begin = t;
  span.id = ++stats_.external_ids;
  span.key = begin.key;
  span.handle = begin.scope == OpScope::kNvtx ? 0 : begin.handle;
  span.sequence = begin.sequence;
  span.fwd_thread = begin.fwd_thread;
  find_module(span);
  if (begin.scope == OpScope::kBackwardFunction && stack.top_op() >= 0) {
    Span& before = stack[stack.top_op()];
    if (before.key == thread.last_op_key && before.scope == OpScope::kFunction && is_evaluate_function(before.name)) {
      before.sequence = begin.sequence;
      before.fwd_thread = begin.fwd_thread;
      before.has_own_module = before.is_backward = true;
      before.module = span.module;
    }
  }
  push(thread, span);
  thread.last_op_key = begin.key;
  if (span.sequence >= 0 && span.fwd_thread == 0 && !thread.track->torch_threads.empty())
    forward_modules_.forward_began(thread.track->torch_threads.back(), span.sequence, stack[stack.size() - 1].module);
}

// A backward operator has its forward's module. AccumulateGrad has no number: it belongs to the backward of none.
void Replay::Impl::find_module(Span& span) const {
  if (span.scope != OpScope::kBackwardFunction && (span.sequence < 0 || span.fwd_thread == 0)) return;
  span.has_own_module = span.is_backward = true;
  if (span.sequence >= 0) span.module = forward_modules_.find(span.fwd_thread, span.sequence).value_or(ObjectId{});
}

void Replay::Impl::end_op(Thread& thread, uint64_t key, int64_t t) {
  const int32_t open = thread.stack.find_op(key);
  if (open >= 0 && !(thread.stack[open].is_async && thread.stack.top_op() > open)) return close_op(thread, open, t);
  if (open >= 0) detach(thread, open);
  for (size_t i = 0; i < thread.detached.size(); ++i) {
    if (thread.detached[i].key == key) return end_detached(thread, i, t, true);
  }
  if (!end_op_elsewhere(thread, key, t)) ++stats_.unmatched_ends;
}

void Replay::Impl::memory(Thread& thread, const Memory& memory, bool is_out_of_memory, int64_t t) {
  MemoryEvent event{.is_out_of_memory = is_out_of_memory,
                    .row = thread.row,
                    .time = {t},
                    .address = memory.address,
                    .bytes = memory.bytes,
                    .allocated = memory.allocated,
                    .reserved = memory.reserved,
                    .device_type = memory.device_type,
                    .device_index = memory.device_index};
  if (memory.device_type == 0 && !is_out_of_memory) {
    event.is_mapped = is_mapping(memory);
    event.allocated = event.is_mapped ? 0 : cpu_total(memory, !thread.cursor.is_next());
  }
  const ThreadStack& stack = thread.stack;
  event.stack = &stack;
  if (const int32_t op = stack.top_op(); op >= 0) {
    event.op = stack[op].name;
    event.outer_op = stack[op].outer_op;
  }
  int32_t python = stack.top_python();
  if (stack.size() > 0) event.module = stack[stack.size() - 1].module;
  while (python >= 0 && stack[python].kind != SliceKind::kPython) python = stack[python].below_python;
  if (thread.site_time == t) {
    event.function = thread.site.function;
    event.line = thread.site.line;
    thread.site_time = -1;
  } else if (python >= 0) {
    event.function = stack[python].function;
  }
  sink_->memory(event);
}

// at::MapAllocator names the size of the mapping as reserved, and when it goes no total at all (1.13 to 2.14).
bool Replay::Impl::is_mapping(const Memory& memory) {
  if (memory.reserved != 0 && memory.bytes > 0) {
    mapped_.insert(memory.address);
    return true;
  }
  if (memory.bytes > 0 || mapped_.erase(memory.address) != 0) return memory.bytes <= 0;
  return memory.allocated == 0 && cpu_allocated_ && memory.bytes != -*cpu_allocated_;  // from before the capture
}

// The CPU allocator's total after the event. It is summed up in the order of time over all threads: what the allocator
// itself says in each event is in the order in which threads took its lock. A block that was there before capture began
// may be freed in it: the sum is never negative. It begins anew where events are missing.
uint64_t Replay::Impl::cpu_total(const Memory& memory, bool after_gap) {
  const bool is_told = memory.allocated != kNoTotal;
  cpu_allocated_ = is_told && (after_gap || !cpu_allocated_)
                       ? static_cast<int64_t>(std::min<uint64_t>(memory.allocated, INT64_MAX))
                       : add(cpu_allocated_.value_or(0), memory.bytes);
  return static_cast<uint64_t>(*cpu_allocated_);
}

void Replay::Impl::end_op_here(Thread& thread, uint32_t low_key, int64_t t) {
  const auto is_it = [low_key](const Span& span) {
    return (span.key & ShortRecord::kMaxValue) == low_key && !is_nvtx_key(span.key);
  };
  int32_t i = thread.stack.top_op();
  while (i >= 0 && !is_it(thread.stack[i])) i = thread.stack[i].below_op;
  if (i >= 0) return close_op(thread, i, t);
  // The latest of those that were moved to a row of their own.
  for (size_t k = thread.detached.size(); k-- > 0;) {
    if (is_it(thread.detached[k])) return end_detached(thread, k, t, true);
  }
  ++stats_.unmatched_ends;
}

bool Replay::Impl::end_op_elsewhere(Thread& ended_on, uint64_t key, int64_t t) {
  for (Thread& other : threads_) {
    if (&other == &ended_on) continue;
    if (other.restating) end_restating(other);
    const int32_t i = other.stack.find_op(key);
    if (i >= 0 && other.calls != nullptr) calls_until(other, t, false);
    if (i >= 0) {
      if (i == other.stack.size() - 1) {
        close_op(other, i, t);
      } else {
        detach(other, i);
        end_detached(other, other.detached.size() - 1, t, true);
      }
      return true;
    }
    for (size_t i = 0; i < other.detached.size(); ++i) {
      if (other.detached[i].key != key) continue;
      end_detached(other, i, t, true);
      return true;
    }
  }
  return false;
}

void Replay::Impl::close_op(Thread& thread, int32_t i, int64_t t) {
  ThreadStack& stack = thread.stack;
  int64_t end = t;
  if (i != stack.size() - 1) {
    int32_t frame = i + 1;
    while (frame < stack.size() && stack[frame].is_op()) ++frame;
    if (frame < stack.size()) {
      end = std::max(stack[i].begin, stack[frame].begin);
      if (stack[frame].below_op == i) {
        // Operators that ran inside that frame are no longer inside this one.
        const int64_t beyond = stack[i].child_ns - stack[frame].op_child_ns;
        stack[i].child_ns -= beyond;
        stack.add_child(stack[i], beyond);
      }
    }
    for (int32_t k = frame - 1; k > i; --k) detach(thread, k);
  }
  const Span span = stack.take(i);
  stack.ended(span, end - span.begin);
  emit(thread, thread.row, span, end, true);
  link(thread, thread.row, span);
  took(thread, i, span, end, true);
}

void Replay::Impl::detach(Thread& thread, int32_t i) {
  thread.stack.leave_inside(i);
  thread.detached.push_back(thread.stack.take(i));
  steps_.detached(thread.row, i);
}

void Replay::Impl::end_detached(Thread& thread, size_t i, int64_t t, bool finished) {
  const Span span = thread.detached[i];
  thread.detached.erase(thread.detached.begin() + static_cast<ptrdiff_t>(i));
  const int64_t end = std::max(span.begin, t);
  const uint32_t row = overflow_row(thread, span.begin, end);
  emit(thread, row, span, end, finished);
  if (finished) link(thread, row, span);
}

uint32_t Replay::Impl::overflow_row(Thread& thread, int64_t begin, int64_t end) {
  for (auto& [row, taken_until] : thread.overflow) {
    if (begin < taken_until) continue;
    taken_until = end;
    return row;
  }
  const auto row = static_cast<uint32_t>(rows_.size());
  const Row& own = rows_[thread.row];
  rows_.push_back({next_tid_++, own.tid, own.thread_name, own.python_name, true});
  thread.overflow.emplace_back(row, end);
  return row;
}

void Replay::Impl::link(const Thread& thread, uint32_t row, const Span& span) {
  if (span.sequence < 0) return;
  if (span.fwd_thread > 0) {
    const auto forward = forward_backward_.backward_ended(span.fwd_thread, span.sequence);
    if (!forward) return;
    sink_->flow(
        {.id = ++stats_.flows, .from_row = forward->row, .to_row = row, .from = {forward->begin}, .to = {span.begin}});
  } else if (!thread.track->torch_threads.empty()) {
    forward_backward_.forward_ended(thread.track->torch_threads.back(), span.sequence, {span.begin, row});
  }
}

// After a gap all that is known of the thread is what its chunk says at its beginning; what was open before the gap
// ends with the last that was seen of it.
void Replay::Impl::restate(Thread& thread, const Restate& restate, RecordHeader header) {
  thread.stated_left = restate.count_of(header);
  thread.stated_begins = restate.begins();
  if (thread.cursor.is_next()) return;
  stats_.lost_ends += static_cast<uint64_t>(thread.stack.size());
  end_thread(thread, thread.last);
}

// ---- ends ------------------------------------------------------------------------------------------------

void Replay::Impl::end_thread(Thread& thread, int64_t t) {
  if (thread.restating) end_restating(thread);
  if (thread.calls != nullptr) calls_until(thread, t, true);
  ThreadStack& stack = thread.stack;
  while (stack.size() > 0) {
    const int32_t i = stack.size() - 1;
    if (!stack[i].is_op()) {
      close_frame(thread, i, t, true);
    } else if (stack[i].is_async) {
      detach(thread, i);  // may still end on another thread
    } else {
      close_op(thread, i, t);
    }
  }
  steps_.thread_ended(thread.row, t);
}

void Replay::Impl::finish_all(int64_t t, bool by_window) {
  t = shown(t);
  for (Thread& thread : threads_) finish(thread, std::max(thread.last, t), by_window);
  for (const StepTracker::Mark& mark : steps_.finish(t)) emit_step(mark);
}

// `by_window`: nothing is missing, and the step that closed the window has ended.
void Replay::Impl::finish(Thread& thread, int64_t t, bool by_window) {
  if (thread.restating) end_restating(thread);
  if (thread.calls != nullptr) calls_until(thread, t, true);
  ThreadStack& stack = thread.stack;
  while (stack.size() > 0) {
    stats_.unfinished += !by_window;
    const int32_t i = stack.size() - 1;
    const int64_t end = std::max(stack[i].begin, t);
    end_module_call(stack, i, end);
    const Span span = stack.take(i);
    stack.ended(span, end - span.begin);
    emit(thread, thread.row, span, end, false);
    took(thread, i, span, end, by_window);
  }
  steps_.thread_ended(thread.row, t);
  while (!thread.detached.empty()) {
    stats_.unfinished += !by_window;
    end_detached(thread, thread.detached.size() - 1, t, false);
  }
}

void Replay::Impl::emit(const Thread& thread, uint32_t row, const Span& span, int64_t end, bool finished) {
  const bool is_own_row = row == thread.row;
  uint64_t parent = 0;
  if (!span.is_op() && span.below_python >= 0) parent = thread.stack[span.below_python].id;
  const bool is_nvtx = span.is_op() && span.scope == OpScope::kNvtx;
  const NvtxAttributes nvtx = is_nvtx ? nvtx_.take(span.key) : NvtxAttributes{};
  // The slice is off its stack; what is below it is not.
  ObjectId calling_module;
  if (span.is_module_call) {
    int32_t i = span.below_python;
    while (i >= 0 && !thread.stack[i].is_module_call) i = thread.stack[i].below_python;
    if (i >= 0) calling_module = thread.stack[i].module;
  }
  sink_->slice({.kind = span.kind,
                .finished = finished,
                .preexisting = span.preexisting,
                .outermost = span.outermost,
                .row = row,
                .name = span.name,
                .begin = {span.begin},
                .end = {end},
                .module = span.module,
                .is_backward = span.is_backward,
                .self_ns = std::max<int64_t>(0, end - span.begin - span.child_ns),
                .own_ns = is_own_row ? std::max<int64_t>(0, end - span.begin - span.inside_ns) : 0,
                .around = is_own_row && span.below() >= 0 ? &thread.stack[0] : nullptr,
                .depth = is_own_row ? static_cast<uint32_t>(span.below() + 1) : 0,
                .python_id = span.is_op() ? 0 : span.id,
                .python_parent = parent,
                .object = span.object,
                .calling_module = calling_module,
                .module_self_ns = std::max<int64_t>(0, end - span.begin - span.module_child_ns),
                .site = span.site,
                .generation = span.generation,
                .collected = span.collected,
                .uncollectable = span.uncollectable,
                .scope = span.scope,
                .external_id = span.is_op() ? span.id : 0,
                .handle = span.handle,
                .sequence = span.sequence,
                .fwd_thread = span.fwd_thread,
                .recorded = span.recorded,
                .inputs = span.inputs,
                .collective = span.collective,
                .collective_sequence = span.collective_sequence,
                .nvtx = is_nvtx ? &nvtx : nullptr});
}

Replay::Replay(const Process& process) : impl_(std::make_unique<Impl>(process)) {}
Replay::~Replay() = default;
ReplayStats Replay::run(Sink& sink) {
  if (impl_->selection().is_all()) return impl_->run(sink);
  SliceFilter filter(impl_->selection(), impl_->rows(), sink);
  return impl_->run(filter);
}
Names& Replay::names() { return impl_->names(); }
const std::vector<Row>& Replay::rows() const { return impl_->rows(); }

}  // namespace torchprof::formats
