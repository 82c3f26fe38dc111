// What LiveProcess makes of each record.
#include <algorithm>
#include <utility>

#include "formats/io/sum.h"
#include "formats/live/live_process.h"

namespace torchprof::formats {
namespace {

constexpr size_t kMostAsync = 4096, kMostMemories = 256;

}  // namespace

void StepSizes::add(int64_t ns) {
  const auto bound = std::ranges::lower_bound(kBounds, static_cast<double>(ns) / 1e9);
  ++counts[static_cast<size_t>(bound - kBounds.begin())];
  add_to(sum_ns, ns);
}

void LiveProcess::advance(Thread& thread, uint64_t t) {
  if (until_ != 0) t = std::min(t, until_);
  const uint64_t begin = std::max(thread.last, from_);
  if (thread.last != 0 && t > begin) {
    if (!thread.python.empty()) functions_.now[thread.python.back().slot].ticks += t - begin;
    if (!thread.ops.empty()) operators_.now[thread.ops.back().slot].ticks += t - begin;
  }
  thread.last = std::max(thread.last, t);
}

LastOp LiveProcess::take(const Portion& portion) {
  Thread& thread = threads_[portion.track.value];
  if (!portion.is_next) thread = {};
  RecordCursor cursor(portion.records, portion.last_op);
  RecordView record;
  size_t restated = 0;
  while (cursor.next(record)) {
    const uint64_t t = record.time(portion.base).value;
    last_record_ = std::max(last_record_, t);
    if (first_record_ == 0) first_record_ = t;
    if (record.kind() == Kind::Restate) {
      restated = record.begins().size();
      continue;
    }
    if (restated > 0) {
      --restated;
      if (portion.is_next) continue;
    }
    if (window_ != 0 && t < from_) continue;  // of an earlier window
    advance(thread, t);
    take_record(thread, portion.track, record, t);
  }
  return cursor.last_op();
}

void LiveProcess::take_record(Thread& thread, TrackId track, const RecordView& record, uint64_t t) {
  switch (record.kind()) {
    case Kind::PythonBegin:
    case Kind::PythonFrame: {
      const auto& begin = record.as<PythonBegin>();
      const uint64_t key =
          begin.object ? key_of(Of::kObject, begin.object.value) : key_of(Of::kFunction, begin.function.value);
      return begin_call(thread, {functions_.slot(key), begin.function, begin.object},
                        record.kind() == Kind::PythonBegin);
    }
    case Kind::PythonEnd:
      return end_python(thread, record.as<PythonEnd>().function, track, t);
    case Kind::CCallBegin:
      return begin_call(thread, {functions_.slot(key_of(Of::kName, record.as<CCallBegin>().name.value)), {}, {}}, true);
    case Kind::CCallBeginAt: {
      const StringId name = names_.callee(record.as<CCallBeginAt>().site);
      return begin_call(thread, {functions_.slot(key_of(Of::kName, name.value)), {}, {}}, true);
    }
    case Kind::CCallEnd:
      if (thread.deeper > 0)
        --thread.deeper;
      else if (!thread.python.empty() && !thread.python.back().function)
        thread.python.pop_back();
      return;
    case Kind::PythonSync:
      thread.python.clear();
      thread.deeper = 0;
      return;
    case Kind::OpBegin:
      return begin_op(thread, record.as<OpBegin>(), t, true);
    case Kind::OpEnd: {
      const uint64_t key = record.as<OpEnd>().key;
      for (size_t i = thread.ops.size(); i-- > 0;)
        if (thread.ops[i].key == key) return end_op(thread, i, track, t);
      if (const auto it = async_.find(key); it != async_.end()) {
        ended(it->second, track, t);
        async_.erase(it);
      }
      return;
    }
    case Kind::OpEndHere: {
      const uint64_t low = record.as<OpEndHere>().key;
      for (size_t i = thread.ops.size(); i-- > 0;)
        if ((thread.ops[i].key & ShortRecord::kMaxValue) == low) return end_op(thread, i, track, t);
      return;
    }
    case Kind::Memory:
      return take_memory(record.as<Memory>(), t);
    case Kind::ThreadEnd:
      thread = {};
      tail_->forget(track);
      return;
    default:
      return take_gpu(record);
  }
}

void LiveProcess::begin_call(Thread& thread, Frame frame, bool counts) {
  functions_.now[frame.slot].calls += counts;
  if (thread.python.size() < kMostOpen)
    thread.python.push_back(frame);
  else
    ++thread.deeper;
}

void LiveProcess::end_python(Thread& thread, FunctionId function, TrackId track, uint64_t t) {
  if (thread.deeper > 0) {
    --thread.deeper;
    return;
  }
  size_t i = thread.python.size();
  while (i > 0 && thread.python[i - 1].function != function) --i;
  if (i == 0) return;  // it had begun before the first look
  const Frame frame = thread.python[i - 1];
  thread.python.resize(i - 1);
  const FunctionKind kind = names_.kind(function);
  const bool is_step = (kind == FunctionKind::kOptimizerStep && source_ == StepSource::kOptimizers) ||
                       (kind == FunctionKind::kProfilerStep && source_ == StepSource::kProfilerCalls);
  const bool is_outermost = std::ranges::none_of(
      thread.python, [&](const Frame& f) { return f.function == function && f.object == frame.object; });
  if (!is_step || !is_outermost) return;
  const ObjectId stepper = names_.stepper(frame.object);
  const bool is_first = stepper && std::exchange(steps_now_[stepper], frame.object) != frame.object;
  step_ended(track, stepper ? stepper.value : function.value, t, is_first);
}

void LiveProcess::begin_op(Thread& thread, const OpBegin& op, uint64_t t, bool counts) {
  const Op open{operators_.slot(key_of(Of::kName, op.name.value)), op.name, op.key, t};
  // One that may end on another thread is around or inside of others only by chance.
  if (op.is_async != 0) {
    if (async_.size() < kMostAsync) async_[op.key] = open;
    return;
  }
  if (thread.ops.size() >= kMostOpen) return;
  operators_.now[open.slot].calls += counts;
  thread.ops.push_back(open);
}

void LiveProcess::end_op(Thread& thread, size_t i, TrackId track, uint64_t t) {
  const Op op = thread.ops[i];
  thread.ops.erase(thread.ops.begin() + static_cast<std::ptrdiff_t>(i));
  ended(op, track, t);
}

void LiveProcess::ended(const Op& op, TrackId track, uint64_t t) {
  switch (names_.role(op.name)) {
    case LiveRole::kCollective:
      has_collectives_ = true;
      if (const uint64_t begin = std::max(op.begin, from_); t > begin) add_to(collective_ns_, to_ns(t - begin));
      return;
    case LiveRole::kOptimizerStep:
      if (source_ == StepSource::kAnnotations) step_ended(track, op.name.value, t);
      return;
    case LiveRole::kProfilerStep:
      if (source_ == StepSource::kMarks && t > op.begin && !has_step_records_) add_step(t - op.begin, t);
      return;
    case LiveRole::kLoading:
      has_loading_ = true;
      if (const uint64_t begin = std::max(op.begin, from_); t > begin) add_to(loading_ns_, to_ns(t - begin));
      return;
    case LiveRole::kPlain:
      return;
  }
}

void LiveProcess::take_memory(const Memory& memory, uint64_t t) {
  const auto device = std::pair(memory.device_type, memory.device_index);
  if (memory_.size() >= kMostMemories && !memory_.contains(device)) return;
  auto& [bytes, told] = memory_.try_emplace(device, 0, 0).first->second;
  // Threads come one after the other here, so a total may be older than the one that is known.
  if (memory.allocated != kNoTotal && t >= told) {
    bytes = static_cast<int64_t>(std::min<uint64_t>(memory.allocated, INT64_MAX));
    told = t;
  } else if (told != 0) {
    bytes = std::max<int64_t>(0, sum(bytes, memory.bytes));
  }
}

void LiveProcess::take_gpu(const RecordView& record) {
  const auto add = [this](const auto& work, StringId name) {
    if (work.start == 0 || work.end <= work.start) return;
    has_gpu_ = true;
    busy_.push_back({work.device, work.start, work.end});
    if (names_.role(name) != LiveRole::kCollective) return;
    has_collectives_ = true;
    add_to(collective_ns_, static_cast<int64_t>(work.end - work.start));
  };
  if (record.kind() == Kind::GpuKernel) add(record.as<GpuKernel>(), record.as<GpuKernel>().name);
  if (record.kind() == Kind::GpuCopy) add(record.as<GpuCopy>(), {});
  if (record.kind() == Kind::GpuSet) add(record.as<GpuSet>(), {});
}

// ---- steps -------------------------------------------------------------------------------------------------

void LiveProcess::choose_step_source() {
  StepSource source = StepSource::kNone;
  if (names_.has_role(LiveRole::kOptimizerStep)) source = StepSource::kAnnotations;
  if (names_.has_kind(FunctionKind::kOptimizerStep)) source = StepSource::kOptimizers;
  if (names_.has_kind(FunctionKind::kProfilerStep)) source = StepSource::kProfilerCalls;
  if (names_.has_role(LiveRole::kProfilerStep)) source = StepSource::kMarks;
  if (source == source_) return;
  source_ = source;
  counter_.start_at(0);
  step_end_ = step_thread_ = 0;
}

// The times of all steps, whether a window is open or not (-w auto): no event needs to tell them.
void LiveProcess::take_steps(const Portion& portion) {
  RecordCursor cursor(portion.records, {}, step_count_);
  for (RecordView record; cursor.next(record);) {
    if (record.kind() == Kind::ProcessorTime) {
      const auto& used = record.as<ProcessorTime>();
      if (!used_ || used_->tid == used.tid) used_ = used;
    }
    if (record.kind() != Kind::StepEnd) continue;
    const auto& end = record.as<StepEnd>();
    const uint64_t t = record.time(portion.base).value,
                   begin = recorded_end_ + to_ticks(int64_t{end.switching_us} * 1000);
    has_step_records_ = true;
    add_to(switching_ns_, int64_t{end.switching_us} * 1000);
    if (recorded_end_ != 0 && t > begin && end.step == step_count_ + 1) add_step(t - begin, t);
    step_count_ = end.step;
    recorded_end_ = step_end_ = t;
  }
}

void LiveProcess::step_ended(TrackId track, uint64_t requester, uint64_t t, bool is_first) {
  if (has_step_records_) return;
  // Threads come one after the other here: those of the others would be counted again.
  if (step_thread_ == 0) step_thread_ = track.value;
  if (step_thread_ != track.value) return;
  switch (counter_.ended(requester, 0, 0, is_first)) {
    case StepCounter::Ended::kBehind:
      return;
    case StepCounter::Ended::kPart:
      if (!steps_.empty() && steps_.back().first == step_end_ && t > step_end_) {
        steps_.back().second += t - step_end_;
        steps_.back().first = t;
      }
      step_end_ = t;
      return;
    case StepCounter::Ended::kSplit:
      ++step_count_;  // its time is a part of that of the step before
      break;
    case StepCounter::Ended::kNew:
      break;
  }
  // A step that ended before the window does not say when this one began.
  if (step_end_ != 0 && step_end_ >= (window_ != 0 ? from_ : 0) && t > step_end_)
    add_step(t - step_end_, t);
  else
    ++step_count_;
  step_end_ = t;
}

void LiveProcess::add_step(uint64_t ticks, uint64_t t) {
  ++step_count_;
  step_sizes_.add(to_ns(ticks));
  steps_.emplace_back(t, ticks);
  if (steps_.size() > kMostSteps) steps_.pop_front();
}

}  // namespace torchprof::formats
