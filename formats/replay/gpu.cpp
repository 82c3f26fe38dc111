#include "formats/replay/gpu.h"

#include <algorithm>
#include <unordered_set>

#include "formats/gpu/cuda_api.h"
#include "formats/gpu/names.h"
#include "formats/replay/replay.h"
#include "formats/trace/windows.h"

namespace torchprof::formats {

GpuReplay::GpuReplay(const Process& process, Names& names)
    : process_(process),
      index_(*process.gpu),
      names_(names),
      by_handle_(process.meta("cupti.thread") != "system"),
      handed_out_(index_.activities().size()) {
  RecordRoom room;
  for (const auto& [thread, calls] : index_.calls()) {
    GpuCallQueue& queue = queues_[thread];
    queue.calls = &calls;
    queue.next = to_ns(index_.record<GpuApi>(calls.front(), room).start);
    const std::vector<TrackId>* tracks = by_handle_ ? index_.tracks_of(thread) : nullptr;
    for (size_t i = 0; tracks != nullptr && i < tracks->size(); ++i) handle_of_[(*tracks)[i]] = thread;
  }
}

GpuCallQueue* GpuReplay::queue_of(TrackId track, uint32_t tid) {
  uint32_t thread = tid;
  if (by_handle_ && track) {
    const auto handle = handle_of_.find(track);
    if (handle == handle_of_.end()) return nullptr;
    thread = handle->second;
  }
  const auto it = queues_.find(thread);
  return it == queues_.end() ? nullptr : &it->second;
}

std::vector<uint32_t> GpuReplay::strangers() const {
  std::unordered_set<uint32_t> known;
  for (const Track& track : process_.tracks) {
    const auto handle = handle_of_.find(track.id);
    if (!by_handle_) known.insert(track.tid);
    if (handle != handle_of_.end()) known.insert(handle->second);
  }
  std::vector<uint32_t> result;
  for (const auto& [thread, queue] : queues_)
    if (!known.contains(thread)) result.push_back(thread);
  return result;
}

int64_t GpuReplay::to_ns(uint64_t cupti) const {
  return std::clamp(index_.time().to_unix(cupti), process_.start.value, process_.end.value);
}

void GpuReplay::advance(GpuCallQueue& queue) {
  ++queue.at;
  RecordRoom room;
  const bool is_end = queue.at == queue.calls->size();
  queue.next = is_end ? kNoCall : to_ns(index_.record<GpuApi>((*queue.calls)[queue.at], room).start);
}

void GpuReplay::until(GpuCallQueue& queue, int64_t t, bool is_last, uint32_t row, const ThreadStack& stack, Sink& sink,
                      CallRanges& ranges) {
  RecordRoom room;
  while (queue.next <= t) {
    const GpuApi& api = index_.record<GpuApi>((*queue.calls)[queue.at], room);
    const int64_t begin = queue.next, end = std::max(begin, to_ns(api.end));
    if (end > t) {
      const int64_t cut = std::min(end - t, t - begin);
      if (!is_last && end - t > t - begin) {
        // Most of the call lies after `t`, so it comes later.
        queue.next = t + 1;
        if (cut > 0) ++stats_.cut_calls;
        stats_.most_cut_ns = std::max(stats_.most_cut_ns, cut);
        return;
      }
      if (!is_last) {
        ++stats_.cut_calls;
        stats_.most_cut_ns = std::max(stats_.most_cut_ns, cut);
      }
    }
    const bool is_repeated = api.api == GpuApiKind::kDriver && api.correlation == queue.last_correlation;
    if (begin >= floor_ && !is_repeated) {
      queue.last_correlation = api.correlation;
      hand_out(api, begin, std::min(end, t), row, stack, sink, ranges);
    }
    advance(queue);
  }
}

// The range that a launch of inductor's should be in, and is not; none: it needs no range.
NameId GpuReplay::missing_range(const GpuApi& api, const GpuIndex::Range& work, const ThreadStack& stack) {
  if (api.api != GpuApiKind::kDriver || work.end - work.begin != 1) return {};
  const GpuIndex::Activity& activity = index_.activities()[work.begin];
  if (activity.kind != Kind::GpuKernel) return {};
  const NameId name = name_of(activity);
  if (!names_.text(name).starts_with("triton_")) return {};
  for (int32_t i = stack.top_op(); i >= 0; i = stack[i].below_op)
    if (stack[i].name == name) return {};
  return name;
}

// From the generated module whose function is the innermost `call` on the stack.
const InductorKernel* GpuReplay::inductor_kernel(std::string_view name, const ThreadStack& stack) {
  for (int32_t i = stack.top_python(); i >= 0; i = stack[i].below_python) {
    if (stack[i].kind != SliceKind::kPython || stack[i].function.value >= process_.functions.size()) continue;
    const FunctionDef& function = process_.functions[stack[i].function.value];
    if (process_.string(function.name) != "call") continue;
    if (const InductorKernel* kernel = inductor_.find(process_.string(function.file), name)) return kernel;
  }
  return nullptr;
}

void GpuReplay::hand_out(const GpuApi& api, int64_t begin, int64_t end, uint32_t row, const ThreadStack& stack,
                         Sink& sink, CallRanges& ranges) {
  const GpuIndex::Range work = index_.of_correlation(api.correlation);
  const auto is_work = [this](size_t i) { return index_.activities()[i].kind != Kind::GpuEvent; };
  bool has_work = false;
  for (size_t i = work.begin; i < work.end; ++i) has_work = has_work || is_work(i);
  if (!is_written(api.api, api.cbid, !work.empty())) return;
  const NameId range = missing_range(api, work, stack);
  if (range) ranges.begin_range(range, inductor_kernel(names_.text(range), stack), begin);
  GpuCall call{.api = &api,
               .name = name_of(api),
               .row = row,
               .begin = {begin},
               .end = {end},
               .has_work = has_work,
               .stack = &stack,
               .op = stack.innermost_op(),
               .external_id = 0,
               .module = {},
               .is_backward = false,
               .is_recompute = false,
               .collective = {},
               .collective_sequence = -1,
               .native = {}};
  while (call.op >= 0 && is_annotation(stack[call.op].scope)) call.op = stack.op_around(call.op);
  if (call.op >= 0) {
    const Span& op = stack[call.op];
    call.external_id = op.id;
    call.collective = op.collective;
    call.collective_sequence = op.collective_sequence;
    if (has_work) call.native = op.native;
  }
  if (stack.size() > 0) {
    call.module = stack[stack.size() - 1].module;
    call.is_backward = stack[stack.size() - 1].is_backward;
    call.is_recompute = stack[stack.size() - 1].is_recompute && !call.is_backward;
  }
  sink.gpu_call(call);
  ranges.add_call(end - begin);
  for (size_t i = work.begin; i < work.end; ++i) hand_out(i, &call, sink);
  if (range) ranges.end_range(end);
}

void GpuReplay::hand_out(size_t number, const GpuCall* call, Sink& sink) {
  if (handed_out_[number]) return;
  handed_out_[number] = true;
  const GpuIndex::Activity& a = index_.activities()[number];
  GpuActivity activity{.kind = a.kind,
                       .record = nullptr,
                       .name = name_of(a),
                       .begin = {},
                       .end = {},
                       .correlation = a.correlation,
                       .device = 0,
                       .stream = kNoGpuNumber,
                       .call = call,
                       .queue_ns = 0};
  GpuSpan span = span_of(index_, a);
  RecordRoom room;
  const auto place = [&](const auto& record, uint32_t device) {
    activity.record = &record;
    activity.device = device;
    activity.stream = record.stream;
  };
  if (a.kind == Kind::GpuKernel) {
    const auto& kernel = index_.record<GpuKernel>(a, room);
    place(kernel, kernel.device);
  } else if (a.kind == Kind::GpuCopy) {
    const auto& copy = index_.record<GpuCopy>(a, room);
    place(copy, copy.device);
  } else if (a.kind == Kind::GpuSet) {
    const auto& set = index_.record<GpuSet>(a, room);
    place(set, set.device);
  } else if (a.kind == Kind::GpuSync) {
    const auto& sync = index_.record<GpuSync>(a, room);
    place(sync, index_.device_of(sync.context));
  } else {
    // If CUPTI has no device time for it, it is placed at its call; Kineto puts it at 0.
    const auto& event = index_.record<GpuEvent>(a, room);
    place(event, index_.device_of(event.context));
    if (event.device_time == 0 && call == nullptr) return;
    span.start = span.end = event.device_time != 0 ? event.device_time : call->api->start;
  }
  if (span.start == 0) return;  // the index has counted it
  activity.begin = {to_ns(span.start)};
  const int64_t last = std::min(process_.end.value, index_.next_begin(number));
  activity.end = span.end_after(activity.begin, {last});
  if (call == nullptr && !is_in_window(activity.begin.value)) return;
  if (call != nullptr && runs_on_device(a.kind)) activity.queue_ns = std::max<int64_t>(0, activity.begin - call->end);
  sink.gpu_activity(activity);
}

void GpuReplay::finish(Sink& sink) {
  for (size_t i = 0; i < handed_out_.size(); ++i) hand_out(i, nullptr, sink);
}

bool GpuReplay::is_in_window(int64_t t) const {
  if (process_.windows.empty()) return true;
  const Window* const window = window_after(process_, t - 1);  // its end belongs to it
  return window != nullptr && window->begin.value <= t;
}

template <class Make>
NameId GpuReplay::name_once(uint64_t key, Make make) {
  const auto [it, is_new] = names_by_key_.try_emplace(key);
  if (is_new) it->second = names_.intern(make());
  return it->second;
}

NameId GpuReplay::name_of(const GpuApi& api) {
  const uint64_t key = uint64_t{1} << 32 | static_cast<uint64_t>(api.api) << 16 | api.cbid;
  return name_once(key, [&api] { return cuda_api_name(api.api, api.cbid); });
}

NameId GpuReplay::name_of(const GpuIndex::Activity& a) {
  RecordRoom room;
  switch (a.kind) {
    case Kind::GpuKernel: {
      const StringId name = index_.record<GpuKernel>(a, room).name;
      return name_once(name.value, [this, name] { return kernel_name(process_.string(name)); });
    }
    case Kind::GpuCopy: {
      const auto& copy = index_.record<GpuCopy>(a, room);
      const uint64_t key =
          uint64_t{2} << 32 | uint64_t{copy.copy_kind} << 16 | uint64_t{copy.src_kind} << 8 | copy.dst_kind;
      return name_once(key, [&copy] { return copy_name(copy); });
    }
    case Kind::GpuSet: {
      const auto& set = index_.record<GpuSet>(a, room);
      return name_once(uint64_t{3} << 32 | set.memory_kind, [&set] { return set_name(set); });
    }
    case Kind::GpuSync: {
      const auto& sync = index_.record<GpuSync>(a, room);
      return name_once(uint64_t{4} << 32 | sync.type, [&sync] { return sync_name(sync); });
    }
    default:
      return name_once(uint64_t{5} << 32, [] { return std::string("cudaEvent"); });
  }
}

}  // namespace torchprof::formats
