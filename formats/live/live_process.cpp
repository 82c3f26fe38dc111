#include "formats/live/live_process.h"

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <tuple>
#include <utility>

#include "formats/io/sum.h"
#include "formats/replay/steps.h"
#include "tracer/spool/clock.h"
#include "tracer/spool/reader.h"

namespace torchprof::formats {
namespace {

// A key of a table: what an id is of, above the id.
enum class Of : uint8_t { kFunction = 1, kObject, kName, kOthers };
constexpr uint64_t key_of(Of of, uint32_t id) { return static_cast<uint64_t>(of) << 32 | id; }
constexpr size_t kMostAsync = 4096, kMostMemories = 256;

// How long any of the intervals lasted, in ns, summed over devices. They are sorted.
template <class Intervals>
int64_t union_of(Intervals& intervals) {
  std::ranges::sort(intervals, {}, [](const auto& i) { return std::tuple(i.device, i.begin); });
  int64_t total = 0;
  uint64_t covered = 0;
  for (size_t k = 0; k < intervals.size(); ++k) {
    if (k == 0 || intervals[k].device != intervals[k - 1].device) covered = 0;
    const uint64_t begin = std::max(intervals[k].begin, covered);
    if (intervals[k].end > begin) add_to(total, static_cast<int64_t>(intervals[k].end - begin));
    covered = std::max(covered, intervals[k].end);
  }
  return total;
}

}  // namespace

uint32_t LiveProcess::Table::slot(uint64_t key) {
  if (const auto it = slots.find(key); it != slots.end()) return it->second;
  if (keys.size() >= kMostNames) key = key_of(Of::kOthers, 0);
  const auto [it, is_new] = slots.try_emplace(key, static_cast<uint32_t>(keys.size()));
  if (is_new) {
    keys.push_back(key);
    now.emplace_back();
    kept.emplace_back();
  }
  return it->second;
}

void LiveProcess::set_clock(bool is_live) {
  const FileHeader& h = tail_->header();
  const auto is_sane = [](double ns, double ticks) {
    return ticks > 0 && ns > 1e6 && ns <= ticks * kMaxTicksPerNs && ns * kMaxTicksPerNs >= ticks;
  };
  const auto rate = [&](const ClockSample& to) {
    const auto ns = static_cast<double>(to.monotonic) - static_cast<double>(h.start.monotonic);
    const auto ticks = static_cast<double>(static_cast<int64_t>(to.ticks.value - h.start.ticks.value));
    if (!is_sane(ns, ticks)) return false;
    ns_per_tick_ = h.clock == ClockSource::kTsc ? ns / ticks : 1;
    return true;
  };
  rate(tail_->latest());
  if (h.clean_exit.load(std::memory_order_acquire) == 1)  // pairs with SpoolWriter::finish()
    rate({{h.last_ticks.load(std::memory_order_relaxed)}, h.last_monotonic.load(std::memory_order_relaxed), {}});
  char host[sizeof(h.host)] = "";
  const bool is_here = is_live && gethostname(host, sizeof(host) - 1) == 0 && std::string_view(h.host) == host;
  if (!is_here) return;
  const ClockSample sample = clock::sample(h.clock == ClockSource::kTsc ? h.clock : ClockSource::kMonotonic);
  if (rate(sample)) now_ = sample.ticks.value;
}

void LiveProcess::look(bool is_live, uint64_t event_bytes) {
  now_ = 0;
  set_clock(is_live);
  const int64_t now_ns = clock::read_ns(CLOCK_MONOTONIC);
  const bool is_first = buckets_.empty() && from_ == 0;
  if (is_first && now_ != 0) from_ = std::max(now_ - std::min(now_, to_ticks(last_ns_)), header().start.ticks.value);
  tail_->look({.since = is_live ? now_ns - last_ns_ : tail_->latest().monotonic - last_ns_,
               .event_bytes = event_bytes,
               .definitions =
                   [this](const Portion& portion) {
                     names_.take(portion);
                     choose_step_source();
                     follow_windows();
                   },
               .steps = [this](const Portion& portion) { take_steps(portion); },
               .events = [this](const Portion& portion) { return take(portion); }});
  follow_windows();
  if (from_ == 0) from_ = first_record_;
  set_clock(is_live);
  const uint64_t stop = header().stop_ticks.load(std::memory_order_relaxed);
  if (now_ == 0 || stop != 0) now_ = std::max(last_record_, from_);
  if (is_live && stop == 0)
    for (auto& [track, thread] : threads_)
      if (thread.last != 0) advance(thread, now_);
  close_look();
}

void LiveProcess::close_look() {
  Bucket bucket{.ticks = now_, .operators = {}, .functions = {}};
  const auto collect = [](Table& table, std::vector<std::pair<uint32_t, Total>>& out) {
    for (uint32_t slot = 0; slot < table.now.size(); ++slot) {
      Total& now = table.now[slot];
      if (now.ticks == 0 && now.calls == 0) continue;
      table.kept[slot].ticks += now.ticks;
      table.kept[slot].calls += now.calls;
      out.emplace_back(slot, std::exchange(now, {}));
    }
  };
  collect(operators_, bucket.operators);
  collect(functions_, bucket.functions);
  bucket.busy_ns = union_of(busy_);
  busy_.clear();
  bucket.collective_ns = std::exchange(collective_ns_, 0);
  buckets_.push_back(std::move(bucket));
  if (window_ != 0) {  // a window counts as a whole
    if (buckets_.size() > 1) {
      Bucket& first = buckets_.front();
      first.ticks = now_;
      first.busy_ns += buckets_.back().busy_ns;
      first.collective_ns += buckets_.back().collective_ns;
      buckets_.resize(1);
    }
    return;
  }
  const uint64_t oldest = now_ - std::min(now_, to_ticks(last_ns_));
  while (buckets_.size() > 1 && buckets_.front().ticks <= oldest) {
    const auto take_back = [](Table& table, const auto& totals) {
      for (const auto& [slot, total] : totals) {
        table.kept[slot].ticks -= total.ticks;
        table.kept[slot].calls -= total.calls;
      }
    };
    take_back(operators_, buckets_.front().operators);
    take_back(functions_, buckets_.front().functions);
    from_ = std::max(from_, buckets_.front().ticks);
    buckets_.pop_front();
  }
}

// ---- records -----------------------------------------------------------------------------------------------

void LiveProcess::follow_windows() {
  const WindowDef& window = names_.window();
  if (window.number == 0) return;
  until_ = window.end;
  if (window.number == window_) return;
  window_ = window.number;
  from_ = window.begin;
  for (Table* table : {&operators_, &functions_})
    for (size_t slot = 0; slot < table->keys.size(); ++slot) table->now[slot] = table->kept[slot] = {};
  for (auto& [track, thread] : threads_) thread = {};
  buckets_.clear();
  busy_.clear();
  async_.clear();
  collective_ns_ = 0;
  step_end_ = 0;
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
  uint32_t restated = 0;
  while (cursor.next(record)) {
    const uint64_t t = record.time(portion.base).value;
    last_record_ = std::max(last_record_, t);
    if (first_record_ == 0) first_record_ = t;
    if (record.kind() == Kind::Restate) {
      restated = record.as<Restate>().count_of(record.header());
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
  if (is_step && is_outermost) step_ended(track, frame.object ? frame.object.value : function.value, t);
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
    case NameRole::kCollective:
      has_collectives_ = true;
      if (const uint64_t begin = std::max(op.begin, from_); t > begin) add_to(collective_ns_, to_ns(t - begin));
      return;
    case NameRole::kOptimizerStep:
      if (source_ == StepSource::kAnnotations) step_ended(track, op.name.value, t);
      return;
    case NameRole::kProfilerStep:
      if (source_ == StepSource::kMarks && t > op.begin && !has_step_records_) add_step(t - op.begin, t);
      return;
    case NameRole::kPlain:
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
    if (names_.role(name) != NameRole::kCollective) return;
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
  if (names_.has_role(NameRole::kOptimizerStep)) source = StepSource::kAnnotations;
  if (names_.has_kind(FunctionKind::kOptimizerStep)) source = StepSource::kOptimizers;
  if (names_.has_kind(FunctionKind::kProfilerStep)) source = StepSource::kProfilerCalls;
  if (names_.has_role(NameRole::kProfilerStep)) source = StepSource::kMarks;
  if (source == source_) return;
  source_ = source;
  counter_ = {};
  step_end_ = step_thread_ = 0;
}

// The times of all steps, whether a window is open or not (-w auto): no event needs to tell them.
void LiveProcess::take_steps(const Portion& portion) {
  RecordCursor cursor(portion.records);
  for (RecordView record; cursor.next(record);) {
    if (record.kind() != Kind::StepEnd) continue;
    const auto& end = record.as<StepEnd>();
    const uint64_t t = record.time(portion.base).value, begin = recorded_end_ + to_ticks(end.switching_us * 1000);
    has_step_records_ = true;
    if (recorded_end_ != 0 && t > begin && end.step == step_count_ + 1) add_step(t - begin, t);
    step_count_ = end.step;
    recorded_end_ = step_end_ = t;
  }
}

void LiveProcess::step_ended(TrackId track, uint64_t requester, uint64_t t) {
  if (has_step_records_) return;
  if (step_thread_ == 0) step_thread_ = track.value;
  if (step_thread_ != track.value) return;
  const uint64_t count = counter_.ended(requester);
  if (count < counter_.current()) return;
  if (count == counter_.current()) {  // another optimizer's part of the same step
    if (!steps_.empty() && steps_.back().first == step_end_ && t > step_end_) {
      steps_.back().second += t - step_end_;
      steps_.back().first = t;
    }
    step_end_ = t;
    return;
  }
  counter_.set(count);
  // A step that ended before the window does not say when this one began.
  if (step_end_ != 0 && step_end_ >= (window_ != 0 ? from_ : 0) && t > step_end_)
    add_step(t - step_end_, t);
  else
    ++step_count_;
  step_end_ = t;
}

void LiveProcess::add_step(uint64_t ticks, uint64_t t) {
  ++step_count_;
  steps_.emplace_back(t, ticks);
  if (steps_.size() > kMostSteps) steps_.pop_front();
}

// ---- what is shown -----------------------------------------------------------------------------------------

std::vector<LiveRow> LiveProcess::rows(const Table& table, size_t most, int64_t& all) const {
  std::vector<uint32_t> order;
  uint64_t ticks = 0;
  for (uint32_t slot = 0; slot < table.keys.size(); ++slot) {
    if (table.kept[slot].ticks == 0) continue;
    ticks += table.kept[slot].ticks;
    order.push_back(slot);
  }
  all = to_ns(ticks);
  const size_t count = std::min(most, order.size());
  std::ranges::partial_sort(order, order.begin() + static_cast<std::ptrdiff_t>(count), std::ranges::greater{},
                            [&table](uint32_t slot) { return table.kept[slot].ticks; });
  std::vector<LiveRow> out;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t key = table.keys[order[i]];
    const auto id = static_cast<uint32_t>(key);
    LiveRow row{
        .name = "all others", .self_ns = to_ns(table.kept[order[i]].ticks), .calls = table.kept[order[i]].calls};
    if (key >> 32 == static_cast<uint64_t>(Of::kFunction)) row.name = names_.text(FunctionId{id});
    if (key >> 32 == static_cast<uint64_t>(Of::kObject)) row.name = names_.text(ObjectId{id});
    if (key >> 32 == static_cast<uint64_t>(Of::kName)) row.name = names_.text(StringId{id});
    out.push_back(std::move(row));
  }
  return out;
}

LiveView LiveProcess::view(size_t most) const {
  LiveView view;
  view.rank = names_.rank();
  if (const std::string worker = names_.fact("dataloader.worker"); !worker.empty())
    if (const std::string own = std::to_string(header().pid) + '\t'; worker.starts_with(own))
      view.worker = "DataLoader worker " +
                    worker.substr(own.size(), worker.find_first_not_of("0123456789", own.size()) - own.size());
  for (const auto& [end, ticks] : steps_) view.step_ns.push_back(to_ns(ticks));
  view.steps = step_count_;
  if (!steps_.empty() || step_end_ != 0) {
    const uint64_t end = std::max(step_end_, steps_.empty() ? 0 : steps_.back().first);
    view.since_step_ns = to_ns(now_ - std::min(now_, end));
  }
  // The mean of the steps that ended in these seconds, or of the last one.
  const uint64_t since = now_ - std::min(now_, to_ticks(last_ns_));
  uint64_t ticks = 0;
  size_t steps = 0;
  for (auto it = steps_.rbegin(); it != steps_.rend() && (steps == 0 || it->first >= since); ++it, ++steps)
    ticks += it->second;
  const WindowDef &window = names_.window(), &before = names_.window_before();
  if (ticks != 0) view.steps_per_second = static_cast<double>(steps) * 1e9 / static_cast<double>(to_ns(ticks));
  if (!has_step_records_ && before.number != 0 && window.step > before.step && window.begin > before.begin) {
    const auto ns = static_cast<double>(to_ns(window.begin - before.begin));
    view.steps_per_second = static_cast<double>(window.step - before.step) * 1e9 / ns;
  }
  view.operators = rows(operators_, most, view.operator_ns);
  view.functions = rows(functions_, most, view.function_ns);
  const uint64_t end = until_ != 0 ? std::min(until_, now_) : now_;
  view.covered_ns = to_ns(end - std::min(end, from_));
  int64_t busy = 0, collective = 0;
  for (const Bucket& bucket : buckets_) add_to(busy, bucket.busy_ns), add_to(collective, bucket.collective_ns);
  if (has_gpu_ && view.covered_ns > 0)
    view.gpu_busy = std::min(1.0, static_cast<double>(busy) / static_cast<double>(view.covered_ns));
  if (has_collectives_) view.collective_ns = collective;
  for (const auto& [device, total] : memory_)
    if (total.second != 0) view.memory.push_back({device.first, device.second, static_cast<uint64_t>(total.first)});
  view.window = names_.fact("window");
  view.has_all_steps = view.window.empty() || has_step_records_;
  view.window_number = window.number;
  view.is_window_open = window.number != 0 && window.end == 0;
  view.has_stopped = header().stop_ticks.load(std::memory_order_relaxed) != 0;
  const uint64_t all = tail_->read_bytes() + tail_->skipped_bytes();
  if (all != 0) view.read_share = static_cast<double>(tail_->read_bytes()) / static_cast<double>(all);
  return view;
}

}  // namespace torchprof::formats
