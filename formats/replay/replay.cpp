#include "formats/replay/replay.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

#include "formats/io/sum.h"
#include "formats/replay/replay_impl.h"
#include "formats/replay/slice_filter.h"

namespace torchprof::formats {
namespace {

// Whether the record changes what is open on its thread.
bool changes_stack(Kind kind) {
  return kind != Kind::OpInputs && kind != Kind::Collective && kind != Kind::Memory && kind != Kind::OutOfMemory &&
         kind != Kind::AllocationSite && kind != Kind::NativeStack && kind != Kind::AllocationStack && !is_gpu(kind);
}

// The operator of the thread's last OpBegin, if it is the innermost open one: the records after it describe it.
Span* last_op(ReplayThread& thread) {
  const int32_t top = thread.stack.top_op();
  return top >= 0 && thread.stack[top].key == thread.last_op_key ? &thread.stack[top] : nullptr;
}

}  // namespace

Replay::Impl::Impl(const Process& process)
    : process_(process),
      names_(process),
      steps_(process, names_),
      ranges_(process),
      cpu_memory_(!process.forked_from.empty()),
      stated_(stated_in_last_window(process)) {
  for (const Track& track : process.tracks) {
    const uint32_t tid = track.tid != 0 ? track.tid : next_tid_++;
    rows_.push_back({tid, tid, track.name, track.python_name, false});
  }
  const auto add_stranger = [this](uint32_t tid) {
    strangers_.push_back({.id = {}, .tid = tid});
    rows_.push_back({tid, tid, {}, {}, false});
  };
  if (process.gpu) {
    gpu_.emplace(process, names_);
    std::ranges::for_each(gpu_->strangers(), add_stranger);
  }
  for (const StatedFrames& stated : stated_)
    if (std::ranges::find(rows_, stated.tid, &Row::tid) == rows_.end()) add_stranger(stated.tid);
}

ReplayStats Replay::Impl::run(Sink& sink) {
  sink_ = &sink;
  threads_.reserve(process_.tracks.size() + strangers_.size());
  using Next = std::pair<Ticks, size_t>;  // time of the next record, thread
  std::priority_queue<Next, std::vector<Next>, std::greater<>> queue;
  for (const Track& track : process_.tracks) {
    const size_t i = threads_.size();
    ReplayThread& thread = threads_.emplace_back(*process_.spool, track, static_cast<uint32_t>(i));
    if (gpu_) thread.calls = gpu_->queue_of(track.id, track.tid);
    thread.stack.min_ns = process_.selection.min_ns;
    if (!thread.cursor.done()) queue.emplace(thread.cursor.time(), i);
  }
  for (const Track& track : strangers_) {
    ReplayThread& thread = threads_.emplace_back(*process_.spool, track, static_cast<uint32_t>(threads_.size()));
    if (gpu_) thread.calls = gpu_->queue_of({}, track.tid);
  }
  while (!queue.empty()) {
    ReplayThread& thread = threads_[queue.top().second];
    queue.pop();
    // Mostly one thread has many records in a row: the queue is asked again only when another thread is due.
    const Ticks until = queue.empty() ? Ticks{~uint64_t{0}} : queue.top().first;
    do {
      const int64_t t = to_ns(thread.cursor.time());
      if (thread.cursor.is_first() && !thread.cursor.is_next()) thread.at_line = {};
      if (thread.cursor.record().kind() == Kind::PythonLine)
        take_line(thread, thread.cursor.record().as<PythonLine>());
      else if (process_.windows.empty() || is_in_window(t))
        handle(thread, thread.cursor.record(), t);
      thread.cursor.advance();
    } while (!thread.cursor.done() && thread.cursor.time() <= until);
    if (!thread.cursor.done()) queue.emplace(thread.cursor.time(), static_cast<size_t>(&thread - threads_.data()));
  }
  if (process_.windows.empty()) finish_all(process_.capture_end.value, false);
  // No event may have told that the last window began.
  if (!stated_.empty()) is_in_window(process_.windows.back().begin.value);
  if (window_ < process_.windows.size())
    finish_all(process_.windows[window_].end.value, process_.windows[window_].closed);
  if (gpu_) {
    gpu_->finish(sink);
    stats_.cut_calls = gpu_->stats().cut_calls;
    stats_.most_cut_ns = gpu_->stats().most_cut_ns;
  }
  return stats_;
}

// Closes the windows that end before `t`, with all that is open in them. False: `t` is in no window; the event was
// being recorded while a window closed.
bool Replay::Impl::is_in_window(int64_t t) {
  const auto& windows = process_.windows;
  while (window_ < windows.size() && t > windows[window_].end.value) {
    finish_all(windows[window_].end.value, true);
    ++window_;
    is_begun_ = false;
  }
  if (window_ == windows.size() || t < windows[window_].begin.value) return false;
  if (!is_begun_) {
    steps_.restart(windows[window_].step, windows[window_].begin.value);
    cpu_memory_.begin_window(windows[window_].number);
    python_memory_ = 0;
    is_begun_ = true;
    is_marked_ = process_.has_windows_of_steps();
    if (gpu_) gpu_->window_begins(windows[window_].begin.value);
    if (window_ + 1 == windows.size()) begin_stated(shown(windows[window_].begin.value));
  }
  return true;
}

void Replay::Impl::handle(ReplayThread& thread, const RecordView& record, int64_t recorded) {
  int64_t t = shown(recorded);
  if (!thread.begun) [[unlikely]]
    begin_thread(thread, t);
  if (is_begun_ && !is_marked_) [[unlikely]]
    mark_window(thread);
  if (record.kind() == Kind::Restate) return restate(thread, record.begins());
  const bool is_stated = !thread.stated_begins.empty();
  if (is_stated) {
    // It repeats what the chunk before this one says, if that one is here.
    const Ticks begin{thread.stated_begins.front()};
    thread.stated_begins = thread.stated_begins.subspan(1);
    if (thread.cursor.is_next()) return;
    t = std::max(thread.last, shown(to_ns(begin)));
  } else {
    thread.last = t;
    // `recorded`, not `t`: the selection's filter cuts calls at its edges, but their own time says what they are inside
    // of.
    if (thread.calls != nullptr && thread.calls->next <= recorded && changes_stack(record.kind())) [[unlikely]]
      calls_until(thread, recorded, false);
  }
  if (thread.restating && record.kind() != Kind::PythonFrame) [[unlikely]]
    end_restating(thread);
  apply(thread, record, is_stated, t);
}

// It has no time, and what it says holds on.
void Replay::Impl::take_line(ReplayThread& thread, const PythonLine& line) {
  thread.at_function = line.function;
  const uint32_t at =
      process_.has_lines(line.function) ? process_.lines[line.function.value].line_at(line.instruction) : 0;
  thread.at_line = at != 0 ? names_.place(line.function, at) : NameId{};
  // What multiprocessing gives its children with -c is not the program's.
  if (thread.at_line && !names_.is_program(thread.at_line)) thread.at_line = {};
}

NameId Replay::Impl::line_here(const ReplayThread& thread, bool is_told) const {
  int32_t i = thread.stack.top_python();
  for (; i >= 0 && thread.stack[i].kind != SliceKind::kPython; i = thread.stack[i].below_python)
    if (thread.stack[i].kind == SliceKind::kBlind) return {};
  if (i < 0) {
    const int32_t op = thread.stack.top_op();
    return op < 0 ? NameId{} : thread.stack[op].line;
  }
  const Span& frame = thread.stack[i];
  if (!frame.is_function_of_program) return frame.line;
  return is_told && thread.at_function == frame.function ? thread.at_line : NameId{};
}

void Replay::Impl::apply(ReplayThread& thread, const RecordView& record, bool is_stated, int64_t t) {
  switch (record.kind()) {
    case Kind::PythonBegin:
      return begin_python(thread, record.as<PythonBegin>().function, record.as<PythonBegin>().object, false, t);
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
      if (Span* op = last_op(thread)) op->inputs = record.as<OpInputs>().inputs;
      return;
    case Kind::Collective:
      if (Span* op = last_op(thread)) {
        op->collective = record.as<Collective>().info;
        op->collective_sequence = record.as<Collective>().sequence;
      }
      return;
    case Kind::NativeStack:
      if (Span* op = last_op(thread)) op->native = record.as<NativeStack>().innermost;
      return;
    case Kind::NvtxInfo:
      if (const Span* op = last_op(thread); op != nullptr && op->scope == OpScope::kNvtx)
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
    case Kind::AllocationStack:
      thread.native = record.as<AllocationStack>().innermost;
      return;
    case Kind::OpEnd:
      return end_op(thread, record.as<OpEnd>().key, t);
    case Kind::OpEndHere:
      return end_op_here(thread, record.as<OpEndHere>().key, t);
    case Kind::ThreadEnd:
      return end_thread(thread, t);
    default:
      return;  // definitions, which load() has read
  }
}

// The kernel gives the id of a dead thread to a new one. They share a row only if the first has ended.
void Replay::Impl::begin_thread(ReplayThread& thread, int64_t t) {
  thread.begun = true;
  Row& row = rows_[thread.row];
  const auto [it, is_first] = last_of_tid_.try_emplace(row.tid, thread.row);
  if (is_first) return;
  ReplayThread& before = threads_[it->second];
  if (before.cursor.done()) {
    end_thread(before, t);
    it->second = thread.row;
  } else {
    row.tid = next_tid_++;
  }
}

void Replay::Impl::push(ReplayThread& thread, const Span& span) {
  thread.stack.push(span);
  steps_.begun(thread.row, thread.stack);
}

// After a gap only the beginning of the chunk tells what is open on the thread. What was open before the gap ends with
// the last record before it.
void Replay::Impl::restate(ReplayThread& thread, std::span<const uint64_t> begins) {
  thread.stated_begins = begins;
  if (thread.cursor.is_next()) return;
  stats_.lost_ends += static_cast<uint64_t>(thread.stack.size());
  end_thread(thread, thread.last);
}

// ---- ends ------------------------------------------------------------------------------------------------

void Replay::Impl::end_thread(ReplayThread& thread, int64_t t) {
  if (thread.restating) end_restating(thread);
  if (thread.calls != nullptr) calls_until(thread, t, true);
  ThreadStack& stack = thread.stack;
  while (stack.size() > 0) {
    const int32_t i = stack.size() - 1;
    if (!stack[i].is_op()) {
      close_frame(thread, i, t, true);
    } else if (stack[i].is_async) {
      detach(thread, i);  // it may still end on another thread
    } else {
      close_op(thread, i, t);
    }
  }
  steps_.thread_ended(thread.row, t);
}

void Replay::Impl::finish_all(int64_t t, bool by_window) {
  t = shown(t);
  for (ReplayThread& thread : threads_) finish(thread, std::max(thread.last, t), by_window);
  for (const StepTracker::Mark& mark : steps_.finish(t)) emit_step(mark);
}

// `by_window`: a window closed it, so no record is missing, and the step that closed the window counts as ended.
void Replay::Impl::finish(ReplayThread& thread, int64_t t, bool by_window) {
  if (thread.restating) end_restating(thread);
  if (thread.calls != nullptr) calls_until(thread, t, true);
  ThreadStack& stack = thread.stack;
  while (stack.size() > 0) {
    stats_.unfinished += !by_window;
    const int32_t i = stack.size() - 1;
    const int64_t end = std::max(stack[i].begin, t);
    end_module_call(stack, i, end);
    close(thread, i, end, end, false, by_window);
  }
  steps_.thread_ended(thread.row, t);
  while (!thread.detached.empty()) {
    stats_.unfinished += !by_window;
    end_detached(thread, thread.detached.size() - 1, t, false);
  }
}

Replay::Replay(const Process& process) : impl_(std::make_unique<Impl>(process)) {}
Replay::~Replay() = default;

namespace {

// Gives each of several sinks what it is given.
class Sinks final : public Sink {
 public:
  explicit Sinks(const std::vector<Sink*>& sinks) : sinks_(sinks) {}
  void slice(const Slice& s) override { each(&Sink::slice, s); }
  void flow(const Flow& f) override { each(&Sink::flow, f); }
  void step(const StepMark& m) override { each(&Sink::step, m); }
  void memory(const MemoryEvent& e) override { each(&Sink::memory, e); }
  void python_memory(const MemoryEvent& e) override { each(&Sink::python_memory, e); }
  void gpu_call(const GpuCall& c) override { each(&Sink::gpu_call, c); }
  void gpu_activity(const GpuActivity& a) override { each(&Sink::gpu_activity, a); }
  void mark(const Mark& m) override { each(&Sink::mark, m); }

 private:
  template <class Event>
  void each(void (Sink::*take)(const Event&), const Event& event) {
    for (Sink* const sink : sinks_) (sink->*take)(event);
  }
  const std::vector<Sink*>& sinks_;
};

}  // namespace

void Replay::add(Sink& sink) { sinks_.push_back(&sink); }
ReplayStats Replay::run() {
  Sinks all(sinks_);
  Sink& sink = sinks_.size() == 1 ? *sinks_.front() : all;
  ReplayStats stats;
  if (impl_->selection().is_all()) {
    stats = impl_->run(sink);
  } else {
    SliceFilter filter(impl_->selection(), impl_->rows(), sink);
    stats = impl_->run(filter);
  }
  for (Sink* const each : sinks_) each->end();
  return stats;
}
Names& Replay::names() { return impl_->names(); }
const std::vector<Row>& Replay::rows() const { return impl_->rows(); }

}  // namespace torchprof::formats
